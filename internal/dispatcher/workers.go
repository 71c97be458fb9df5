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
	// beats says when each live worker was last heard of. The registry forgets silent workers by itself, but not always: a
	// server that is restarted has lost their time to live.
	beats map[string]time.Time
	// gone says when a worker was last seen, for a while after.
	gone map[string]time.Time
	// toolsets are the declarations behind each toolset hash that was ever seen: a tool whose workers are all gone is
	// unavailable, not unknown.
	toolsets map[string][]registry.Entry
	offered  map[toolyard.Pool]string // the last toolset of each pool
	ready    chan struct{}            // closed when the first look at all workers is complete
	// built are registries by workspace, until something changes.
	built map[toolyard.Workspace]registry.Registry
}

// goneKept is how many workers that are no more are remembered.
const goneKept = 10_000

func newRoster(b *broker.Broker, log *slog.Logger, base []registry.Entry) *roster {
	return &roster{
		b: b, log: log, base: base, live: map[string]broker.Worker{}, beats: map[string]time.Time{}, gone: map[string]time.Time{},
		toolsets: map[string][]registry.Entry{}, offered: map[toolyard.Pool]string{}, ready: make(chan struct{}),
		built: map[toolyard.Workspace]registry.Registry{},
	}
}

// watch follows the workers until ctx ends.
func (r *roster) watch(ctx context.Context) error {
	return r.b.WatchWorkers(ctx, func(c broker.WorkerChange, err error) {
		switch {
		case err != nil:
			r.log.Warn("a worker's entry cannot be read", "worker", c.ID, "error", err)
			r.heard(c.ID)
		case c.ID == "":
			close(r.ready)
		case c.Worker == nil:
			r.remove(c.ID)
		default:
			r.add(ctx, *c.Worker)
		}
	})
}

func (r *roster) add(ctx context.Context, w broker.Worker) {
	// That it is alive is one thing, whether its tools can be read another: it may hold claims either way.
	r.mu.Lock()
	_, alive := r.live[w.ID]
	r.live[w.ID], r.beats[w.ID] = w, time.Now()
	delete(r.gone, w.ID)
	_, known := r.toolsets[w.Toolset]
	r.mu.Unlock()
	if !known {
		tools, err := r.readToolset(ctx, w)
		if err != nil {
			r.log.Warn("a worker's tools cannot be read; they are not offered", "worker", w.ID, "error", err)
			return
		}
		r.mu.Lock()
		r.toolsets[w.Toolset] = tools
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !alive || r.offered[w.Pool] != w.Toolset {
		r.offered[w.Pool] = w.Toolset
		clear(r.built)
		r.log.Info("worker joined", "worker", w.ID, "pool", w.Pool, "classes", w.Classes, "isolation", w.Isolation)
	}
}

// expire takes out workers that were not heard of for longer than their time to live.
func (r *roster) expire(ttl time.Duration) {
	r.mu.Lock()
	var silent []string
	for id, at := range r.beats {
		if time.Since(at) > ttl {
			silent = append(silent, id)
		}
	}
	r.mu.Unlock()
	for _, id := range silent {
		r.remove(id)
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
	delete(r.beats, id)
	r.forget(id, time.Now())
	clear(r.built)
	r.log.Info("worker left", "worker", id)
}

// forget notes since when a worker is not there.
func (r *roster) forget(id string, since time.Time) {
	if len(r.gone) >= goneKept {
		clear(r.gone) // those wait a second time, which does no harm
	}
	r.gone[id] = since
}

// registry returns the tools for a workspace: the base, and what pools offer or last offered. Of several pools with one
// tool, one with a live worker that serves the workspace wins, then one with a live worker, then the first by name.
func (r *roster) registry(w toolyard.Workspace) (registry.Registry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reg, ok := r.built[w]; ok {
		return reg, nil
	}
	serves, bare := map[toolyard.Pool]bool{}, map[toolyard.Pool]bool{}
	for _, worker := range r.live {
		serves[worker.Pool] = serves[worker.Pool] || slices.Contains(worker.Workspaces, w)
		bare[worker.Pool] = bare[worker.Pool] || worker.Isolation == "" || worker.Isolation == isolationNone
	}
	// rank says how well a pool can run a tool: it should have the workspace, and isolate all that must be isolated.
	rank := func(pool toolyard.Pool, e *registry.Entry) int {
		n := 0
		if serves[pool] {
			n += 2
		}
		if isolated := e.Class.Shell != "" || e.Class.Static == toolyard.Unsafe; isolated && !bare[pool] {
			n++
		}
		return n
	}
	best := map[string]registry.Entry{}
	for _, pool := range slices.Sorted(maps.Keys(r.offered)) {
		for _, e := range r.toolsets[r.offered[pool]] {
			e.Pool = pool
			if have, ok := best[e.Name]; !ok || rank(pool, &e) > rank(have.Pool, &have) {
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

// heard notes that a worker is alive of which nothing else can be said.
func (r *roster) heard(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.live[id]
	w.ID = id
	r.live[id], r.beats[id] = w, time.Now()
	delete(r.gone, id)
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

// isolationNone is what a worker says of itself that isolates nothing.
const isolationNone = "none"

// here reports whether a worker is in the registry.
func (r *roster) here(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.live[id]
	return ok
}

// silent reports whether a worker has been gone for at least d.
func (r *roster) silent(id string, d time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.live[id]; ok {
		return false
	}
	last, ok := r.gone[id]
	if !ok { // never heard of, or forgotten: it may have joined just now, and its wait begins here
		last = time.Now()
		r.forget(id, last)
	}
	return time.Since(last) >= d
}
