package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
)

// errLost: the batch has another owner. This one stops and tells nobody.
var errLost = errors.New("the batch has another owner")

// serve runs one batch here, from a delivery of its submission until it ends or goes elsewhere.
func (d *Dispatcher) serve(ctx context.Context, r *runner) {
	running, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { r.keepAlive(running) })
	err := d.attempt(running, r)
	stop()
	keeping.Wait()
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errLost):
		r.log.Info("another dispatcher owns the batch now")
	case errors.Is(err, events.ErrNewer):
		d.leaveToNewer(ctx, r, err)
	case broker.IsSubmissionLost(err), (permanent(err) || d.overdue(r)) &&
		r.submission().Deliveries >= d.cfg.MaxDeliveries:
		r.log.Error("the batch cannot go on; its open calls are answered as internal_error",
			"deliveries", r.submission().Deliveries, "error", err)
		if err := d.giveUp(ctx, r, err); errors.Is(err, events.ErrNewer) {
			d.leaveToNewer(ctx, r, err)
		} else if err != nil {
			r.log.Error("the batch could not be ended; it is tried again", "error", err)
		}
	default:
		r.log.Error("the batch stopped here; it will be taken up again", "error", err)
		if err := r.submission().Return(backoff(r.submission().Deliveries)); err != nil {
			r.log.Warn("the submission was not given back; it is delivered again when its wait is over", "error", err)
		}
	}
}

// attempt accepts a batch and runs it if this dispatcher owns it. A panic stops this batch and not the others.
func (d *Dispatcher) attempt(ctx context.Context, r *runner) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p}
			r.log.Error("a batch crashed its dispatcher's code", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	// follow before reading, so that nothing is missed in between
	if r.feed, err = d.b.FollowEvents(r.key); err != nil {
		return err
	}
	defer func() {
		if err := r.feed.Stop(); err != nil {
			r.log.Warn("a batch's feed was not stopped", "error", err)
		}
	}()
	s, owned, err := d.accept(ctx, r)
	if err != nil || !owned {
		return err
	}
	return r.run(ctx, s)
}

// accept decides about a delivered submission: it plans or adopts the batch, or answers the delivery and is done with
// it. owned reports whether the batch is this dispatcher's now, to be run from the state s.
func (d *Dispatcher) accept(ctx context.Context, r *runner) (s batch.State, owned bool, err error) {
	sub := r.submission()
	failpoint.Hit(failpoint.BatchReceived)
	s, err = sub.Read(ctx)
	if sub.Parked != 0 && errors.Is(err, broker.ErrNoBatch) { // there is nothing left to wake
		return s, false, sub.Done(ctx)
	}
	if refused, ok := refusal(err); ok {
		return s, false, r.refuse(ctx, refused)
	}
	if err != nil {
		return s, false, err
	}
	if sub.Deliveries > 1 || sub.Parked != 0 {
		if s, err = d.b.Resume(ctx, r.key); err != nil {
			return s, false, err
		}
	}
	if age := time.Since(s.SubmittedAt); age > d.b.Settings().Lifetime && s.Plan == nil {
		return s, false, r.refuse(ctx, events.Refused{Type: "about:blank", Title: "Gone", Status: 410,
			Detail: fmt.Sprintf(
				"the batch was submitted %s ago; batches live for %s", age.Round(time.Second),
				d.b.Settings().Lifetime)})
	}
	if s.Refused != nil || s.Completed {
		return s, false, d.leaveAndDone(ctx, r, &s)
	}
	switch {
	case s.Plan == nil && sub.Parked != 0: // a batch without a plan was never parked
		return s, false, sub.Done(ctx)
	case s.Plan == nil:
		if err = sub.CheckFields(ctx); err == nil {
			s, err = d.plan(ctx, r, s)
		}
	case s.Parked && s.Handle == sub.Seq:
		// Its owner fell silent before it released the batch. It may acknowledge this message at any time, so the
		// message can no longer keep the batch: another message must wake it.
		if _, err = d.b.WakeIfParked(ctx, r.key); err != nil {
			return s, false, err
		}
		return s, false, sub.Done(ctx)
	case s.Handle == sub.Seq, s.Parked && s.BatchSeq == sub.Parked:
		s, err = d.adopt(ctx, r, s)
	case sub.Parked == 0 && s.Plan.SubmissionSeq != sub.Seq:
		err = &toolyard.InputError{Field: "id", Problem: fmt.Sprintf(
			"%q was used before, and what that batch left is still kept; use a new id", r.key.ID)}
	default: // another message keeps the batch, or wakes it
		return s, false, sub.Done(ctx)
	}
	if input, ok := errors.AsType[*toolyard.InputError](err); ok {
		return s, false, r.refuse(ctx, events.Refuse(input))
	}
	return s, err == nil, err
}

// refusal makes the problem document of an error that says that the submission is wrong.
func refusal(err error) (events.Refused, bool) {
	if input, ok := errors.AsType[*toolyard.InputError](err); ok {
		return events.Refuse(input), true
	}
	if bad, ok := errors.AsType[*events.UnreadableError](err); ok {
		return events.Refuse(&toolyard.InputError{Problem: bad.Error()}), true
	}
	return events.Refused{}, false
}

func (r *runner) refuse(ctx context.Context, why events.Refused) error {
	r.d.cfg.Meter.Refused(why.Status)
	r.log.Info("refused a submission", "status", why.Status, "detail", why.Detail)
	return r.submission().Refuse(ctx, why)
}

// adopt goes on with a batch whose former owner fell silent, or that was parked and has been woken. A parked batch
// gets the time that was left.
func (d *Dispatcher) adopt(ctx context.Context, r *runner, s batch.State) (batch.State, error) {
	by := events.Adopted{Owner: d.cfg.ID, Takeover: s.Takeovers + 1}
	if seq := r.submission().Seq; seq != s.Handle {
		by.Handle = seq
	}
	if s.Parked {
		by.Deadline = time.Now().Add(s.Remaining).UTC()
		if end := s.SubmittedAt.Add(d.b.Settings().Lifetime).UTC(); end.Before(by.Deadline) {
			by.Deadline = end
		}
	}
	r.log.Info("adopting a batch", "former", s.Owner, "takeover", by.Takeover, "parked", s.Parked)
	return d.becomeOwner(ctx, r, s, by)
}

// becomeOwner appends the event that makes this dispatcher the owner.
func (d *Dispatcher) becomeOwner(ctx context.Context, r *runner, s batch.State, by events.Body) (batch.State, error) {
	var rec batch.Record
	err := broker.RetryFull(ctx, r.log, func() (err error) {
		rec, err = d.b.Append(ctx, r.key, batch.ChainBatch, "", 0, s.BatchSeq, by)
		return err
	})
	if errors.Is(err, broker.ErrConflict) {
		return s, errLost
	}
	if err != nil {
		return s, err
	}
	return s, s.Apply(rec)
}

// backoff is how long a batch that stopped waits before it is taken up again: about a minute in all.
func backoff(deliveries uint64) time.Duration {
	return min(time.Second<<min(deliveries, 10)/4, 10*time.Second)
}

// permanent reports whether a retry cannot help: a contradiction in the log, an event that cannot be read, or a
// panic.
func permanent(err error) bool {
	_, crashed := errors.AsType[*panicError](err)
	_, contradicts := errors.AsType[*batch.InvariantError](err)
	_, unreadable := errors.AsType[*events.UnreadableError](err)
	return contradicts || unreadable || crashed || errors.Is(err, broker.ErrDamaged)
}

// overdueBy is how long after its deadline a batch may still be retried for an error that may pass.
const overdueBy = time.Minute

// overdue reports whether a batch should have ended a while ago, so that running it is of no use.
func (d *Dispatcher) overdue(r *runner) bool {
	if r.m == nil || r.m.State().Plan == nil {
		return false
	}
	return time.Since(r.m.State().Plan.Deadline) > overdueBy
}

// panicError is a panic while a batch was run.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("the dispatcher crashed on it: %v", e.value) }
