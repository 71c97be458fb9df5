package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/submission"
)

// parentEvery is how often the owner of a batch that was made for a running call looks whether that call still runs.
const parentEvery = time.Second

// checkChild checks a batch that was made for a running call, and returns when it must be over. A batch that may not
// run is a [*toolyard.InputError].
func (d *Dispatcher) checkChild(ctx context.Context, sub *toolyard.Batch) (end time.Time, err error) {
	p := sub.Options.Parent
	if !d.cfg.RunCode {
		return end, badParent("the scripts of this system call no tools; its operator allows that (dispatcher serve " +
			"--run-code)")
	}
	of, err := d.b.Resume(ctx, toolyard.BatchKey{Agent: sub.Agent, ID: p.Batch}) // what is missing counts here
	if errors.Is(err, broker.ErrNoBatch) {
		return end, badParent("the agent has no batch %q", p.Batch)
	}
	if err != nil {
		return end, err
	}
	if err := childOf(sub, &of); err != nil {
		return end, err
	}
	encoded, err := d.b.Surface(ctx, of.Plan.Surface)
	if err != nil {
		return end, err
	}
	surface, err := registry.Decode(encoded)
	if err != nil {
		return end, err
	}
	name := surface.Unmangler()(sub.Calls[0].Tool)
	if _, code := surface.Find(name, nil); code != toolyard.OK && code != toolyard.SchemaNotLoaded {
		return end, badParent("batch %q is offered no tool %q, so its scripts call none", p.Batch,
			submission.ShownName(name))
	}
	return of.Plan.Deadline, nil
}

// childOf says why a batch may not run for the call that it names, as a [*toolyard.InputError]; nil if it may.
func childOf(sub *toolyard.Batch, of *batch.State) error {
	p := sub.Options.Parent
	if why := parentOver(of, p); why != "" {
		return badParent("%s", why)
	}
	if s := of.Submission; s.Session != sub.Session || s.Workspace != sub.Workspace {
		return badParent("batch %q is of session %q and workspace %q, and so are the calls of its scripts", p.Batch,
			s.Session, s.Workspace)
	}
	if of.Submission.Options.Overlay {
		return badParent("batch %q runs on an overlay, which the calls of its scripts would leave", p.Batch)
	}
	depth := 0
	if of.Submission.Options.Parent != nil {
		depth = 1 // no call of a script runs another that calls tools
	}
	return submission.CheckChild(sub, of.Plan.Calls[p.Call].Tool, depth)
}

// parentOver says why the call for which a batch was made does not run; "" if it may.
func parentOver(of *batch.State, p *toolyard.Parent) string {
	switch {
	case of.Plan == nil || of.Refused != nil:
		return fmt.Sprintf("batch %q does not run", p.Batch)
	case p.Call >= len(of.Calls):
		return fmt.Sprintf("batch %q has no call %d", p.Batch, p.Call)
	}
	c := &of.Calls[p.Call]
	switch {
	case c.Result != nil:
		return fmt.Sprintf("call %d of batch %q, which made this call, has ended (%s)", p.Call, p.Batch,
			cmp.Or(string(c.Result.Code), "ok"))
	case of.Completed: // given up, without results in the log
		return fmt.Sprintf("batch %q, which made this call, is over", p.Batch)
	case c.Attempt != p.Attempt: // the limits of a script are those of one attempt
		return fmt.Sprintf("call %d of batch %q is not in its attempt %d", p.Call, p.Batch, p.Attempt)
	}
	return ""
}

func badParent(format string, args ...any) error {
	return &toolyard.InputError{Field: "options.parent", Problem: fmt.Sprintf(format, args...)}
}

// followParent cancels the batch when the call for which it was made has ended: a script whose worker died has nobody
// who would read the answers.
func (r *runner) followParent(ctx context.Context, p *toolyard.Parent) {
	key := toolyard.BatchKey{Agent: r.key.Agent, ID: p.Batch}
	for {
		of, err := r.d.b.Look(ctx, key)
		why := ""
		switch {
		case err == nil && parentOver(&of, p) != "":
			// A server may answer as if it had no messages: what it counts says that they are missing.
			sure, unsure := r.d.b.Resume(ctx, key)
			switch {
			case unsure == nil:
				why = parentOver(&sure, p)
			case errors.Is(unsure, broker.ErrDamaged):
				why = parentOver(&of, p)
			default:
				err = unsure
			}
		case errors.Is(err, broker.ErrNoBatch):
			why = fmt.Sprintf("batch %q, which made this call, is gone", p.Batch)
		}
		if why != "" {
			if err = r.d.b.Cancel(ctx, r.key, why); err == nil || errors.Is(err, broker.ErrCompleted) {
				return
			}
		}
		if err != nil && ctx.Err() == nil {
			r.log.Warn("whether the call still runs for which a batch was made is not known; it is looked at again",
				"parent", p.Batch, "error", err)
		}
		if pause.For(ctx, parentEvery) != nil {
			return
		}
	}
}

// bound shortens the time of a plan: for a child until its parent's end, and for calls of a provider's program until
// the provider stops waiting. Waits for people are then within it.
func bound(planned *events.Planned, end time.Time) {
	if end.IsZero() {
		return
	}
	end = end.UTC()
	if end.Before(planned.Deadline) {
		planned.Deadline = end
	}
	if end.Before(planned.End) {
		planned.End = end
	}
}

// programEnd is when the answers of a batch must be there because a provider's program waits for them; the zero time
// if none does.
func programEnd(s *batch.State) time.Time {
	limit := submission.ProgramLimit(s.Submission)
	if limit == 0 {
		return time.Time{}
	}
	return s.SubmittedAt.Add(limit)
}
