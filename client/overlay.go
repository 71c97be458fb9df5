package client

import (
	"context"

	"github.com/toolyard/toolyard"
)

// OverlayUse says what is done with the overlay of a batch.
type OverlayUse struct {
	// ID is that of the batch that does it; empty: one is made.
	ID     toolyard.BatchID
	Action toolyard.OverlayAction
	// Force commits although others have changed the same names since: that is lost.
	Force bool
	// Interactive says that a person can be asked whether it may be done.
	Interactive bool
	// Final keeps no snapshot of the workspace before a commit. Without it, the commit can be undone.
	Final bool
	// Tags are what the worker must have that does it.
	Tags []toolyard.Tag
}

// Batch makes the batch that uses the overlay of another one.
func (u *OverlayUse) Batch(of toolyard.BatchView) (toolyard.Batch, error) {
	b, err := actingOn(of, toolyard.OverlayTool, toolyard.OverlayInput{Batch: of.ID, Action: u.Action, Force: u.Force})
	b.ID, b.Interactive, b.Options.Tags = u.ID, u.Interactive, u.Tags
	b.Options.Snapshot = u.Action == toolyard.OverlayCommit && !u.Final
	return b, err
}

// Overlay hands in a batch that shows, commits or drops the overlay of this one, and returns it when it is stored. It
// waits for its turn in the workspace and for permission like others; its one result says what came of it. This batch
// must be over, and have been handed in with [toolyard.Options].Overlay. The errors are those of [Batch.View] and
// [Client.Submit].
func (b *Batch) Overlay(ctx context.Context, u OverlayUse) (*Batch, error) {
	return b.act(ctx, u.Batch)
}
