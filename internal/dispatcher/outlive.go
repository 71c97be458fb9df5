package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/internal/shell"
)

// A command that may go on behind its batch is planned as a start of a background call, which waits for its end. So it
// has a claim and a ticket of its own from its first moment, and nothing has to change hands when it goes on. See
// docs/adr/0073-a-command-that-may-go-on-is-one-from-its-start.md.

// mayOutlive reports whether a call is one that may go on behind the batch: a command that may change something. Those
// that only read stay in their group, beside others.
func (p *Plan) mayOutlive(entry *registry.Entry, input schema.Value) bool {
	o := &p.sub.Options
	if o.BackgroundAfterMS == 0 || o.DryRun || o.Parent != nil || p.background || entry.Class.Shell == "" {
		return false
	}
	judged, ask := registry.JudgeValue(&entry.Declaration, input, shell.Judge)
	return !ask && !judged.Class.Safe()
}

// asStart is the start that stands for a call, with what it was checked for; ok is false if its pool has no background
// calls, or the plan has no room for it.
func (p *Plan) asStart(call toolyard.Call, pool toolyard.Pool) (start toolyard.Call, entry *registry.Entry,
	input pipeline.Input, ok bool) {
	encoded, err := json.Marshal(toolyard.BackgroundStartInput{Tool: call.Tool, Input: call.Input, Workspace: true,
		WaitMS: p.sub.Options.BackgroundAfterMS, AsResult: true})
	if err != nil || p.mended+len(encoded) > broker.MaxMendedBytes {
		return call, nil, input, false
	}
	start = call
	start.Tool, start.Input = toolyard.BackgroundStart, encoded
	entry, input, failed := p.preflight(start)
	if failed != nil || entry.Pool != pool {
		return call, nil, input, false
	}
	p.mended += len(encoded)
	return start, entry, input, true
}

// stopLeft stops the background calls whose start has failed: nobody knows of them. It is repeated by whoever gets the
// submission again.
func (d *Dispatcher) stopLeft(ctx context.Context, s *batch.State) error {
	if s.Plan == nil {
		return nil
	}
	for i := range s.Plan.Calls {
		if err := d.stopIfLeft(ctx, s, i); err != nil {
			return err
		}
	}
	return nil
}

// stopIfLeft stops the background call of one call, if that one is a start that has failed.
func (d *Dispatcher) stopIfLeft(ctx context.Context, s *batch.State, i int) error {
	if !failedStart(s, i) {
		return nil
	}
	return d.stopStarted(ctx, s.Key, s.Plan.Session, i, s.Calls[i].Result.Code)
}

// failedStart reports whether a call is a start of a background call that has failed.
func failedStart(s *batch.State, i int) bool {
	return s.Plan.Calls[i].Tool == toolyard.BackgroundStart && s.Calls[i].Result != nil && s.Calls[i].Result.IsError
}

// stopStarted stops the background call that a call has started, which ended with a code. One that is not there may be
// submitted by now, by a dispatcher that dies next: it is taken off the list of its session, without which it is not
// planned. Whoever submits one lists it, and looks whether its start goes on, before that.
func (d *Dispatcher) stopStarted(ctx context.Context, k toolyard.BatchKey, of toolyard.Session, i int,
	code toolyard.Code) error {
	ids := []toolyard.BatchID{toolyard.BackgroundID(k, i, false), toolyard.BackgroundID(k, i, true)}
	reason := "the call that started it ended as " + string(code)
	none, err := d.stopAll(ctx, k.Agent, ids, reason)
	if err != nil || len(none) == 0 {
		return err
	}
	session, err := d.b.Session(ctx, k.Agent, of)
	if err != nil || !slices.ContainsFunc(none, session.HasBackground) {
		return err
	}
	_, err = d.b.ChangeSession(ctx, k.Agent, of, func(v *broker.Session) { v.DropBackground(none) })
	if err == nil {
		_, err = d.stopAll(ctx, k.Agent, none, reason) // it may have been planned before that
	}
	return err
}

// stopAbandoned stops the background calls of a batch that was given up, but those whose start was answered before.
// Where that cannot be read any more, as with replies or a session that are lost, they go on until their time is over.
func (d *Dispatcher) stopAbandoned(ctx context.Context, k toolyard.BatchKey, of toolyard.Session) error {
	var replies []batch.Record
	session, err := d.b.Session(ctx, k.Agent, of)
	if err == nil && len(session.Background) > 0 {
		replies, err = d.b.RepliesFrom(ctx, k, 0, toolyard.MaxCallsPerBatch)
	}
	if err != nil && ctx.Err() == nil && !d.b.MayPass(err) && !errors.Is(err, events.ErrNewer) {
		d.log.Warn("what a batch has in the background goes on: it cannot be read which of it the agent knows",
			"agent", k.Agent, "batch", k.ID, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	started := map[int]bool{}
	for _, r := range replies {
		if reply, ok := r.Body.(events.Reply); ok {
			for _, res := range reply.Results {
				started[res.Index] = !res.IsError
			}
		}
	}
	for i := range toolyard.MaxCallsPerBatch {
		if !started[i] && (session.HasBackground(toolyard.BackgroundID(k, i, false)) ||
			session.HasBackground(toolyard.BackgroundID(k, i, true))) {
			err = errors.Join(err, d.stopStarted(ctx, k, of, i, toolyard.InternalError))
		}
	}
	return err
}

// stopAll stops background calls, and returns those that are not there.
func (d *Dispatcher) stopAll(ctx context.Context, agent toolyard.Agent, ids []toolyard.BatchID, reason string,
) (none []toolyard.BatchID, err error) {
	for _, id := range ids {
		err := d.b.Cancel(ctx, toolyard.BatchKey{Agent: agent, ID: id}, reason)
		switch {
		case errors.Is(err, broker.ErrNoBatch):
			none = append(none, id)
		case err != nil && !errors.Is(err, broker.ErrCompleted):
			return nil, err
		}
	}
	return none, nil
}
