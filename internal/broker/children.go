package broker

import (
	"context"
	"encoding/json"

	"github.com/toolyard/toolyard"
)

// Children are the batches that a worker makes for a call that it runs: see [toolyard.Parent].
type Children interface {
	// StartChild submits a call of a tool as a batch of its own, made for a call of this worker's pool that runs now.
	// Starting it again is accepted and runs nothing. What is wrong with it is a [*toolyard.InputError].
	StartChild(ctx context.Context, c ChildCall) error
	// ChildResult returns the result of such a batch, or nil while there is none. What its dispatcher refused is a
	// result too.
	ChildResult(ctx context.Context, agent toolyard.Agent, p toolyard.Parent) (*toolyard.Result, error)
}

// ChildCall is a call that a running call makes.
type ChildCall struct {
	Agent  toolyard.Agent  `json:"agent"`
	Parent toolyard.Parent `json:"parent"`
	Tool   string          `json:"tool,omitempty"`
	Input  json.RawMessage `json:"-"`
}

// Of is the call for which it is made.
func (c *ChildCall) Of() toolyard.BatchKey {
	return toolyard.BatchKey{Agent: c.Agent, ID: c.Parent.Batch}
}
