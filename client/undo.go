package client

import (
	"context"
	"encoding/json"

	"github.com/toolyard/toolyard"
)

// Undoing says how a batch is undone. The zero value sets the workspace back to what it was before the batch, unless
// others have changed it since.
type Undoing struct {
	// ID is that of the batch that undoes the other; empty: one is made.
	ID toolyard.BatchID
	// Group is the group before which the workspace is set back; nil: the first that could change it.
	Group *int
	// Force sets it back although others have changed it since: that is lost.
	Force bool
	// Interactive says that a person can be asked whether it may be set back.
	Interactive bool
	// Final keeps no snapshot of what the workspace is now. Without it, the undoing can be undone.
	Final bool
	// Tags are what the worker must have that does it.
	Tags []toolyard.Tag
}

// Batch makes the batch that undoes another one.
func (u *Undoing) Batch(of toolyard.BatchView) (toolyard.Batch, error) {
	b, err := actingOn(of, toolyard.UndoTool, toolyard.UndoInput{Batch: of.ID, Group: u.Group, Force: u.Force})
	b.ID, b.Interactive, b.Options.Tags, b.Options.Snapshot = u.ID, u.Interactive, u.Tags, !u.Final
	return b, err
}

// actingOn makes a batch of one call of a tool for people that acts on another batch.
func actingOn(of toolyard.BatchView, tool string, input any) (toolyard.Batch, error) {
	data, err := json.Marshal(input)
	return toolyard.Batch{
		Agent: of.Agent, Session: of.Session, Workspace: of.Workspace,
		Calls: []toolyard.Call{{Tool: tool, Input: data}}, Options: toolyard.Options{Undo: true},
	}, err
}

// act hands in a batch that is made of what this one is now.
func (b *Batch) act(ctx context.Context, acting func(of toolyard.BatchView) (toolyard.Batch, error)) (*Batch, error) {
	view, err := b.View(ctx)
	if err != nil {
		return nil, err
	}
	next, err := acting(view)
	if err != nil {
		return nil, err
	}
	return b.c.Submit(ctx, next)
}

// Undo hands in a batch that sets the workspace back to what it was before this one, and returns it when it is stored.
// It waits for its turn in the workspace and for permission like others; its one result says what came of it. This
// batch must be over, and have been handed in with [toolyard.Options].Snapshot. The errors are those of [Batch.View]
// and [Client.Submit].
func (b *Batch) Undo(ctx context.Context, u Undoing) (*Batch, error) { return b.act(ctx, u.Batch) }
