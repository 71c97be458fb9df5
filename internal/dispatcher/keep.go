package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/crew"
)

// errLost: the batch has another owner. This one stops and tells nobody.
var errLost = errors.New("the batch has another owner")

// kept is a batch that runs here, with the delivery by which this dispatcher keeps it.
type kept struct {
	key  toolyard.BatchKey
	log  *slog.Logger
	idle atomic.Bool // the batch is open and has nothing to do
	// trial is for its runner; nil: it is no suspect.
	trial *trial

	mu  sync.Mutex // of sub
	sub *broker.Submission
}

// submission is the delivery by which this dispatcher keeps the batch.
func (k *kept) submission() *broker.Submission {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sub
}

// redeliver takes a new delivery of the message by which the batch is kept. Another message (a wake, of a batch
// that runs or is being parked) is given back, and looked at again after a pause.
func (k *kept) redeliver(sub *broker.Submission) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if sub.Seq == k.sub.Seq {
		if !sub.Follows(k.sub) {
			sub.Suspect()
		}
		k.sub = sub
		return
	}
	if err := sub.Return(wakePause(sub.Deliveries)); err != nil {
		k.log.Warn("a wake was not given back; it is delivered again when its wait is over", "error", err)
	}
}

// wakePause is how long a wake waits that was given back: short at first, because a batch that is being parked is
// woken soon, and longer for one that goes on running.
func wakePause(deliveries uint64) time.Duration {
	return min(50*time.Millisecond<<min(deliveries, 10), 10*time.Second)
}

// unfollow stops a feed of the batch.
func (k *kept) unfollow(feed broker.Feed) {
	if err := feed.Stop(); err != nil {
		k.log.Warn("a batch's feed was not stopped", "error", err)
	}
}

// keepAlive keeps the delivery alive until stop is called, whatever the runner is waiting for. The context that it
// returns ends then. When no answer comes, the next append finds out whose the batch is.
func (k *kept) keepAlive(ctx context.Context, wait time.Duration) (running context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	silence := crew.Every(broker.Heartbeat(wait), func() {
		if k.idle.Load() { // there are many of these, and nothing runs that an answer would keep safe
			k.hold(ctx)
			return
		}
		telling.Go(func() {
			alive, cancel := context.WithTimeout(ctx, broker.Lease(wait))
			defer cancel()
			if err := k.submission().Alive(alive); err != nil && ctx.Err() == nil {
				k.log.Info("the submission could not be kept", "error", err)
			}
		})
	})
	return ctx, func() {
		cancel()
		silence()
		telling.Wait()
	}
}

// hold is what keepAlive does for a batch that is idle.
func (k *kept) hold(ctx context.Context) {
	if err := k.submission().Hold(); err != nil && ctx.Err() == nil {
		k.log.Info("the submission could not be kept", "error", err)
	}
}
