package worker

import (
	"context"
	"sync"
	"time"

	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// Toolset is tools that come and go while the worker runs: those of one MCP server, say. Its calls have slots of
// their own, so that a server that does not answer takes none of the worker's.
type Toolset interface {
	// Name is unique among the worker's toolsets.
	Name() string
	// Origin is where its tools come from.
	Origin() registry.Origin
	// Slots is how many of its calls run at a time, whatever their class; more than 0.
	Slots() int
	// Run keeps the toolset going until ctx ends. What goes wrong is its own to mend.
	Run(ctx context.Context)
	// Settled is closed when it has its tools for the first time, or has failed to get them for the first time.
	Settled() <-chan struct{}
	// Tools are those that it has now; nil while it does not know which it has. It does not wait.
	Tools() []tool.Tool
	// Remarks say which of those that it found are left out or altered. They change with the tools.
	Remarks() []registry.Remark
	// Changed has something in it when they may have changed.
	Changed() <-chan struct{}
}

// startToolsets runs the toolsets until stop is called, which waits for their end, and gives them the configured time
// to settle.
func (w *Worker) startToolsets(ctx context.Context) (stop func()) {
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	var sets sync.WaitGroup
	for _, set := range w.cfg.Toolsets {
		sets.Go(func() { set.Run(running) })
		sets.Go(func() {
			for {
				select {
				case <-set.Changed():
					w.changed()
				case <-running.Done():
					return
				}
			}
		})
	}
	w.settle(ctx)
	w.tools.stale.Store(true) // what has settled is offered from the first heartbeat on
	return func() { end(); sets.Wait() }
}

// settle waits until every toolset has tools or has failed, for ToolsetWait in all.
func (w *Worker) settle(ctx context.Context) {
	if w.cfg.ToolsetWait <= 0 || len(w.cfg.Toolsets) == 0 {
		return
	}
	late := time.NewTimer(w.cfg.ToolsetWait)
	defer late.Stop()
	for _, set := range w.cfg.Toolsets {
		select {
		case <-set.Settled():
		case <-late.C:
			w.log.Warn("the worker starts without the tools of a toolset that is not ready", "toolset", set.Name(),
				"waited", w.cfg.ToolsetWait)
			return
		case <-ctx.Done():
			return
		}
	}
}

// changed has what is offered looked at before the next heartbeat.
func (w *Worker) changed() {
	w.tools.stale.Store(true)
	select {
	case w.reoffer <- struct{}{}:
	default: // it will be looked at anyway
	}
}
