package worker

import (
	"context"
	"errors"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/snapshot"
	"github.com/toolyard/toolyard/tool"
)

// layOver has a call run on the overlay of its batch, if that asks for one. An error says why the call must not run.
// The caller calls lift when the call is over.
func (w *Worker) layOver(ctx context.Context, r *running) (lift func(), err error) {
	nothing := func() {}
	if r.d.Overlay == nil {
		return nothing, nil
	}
	_, entry, known := w.tools.Lookup(r.call.Tool)
	if known && !pipeline.HeldByOverlay(&entry.Declaration, r.call.Judgement, w.cfg.Unsandboxed) {
		return nothing, &tool.Error{Code: toolyard.SandboxViolation, Message: pipeline.NotHeld}
	}
	if r.d.Ticket == 0 {
		return nothing, nil
	}
	if w.cfg.Snapshots == nil {
		return nothing, tool.SetupRequired("the batch is to run on an overlay, and this worker keeps none; an operator " +
			"must name a directory for them (--snapshots)")
	}
	exclusive, by := !r.call.Judgement.Class.Safe(), ""
	if exclusive {
		by = w.cfg.ID
		w.recoverWorkspace(ctx, r) // the overlay may be made now
	}
	over, err := w.cfg.Snapshots.Overlay(ctx, w.roots[r.d.Workspace], r.snapshotKey(), by,
		snapshot.RanOn(r.d.Overlay))
	if err != nil {
		return nothing, err
	}
	if exclusive { // what a killed worker has left
		if err := sandbox.Recover(ctx, over); err != nil {
			return nothing, snapshot.Unusable(errors.Join(err, over.Close()))
		}
	}
	r.overlay = over
	return func() {
		if r.leftBehind() {
			return // its tool still has it
		}
		if err := over.Close(); err != nil {
			r.log().Warn("the directory of an overlay was not closed", "error", err)
		}
	}, nil
}

// lookAtOverlay has a call that is only checked looked at where it would run. The caller calls lift when that is done.
func (w *Worker) lookAtOverlay(ctx context.Context, r *running) (lift func(), err error) {
	if r.d.Overlay == nil || w.cfg.Snapshots == nil || w.roots[r.d.Workspace] == nil {
		return func() {}, nil
	}
	over, err := w.cfg.Snapshots.Standing(ctx, w.roots[r.d.Workspace], r.snapshotKey(), snapshot.RanOn(r.d.Overlay))
	if err != nil || over == nil {
		return func() {}, err
	}
	r.overlay = over
	return func() {
		if err := over.Close(); err != nil {
			w.log.Warn("the directory of an overlay was not closed", "batch", r.d.Batch, "error", err)
		}
	}, nil
}

// noteChanges says in a result what the calls of the batch have changed in its overlay so far.
func (w *Worker) noteChanges(ctx context.Context, r *running, res *toolyard.Result) {
	if r.overlay == nil || res.Attempts == 0 || r.call.Judgement.Class.Safe() || w.mayAct(r) != nil {
		return
	}
	if r.leftBehind() {
		res.Overlay = &toolyard.Overlay{Problem: "the tool has not returned, and may still change the overlay"}
		return
	}
	o, err := w.cfg.Snapshots.Changes(ctx, w.roots[r.d.Workspace], r.snapshotKey())
	if err != nil {
		r.log().Warn("what a call has changed in the overlay of its batch is not known", "error", err)
		o = &toolyard.Overlay{Problem: "the worker could not look at the overlay"}
	}
	for i := range o.Paths { // a name may be a secret
		o.Paths[i].Path = w.pipe.Load().Withhold(o.Paths[i].Path)
	}
	res.Overlay = o
}

// withoutOverlay is the result of a call that has no overlay to run on.
func (w *Worker) withoutOverlay(r *running, err error) toolyard.Result {
	e := tool.AsError(err)
	why := e.Err
	if why == nil {
		why = errors.New(e.Message)
	}
	res := w.ended(r, toolyard.PhaseSchedule, e.Code, "The call was not run: "+e.Message+"."+
		r.earlierEvidence().Sentence(), why)
	res.Retryable = e.Code == toolyard.DependencyUnavailable
	return res
}
