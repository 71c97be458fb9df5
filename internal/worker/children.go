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
	script context.Context // ends with that call
	b      broker.Children
	agent  toolyard.Agent
	parent toolyard.Parent
	made   atomic.Int64
	places chan struct{} // of those under way
}

func newChildren(script context.Context, b broker.Children, agent toolyard.Agent, parent toolyard.Parent) *children {
	return &children{script: script, b: b, agent: agent, parent: parent,
		places: make(chan struct{}, submission.MaxChildrenAtOnce)}
}

// callTool is what calls tools for a running call, until ctx ends; nil if it may call none.
func (w *Worker) callTool(ctx context.Context, r *running,
) func(context.Context, string, json.RawMessage) (toolyard.Result, error) {
	if r.call.Tool != toolyard.RunCodeTool {
		return nil
	}
	return newChildren(ctx, w.b, r.d.Agent,
		toolyard.Parent{Batch: r.d.Batch, Call: r.call.Index, Attempt: r.call.Attempt}).call
}

// childAnswer is what came of a call that a running call has made.
type childAnswer struct {
	toolyard.Result
	err error
}

// call implements [tool.Env].Call. When ctx ends the script waits for the result no more. The call goes on, and keeps
// its place: a script that gives up its calls could have any number under way. Its owner cancels it when the call that
// made it has ended.
func (c *children) call(ctx context.Context, name string, input json.RawMessage) (toolyard.Result, error) {
	select {
	case c.places <- struct{}{}:
	case <-ctx.Done():
		return toolyard.Result{}, context.Cause(ctx)
	}
	answered := make(chan childAnswer, 1)
	going, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := context.AfterFunc(c.script, func() { stop(context.Cause(c.script)) })
	go func() {
		defer func() { <-c.places }()
		defer stop(nil)
		defer ended()
		var a childAnswer
		a.Result, a.err = c.run(going, name, input)
		answered <- a
	}()
	select {
	case a := <-answered:
		return a.Result, a.err
	case <-ctx.Done():
		return toolyard.Result{}, context.Cause(ctx)
	}
}

// run starts the call of a tool, and waits for its result.
func (c *children) run(ctx context.Context, name string, input json.RawMessage) (toolyard.Result, error) {
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
