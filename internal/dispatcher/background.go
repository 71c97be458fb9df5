package dispatcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// The limits of background calls here.
const (
	// backgroundGrace is how long a call is listed before it is taken for one whose start was broken off: it has no
	// batch by then.
	backgroundGrace = time.Minute
	// maxBackgroundAnswer is how long a result may be that is handed over as it is. A longer one is stored as an
	// object.
	maxBackgroundAnswer = broker.MaxInlineBytes / 2
)

// background does what a call of a tool of background calls says. The call must be open and of the pool that asks, and
// its input is read in the log: a worker can start nothing but what an agent asked for.
func (d *Dispatcher) background(ctx context.Context, pool toolyard.Pool, q broker.BackgroundAsk) (
	broker.BackgroundAnswer, error) {
	s, err := d.b.Resume(ctx, toolyard.BatchKey{Agent: q.Call.Agent, ID: q.Call.Batch}) // what is missing counts
	if errors.Is(err, broker.ErrNoBatch) {
		return notForBackground("there is no such batch"), nil
	}
	if err != nil {
		return broker.BackgroundAnswer{}, err
	}
	if problem := mayAskBackground(&s, pool, q); problem != "" {
		return notForBackground(problem), nil
	}
	i := q.Call.Index
	input := s.Inputs()[i]
	if mended := s.Plan.Calls[i].Mended; mended != nil {
		input = mended.Input
	}
	if ref := changedBy(&s.Calls[i]); ref != "" && q.InputSHA256 != s.Plan.Calls[i].InputSHA256 {
		if input, err = d.b.ChangedInput(ctx, s.Key.Agent, ref); err != nil {
			return broker.BackgroundAnswer{}, err
		}
	}
	if s.Plan.Calls[i].Tool == toolyard.BackgroundStart {
		var in toolyard.BackgroundStartInput
		if err := json.Unmarshal(input, &in); err != nil {
			return notForBackground("the input does not fit: " + err.Error()), nil
		}
		return d.startBackground(ctx, &s, i, in)
	}
	var in toolyard.BackgroundInput
	if err := json.Unmarshal(input, &in); err != nil {
		return notForBackground("the input does not fit: " + err.Error()), nil
	}
	return d.lookBackground(ctx, &s, in.Handle, s.Plan.Calls[i].Tool == toolyard.BackgroundStop)
}

// mayAskBackground says why a worker may not have a call's wish done; empty if it may.
func mayAskBackground(s *batch.State, pool toolyard.Pool, q broker.BackgroundAsk) string {
	i := q.Call.Index
	switch {
	case s.Submission == nil || s.Plan == nil || i < 0 || i >= len(s.Calls):
		return "there is no such call"
	case s.Plan.Calls[i].Pool != pool || !strings.HasPrefix(s.Plan.Calls[i].Tool, toolyard.BackgroundPrefix):
		return "the call is no call of this pool about background calls"
	case !s.Open(i):
		return "the call is over"
	case q.InputSHA256 == s.Plan.Calls[i].InputSHA256:
		return ""
	}
	if c := s.Calls[i].Decision; c == nil || c.Decision != events.Approve || c.InputSHA256 != q.InputSHA256 {
		return "the input was changed since it was handed in; only a person may change that of a background call"
	}
	return ""
}

// changedBy is the reference of the input that a person or a hook has put in the place of a call's own; empty if there
// is none.
func changedBy(c *batch.Call) (ref string) {
	if c.Decision != nil {
		ref = c.Decision.Edited
	}
	if c.Asked != nil {
		ref = cmp.Or(ref, c.Asked.Changed)
	}
	return ref
}

// notForBackground is the answer to a call for which nothing is done.
func notForBackground(problem string) broker.BackgroundAnswer {
	return broker.BackgroundAnswer{Code: toolyard.InvalidArguments, Problem: problem}
}

// startBackground submits the batch of a background call, unless it stands there already.
func (d *Dispatcher) startBackground(ctx context.Context, s *batch.State, index int,
	in toolyard.BackgroundStartInput) (broker.BackgroundAnswer, error) {
	child := d.backgroundBatch(s, index, in)
	fail := func(code toolyard.Code, format string, args ...any) (broker.BackgroundAnswer, error) {
		return broker.BackgroundAnswer{Code: code, Problem: fmt.Sprintf(format, args...)}, nil
	}
	if strings.HasPrefix(in.Tool, toolyard.BackgroundPrefix) {
		return fail(toolyard.InvalidArguments, "%s cannot itself run in the background", in.Tool)
	}
	err := cmp.Or(child.Validate(), d.planner.Load().check(0, child.Calls))
	if input, ok := errors.AsType[*toolyard.InputError](err); ok {
		return fail(toolyard.InvalidArguments, "the call cannot be accepted: %s %s", input.Field, input.Problem)
	}
	if err != nil {
		return broker.BackgroundAnswer{}, err
	}
	there, err := d.b.Submitted(ctx, child.Key())
	if err != nil {
		return broker.BackgroundAnswer{}, err
	}
	if !there {
		byScript := s.Submission.Options.Parent != nil
		if a, err := d.refusedBackground(ctx, &child, in.Workspace, byScript); err != nil || a.Problem != "" {
			return a, err
		}
		listed, err := d.listBackground(ctx, &child)
		switch {
		case err != nil:
			return broker.BackgroundAnswer{}, err
		case !listed:
			return fail(toolyard.ExecutionFailed, "the session has %d background calls, which is as many as it may "+
				"have at a time; wait for one with background_wait, or stop one with background_stop", d.cfg.BackgroundCalls)
		}
		now, err := d.b.Resume(ctx, s.Key)
		if err != nil {
			return broker.BackgroundAnswer{}, err
		}
		if now.Plan == nil || index >= len(now.Calls) {
			return notForBackground("there is no such call"), nil
		}
		if !now.Open(index) { // it ended before it was listed, so its owner may not have taken it off the list
			return notForBackground("the call is over"), d.stopIfLeft(ctx, &now, index)
		}
	}
	err = d.b.Submit(ctx, child)
	if errors.Is(err, broker.ErrOtherContent) {
		err = d.startedBefore(ctx, &child)
	}
	switch {
	case errors.Is(err, broker.ErrOtherContent):
		return fail(toolyard.InvalidArguments, "another background call was started from this call before; make a new call")
	case errors.Is(err, broker.ErrFull):
		return fail(toolyard.DependencyUnavailable, "the system has no room for another call now; try again later")
	case err != nil:
		return broker.BackgroundAnswer{}, err
	}
	return d.lookBackground(ctx, s, child.ID, false)
}

// startedBefore is nil if the batch that stands under a background call's id is the same call, which a dispatcher with
// another time limit has started: the settings of dispatchers differ while they are restarted one by one. It is
// [broker.ErrOtherContent] if it is another call.
func (d *Dispatcher) startedBefore(ctx context.Context, child *toolyard.Batch) error {
	s, err := d.b.Look(ctx, child.Key())
	switch {
	case err != nil:
		return err
	case s.Submission == nil:
		return broker.ErrOtherContent
	}
	there, want := *s.Submission, *child
	want.Options.TimeoutMS, want.Options.CallTimeoutMS = there.Options.TimeoutMS, there.Options.CallTimeoutMS
	sameInput := len(there.Calls) == 1 &&
		inputHash("", there.Calls[0].Input) == inputHash("", want.Calls[0].Input)
	want.Calls = slices.Clone(want.Calls)
	if sameInput {
		want.Calls[0].Input = there.Calls[0].Input
	}
	if !reflect.DeepEqual(there, want) {
		return broker.ErrOtherContent
	}
	return nil
}

// backgroundBatch is the batch of a background call. It follows from the log and from the settings alone.
func (d *Dispatcher) backgroundBatch(s *batch.State, index int, in toolyard.BackgroundStartInput) toolyard.Batch {
	timeout := min(d.cfg.BackgroundTime, d.b.Settings().Lifetime).Milliseconds()
	if in.TimeoutMS > 0 {
		timeout = min(timeout, in.TimeoutMS)
	}
	of := &s.Submission.Options
	child := toolyard.Batch{
		ID: toolyard.BackgroundID(s.Key, index, in.Workspace), Agent: s.Key.Agent, Session: s.Plan.Session,
		Workspace: s.Plan.Workspace, Interactive: s.Submission.Interactive,
		Calls: []toolyard.Call{{Tool: in.Tool, Input: in.Input}},
		Options: toolyard.Options{TimeoutMS: timeout, CallTimeoutMS: timeout, Deny: of.Deny, Ask: of.Ask, Tags: of.Tags,
			Repair: of.Repair, Priority: of.Priority, Snapshot: of.Snapshot && in.Workspace},
	}
	child.Normalize(child.ID)
	return child
}

// refusedBackground says why a background call would end without having run, as far as that is known before it is
// started. byScript says that a script starts it. Without a problem it may run.
func (d *Dispatcher) refusedBackground(ctx context.Context, child *toolyard.Batch, workspace, byScript bool) (
	a broker.BackgroundAnswer, err error) {
	session, err := d.b.Session(ctx, child.Agent, child.Session)
	if err != nil {
		return a, err
	}
	reg, err := d.workers.tools(askOf(child))
	if err != nil {
		return a, err
	}
	plan, err := d.planOn(reg, child, session.Loaded)
	if input, ok := errors.AsType[*toolyard.InputError](err); ok {
		return notForBackground(input.Error()), nil
	}
	if err != nil {
		return a, err
	}
	if ended := plan.planned.Results; len(ended) > 0 {
		return broker.BackgroundAnswer{Code: ended[0].Code, Problem: ended[0].Error}, nil
	}
	e := plan.Entry(0)
	if byScript && e.Name == toolyard.RunCodeTool { // which could start the next one, and so on without end
		return notForBackground(e.Name + " is a script; a script runs no other, in the background neither"), nil
	}
	// what runs a command gives it an empty directory instead
	if e.NeedsWorkspace() && !workspace && e.Class.Shell == "" {
		return notForBackground(e.Name + " acts on the workspace: give \"workspace\": true, and the call holds the " +
			"workspace as long as it runs"), nil
	}
	return a, nil
}

// listBackground puts a background call on the list of its session. It reports whether there is room for it.
func (d *Dispatcher) listBackground(ctx context.Context, child *toolyard.Batch) (listed bool, err error) {
	var over []toolyard.BatchID
	for range 2 { // again when the list was full and something on it is over
		session, err := d.b.ChangeSession(ctx, child.Agent, child.Session, func(v *broker.Session) {
			v.DropBackground(over)
			listed = v.AddBackground(broker.BackgroundCall{ID: child.ID, At: d.clock.now().UTC()},
				d.cfg.BackgroundCalls)
		})
		if err != nil || listed {
			return listed, err
		}
		for _, c := range session.Background {
			s, err := d.b.Look(ctx, toolyard.BatchKey{Agent: child.Agent, ID: c.ID})
			switch {
			case err == nil && (s.Completed || s.Refused != nil),
				errors.Is(err, broker.ErrNoBatch) && d.clock.now().Sub(c.At) > backgroundGrace:
				over = append(over, c.ID)
			case err != nil && !errors.Is(err, broker.ErrNoBatch):
				return false, err
			}
		}
	}
	return false, nil
}

// lookBackground says how a background call of the session of a batch stands, and stops it before.
func (d *Dispatcher) lookBackground(ctx context.Context, s *batch.State, id toolyard.BatchID, stop bool) (
	a broker.BackgroundAnswer, err error) {
	none := notForBackground(fmt.Sprintf("the session has no background call %q; give a handle exactly as "+
		"background_start gave it (they go with their results)", id))
	if is, _ := id.Background(); !is || toolyard.CheckName("handle", string(id)) != nil {
		return none, nil
	}
	k := toolyard.BatchKey{Agent: s.Key.Agent, ID: id}
	child, err := d.b.Look(ctx, k)
	switch {
	case errors.Is(err, broker.ErrNoBatch), err == nil && child.Submission == nil,
		err == nil && child.Submission.Session != s.Plan.Session:
		return none, nil
	case err != nil:
		return a, err
	}
	if stop && !child.Completed {
		err := d.b.Cancel(ctx, k, "stopped with "+toolyard.BackgroundStop)
		if err != nil && !errors.Is(err, broker.ErrCompleted) {
			return a, err
		}
	}
	a = backgroundState(&child)
	switch {
	case a.State == broker.BackgroundRunning:
		if a.Tail, err = d.b.OutputTail(ctx, child.Calls[0].Worker, k, 0); err != nil {
			d.log.Warn("the output of a background call is not known", "batch", k, "error", err)
		}
	case a.Result != nil:
		if a.Result, err = d.handOver(ctx, k.Agent, a.Result); err != nil {
			return a, err
		}
	}
	return a, nil
}

// backgroundState is how a background call stands by its log.
func backgroundState(s *batch.State) broker.BackgroundAnswer {
	a := broker.BackgroundAnswer{Handle: s.Key.ID, State: broker.BackgroundQueued}
	switch {
	case s.Refused != nil:
		a.State, a.Code, a.Problem = broker.BackgroundRefused, toolyard.DependencyUnavailable, s.Refused.Detail
	case len(s.Calls) > 0 && s.Calls[0].Result != nil:
		a.State, a.Result = broker.BackgroundOver, s.Calls[0].Result
	case s.Completed:
		a.State, a.Code, a.Problem = broker.BackgroundRefused, toolyard.ExecutionFailed,
			"it was given up, since its log cannot be followed"
	case s.Plan == nil || len(s.Calls) == 0:
	case s.Parked || s.Calls[0].Status == batch.Waiting:
		a.State = broker.BackgroundWaiting
	case s.Calls[0].Status == batch.Claimed:
		a.State = broker.BackgroundRunning
	}
	return a
}

// handOver is what the tools say of a result. What is too long is stored as an object that read_result reads.
func (d *Dispatcher) handOver(ctx context.Context, agent toolyard.Agent, r *toolyard.Result) (*toolyard.Result, error) {
	out := &toolyard.Result{Tool: r.Tool, Code: r.Code, IsError: r.IsError, Output: r.Output, Error: r.Error,
		Content: r.Content, Structured: r.Structured, Retryable: r.Retryable, RetryAfterMS: r.RetryAfterMS,
		Truncated: r.Truncated, Blob: r.Blob}
	size, err := json.Marshal(out)
	if err != nil || len(size) <= maxBackgroundAnswer {
		return out, err
	}
	text := r.Text()
	ref := r.Blob
	if ref == "" {
		if ref, err = d.b.PutResult(ctx, agent, []byte(text)); err != nil {
			return nil, err
		}
	}
	const preview = 1_000
	text = strings.ToValidUTF8(text[:min(len(text), preview)], "")
	out.Output, out.Error, out.Content, out.Structured = text, "", nil, nil
	out.Truncated, out.Blob = true, ref
	return out, nil
}
