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
	"github.com/toolyard/toolyard/internal/presence"
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
	// book judges who of those that are not heard of may still act; again asks the watch to begin anew.
	book  *presence.Book
	again chan struct{}
	// toolsets are the declarations behind each toolset hash that was ever seen: a tool whose workers are all gone is
	// unavailable, not unknown.
	toolsets map[string][]registry.Entry
	offered  map[toolyard.Pool]string // the last toolset of each pool
	ready    chan struct{}            // closed when the first look at all workers is complete
	// built are registries by workspace, until something changes.
	built map[toolyard.Workspace]registry.Registry
}

func newRoster(b *broker.Broker, log *slog.Logger, base []registry.Entry) *roster {
	return &roster{
		b: b, log: log, base: base, live: map[string]broker.Worker{}, again: make(chan struct{}, 1),
		book:     presence.New(b.Settings().WorkerTTL, broker.Patience(b.Settings().WorkerTTL)),
		toolsets: map[string][]registry.Entry{}, offered: map[toolyard.Pool]string{}, ready: make(chan struct{}),
		built: map[toolyard.Workspace]registry.Registry{},
	}
}

// watch follows the workers until ctx ends.
func (r *roster) watch(ctx context.Context) error {
	var ready sync.Once
	return r.b.WatchWorkers(ctx, r.again, func(c broker.WorkerChange, err error) {
		switch {
		case err != nil:
			r.log.Warn("a worker's entry cannot be read", "worker", c.ID, "error", err)
			r.entered(broker.Worker{ID: c.ID}, c.Revision, false)
		case c.State == broker.WatchCaughtUp:
			r.mu.Lock()
			r.book.CaughtUp(time.Now())
			r.mu.Unlock()
			ready.Do(func() { close(r.ready) })
		case c.State == broker.WatchDeaf:
			r.mu.Lock()
			r.book.Deaf()
			r.mu.Unlock()
		case c.Worker == nil:
			r.mu.Lock()
			r.book.Gone(c.ID, time.Now())
			r.mu.Unlock()
			r.remove(c.ID)
		default:
			r.add(ctx, *c.Worker, c.Revision)
		}
	})
}

// entered notes a worker's entry, and reports how it stood before. When nothing but its ID can be read, what was known of it
// stands.
func (r *roster) entered(w broker.Worker, revision uint64, readable bool) (was broker.Worker, alive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, alive = r.live[w.ID]
	if readable || !alive {
		r.live[w.ID] = w
	}
	r.book.Entry(w.ID, revision, time.Now())
	return was, alive
}

func (r *roster) add(ctx context.Context, w broker.Worker, revision uint64) {
	// That it is alive is one thing, whether its tools can be read another: it may hold claims either way.
	was, alive := r.entered(w, revision, true)
	r.mu.Lock()
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

// check reads the entries of workers that should have been heard of by now. Whoever has stored nothing is taken out; when one
// has, the watch has missed it, and begins anew.
func (r *roster) check(ctx context.Context) {
	r.mu.Lock()
	overdue := r.book.Overdue(time.Now())
	r.mu.Unlock()
	for _, id := range overdue {
		switch v, err := r.read(ctx, id); {
		case err != nil:
			if ctx.Err() == nil {
				r.log.Warn("a worker was not heard of, and its entry cannot be read", "worker", id, "error", err)
			}
			return // so it is with the others
		case v == presence.Alive:
			r.log.Warn("the watch of the workers is late; it begins anew", "worker", id)
			select {
			case r.again <- struct{}{}:
			default: // it was told already
			}
			return
		case v == presence.Silent:
			r.mu.Lock()
			r.book.Forget(id)
			r.mu.Unlock()
			r.remove(id)
		}
	}
}

// read judges a worker by its entry, read through the leader.
func (r *roster) read(ctx context.Context, id string) (presence.Verdict, error) {
	reading, err := r.b.ReadEntry(ctx, id)
	if err != nil {
		return presence.Unproven, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.Read(id, reading, time.Now()), nil
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
	clear(r.built)
	r.log.Info("worker left", "worker", id)
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

// sign notes a sign of life of a worker: a claim, or another event.
func (r *roster) sign(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.Sign(id, time.Now())
}

// absent returns those of the routes that no live worker serves; none while it cannot be told.
func (r *roster) absent(routes map[batch.Route]bool) []batch.Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.book.Hearing() {
		return nil
	}
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

// here reports whether a worker is in the registry, as far as is known.
func (r *roster) here(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.Entered(id)
}

// silent reports whether it is proven that a worker which holds a claim and answers nothing cannot act any more.
func (r *roster) silent(ctx context.Context, id string) (bool, error) {
	r.mu.Lock()
	read := r.book.ToRead(id, time.Now())
	r.mu.Unlock()
	if !read {
		return false, nil
	}
	v, err := r.read(ctx, id)
	return v == presence.Silent, err
}
