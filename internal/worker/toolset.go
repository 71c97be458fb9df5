package worker

import (
	"context"
	"slices"
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
	w.toolsets.begin(running, w.changed)
	w.settle(ctx)
	w.tools.stale.Store(true) // what has settled is offered from the first heartbeat on
	return func() { w.toolsets.end(end) }
}

// runningSets are a worker's toolsets. They can be replaced while they run.
type runningSets struct {
	mu      sync.Mutex
	all     []Toolset
	ctx     context.Context // of those that run; nil before they do
	changed func()
	started []startedSet
	run     sync.WaitGroup
}

type startedSet struct {
	Toolset
	stop context.CancelFunc
}

// list returns the toolsets that there are now.
func (s *runningSets) list() []Toolset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// begin starts all toolsets. changed is called when the tools of one may have changed.
func (s *runningSets) begin(ctx context.Context, changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.changed = ctx, changed
	for _, set := range s.all {
		s.start(set)
	}
}

// start starts a toolset. The lock is held.
func (s *runningSets) start(set Toolset) {
	ctx, stop := context.WithCancel(s.ctx)
	s.started = append(s.started, startedSet{set, stop})
	changed := s.changed
	s.run.Go(func() { set.Run(ctx) })
	s.run.Go(func() {
		for {
			select {
			case <-set.Changed():
				changed()
			case <-ctx.Done():
				return
			}
		}
	})
}

// replace starts the toolsets that are new, and ends those that are not there any more after a grace, for their calls
// that run.
func (s *runningSets) replace(all []Toolset, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = all
	if s.ctx == nil || s.ctx.Err() != nil {
		return // they are not started yet, or have ended
	}
	s.started = slices.DeleteFunc(s.started, func(had startedSet) bool {
		gone := !slices.Contains(all, had.Toolset)
		if gone {
			time.AfterFunc(grace, had.stop)
		}
		return gone
	})
	for _, set := range all {
		if !slices.ContainsFunc(s.started, func(has startedSet) bool { return has.Toolset == set }) {
			s.start(set)
		}
	}
}

// end ends all toolsets and returns when nothing of them runs any more.
func (s *runningSets) end(stop context.CancelFunc) {
	s.mu.Lock()
	stop()
	s.mu.Unlock()
	s.run.Wait()
}

// settle waits until every toolset has tools or has failed, for ToolsetWait in all.
func (w *Worker) settle(ctx context.Context) {
	if w.cfg.ToolsetWait <= 0 || len(w.toolsets.list()) == 0 {
		return
	}
	late := time.NewTimer(w.cfg.ToolsetWait)
	defer late.Stop()
	for _, set := range w.toolsets.list() {
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
