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
	"github.com/toolyard/toolyard/tool"
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
	was, alive := r.live[w.ID]
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
	if !alive || !known || was.Toolset != w.Toolset {
		r.offered[w.Pool] = w.Toolset
		clear(r.built)
		r.log.Info("worker joined, or its tools have changed", "worker", w.ID, "pool", w.Pool, "classes", w.Classes, "isolation", w.Isolation)
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
// tool, one with a live worker that serves the workspace wins, then one that can run all its calls, isolated rather than not,
// then the first by name.
func (r *roster) registry(w toolyard.Workspace) (registry.Registry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reg, ok := r.built[w]; ok {
		return reg, nil
	}
	serves, hosts := map[toolyard.Pool]bool{}, map[toolyard.Pool]map[registry.Host]bool{}
	for _, worker := range r.live {
		serves[worker.Pool] = serves[worker.Pool] || slices.Contains(worker.Workspaces, w)
		if hosts[worker.Pool] == nil {
			hosts[worker.Pool] = map[registry.Host]bool{}
		}
		hosts[worker.Pool][hostOf(&worker)] = true
	}
	rank := func(pool toolyard.Pool, e *registry.Entry) int {
		n := 0
		if serves[pool] {
			n += 4
		}
		best := 0
		for h := range hosts[pool] {
			switch {
			case !e.NeedsIsolation(worst(&e.Class)) || h.Refuses(&e.Declaration, worst(&e.Class)) != "":
			case h.Unsandboxed:
				best = max(best, 1)
			default:
				best = 2
			}
		}
		return n + best
	}
	// By origin too: whoever comes first of those that have one name is the surface's to say.
	type key struct {
		origin registry.Origin
		name   string
	}
	best := map[key]registry.Entry{}
	for _, pool := range slices.Sorted(maps.Keys(r.offered)) {
		for _, toolset := range r.toolsetsOf(pool) {
			for _, e := range r.toolsets[toolset] {
				e.Pool = pool
				k := key{e.Origin, e.Name}
				if have, ok := best[k]; !ok || rank(pool, &e) > rank(have.Pool, &have) {
					best[k] = e
				}
			}
		}
	}
	for _, e := range r.base {
		k := key{e.Origin, e.Name}
		if _, ok := best[k]; !ok {
			best[k] = e
		}
	}
	reg, err := registry.Registry{}.Register(slices.Collect(maps.Values(best))...)
	if err != nil {
		return reg, fmt.Errorf("put the workers' tools together: %w", err)
	}
	r.built[w] = reg
	return reg, nil
}

// toolsetsOf are those of a pool: what was offered last, which decides, and what other live workers have beside it, since a
// server that one worker cannot reach may be there for another. r.mu is held.
func (r *roster) toolsetsOf(pool toolyard.Pool) []string {
	out := []string{r.offered[pool]}
	for _, id := range slices.Sorted(maps.Keys(r.live)) {
		if w := r.live[id]; w.Pool == pool && !slices.Contains(out, w.Toolset) {
			out = append(out, w.Toolset)
		}
	}
	return out
}

// count is how many workers are live.
func (r *roster) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
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

// hostOf is what a worker says that it can put around calls.
func hostOf(w *broker.Worker) registry.Host {
	return registry.Host{Isolation: w.Isolation, Unsandboxed: w.Unsandboxed}
}

// worst is the strictest class that calls of a tool can have.
func worst(c *tool.ClassRule) toolyard.Class {
	if c.Shell == "" && c.Static != "" {
		return c.Static
	}
	return toolyard.Unsafe
}

// unable says why no worker of a tool's pool runs a call of it that is of a class, to the model and to the operator. The first is
// empty when one does, and when the pool has no workers: one that joins may.
func (r *roster) unable(e *registry.Entry, class toolyard.Class) (message, detail string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(r.live)) {
		w := r.live[id]
		if w.Pool != e.Pool {
			continue
		}
		why := hostOf(&w).Refuses(&e.Declaration, class)
		if why == "" {
			return "", ""
		}
		message = why
		if detail == "" && e.Execution != tool.InWorker {
			detail = w.NoIsolation
		}
	}
	if message == "" {
		return "", ""
	}
	message += " An operator has to set this up; go on without it, and say so."
	if e.Execution == tool.InWorker {
		detail = fmt.Sprintf("give calls of %q a class, or say in its declaration that it runs in a sandbox or a service; --dangerously-run-unsandboxed runs it as it is", e.Name)
	} else if detail == "" {
		detail = "\"worker check\" on the workers' machines says what is missing"
	}
	return message, fmt.Sprintf("pool %s: %s", e.Pool, detail)
}

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
