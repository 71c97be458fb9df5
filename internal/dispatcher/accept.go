package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/registry"
)

// accept takes a delivered submission up: it refuses it, plans it, adopts it, or finds it complete, and then runs it.
func (d *Dispatcher) accept(ctx context.Context, r *runner) error {
	var err error
	if r.feed, err = d.b.FollowEvents(r.key); err != nil { // first listen, then read: nothing falls between
		return err
	}
	defer func() {
		if err := r.feed.Stop(); err != nil {
			r.log.Warn("a batch's feed was not stopped", "error", err)
		}
	}()
	sub := r.submission()
	failpoint.Hit(failpoint.BatchReceived)
	s, err := sub.Read(ctx)
	if sub.Parked != 0 && errors.Is(err, broker.ErrNoBatch) { // there is nothing left to wake
		return sub.Done(ctx)
	}
	if refused, ok := refusal(err); ok {
		return r.refuse(ctx, refused)
	}
	if err != nil {
		return err
	}
	if sub.Deliveries > 1 || sub.Parked != 0 {
		if s, err = d.b.Resume(ctx, r.key); err != nil {
			return err
		}
	}
	if age := time.Since(s.SubmittedAt); age > d.b.Settings().Lifetime && s.Plan == nil {
		return r.refuse(ctx, events.Refused{Type: "about:blank", Title: "Gone", Status: 410,
			Detail: fmt.Sprintf("the batch was submitted %s ago; batches live for %s", age.Round(time.Second), d.b.Settings().Lifetime)})
	}
	if s.Refused != nil || s.Completed {
		return d.leaveAndDone(ctx, r, &s)
	}
	switch {
	case s.Plan == nil && sub.Parked != 0: // a batch without a plan was never parked
		return sub.Done(ctx)
	case s.Plan == nil:
		if err = sub.CheckFields(ctx); err == nil {
			s, err = d.plan(ctx, r, s)
		}
	case s.Parked && s.Handle == sub.Seq:
		// Its owner fell silent before it had let go of it. It may acknowledge this message at any time, so nobody can keep
		// the batch by it any more: another message must wake it.
		if _, err = d.b.WakeIfParked(ctx, r.key); err != nil {
			return err
		}
		return sub.Done(ctx)
	case s.Handle == sub.Seq, s.Parked && s.BatchSeq == sub.Parked:
		s, err = d.adopt(ctx, r, s)
	case sub.Parked == 0 && s.Plan.SubmissionSeq != sub.Seq:
		err = &toolyard.InputError{Field: "id", Problem: fmt.Sprintf("%q was used before, and what that batch left is still kept; use a new id", r.key.ID)}
	default: // another message keeps the batch, or wakes it
		return sub.Done(ctx)
	}
	if input, ok := errors.AsType[*toolyard.InputError](err); ok {
		return r.refuse(ctx, events.Refuse(input))
	}
	if err != nil {
		return err
	}
	return r.run(ctx, s)
}

// leaveAndDone acknowledges a batch that is complete, whose owner may have died before it left its workspace.
func (d *Dispatcher) leaveAndDone(ctx context.Context, r *runner, s *batch.State) error {
	if s.Refused != nil && s.ReplySeq == 0 { // turned away by one that died before it could answer
		return r.refuse(ctx, *s.Refused)
	}
	held := func(g events.Group) bool { return g.Ticket }
	if s.Plan != nil && len(s.Started) > 0 && slices.ContainsFunc(s.Plan.Groups, held) {
		r.term = s.Takeovers
		if err := d.desk.leave(ctx, s.Plan.Workspace, r.holder(len(s.Plan.Groups)-1)); err != nil {
			return err
		}
	}
	if s.Plan != nil {
		r.index(ctx, s)
		r.indexing.Wait()
	}
	return r.submission().Done(ctx)
}

// refusal makes the problem document of an error of reading a submission that says that it is wrong.
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

// plan decides about a new batch and becomes its owner. When another dispatcher was faster, the batch is its.
func (d *Dispatcher) plan(ctx context.Context, r *runner, s batch.State) (batch.State, error) {
	session, err := d.b.Session(ctx, s.Key.Agent, s.Submission.Session)
	if err != nil {
		return s, err
	}
	plan, err := d.planned(ctx, r, &s, session.Loaded)
	if err != nil {
		return s, err
	}
	d.ask(ctx, r, plan)
	stored, err := plan.Surface.Encode()
	if err != nil {
		return s, err
	}
	if err := d.keepSurface(ctx, plan.Surface.Hash, stored); err != nil {
		return s, err
	}
	if s.Submission.Options.Supersede { // before the plan: whoever takes the batch up again does it again
		if err := d.supersede(ctx, &s); err != nil {
			return s, err
		}
	}
	timeout := d.cfg.BatchTimeout
	if ms := s.Submission.Options.TimeoutMS; ms > 0 {
		timeout = time.Duration(min(ms, d.b.Settings().Lifetime.Milliseconds())) * time.Millisecond
	}
	r.surface = &plan.Surface
	planned := plan.Finish(d.cfg.ID, r.submission().Seq, time.Now().Add(timeout).UTC())
	planned.Lane = d.lobby.laneOf(s.Key.Agent)
	planned.Remembered, planned.Context, planned.Alone = session.Remembered, session.Context, session.Alone
	planned.ApprovalWaitMS, planned.End = d.cfg.ApprovalWait.Milliseconds(), s.SubmittedAt.Add(d.b.Settings().Lifetime).UTC()
	if s, err = d.own(ctx, r, s, planned); err != nil {
		return s, err
	}
	return d.note(ctx, r, s)
}

// planned makes the plan of a new batch. That nobody has a tool is said after a look whether all workers have been heard
// of. When nobody serves its workspace, and it is too early to say that nobody will, it waits.
func (d *Dispatcher) planned(ctx context.Context, r *runner, s *batch.State, loaded []string) (*Plan, error) {
	for looked := false; ; {
		early, changed := d.roster.early(d.cfg.WorkerWait)
		reg, err := d.roster.registry(s.Submission.Workspace)
		if err != nil {
			return nil, err
		}
		plan, err := d.cfg.Planner.Plan(reg, s.Submission, loaded)
		_, refused := errors.AsType[*toolyard.InputError](err)
		if !looked && (refused || err == nil && plan.Unknown()) {
			d.roster.catchUp(ctx)
			looked = true
			continue
		}
		if err != nil || early <= 0 || !plan.Unserved(d.roster.refuses(s.Submission.Workspace)) {
			return plan, err
		}
		r.log.Info("a batch waits for a worker that serves its workspace",
			"workspace", s.Submission.Workspace, "at_most", early)
		select {
		case <-changed:
		case <-time.After(early):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// ask has workers judge the calls that only they can, and answers those that none of them can run. Silence means UNSAFE.
func (d *Dispatcher) ask(ctx context.Context, r *runner, plan *Plan) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for pool, calls := range plan.Asks() {
		asking.Go(func() {
			judged, err := d.b.Judge(ctx, pool, calls)
			if err != nil {
				r.log.Warn("calls were not judged; they count as UNSAFE", "pool", pool, "error", err)
			}
			mu.Lock()
			defer mu.Unlock()
			plan.Answer(judged)
		})
	}
	asking.Wait()
	plan.Refuse(d.roster.unable(plan.sub.Workspace))
}

// extend plans the calls that were appended to an open batch, on the surface that it sees.
func (d *Dispatcher) extend(ctx context.Context, r *runner, s *batch.State) (events.Extended, error) {
	if r.surface == nil { // the batch was adopted
		stored, err := d.b.Surface(ctx, s.Plan.Surface)
		if err != nil {
			return events.Extended{}, err
		}
		if r.surface, err = registry.Decode(stored); err != nil {
			return events.Extended{}, err
		}
	}
	plan := d.cfg.Planner.Extend(*r.surface, s)
	d.ask(ctx, r, plan)
	return plan.FinishExtending(s), nil
}

// keepSurface stores a surface, unless this dispatcher stored it not long ago.
func (d *Dispatcher) keepSurface(ctx context.Context, hash string, encoded []byte) error {
	d.mu.Lock()
	at, ok := d.surfaces[hash]
	d.mu.Unlock()
	if ok && time.Since(at) < d.b.Settings().Lifetime/4 {
		return nil
	}
	if err := d.b.PutSurface(ctx, hash, encoded); err != nil {
		return fmt.Errorf("store the surface: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.surfaces) >= surfacesKept {
		clear(d.surfaces)
	}
	d.surfaces[hash] = time.Now()
	return nil
}

// adopt goes on with a batch whose former owner fell silent, or which was parked and has been woken: then its clock, which
// stood still, goes on.
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
	return d.own(ctx, r, s, by)
}

// own appends the event that makes this dispatcher the owner.
func (d *Dispatcher) own(ctx context.Context, r *runner, s batch.State, by events.Body) (batch.State, error) {
	rec, err := retryFull(ctx, r.log, func() (batch.Record, error) {
		return d.b.Append(ctx, r.key, batch.ChainBatch, "", 0, s.BatchSeq, by)
	})
	if errors.Is(err, broker.ErrConflict) {
		return s, errLost
	}
	if err != nil {
		return s, err
	}
	return s, s.Apply(rec)
}
