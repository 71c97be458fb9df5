package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/version"
)

// A batch about which a newer version has written what this one does not know (its submission, an event, its session,
// its workspace's queue) is left to a dispatcher of that version: it is given back, again and again, for as long as it
// lives. It is never ended here.

const (
	// retryNewerAfter is how long it is taken for granted that a batch is still not for this version: what stood in the
	// way may go.
	retryNewerAfter = 5 * time.Second
	// newerKeptFor is how long a batch that was left counts as waiting for a newer dispatcher, if it is not handed out
	// here again.
	newerKeptFor = time.Minute
	// logNewerEvery is how often the log says that batches are left for one reason.
	logNewerEvery = time.Minute
	// maxNewerReasons is how many reasons are told apart.
	maxNewerReasons = 100
)

// newerBatches are the batches that this dispatcher has left to newer ones.
type newerBatches struct {
	mu   sync.Mutex
	seen map[toolyard.BatchKey]time.Time // when it was last looked at
	told map[string]time.Time            // by reason
}

// seenRecently reports whether a batch was left a moment ago.
func (l *newerBatches) seenRecently(k toolyard.BatchKey, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.seen[k]
	return ok && now.Sub(at) < retryNewerAfter
}

// add notes that a batch was left. It returns how many are, of all agents and of this batch's.
func (l *newerBatches) add(k toolyard.BatchKey, now time.Time) (all, agents int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[toolyard.BatchKey]time.Time{}
	}
	l.seen[k] = now
	for other, at := range l.seen {
		if now.Sub(at) > newerKeptFor {
			delete(l.seen, other)
		} else if other.Agent == k.Agent {
			agents++
		}
	}
	return len(l.seen), agents
}

// remove takes out a batch that was answered.
func (l *newerBatches) remove(k toolyard.BatchKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, k)
}

// shouldLog reports whether it is time to log why batches are left.
func (l *newerBatches) shouldLog(reason string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil || len(l.told) >= maxNewerReasons {
		l.told = map[string]time.Time{}
	}
	if at, ok := l.told[reason]; ok && now.Sub(at) < logNewerEvery {
		return false
	}
	l.told[reason] = now
	return true
}

// leaveToNewer gives a batch back for a newer dispatcher, unless it has its last reply.
func (d *Dispatcher) leaveToNewer(ctx context.Context, k *kept, why error) {
	sub := k.submission()
	if over, err := d.finishReplied(ctx, k); err != nil {
		k.log.Warn("it cannot be told whether the batch is over; it is looked at again", "error", err)
	} else if over {
		return
	}
	all, agents := d.newer.add(k.key, time.Now())
	d.logNewer(why, all)
	k.log.Info("left the batch to a newer dispatcher", "deliveries", sub.Deliveries, "error", why)
	if all > d.cfg.MaxWaiting || agents > d.cfg.MaxAgentWaiting {
		switch done, err := d.refuseNewer(ctx, sub); {
		case done:
			d.newer.remove(k.key)
			return
		case err != nil:
			k.log.Warn("a batch could not be refused; it is looked at again", "error", err)
		}
	}
	d.giveBack(sub)
}

// finishReplied finishes a batch that has its last reply, whose owner died before it could. Whatever a newer
// version wrote about it, nothing of it runs any more.
func (d *Dispatcher) finishReplied(ctx context.Context, k *kept) (over bool, err error) {
	replied := batch.State{Key: k.key}
	if err := d.b.CatchUp(ctx, &replied, batch.ChainReply, 0); errors.Is(err, events.ErrNewer) {
		return false, nil
	} else if err != nil || !replied.Completed && replied.Refused == nil {
		return false, err
	}
	s, err := k.submission().Read(ctx)
	if err == nil {
		err = errors.Join(d.locks.ReleaseAll(ctx, s.Submission.Workspace, k.key),
			d.abandonBudget(ctx, k.key, s.Submission))
	}
	if err != nil && !errors.Is(err, events.ErrNewer) { // who waits for the workspace sweeps it then
		return false, err
	}
	return true, k.submission().Done(ctx)
}

func (d *Dispatcher) giveBack(sub *broker.Submission) {
	if err := sub.Return(broker.NewerPause(sub.Deliveries)); err != nil {
		d.log.Warn("a submission was not given back; it is delivered again when its wait is over",
			"batch", sub.Key, "error", err)
	}
}

// logNewer logs why batches are left, at most once a minute for each reason.
func (d *Dispatcher) logNewer(why error, batches int) {
	reason, says := "a key", []any{"error", why}
	if e, ok := errors.AsType[*events.NewerError](why); ok {
		says = []any{"type", e.Type, "wire_version", e.Needs()}
		reason = fmt.Sprint(says...)
	}
	if d.newer.shouldLog(reason, time.Now()) {
		says = append(says, "own_wire_version", version.Wire, "batches", batches)
		d.log.Warn("what a newer version wrote is left to a dispatcher of that version; start one", says...)
	}
}

// refuseNewer refuses a submission that only a newer version can read, when too many wait for one already: each
// counts against [broker.MaxOpenSubmissions]. A batch that is under way is not refused.
func (d *Dispatcher) refuseNewer(ctx context.Context, sub *broker.Submission) (done bool, err error) {
	if _, err := sub.Read(ctx); !errors.Is(err, events.ErrNewer) || sub.Parked != 0 {
		return false, nil
	}
	err = sub.TurnAway(ctx, events.Refused{
		Type: "about:blank", Title: "Service Unavailable", Status: statusUnavailable, Detail: fmt.Sprintf(
			"only a newer version of Toolyard can read the batch, no dispatcher of that version has taken it, "+
				"and %d of an agent or %d in all wait for one, which is the limit (--max-agent-waiting, "+
				"--max-waiting). "+
				"Nothing of it ran: try again when one runs, under a new id", d.cfg.MaxAgentWaiting, d.cfg.MaxWaiting),
	})
	if errors.Is(err, broker.ErrConflict) { // a newer one has it
		return false, nil
	}
	if err == nil {
		d.cfg.Meter.Refused(statusUnavailable)
	}
	return err == nil, err
}
