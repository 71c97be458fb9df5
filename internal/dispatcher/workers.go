package dispatcher

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/registry"
)

// roster is the workers as one dispatcher sees them: who is alive, and what tools there are.
type roster struct {
	b    *broker.Broker
	log  *slog.Logger
	base []registry.Entry

	mu   sync.Mutex
	live map[string]broker.Worker
	// gone says when a worker was last seen, for a while after.
	gone map[string]time.Time
	// toolsets are the declarations behind each toolset hash that was ever seen: a tool whose workers are all gone is
	// unavailable, not unknown.
	toolsets map[string][]registry.Entry
	offered  map[toolyard.Pool]string // the last toolset of each pool
	since    time.Time                // when the first look at all workers was complete
	ready    chan struct{}
	// built are registries by workspace, until something changes.
	built map[toolyard.Workspace]registry.Registry
}

// goneKept is how many workers that are no more are remembered.
const goneKept = 10_000

func newRoster(b *broker.Broker, log *slog.Logger, base []registry.Entry) *roster {
	return &roster{
		b: b, log: log, base: base, live: map[string]broker.Worker{}, gone: map[string]time.Time{},
		toolsets: map[string][]registry.Entry{}, offered: map[toolyard.Pool]string{}, ready: make(chan struct{}),
		built: map[toolyard.Workspace]registry.Registry{},
	}
}

// watch follows the workers until ctx ends.
func (r *roster) watch(ctx context.Context) error {
	return r.b.WatchWorkers(ctx, func(c broker.WorkerChange, err error) {
		switch {
		case err != nil:
			r.log.Warn("a worker's entry cannot be read", "error", err)
		case c.ID == "":
			r.mu.Lock()
			r.since = time.Now()
			r.mu.Unlock()
			close(r.ready)
		case c.Worker == nil:
			r.remove(c.ID)
		default:
			r.add(ctx, *c.Worker)
		}
	})
}

func (r *roster) add(ctx context.Context, w broker.Worker) {
	r.mu.Lock()
	_, known := r.toolsets[w.Toolset]
	_, alive := r.live[w.ID]
	r.mu.Unlock()
	if !known {
		tools, err := r.readToolset(ctx, w)
		if err != nil {
			r.log.Warn("a worker's tools cannot be read; it gets no calls", "worker", w.ID, "error", err)
			return
		}
		r.mu.Lock()
		r.toolsets[w.Toolset] = tools
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[w.ID] = w
	delete(r.gone, w.ID)
	if !alive || r.offered[w.Pool] != w.Toolset {
		r.offered[w.Pool] = w.Toolset
		clear(r.built)
		r.log.Info("worker joined", "worker", w.ID, "pool", w.Pool, "classes", w.Classes, "isolation", w.Isolation)
	}
}

func (r *roster) readToolset(ctx context.Context, w broker.Worker) ([]registry.Entry, error) {
	stored, err := r.b.Surface(ctx, w.Toolset)
	if err != nil {
		return nil, err
	}
	s, err := registry.Decode(stored)
	if err != nil {
		return nil, err
	}
	if s.Hash != w.Toolset {
		return nil, fmt.Errorf("the toolset is named %.12s and is %.12s", w.Toolset, s.Hash)
	}
	// One worker's bad declaration must not take the tools of all others out of the registry.
	if _, err := (registry.Registry{}).Register(s.Tools...); err != nil {
		return nil, err
	}
	return s.Tools, nil
}

func (r *roster) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.live[id]; !ok {
		return
	}
	delete(r.live, id)
	if len(r.gone) >= goneKept {
		clear(r.gone) // forgotten ones count as gone since the roster's first look, which is longer
	}
	r.gone[id] = time.Now()
	clear(r.built)
	r.log.Info("worker left", "worker", id)
}

// registry returns the tools for a workspace: the base, and what pools offer or last offered. Of several pools with one
// tool, one with a live worker that serves the workspace wins, then one with a live worker, then the first by name.
func (r *roster) registry(w toolyard.Workspace) (registry.Registry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reg, ok := r.built[w]; ok {
		return reg, nil
	}
	rank := map[toolyard.Pool]int{}
	for _, worker := range r.live {
		n := 1
		if slices.Contains(worker.Workspaces, w) {
			n = 2
		}
		rank[worker.Pool] = max(rank[worker.Pool], n)
	}
	best := map[string]registry.Entry{}
	for _, pool := range slices.Sorted(maps.Keys(r.offered)) {
		for _, e := range r.toolsets[r.offered[pool]] {
			e.Pool = pool
			if have, ok := best[e.Name]; !ok || rank[pool] > rank[have.Pool] {
				best[e.Name] = e
			}
		}
	}
	for _, e := range r.base {
		if _, ok := best[e.Name]; !ok {
			best[e.Name] = e
		}
	}
	reg, err := registry.Registry{}.Register(slices.Collect(maps.Values(best))...)
	if err != nil {
		return reg, fmt.Errorf("put the workers' tools together: %w", err)
	}
	r.built[w] = reg
	return reg, nil
}

// absent returns those of the routes that no live worker serves.
func (r *roster) absent(routes map[batch.Route]bool) []batch.Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []batch.Route
	for route := range routes {
		served := false
		for _, w := range r.live {
			served = served || w.Pool == route.Pool && slices.Contains(w.Classes, route.Class)
		}
		if !served {
			out = append(out, route)
		}
	}
	return out
}

// silent reports whether a worker has been gone for at least d.
func (r *roster) silent(id string, d time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.live[id]; ok {
		return false
	}
	last, ok := r.gone[id]
	if !ok {
		last = r.since
	}
	return !last.IsZero() && time.Since(last) >= d
}
