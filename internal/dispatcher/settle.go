package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/crew"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/hooks"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/tool"
)

// afterBatchTimeout bounds all hooks that run after a batch; each has a limit of its own.
const afterBatchTimeout = 2 * time.Minute

// notify runs the hooks in a goroutine. If one breaks, the agent is asked to stop, because nobody knows what the
// hook would have said.
func (r *runner) notify(ctx context.Context) {
	plan := r.m.State().Plan
	over := hooks.BatchInput{Key: r.key, Session: plan.Session, Workspace: plan.Workspace}
	inputs := r.m.State().Inputs()
	for i, c := range r.m.State().Calls {
		over.Calls = append(over.Calls, hooks.BatchCall{CallID: c.Result.CallID, Tool: c.Result.Tool,
			Input: r.shown(inputs[i]), Code: c.Result.Code, Text: c.Result.Text(), IsError: c.Result.IsError})
	}
	go func() {
		telling, cancel := context.WithTimeout(ctx, afterBatchTimeout)
		defer cancel()
		notice, err := r.d.cfg.AfterBatch(telling, over)
		if err != nil {
			r.log.Error("a hook that runs after a batch broke; the agent is asked to stop", "error", err)
			notice = &toolyard.Notice{Stop: true, Reason: "A hook of this installation that runs after a batch broke."}
		}
		select {
		case r.noticed <- &batch.Noticed{Notice: notice}:
		case <-ctx.Done():
		}
	}()
}

// shown returns an input without known secrets, or nil when it cannot be shown.
func (r *runner) shown(input json.RawMessage) json.RawMessage {
	clean := input
	if redact := r.d.planner.Load().Pipeline.Redact; redact != nil {
		clean = json.RawMessage(redact(string(input)))
	}
	if !json.Valid(clean) {
		return nil
	}
	return clean
}

// remember writes what the batch's calls have changed into their session. What exceeds a session's limits is left
// out and logged. A former owner writes nothing: the next one has done it, and a later batch may have changed the
// session since. So the replies are read behind the session, whose revision the change expects.
func (r *runner) remember(ctx context.Context, change tool.SessionChange) error {
	var left []string
	var lost, over error
	err := broker.RetryFull(ctx, r.log, func() error {
		_, err := r.d.b.ChangeSession(ctx, r.key.Agent, r.m.State().Plan.Session, func(s *broker.Session) {
			if lost = r.repliedSince(ctx); lost != nil {
				return
			}
			s.Load(change.Loads...)
			left = s.Set(change.Context)
			over = s.Check()
		})
		if lost != nil || over != nil { // waiting makes no room
			return nil
		}
		return err
	})
	switch {
	case lost != nil:
		return lost
	case over != nil: // for what stood in it before
		r.log.Error("the session is full; what the batch has changed in it is lost", "error", over)
		return nil
	}
	if len(left) > 0 {
		r.log.Warn("the session has no room for all that the batch has set in it", "left_out", left)
	}
	return err
}

// repliedSince is [errLost] if there are replies that this owner does not know.
func (r *runner) repliedSince(ctx context.Context) error {
	news, err := r.d.b.Newer(ctx, r.m.State(), batch.ChainReply, 0)
	if err == nil && len(news) > 0 {
		return errLost
	}
	return err
}

// settle releases a batch that is complete: its entry in the index says so, and then its submission is acknowledged.
func (r *runner) settle(ctx context.Context) {
	r.meter()
	r.trace.completed(r.m.State())
	failpoint.Hit(failpoint.BatchOver)
	r.indexNow(ctx)
	r.leaveLate(ctx)
	// An owner that has adopted the batch may have told no account yet of what its former owner has begun, and an
	// account without a line for the batch closes nothing.
	err := r.settleBudget(ctx)
	if err == nil || errors.Is(err, errLost) { // it is closed already
		err = r.d.close(ctx, r.m.State(), r.budget.owed) // whoever gets the submission does it if this fails
	}
	if err == nil {
		err = r.submission().DoneSoon()
	}
	if err != nil {
		// It will be delivered again, to whomever, who finds the batch complete.
		level := slog.LevelInfo
		if ctx.Err() != nil { // this dispatcher is being stopped
			level = slog.LevelDebug
		}
		r.log.Log(ctx, level, "the batch is complete, but its submission could not be acknowledged", "error", err)
	}
}

// leaveLate takes out the ticket of a dispatcher whose plan of the batch came too late, or of a former owner that
// joined the queue too late. It is left to the batch's owner, which has given its own back, and may need none for long.
// One that is not known here yet is taken out at another heartbeat, or is swept when the batch is over.
func (r *runner) leaveLate(ctx context.Context) {
	s := r.m.State()
	h := holder(s, len(s.Plan.Groups)-1)
	if r.m.InQueue() || !r.d.locks.InQueue(s.Plan.Workspace, h) {
		return
	}
	if err := r.d.locks.Release(ctx, s.Plan.Workspace, h); err != nil {
		r.log.Info("a ticket that was reserved may stay for a while", "error", err)
	}
}

// indexTimeout bounds the writing of an entry of the index: a batch does not wait long for it.
const indexTimeout = 15 * time.Second

// interruptPause is how long a look for an interrupt that failed is behind the next one.
const interruptPause = time.Second

// indexLater writes the first entry of a batch that is not over soon, and then heeds an interrupt of the session that
// came beside the plan: it has not seen the entry. Stop keeps it from beginning, or waits until the entry is written.
func (r *runner) indexLater(ctx context.Context, write, heed func(context.Context)) (stop func()) {
	return sync.OnceFunc(crew.OnceDue(broker.IndexAfter, func() {
		if ctx.Err() != nil {
			return
		}
		r.indexed = true
		write(ctx)
		r.besides.run(func() { heed(ctx) })
		r.besides.entered()
	}, func() {}))
}

// heedInterrupt asks the batch to stop if its session was interrupted behind its submission.
func (r *runner) heedInterrupt(ctx context.Context, session toolyard.Session, submission uint64) {
	for said := broker.Said(""); ; {
		session, err := r.d.b.Session(ctx, r.key.Agent, session)
		if stop := session.InterruptOf(submission, r.submission().Shard); stop != nil && err == nil {
			err = r.d.b.InterruptBatch(ctx, r.key, stop.Interrupted)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		r.log.Log(ctx, said.Level(err.Error()), "whether the session was interrupted is not known yet", "error", err)
		if pause.For(ctx, interruptPause) != nil {
			return
		}
	}
}

// indexNow writes the status of a batch that is being released. It first waits for an earlier entry that is being
// written: otherwise the next dispatcher would write an older status behind it.
func (r *runner) indexNow(ctx context.Context) {
	r.stopIndexing()
	r.d.index(r.log, r.m.State(), !r.indexed)(ctx)
}

// index returns what writes the batch's status, as it is now, into the index. first says that it has no entry yet.
func (d *Dispatcher) index(log *slog.Logger, s *batch.State, first bool) (write func(context.Context)) {
	e := broker.Entry{
		Agent: s.Key.Agent, ID: s.Key.ID, Session: s.Plan.Session, Workspace: s.Plan.Workspace, Status: s.Status(),
		Calls: len(s.Calls), Submitted: s.SubmittedAt, Place: s.SubmissionSeq, Revision: s.BatchSeq,
	}
	put := d.b.Index().Change
	if first {
		put = d.b.Index().Add
	}
	return func(ctx context.Context) { putEntry(ctx, log, put, e) }
}

// putEntry writes an entry of the index.
func putEntry(ctx context.Context, log *slog.Logger, put func(context.Context, broker.Entry) error, e broker.Entry) {
	within, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	if err := put(within, e); err != nil && ctx.Err() == nil {
		log.Warn("the batch is not in the index as it stands", "status", e.Status, "error", err)
	}
}

// meter counts the batch that is over.
func (r *runner) meter() {
	s := r.m.State()
	for i := range s.Calls {
		if res := s.Calls[i].Result; res != nil {
			r.d.cfg.Meter.Result(res)
		}
	}
	r.d.cfg.Meter.Completed(s.Status())
}

// holder is who holds the tickets of a batch up to a group, under the owner that the state names.
func holder(s *batch.State, group int) ticket.Holder {
	return ticket.Holder{Agent: s.Key.Agent, Batch: s.Key.ID, Group: group, Term: s.Takeovers}
}

// waiter is who joins the queue for a ticket.
func waiter(s *batch.State, wanted batch.TakeTicket) ticket.Holder {
	h := holder(s, wanted.Group)
	h.Through = wanted.Through
	return h
}

// close ends what a complete batch has left: its lines in budgets, and the background calls of starts that have failed.
func (d *Dispatcher) close(ctx context.Context, s *batch.State, owed []admission.Owed) error {
	if err := d.closeBudget(ctx, s, owed); err != nil {
		return err
	}
	return d.stopLeft(ctx, s)
}

// leaveAndDone acknowledges a batch that is complete. Its owner may have died before it released the workspace.
func (d *Dispatcher) leaveAndDone(ctx context.Context, k *kept, s *batch.State) error {
	held := func(g events.Group) bool { return g.Ticket }
	if s.Plan != nil && len(s.Started) > 0 && slices.ContainsFunc(s.Plan.Groups, held) {
		if err := d.locks.Release(ctx, s.Plan.Workspace, holder(s, len(s.Plan.Groups)-1)); err != nil {
			return err
		}
	}
	if s.Plan != nil {
		d.index(k.log, s, false)(ctx)
		if err := d.close(ctx, s, d.budgetsOf(s)); err != nil {
			return err
		}
	}
	return k.submission().Done(ctx)
}

// permanent reports whether a retry cannot help: a contradiction in the log, an event that cannot be read, one that is
// too long to be stored, or a panic.
func permanent(err error) bool {
	_, crashed := errors.AsType[*panicError](err)
	_, contradicts := errors.AsType[*batch.InvariantError](err)
	_, unreadable := errors.AsType[*events.UnreadableError](err)
	return contradicts || unreadable || crashed || errors.Is(err, broker.ErrDamaged) ||
		errors.Is(err, broker.ErrTooLong)
}

// panicError is a panic while a batch was run.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("the dispatcher crashed on it: %v", e.value) }

// caught, deferred, makes an error of a panic: it ends this batch and no other.
func (k *kept) caught(err *error) {
	if p := recover(); p != nil {
		*err = &panicError{value: p}
		k.log.Error("a batch crashed its dispatcher's code", "panic", p, "stack", string(debug.Stack()))
	}
}

// giveUp ends a batch that cannot be run, because its log contradicts itself, cannot be read, or cannot go on. It
// answers the open calls, releases the workspace, and acknowledges the submission. That takes longer than a dispatcher
// may be silent.
func (d *Dispatcher) giveUp(ctx context.Context, k *kept, why error) (err error) {
	ctx, stop := k.keepAlive(ctx, d.b.Settings().BatchAckWait)
	defer stop()
	defer k.caught(&err)
	s, err := k.submission().Read(ctx)
	if errors.Is(err, events.ErrNewer) {
		return err
	}
	sub, unread := s.Submission, err
	var planned error
	if unread != nil {
		if sub, planned = d.b.AsPlanned(ctx, k.key); planned != nil && !permanent(planned) {
			return planned
		}
		k.log.Warn("the submission cannot be read", "planned", sub != nil, "error", unread)
	}
	begun := true
	if unread == nil {
		if begun, err = d.begun(ctx, k.key); err != nil {
			return err
		}
	}
	switch {
	case !begun: // nothing of it has run, which no result could say
		if err = d.turnAway(ctx, k.key, cannotBePlanned(why), sub.Open); err == nil {
			err = errors.Join(d.locks.ReleaseAll(ctx, sub.Workspace, k.key), d.abandonBudget(ctx, k.key, sub))
		}
		sub = nil // it was never listed
	case sub != nil:
		err = d.answerAll(ctx, k.key, sub, why)
	case planned == nil:
		err = d.turnAway(ctx, k.key, cannotBeRead(unread), false)
	default: // a plan that cannot be read is in the way
		err = d.endUnread(ctx, k.key, unread)
	}
	if err != nil {
		return err
	}
	if sub != nil {
		d.indexGivenUp(ctx, k, &s, sub)
	}
	if err := k.submission().BuryBatch(ctx, why.Error()); err != nil {
		return err
	}
	return k.submission().Done(ctx)
}

// begun reports whether a batch was planned or refused. What cannot be read may have said so.
func (d *Dispatcher) begun(ctx context.Context, k toolyard.BatchKey) (bool, error) {
	begun, err := d.b.Planned(ctx, k)
	if err != nil || begun {
		return begun, err
	}
	switch s, err := d.b.Resume(ctx, k); {
	case err == nil:
		return s.Plan != nil || s.Refused != nil, nil
	case permanent(err):
		return true, nil
	default:
		return false, err
	}
}

// indexGivenUp writes the entry of a batch that was given up. If its submission is lost, what is known of that stands
// in the entry that says that it runs; without one the batch is not listed.
func (d *Dispatcher) indexGivenUp(ctx context.Context, k *kept, s *batch.State, sub *toolyard.Batch) {
	e := broker.Entry{Agent: k.key.Agent, ID: k.key.ID, Session: sub.Session, Workspace: sub.Workspace,
		Status: toolyard.StatusCompleted, Submitted: s.SubmittedAt, Place: s.SubmissionSeq}
	if s.Submission == nil {
		was, err := d.listedLive(ctx, k.key, sub.Session)
		if err != nil && ctx.Err() == nil {
			k.log.Warn("the batch is not in the index as it stands", "status", e.Status, "error", err)
		}
		if was == nil {
			return
		}
		e.Submitted, e.Place = was.Submitted, was.Place
	}
	answered := batch.State{Key: k.key} // also what was appended
	if err := d.b.CatchUp(ctx, &answered, batch.ChainReply, 0); err != nil {
		k.log.Info("how many calls a batch has that was given up is not known", "error", err)
	}
	e.Calls = max(len(sub.Calls), answered.Replied)
	putEntry(ctx, k.log, d.b.Index().Change, e)
}

// listedLive finds the entry of a batch that is listed as not complete; nil if there is none.
func (d *Dispatcher) listedLive(ctx context.Context, k toolyard.BatchKey, session toolyard.Session) (*broker.Entry,
	error) {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	f := broker.Filter{Agent: k.Agent, Session: session, Live: true}
	for {
		page, more, err := d.b.Index().Page(ctx, f)
		if err != nil {
			return nil, err
		}
		for i := range page {
			if page[i].ID == k.ID {
				return &page[i], nil
			}
		}
		if !more || len(page) == 0 {
			return nil, nil
		}
		f.After = page[len(page)-1].Place
	}
}

// answerAll answers all open calls of a batch, and releases its workspace and what it has reserved of budgets once none
// of them can run any more. It stops background calls that nobody knows of.
func (d *Dispatcher) answerAll(ctx context.Context, k toolyard.BatchKey, sub *toolyard.Batch, why error) error {
	err := d.b.EndReplies(ctx, k, sub, "the batch's log cannot be followed: "+why.Error())
	if err != nil {
		return err
	}
	return errors.Join(d.locks.ReleaseAll(ctx, sub.Workspace, k), d.abandonBudget(ctx, k, sub),
		d.stopAbandoned(ctx, k, sub.Session))
}

// endLost ends batches whose tickets block others and whose submissions are lost. Nobody else will: they are not
// delivered any more.
func (d *Dispatcher) endLost(ctx context.Context, lost map[toolyard.BatchKey]error) {
	for k, why := range lost {
		sub, err := d.b.AsPlanned(ctx, k)
		switch {
		case err != nil && permanent(err):
			err = d.endUnread(ctx, k, why)
		case err != nil:
		case sub != nil:
			if err = d.answerAll(ctx, k, sub, why); err == nil {
				d.indexGivenUp(ctx, &kept{key: k, log: d.log}, &batch.State{}, sub)
			}
		default:
			err = d.turnAway(ctx, k, cannotBeRead(why), false)
		}
		if err == nil {
			err = d.b.Bury(ctx, broker.DeadLetter{Kind: broker.DeadBatch, Agent: k.Agent, Batch: k.ID,
				Cause: why.Error()}, nil)
		}
		d.log.Error("a batch whose submission is lost was ended, for others wait for its workspace", "agent", k.Agent,
			"batch", k.ID, "reason", why, "error", err)
	}
}

// turnAway refuses a batch in place of its plan, and tells who waits. Then nobody can plan it any more, such as a
// dispatcher that has read the submission before, and start a group with the ticket that it may have. The next sweep
// takes that out. A plan that cannot be read is in the way. What is appended to an open batch from then on would be
// accepted, and have no result: so its input is closed. Where its submission cannot be read, nobody can append.
func (d *Dispatcher) turnAway(ctx context.Context, k toolyard.BatchKey, refused events.Refused, open bool) error {
	_, err := d.b.Append(ctx, k, batch.ChainBatch, "", 0, 0, refused)
	if errors.Is(err, broker.ErrConflict) {
		s := batch.State{Key: k}
		if unread := d.b.CatchUp(ctx, &s, batch.ChainBatch, 0); unread != nil {
			return unread
		}
		if s.Refused != nil { // somebody has begun this before
			err = nil
		}
	}
	if err == nil && open {
		err = d.b.CloseInput(ctx, k)
	}
	if err != nil {
		return err
	}
	return d.tellWhoWaits(ctx, k, refused)
}

// endUnread ends a batch of which neither the submission nor the plan can be read. Who waits is told when nothing of it
// runs any more: from then on others get its workspace.
func (d *Dispatcher) endUnread(ctx context.Context, k toolyard.BatchKey, why error) error {
	if err := d.b.EndItems(ctx, k, "the batch cannot be read: "+why.Error()); err != nil {
		return err
	}
	return d.tellWhoWaits(ctx, k, cannotBeRead(why))
}

// tellWhoWaits tells who waits for the replies of a batch that it was refused.
func (d *Dispatcher) tellWhoWaits(ctx context.Context, k toolyard.BatchKey, refused events.Refused) error {
	err := d.b.RefuseBehind(ctx, k, refused)
	if err == nil {
		d.cfg.Meter.Refused(refused.Status)
	}
	return err
}

// cannotBeRead is the answer to who waits for a batch of which nothing can be read, and cannotBePlanned for one that
// was given up before it was planned.
func cannotBeRead(why error) events.Refused {
	return internalError("the submission cannot be read: " + why.Error())
}

func cannotBePlanned(why error) events.Refused {
	return internalError("no dispatcher can plan the batch: " + why.Error() + ". Nothing of it ran")
}

func internalError(detail string) events.Refused {
	return events.Refused{Type: "about:blank", Title: "Internal Server Error", Status: 500, Detail: detail}
}
