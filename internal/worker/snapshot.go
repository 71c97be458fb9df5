package worker

import (
	"context"
	"time"

	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/snapshot"
	"github.com/toolyard/toolyard/tool"
)

// sweepEvery is how often a worker looks for snapshots and shells that are no longer kept.
const sweepEvery = 10 * time.Minute

// keepsWorkspace reports whether the workspace is to be kept as it is before a call runs.
func (r *running) keepsWorkspace() bool {
	return pipeline.SnapshotBefore(r.d.Snapshot, r.d.Ticket != 0, r.call.Judgement.Class)
}

func (r *running) snapshotKey() snapshot.Key {
	return snapshot.Key{Workspace: r.d.Workspace, Batch: r.d.Key(), Group: r.d.Group}
}

// prepare returns what is done in the workspace of a call that may change it, before the call: what a killed worker has
// left there is undone, and the workspace is kept as it is then if somebody has asked for that. Nil: nothing is done.
func (w *Worker) prepare(r *running) func(context.Context) (string, error) {
	if r.d.Ticket == 0 || r.call.Judgement.Class.Safe() {
		return nil
	}
	return func(ctx context.Context) (string, error) {
		if r.overlay == nil { // which was made from a workspace where that is done
			w.recoverWorkspace(ctx, r)
		}
		if !r.keepsWorkspace() {
			return "", nil
		}
		if w.cfg.Snapshots == nil {
			return "", tool.SetupRequired("the batch is to be kept undoable, and this worker keeps no snapshots; an " +
				"operator must name a directory for them (--snapshots)")
		}
		info, err := w.cfg.Snapshots.Take(ctx, w.roots[r.d.Workspace], r.snapshotKey())
		return info.String(), err
	}
}

// recoverWorkspace undoes what a killed worker has left in the workspace of a call. The next command would do that too:
// but what is undone then, a snapshot has and an undo brings back, an overlay has as if it were the workspace's, and a
// protected file that a call may write meanwhile is taken for the command's. What cannot be undone moves the workspace
// to quarantine, which whoever uses it next sees.
func (w *Worker) recoverWorkspace(ctx context.Context, r *running) {
	root := w.roots[r.d.Workspace]
	if root == nil {
		return
	}
	if err := sandbox.Recover(ctx, root); err != nil {
		r.log().Warn("what a killed worker has left in a workspace was not undone", "workspace", r.d.Workspace,
			"error", err)
	}
}

// noteAfter notes what the workspace is behind a call that has run, while the call still has it alone.
func (w *Worker) noteAfter(ctx context.Context, r *running, ran bool) {
	if w.cfg.Snapshots == nil || !r.keepsWorkspace() || !ran || r.leftBehind() || w.mayAct(r) != nil {
		return
	}
	// Looking takes its time, and a worker may stand still in it.
	act := func() error { return w.mayAct(r) }
	if err := w.cfg.Snapshots.After(ctx, w.roots[r.d.Workspace], r.snapshotKey(), act); err != nil {
		r.log().Warn("what the call has left in the workspace is not known; the batch can be undone by force only",
			"error", err)
	}
}

// sweepStores removes what is no longer kept, until ctx ends.
func (w *Worker) sweepStores(ctx context.Context) {
	if w.cfg.Snapshots == nil && w.cfg.Shells == nil {
		return
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if s := w.cfg.Snapshots; s != nil {
			if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
				w.log.Warn("old snapshots were not removed", "dir", s.Dir(), "error", err)
			}
		}
		if s := w.cfg.Shells; s != nil {
			if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
				w.log.Warn("old shells were not removed", "dir", s.Dir(), "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
