package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
)

// listApproval puts a call on the list of those that wait for a person, or takes it off. A call that stays on it
// too long does no harm: its own chain says that it no longer waits. Before one is taken off, a parked batch is
// woken: this may be a former owner, which has answered a call of a batch that the next owner has parked, and
// nobody would look at that batch again.
func (r *runner) listApproval(ctx context.Context, e batch.ListApproval) error {
	if e.Remove {
		_, err := r.d.b.WakeIfParked(ctx, r.key)
		if err == nil {
			err = r.d.b.DropApproval(ctx, r.key, e.Index, r.m.State().Calls[e.Index].AskedAt)
		}
		if err != nil {
			r.log.Warn("a call stays on the list of those that wait for a person", "call", e.Index, "error", err)
		}
		return nil
	}
	s := r.m.State()
	c, p := s.Calls[e.Index], s.Plan.Calls[e.Index]
	return broker.RetryFull(ctx, r.log, func() error {
		return r.d.b.PutApproval(ctx, broker.Approval{
			Agent: r.key.Agent, Batch: r.key.ID, Index: e.Index, Session: s.Plan.Session, Workspace: s.Plan.Workspace,
			CallID: p.ID, Tool: p.Tool, Waiting: *c.Asked, AskedAt: c.AskedAt, Expires: r.m.ApprovalEnd(e.Index),
		})
	})
}

// park releases a batch that is parked in the log. It looks for events that were stored meanwhile, because their
// writer may have looked before the batch was parked and not have woken it. Such a batch is woken and not adopted
// here: the message by which it was kept may be acknowledged by any dispatcher that gets it.
func (r *runner) park(ctx context.Context) error {
	news, err := r.haveNews(ctx)
	if err == nil && news {
		_, err = r.d.b.WakeIfParked(ctx, r.key)
	}
	if err != nil {
		return err
	}
	r.indexNow(ctx)
	r.log.Info("the batch waits for a person", "calls", len(r.m.InFlight()))
	return r.submission().Done(ctx)
}

// haveNews reports whether the log has a decision, a cancel or an interrupt that this owner does not know.
func (r *runner) haveNews(ctx context.Context) (bool, error) {
	s := r.m.State()
	news, err := r.d.b.Newer(ctx, s, batch.ChainControl, 0)
	for i := range s.Calls {
		if err != nil || len(news) > 0 {
			break
		}
		if s.Calls[i].Status == batch.Waiting {
			news, err = r.d.b.Newer(ctx, s, batch.ChainItem, i)
		}
	}
	return len(news) > 0, err
}

// supersede ends the calls that wait for a person, of a session's batches that came before a batch. This may be late:
// the batch waited for its turn, or this dispatcher stood still and another has planned it.
func (d *Dispatcher) supersede(ctx context.Context, s *batch.State) error {
	_, err := approval.Supersede(ctx, d.b, s.Key.Agent, s.Submission.Session, "batch "+string(s.Key.ID),
		fmt.Sprintf("batch %q came", s.Key.ID), func(k toolyard.BatchKey) (bool, error) {
			if k.ID == s.Key.ID {
				return false, nil
			}
			other, err := d.b.Look(ctx, k)
			switch {
			case errors.Is(err, broker.ErrNoBatch):
				return false, nil
			case permanent(err): // whoever owns it gives it up
				d.log.Warn("a batch of the session cannot be read; what waits in it is not superseded", "batch", k,
					"by", s.Key, "error", err)
				return false, nil
			}
			return err == nil && !other.SubmittedAt.After(s.SubmittedAt), err
		})
	return err
}

// The rhythm of looking after batches that wait for people.
const (
	expireEvery  = time.Second      // which requests have expired
	missedEvery  = 30 * time.Second // whether a decision's wake was lost
	wakeAgain    = 5 * time.Second  // how long a wake has to be acted on
	missedAtOnce = 256              // requests that are looked at in one round, before changes of the list are heard
	lookWithin   = 5 * time.Second  // how long one request is looked after; then its shard is away for a while
	sayAgain     = time.Hour        // how often the log says that a request cannot be looked after
)

// approvalWatch knows the calls that wait for people, from the list of approvals.
type approvalWatch struct {
	d     *Dispatcher
	calls map[string]*waitingCall
	away  awayShards
}

type waitingCall struct {
	broker.Approval
	shard int
	lookedAfter
}

// lookedAfter is how far a call that waits has been looked after.
type lookedAfter struct {
	woken   time.Time // when a wake was sent last
	checked time.Time // when the log was last looked at
	// pause is how long it is left since it could not be read or woken, which is until again; 0 where it could.
	pause time.Duration
	again time.Time
	// said is what the log has said of that, and saidAt when.
	said   string
	saidAt time.Time
}

// watchApprovals wakes the batches whose requests expire, and those whose wake was lost, until ctx ends.
func (d *Dispatcher) watchApprovals(ctx context.Context) error {
	w := approvalWatch{d: d, calls: map[string]*waitingCall{}, away: awayShards{}}
	changes := make(chan broker.ApprovalChange, missedAtOnce)
	failed := make(chan error, 1)
	go func() {
		failed <- d.b.WatchApprovals(ctx, func(c broker.ApprovalChange) {
			select {
			case changes <- c:
			case <-ctx.Done():
			}
		})
	}()
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-failed:
			return err
		case c := <-changes:
			w.hear(c)
		case <-tick.C:
			for w.wakeDue(ctx, time.Now()) && len(failed) == 0 {
				for range len(changes) { // many may be decided, or woken by another dispatcher, meanwhile
					w.hear(<-changes)
				}
			}
		}
	}
}

// hear takes in a change of the list.
func (w *approvalWatch) hear(c broker.ApprovalChange) {
	if c.Approval == nil {
		delete(w.calls, c.ID)
		return
	}
	listed := &waitingCall{Approval: *c.Approval, shard: c.Shard, lookedAfter: lookedAfter{checked: time.Now()}}
	// an owner has listed it again: that is no reason to be woken again at once
	if before, ok := w.calls[c.ID]; ok {
		listed.lookedAfter = before.lookedAfter
	}
	w.calls[c.ID] = listed
}

// wakeDue wakes the batches that are due, in one round. more says that others are due that have expired.
func (w *approvalWatch) wakeDue(ctx context.Context, now time.Time) (more bool) {
	var expired, missed []*waitingCall
	for _, c := range w.calls {
		switch {
		case now.Before(c.again), w.away.has(c.shard):
		case !w.d.clock.at(now).Before(c.Expires) && now.Sub(c.woken) >= wakeAgain:
			expired = append(expired, c)
		case now.Sub(c.checked) >= missedEvery:
			missed = append(missed, c)
		}
	}
	more = len(expired) > missedAtOnce
	slices.SortFunc(expired, func(a, b *waitingCall) int { return a.checked.Compare(b.checked) })
	expired = expired[:min(len(expired), missedAtOnce)]
	for i, c := range slices.Concat(expired, missed[:min(len(missed), missedAtOnce-len(expired))]) {
		if ctx.Err() != nil {
			return false
		}
		if w.away.has(c.shard) {
			continue
		}
		looking, cancel := context.WithTimeout(ctx, lookWithin)
		w.lookAfter(looking, c, i < len(expired), now)
		if errors.Is(looking.Err(), context.DeadlineExceeded) { // so it would be with the others of the shard
			w.away.add(c.shard)
		}
		cancel()
	}
	return more
}

// lookAfter wakes the batch of a call that has expired, or whose decision woke nobody.
func (w *approvalWatch) lookAfter(ctx context.Context, c *waitingCall, expired bool, now time.Time) {
	c.checked = now
	_, _, err := w.d.b.Asked(ctx, c.Key(), c.Index)
	decided := errors.Is(err, broker.ErrNoApproval)
	if err != nil && !decided {
		w.failed(ctx, c, "a call that waits for a person cannot be read", err, now)
		return
	}
	if !expired && !decided {
		if cancelled, err := w.d.b.Controlled(ctx, c.Key()); err != nil || !cancelled {
			c.succeeded()
			return
		}
	}
	c.woken = now
	_, err = w.d.b.WakeIfParked(ctx, c.Key())
	// the list is late; whoever owns the batch, or is woken for it, finds the decision in the log
	if err == nil && decided {
		err = w.d.b.DropApproval(ctx, c.Key(), c.Index, c.AskedAt)
	}
	if err != nil {
		w.failed(ctx, c, "a batch that waits for a person was not woken; it is tried again", err, now)
		c.checked = c.again.Add(-missedEvery)
		return
	}
	c.succeeded()
}

// succeeded notes that a call could be looked after.
func (l *lookedAfter) succeeded() { l.pause, l.again, l.said = 0, time.Time{}, "" }

// failed notes that a call could not be looked after. It is left for a while, which is longer each time: it may stay
// on the list for days. That a stream is full passes.
func (w *approvalWatch) failed(ctx context.Context, c *waitingCall, what string, err error, now time.Time) {
	c.pause = min(max(wakeAgain, 2*c.pause), missedEvery)
	if errors.Is(err, broker.ErrFull) {
		c.pause = wakeAgain
	}
	c.again = now.Add(c.pause)
	level := slog.LevelWarn
	if said := what + ": " + err.Error(); said != c.said || now.Sub(c.saidAt) >= sayAgain {
		c.said, c.saidAt = said, now
	} else {
		level = slog.LevelDebug
	}
	w.d.log.Log(ctx, level, what, "approval", c.ID, "error", err)
}
