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
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/ticket"
)

// serve runs one batch here, from a delivery of its submission until it ends or goes elsewhere. Its goroutine is in
// here while the batch rests, so this needs little of the stack.
func (d *Dispatcher) serve(ctx context.Context, k *kept) {
	var deadline time.Time
	var rest *resting
	t, err := d.takeUp(ctx, k)
	defer t.leave()
	if k.trial = t; err == nil {
		deadline, rest, err = d.attempt(ctx, k, nil)
	}
	for rest != nil {
		rest.wait(ctx)
		deadline, rest, err = d.attempt(ctx, k, rest)
	}
	d.settleAttempt(ctx, k, deadline, err)
}

// settleAttempt says what becomes of a batch that no longer runs here.
func (d *Dispatcher) settleAttempt(ctx context.Context, k *kept, deadline time.Time, err error) {
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errLost):
		k.log.Info("another dispatcher owns the batch now")
	case errors.Is(err, events.ErrNewer):
		d.leaveToNewer(ctx, k, err)
	case broker.IsSubmissionLost(err), errors.Is(err, errDeadly),
		(permanent(err) || overdue(deadline, d.clock.now())) && k.submission().Deliveries >= d.cfg.MaxDeliveries:
		k.log.Error("the batch cannot go on; its open calls are answered as internal_error",
			"deliveries", k.submission().Deliveries, "error", err)
		if err := d.giveUp(ctx, k, err); errors.Is(err, events.ErrNewer) {
			d.leaveToNewer(ctx, k, err)
		} else if err != nil {
			k.log.Error("the batch could not be ended; it is tried again", "error", err)
		}
	default:
		k.log.Error("the batch stopped here; it will be taken up again", "error", err)
		if err := k.submission().Return(backoff(k.submission().Deliveries)); err != nil {
			k.log.Warn("the submission was not given back; it is delivered again when its wait is over", "error", err)
		}
	}
}

// feedRoom is how many live copies wait for an owner. More are dropped: it reads the stream every second.
const feedRoom = 256

// attempt accepts a batch and runs it if this dispatcher owns it: then it returns the batch's deadline. If the batch
// rests it returns what is kept of it, and is called with that when there may be something to do.
func (d *Dispatcher) attempt(ctx context.Context, k *kept, rested *resting) (deadline time.Time, rest *resting,
	err error) {
	if rested != nil && ctx.Err() != nil {
		rested.end()
		return deadline, nil, context.Cause(ctx)
	}
	running, stop := k.keepAlive(ctx, d.b.Settings().BatchAckWait)
	defer stop()
	return d.attemptKept(running, k, rested)
}

// attemptKept is attempt while the delivery is kept alive. A panic stops this batch and not the others.
func (d *Dispatcher) attemptKept(ctx context.Context, k *kept, rested *resting) (deadline time.Time, rest *resting,
	err error) {
	defer k.caught(&err)
	// follow before reading, so that nothing is missed in between
	feed, err := d.b.FollowEvents(k.key, feedRoom)
	if rested != nil {
		rested.end()
	}
	if err != nil {
		return deadline, nil, err
	}
	defer k.unfollow(feed)
	var o *owned
	if rested == nil {
		o, err = d.accept(ctx, k)
	} else {
		o, err = d.wake(ctx, k, rested)
	}
	if err != nil || o == nil {
		return deadline, nil, err
	}
	k.submission().Release() // the state has what it said
	deadline = o.state.Plan.Deadline
	workspace := o.state.Plan.Workspace
	rest, err = d.newRunner(k, feed, o).run(o.trace.within(ctx))
	if errors.Is(err, errLost) {
		d.leaveLost(ctx, k, workspace)
	}
	return deadline, rest, err
}

// leaveLost takes out the ticket of a batch that another dispatcher owns, if that one will not do it any more.
func (d *Dispatcher) leaveLost(ctx context.Context, k *kept, w toolyard.Workspace) {
	if err := d.locks.Settle(ctx, w, k.key); err != nil && !errors.Is(err, events.ErrNewer) {
		k.log.Info("a ticket of a batch that another dispatcher owns may stay for a while", "error", err)
	}
}

// owned is a batch whose owner this dispatcher has become.
type owned struct {
	state batch.State
	// surface is what the batch sees; nil when it was adopted: then it is read when it is needed.
	surface *registry.Surface
	// said are the cancels and appended calls that came before the plan. They are not known when known is false.
	said  []batch.Record
	known bool
	trace batchTrace
	// reserved says that a ticket may be in the workspace's queue since before the plan.
	reserved bool
	// generation is that of the workspace under that ticket; 0: unknown.
	generation uint64
	// rested is what the owner knew before the batch rested; nil: it did not.
	rested *resting
}

// action is what is done about a delivery.
type action string

// The actions. Only planning and adopting make this dispatcher the owner; the others answer the delivery.
const (
	actPlan   action = "plan"
	actAdopt  action = "adopt"
	actRefuse action = "refuse"
	actLeave  action = "leave" // the batch is over, and its owner may have died before it left the workspace
	actWake   action = "wake"  // the batch is parked, and this message cannot keep it any more
	actDone   action = "done"  // another message keeps the batch or wakes it, or there is nothing to wake
)

// decide says what to do about a delivery of a batch, as its log has it now, and why it is refused.
func decide(s *batch.State, sub *broker.Submission, now time.Time, lifetime time.Duration) (action, events.Refused) {
	age := now.Sub(s.SubmittedAt)
	switch {
	case s.Plan == nil && age > lifetime:
		return actRefuse, events.Refused{Type: "about:blank", Title: "Gone", Status: 410, Detail: fmt.Sprintf(
			"the batch was submitted %s ago; batches live for %s", age.Round(time.Second), lifetime)}
	case s.Refused != nil && s.ReplySeq == 0: // by one that died before it could answer
		return actRefuse, *s.Refused
	case s.Refused != nil || s.Completed:
		return actLeave, events.Refused{}
	case s.Plan == nil && sub.Parked != 0: // a batch without a plan was never parked
		return actDone, events.Refused{}
	case s.Plan == nil:
		return actPlan, events.Refused{}
	case s.Parked && s.Handle == sub.Seq:
		// Its owner fell silent before it released the batch. It may acknowledge this message at any time, so the
		// message can no longer keep the batch: another message must wake it.
		return actWake, events.Refused{}
	case s.Handle == sub.Seq, sub.Parked != 0 && s.BatchSeq == sub.Parked: // where it is not parked: after a restore
		return actAdopt, events.Refused{}
	case sub.Parked == 0 && s.Plan.SubmissionSeq != sub.Seq:
		return actRefuse, events.Refuse(&toolyard.InputError{Field: "id", Problem: fmt.Sprintf(
			"%q was used before, and what that batch left is still kept; use a new id", sub.Key.ID)})
	}
	return actDone, events.Refused{}
}

// accept takes a delivery in. It makes this dispatcher the owner of the batch, or answers the delivery and returns
// nil.
func (d *Dispatcher) accept(ctx context.Context, k *kept) (*owned, error) {
	sub := k.submission()
	failpoint.Hit(failpoint.BatchReceived)
	s, err := sub.Read(ctx)
	if sub.Parked != 0 && errors.Is(err, broker.ErrNoBatch) { // there is nothing left to wake
		return nil, sub.Done(ctx)
	}
	if refused, ok := refusal(err); ok {
		return nil, d.refuse(ctx, k, refused)
	}
	if err != nil {
		return nil, err
	}
	if sub.Deliveries > 1 || sub.Parked != 0 || sub.Earlier {
		if s, err = d.b.Resume(ctx, k.key); err != nil {
			return nil, err
		}
	}
	switch act, why := decide(&s, sub, d.clock.now(), d.b.Settings().Lifetime); act {
	case actPlan:
		began, trace := time.Now(), d.follow(&s)
		o, err := d.planNew(trace.within(ctx), k, s)
		if o != nil {
			o.trace = trace
			trace.planned(began, &o.state)
		}
		return o, err
	case actAdopt:
		trace := d.follow(&s)
		by := adoption(&s, sub, d.cfg.ID, d.clock.now(), d.b.Settings().Lifetime)
		k.log.Info("adopting a batch", "former", s.Owner, "takeover", by.Takeover, "parked", s.Parked)
		if s, err = d.becomeOwner(trace.within(ctx), k, s, by); err != nil {
			return nil, err
		}
		return &owned{state: s, trace: trace}, nil
	case actRefuse:
		if s.Plan == nil && s.Refused == nil {
			return nil, d.refuseInPlace(ctx, k, why)
		}
		return nil, d.refuse(ctx, k, why)
	case actLeave:
		return nil, d.leaveAndDone(ctx, k, &s)
	case actWake:
		if _, err = d.b.WakeIfParked(ctx, k.key); err != nil {
			return nil, err
		}
	}
	return nil, sub.Done(ctx)
}

// planNew plans a batch and becomes its owner. A submission that is wrong is refused.
func (d *Dispatcher) planNew(ctx context.Context, k *kept, s batch.State) (*owned, error) {
	var planned events.Planned
	var surface *registry.Surface
	var said []batch.Record
	var unread, sessionErr error
	var session broker.Session
	var reading, readingSession sync.WaitGroup
	before := s
	defer reading.Wait()
	d.crew.Run(&reading, func() {
		defer k.caught(&unread)
		said, unread = d.said(ctx, &before)
	})
	d.crew.Run(&readingSession, func() {
		defer k.caught(&sessionErr)
		session, sessionErr = d.b.Session(ctx, k.key.Agent, s.Submission.Session)
	})
	err := k.submission().CheckFields(ctx)
	if err == nil {
		planned, surface, err = d.plan(ctx, k, &s, func() (*broker.Session, error) {
			readingSession.Wait()
			return &session, sessionErr
		})
	}
	readingSession.Wait()
	if stop := session.InterruptOf(s.SubmissionSeq, k.submission().Shard); stop != nil && err == nil {
		reading.Wait()
		// Before the plan: whoever takes the batch up finds it.
		if err = d.b.InterruptBatch(ctx, k.key, stop.Interrupted); err == nil {
			said, unread = d.said(ctx, &s)
		}
	}
	reserved := false
	var own ticket.Ticket
	if err == nil {
		cfg := d.machineConfig()
		cfg.Alone = d.alone(k, &s)
		serving := d.workers.serving(k.submission().Shard)
		planned.Start, err = batch.First(cfg, s, planned, time.Now(),
			batch.Observed{Serving: serving}, func(wanted batch.TakeTicket) (uint64, bool) {
				var granted bool
				own, reserved, granted = d.reserve(ctx, &s, planned.Workspace, wanted)
				return own.Number(wanted.Group), granted
			})
	}
	if input, ok := errors.AsType[*toolyard.InputError](err); ok {
		return nil, d.refuseInPlace(ctx, k, events.Refuse(input))
	}
	if err != nil {
		return nil, err
	}
	s, err = d.becomeOwner(ctx, k, s, append([]events.Body{planned}, behindPlan()...)...)
	if errors.Is(err, errLost) && reserved {
		d.leaveLost(ctx, k, planned.Workspace)
	}
	if err != nil {
		return nil, err
	}
	reading.Wait()
	return &owned{state: s, surface: surface, said: said, known: unread == nil, reserved: reserved,
		generation: own.After}, nil
}

// reserve takes the ticket of a batch's first group before its plan is stored, which then starts the group if the
// ticket is granted at once. reserved says that the ticket may be in the queue, granted or not.
func (d *Dispatcher) reserve(ctx context.Context, s *batch.State, w toolyard.Workspace, wanted batch.TakeTicket,
) (own ticket.Ticket, reserved, granted bool) {
	asked := time.Now()
	own, reserved, granted = d.locks.Reserve(ctx, w, waiter(s, wanted), wanted.Mode, wanted.Locks...)
	if granted {
		d.cfg.Meter.TicketGranted(wanted.Mode, time.Since(asked))
	}
	return own, reserved, granted
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

// refuseInPlace refuses a batch in place of its plan. What it is refused for may be otherwise for another dispatcher,
// which has read the workers, the session or the clock at another time, and may be about to plan it.
func (d *Dispatcher) refuseInPlace(ctx context.Context, k *kept, why events.Refused) error {
	err := k.submission().TurnAway(ctx, why)
	if errors.Is(err, broker.ErrConflict) { // it has a plan, or a refusal that is answered at the next delivery
		return errLost
	}
	if err == nil {
		d.cfg.Meter.Refused(why.Status)
		k.log.Info("refused a submission", "status", why.Status, "detail", why.Detail)
	}
	return err
}

// refuse answers a submission that everybody refuses.
func (d *Dispatcher) refuse(ctx context.Context, k *kept, why events.Refused) error {
	err := k.submission().Refuse(ctx, why)
	if err == nil {
		d.cfg.Meter.Refused(why.Status)
		k.log.Info("refused a submission", "status", why.Status, "detail", why.Detail)
	}
	return err
}

// adoption is the event by which an owner goes on with a batch whose former owner fell silent, or that was parked and
// has been woken. A parked batch gets the time that was left.
func adoption(s *batch.State, sub *broker.Submission, owner string, now time.Time, lifetime time.Duration,
) events.Adopted {
	by := events.Adopted{Owner: owner, Takeover: s.Takeovers + 1}
	if sub.Seq != s.Handle {
		by.Handle = sub.Seq
	}
	if s.Parked {
		by.Deadline = now.Add(s.Remaining).UTC()
		if end := s.SubmittedAt.Add(lifetime).UTC(); end.Before(by.Deadline) {
			by.Deadline = end
		}
		if s.Plan != nil && !s.Plan.End.IsZero() && s.Plan.End.Before(by.Deadline) {
			by.Deadline = s.Plan.End
		}
	}
	return by
}

// becomeOwner appends the event that makes this dispatcher the owner, and what belongs behind it.
func (d *Dispatcher) becomeOwner(ctx context.Context, k *kept, s batch.State, bodies ...events.Body,
) (batch.State, error) {
	for _, by := range bodies {
		var rec batch.Record
		err := broker.RetryFull(ctx, k.log, func() (err error) {
			rec, err = d.b.Append(ctx, k.key, batch.ChainBatch, "", 0, s.BatchSeq, by)
			rec.Time = d.clock.at(rec.Time)
			return err
		})
		if errors.Is(err, broker.ErrConflict) {
			return s, errLost
		}
		if err == nil {
			err = s.Apply(rec)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// backoff is how long a batch that stopped waits before it is taken up again: about a minute in all.
func backoff(deliveries uint64) time.Duration {
	return min(time.Second<<min(deliveries, 10)/4, 10*time.Second)
}

// overdueBy is how long after its deadline a batch may still be retried for an error that may pass.
const overdueBy = time.Minute

// overdue reports whether a batch should have ended a while ago, so that running it is of no use. It was not run when
// its deadline is not known.
func overdue(deadline, now time.Time) bool {
	return !deadline.IsZero() && now.Sub(deadline) > overdueBy
}
