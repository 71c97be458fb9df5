package dispatcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/ticket"
)

// An open batch that is idle rests after a while: its owner drops the state and the machine, and keeps the delivery,
// the feed and what stands here. It reads the log again when something comes, and goes on if it still owns the batch.
// See docs/adr/0077-an-idle-batch-rests.md.

// maxRestingCalls is how many calls a batch that rests may have: each of them may be a read of the log when it goes on.
const maxRestingCalls = 32

// restRoom is how many live copies wait in the feed of a batch that rests: the first has it go on.
const restRoom = 1

// maxRestReads is how many batches that rest are read at a time. The others are read a heartbeat later: thousands that
// are due at once would have thousands of goroutines wait for the server.
const maxRestReads = 64

// resting is what the owner of a batch that rests knows beside the log.
type resting struct {
	d    *Dispatcher
	k    *kept
	feed broker.Feed
	// batch, control and input are the last sequences of the chains that the owner knows.
	batch, control, input uint64
	// due is when the machine has something to decide, and lastNews when the log last said anything.
	due, lastNews time.Time
	// workspace is the batch's, where a ticket of held is none that its owner needs.
	workspace toolyard.Workspace
	held      ticket.Holder
	// news gets what a reading of the log finds. reads says that one has begun whose news was not taken.
	news    chan bool
	reads   bool
	reading sync.WaitGroup
	// woken is the live copy that has ended the rest; nil: none has.
	woken *broker.LiveMsg

	trace           batchTrace
	surface         *registry.Surface
	adopted         bool
	queueReconnects *uint64
	budget          budget
}

// rest returns what is kept of the batch while it rests; nil if it must not rest yet. Its feed has begun, and what came
// before that was read.
func (r *runner) rest(ctx context.Context) (*resting, error) {
	s := r.m.State()
	if time.Since(r.lastNews) < r.d.cfg.RestAfter || len(s.Calls) > maxRestingCalls || !r.besides.done() {
		return nil, nil
	}
	feed, err := r.d.b.FollowEvents(r.key, restRoom)
	if err != nil {
		return nil, err
	}
	news, err := r.d.said(ctx, s)
	if err != nil || len(news) > 0 { // the runner gets it from its own feed, or reads it
		r.unfollow(feed)
		r.lastNews = time.Time{}
		return nil, err
	}
	return &resting{
		d: r.d, k: r.kept, feed: feed, news: make(chan bool, 1),
		batch: s.BatchSeq, control: s.ControlSeq, input: s.InputSeq, due: r.m.Wake(), lastNews: time.Now(),
		workspace: s.Plan.Workspace, held: holder(s, len(s.Plan.Groups)-1),
		trace: r.trace, surface: r.surface, adopted: r.adopted, queueReconnects: r.queueReconnects, budget: r.budget,
	}, nil
}

// wait waits until the batch is to go on, or is not to be run any more. It keeps the delivery alive meanwhile. There
// may be thousands of batches here: what needs much of the stack is in what this calls.
func (rest *resting) wait(ctx context.Context) {
	rest.k.hold(ctx) // the last time may be nearly a heartbeat ago
	beat := time.NewTimer(rest.untilBeat())
	defer beat.Stop()
	for over := false; !over; {
		select {
		case <-ctx.Done():
			return
		case rest.woken = <-rest.feed.Copies():
			return
		case over = <-rest.news:
			rest.reads = false
		case <-beat.C:
			over = rest.beat(ctx)
			beat.Reset(rest.untilBeat())
		}
	}
}

// untilBeat is how long it is until the next beat: a little late rather than early.
func (rest *resting) untilBeat() time.Duration {
	return max(min(broker.Heartbeat(rest.d.b.Settings().BatchAckWait), time.Until(rest.due)), time.Millisecond)
}

// beat reports whether the batch is to go on, because of the time or of a ticket that came too late. If the feed may
// have lost something, the log is read.
func (rest *resting) beat(ctx context.Context) (due bool) {
	rest.k.hold(ctx)
	if rest.feed.Lost() {
		rest.lastNews = time.Time{}
	}
	if time.Since(rest.lastNews) >= rereadIdle && rest.read(ctx) {
		rest.lastNews = time.Now()
	}
	return time.Until(rest.due) <= 0 || rest.d.locks.InQueue(rest.workspace, rest.held)
}

// read has news tell whether the log has a cancel, an interrupt or a call that the owner does not know, or cannot be
// read. It reads in another goroutine, whose stack fits. The batch's own chain is read when the batch goes on.
func (rest *resting) read(ctx context.Context) (begun bool) {
	if rest.reads {
		return false
	}
	select {
	case rest.d.restReads <- struct{}{}:
	default: // at another beat
		return false
	}
	rest.reads = true
	rest.d.crew.Run(&rest.reading, func() {
		var records []batch.Record
		var err error
		defer func() { <-rest.d.restReads }()
		defer func() { rest.news <- err != nil || len(records) > 0 }()
		defer rest.k.caught(&err)
		records, err = rest.d.said(ctx, &batch.State{Key: rest.k.key, Plan: &events.Planned{},
			ControlSeq: rest.control, InputSeq: rest.input})
	})
	return true
}

// end ends what goes on while the batch rests.
func (rest *resting) end() {
	rest.k.unfollow(rest.feed)
	rest.reading.Wait()
}

// wake reads a batch that has rested. Its events are read as for a takeover, but the owner is the same: if the batch's
// own chain has gone on, there is another.
func (d *Dispatcher) wake(ctx context.Context, k *kept, rest *resting) (*owned, error) {
	s, err := d.b.Resume(ctx, k.key)
	if errors.Is(err, events.ErrNewer) { // of the next owner, or of others
		next, unread := d.b.Newer(ctx, &batch.State{Key: k.key, BatchSeq: rest.batch}, batch.ChainBatch, 0)
		if len(next) > 0 || errors.Is(unread, events.ErrNewer) {
			return nil, errLost
		}
	}
	if err != nil {
		return nil, err
	}
	if s.BatchSeq != rest.batch {
		return nil, errLost
	}
	if s.Refused != nil || s.Completed { // it was given up
		return nil, d.leaveAndDone(ctx, k, &s)
	}
	return &owned{state: s, surface: rest.surface, known: true, trace: rest.trace, rested: rest}, nil
}

// goOn takes over what the owner knew before the batch rested.
func (r *runner) goOn(rest *resting) {
	r.adopted, r.queueReconnects, r.budget, r.indexed = rest.adopted, rest.queueReconnects, rest.budget, true
}
