package client

import (
	"context"
	"encoding/json"

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
	input, err := json.Marshal(toolyard.OverlayInput{Batch: of.ID, Action: u.Action, Force: u.Force})
	return toolyard.Batch{
		ID: u.ID, Agent: of.Agent, Session: of.Session, Workspace: of.Workspace, Interactive: u.Interactive,
		Calls: []toolyard.Call{{Tool: toolyard.OverlayTool, Input: input}},
		Options: toolyard.Options{Undo: true, Snapshot: u.Action == toolyard.OverlayCommit && !u.Final,
			Tags: u.Tags},
	}, err
}

// Overlay hands in a batch that shows, commits or drops the overlay of this one, and returns it when it is stored. It
// waits for its turn in the workspace and for permission like others; its one result says what came of it. This batch
// must be over, and have been handed in with [toolyard.Options].Overlay. The errors are those of [Batch.View] and
// [Client.Submit].
func (b *Batch) Overlay(ctx context.Context, u OverlayUse) (*Batch, error) {
	view, err := b.View(ctx)
	if err != nil {
		return nil, err
	}
	use, err := u.Batch(view)
	if err != nil {
		return nil, err
	}
	return b.c.Submit(ctx, use)
}
