package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/tool"
)

// How often the result of a call that a running call makes is asked for: the pause is twice as long each time.
const (
	firstResultPause   = 5 * time.Millisecond
	longestResultPause = 250 * time.Millisecond
)

// children are the calls that a running call makes.
type children struct {
	b      broker.Children
	agent  toolyard.Agent
	parent toolyard.Parent
	made   atomic.Int64
	places chan struct{} // of those under way
}

// callTool is what calls tools for a running call; nil if it may call none.
func (w *Worker) callTool(r *running) func(context.Context, string, json.RawMessage) (toolyard.Result, error) {
	if r.call.Tool != toolyard.RunCodeTool {
		return nil
	}
	c := &children{b: w.b, agent: r.d.Agent,
		parent: toolyard.Parent{Batch: r.d.Batch, Call: r.call.Index, Attempt: r.call.Attempt},
		places: make(chan struct{}, submission.MaxChildrenAtOnce)}
	return c.call
}

// call implements [tool.Env].Call. When ctx ends nobody waits for the result any more: the call's owner cancels it when
// the call that made it has ended.
func (c *children) call(ctx context.Context, name string, input json.RawMessage) (toolyard.Result, error) {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-ctx.Done():
		return toolyard.Result{}, context.Cause(ctx)
	}
	p := c.parent
	p.N = int(c.made.Add(1))
	if p.N > submission.MaxChildren {
		return toolyard.Result{}, tool.Invalid("a script makes at most %d calls", submission.MaxChildren)
	}
	if err := c.b.StartChild(ctx, broker.ChildCall{Agent: c.agent, Parent: p, Tool: name, Input: input}); err != nil {
		return toolyard.Result{}, fmt.Errorf("start a call of %s: %w", name, err)
	}
	failpoint.Hit(failpoint.ChildStarted)
	for wait := firstResultPause; ; wait = min(2*wait, longestResultPause) {
		r, err := c.b.ChildResult(ctx, c.agent, p)
		if err != nil {
			return toolyard.Result{}, fmt.Errorf("read the result of a call of %s: %w", name, err)
		}
		if r != nil {
			return *r, nil
		}
		if err := pause.For(ctx, wait); err != nil {
			return toolyard.Result{}, err
		}
	}
}
