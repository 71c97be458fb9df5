package dispatcher

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/catalog"
	"github.com/toolyard/toolyard/internal/presence"
	"github.com/toolyard/toolyard/internal/registry"
)

// workerRegistry is the workers as one dispatcher sees them: which are alive, and what they offer.
type workerRegistry struct {
	b   Broker
	log *slog.Logger

	mu   sync.Mutex
	live map[string]broker.Worker
	// stalls counts the stalled calls that all workers have reported to this registry.
	stalls int
	// book judges whether silent workers may still act; restart asks the watch to begin again.
	book    *presence.Book
	restart chan struct{}
	// revision is the highest of an entry that was taken in; grown is closed when it grows.
	revision uint64
	grown    chan struct{}
	// catalog is what the workers offer; changed is closed when that changes, and changes counts how often; conflicts
	// are those in it that were logged.
	catalog   *catalog.Catalog
	changed   chan struct{}
	changes   atomic.Uint64
	conflicts map[string]bool
	unread    map[string]string // why a worker's entry or its tools cannot be read, by its id, as it was logged
	unproven  broker.Said       // why it cannot be read whether workers that were not heard of live
	ready     chan struct{}     // closed when the first look at all workers is complete
	began     time.Time         // when it was
}

func newWorkerRegistry(b Broker, log *slog.Logger, base []registry.Entry) *workerRegistry {
	return &workerRegistry{
		b: b, log: log, live: map[string]broker.Worker{}, restart: make(chan struct{}, 1), catalog: catalog.New(base),
		changed: make(chan struct{}), ready: make(chan struct{}), grown: make(chan struct{}),
		unread: map[string]string{},
		book:   presence.New(b.Settings().WorkerTTL, broker.Patience(b.Settings().WorkerTTL)),
	}
}

// watch follows the workers until ctx ends.
func (r *workerRegistry) watch(ctx context.Context) error {
	var ready sync.Once
	return r.b.WatchWorkers(ctx, r.restart, func(c broker.WorkerChange, err error) {
		switch {
		case err != nil:
			r.warnUnread(c.ID, "a worker's entry cannot be read", err)
			r.noteEntry(broker.Worker{ID: c.ID}, c.Revision, false)
		case c.State == broker.WatchCaughtUp:
			r.mu.Lock()
			r.book.CaughtUp(time.Now())
			if r.began.IsZero() {
				r.began = time.Now()
			}
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
		r.mu.Lock()
		defer r.mu.Unlock()
		if c.Revision > r.revision {
			r.revision = c.Revision
			close(r.grown)
			r.grown = make(chan struct{})
		}
	})
}

// longestCatchUp is how long a batch waits until the watch has caught up with the registry.
const longestCatchUp = 2 * time.Second

// catchUp returns when the watch has delivered all that was stored in the registry when it was called, or with an error
// after [longestCatchUp]. A worker is ready when its entry is stored, and an agent may name its tools before the watch
// has delivered that.
func (r *workerRegistry) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestCatchUp)
	defer cancel()
	last, err := r.b.LastEntry(ctx)
	for err == nil {
		r.mu.Lock()
		heard, news := r.revision, r.grown
		r.mu.Unlock()
		if heard >= last {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return fmt.Errorf("which workers are there is not known yet: %w", err)
}

// noteEntry notes a worker's entry, and returns the one before. When nothing but its ID can be read, the one before
// stands.
func (r *workerRegistry) noteEntry(w broker.Worker, revision uint64, readable bool) (was broker.Worker, alive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, alive = r.live[w.ID]
	if readable || !alive {
		r.live[w.ID] = w
	}
	if readable && alive {
		r.stalls += max(0, w.Stalls-was.Stalls)
	}
	r.book.Entry(w.ID, revision, time.Now())
	return was, alive
}

// add takes in a worker's entry, and offers its tools if they can be read. It may hold claims either way.
func (r *workerRegistry) add(ctx context.Context, w broker.Worker, revision uint64) {
	was, alive := r.noteEntry(w, revision, true)
	r.mu.Lock()
	known := r.catalog.Has(w.Toolset)
	same := known && alive && was.Toolset == w.Toolset
	if same {
		delete(r.unread, w.ID)
	}
	r.mu.Unlock()
	if same {
		return
	}
	var tools []registry.Entry
	var blocked []string
	if !known {
		var err error
		if tools, blocked, err = r.readToolset(ctx, w); err != nil {
			r.warnUnread(w.ID, "a worker's tools cannot be read; they are not offered", err)
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unread, w.ID)
	r.catalog.Put(w.ID, catalog.Worker{
		Pool: w.Pool, Toolset: w.Toolset, Workspaces: w.Workspaces, Tags: w.Tags, NoIsolation: w.NoIsolation,
		Host: registry.Host{Isolation: w.Isolation, Unsandboxed: w.Unsandboxed},
	}, tools, blocked)
	r.catalogChanged()
	r.log.Info("worker joined, or its tools have changed",
		"worker", w.ID, "pool", w.Pool, "classes", w.Classes, "isolation", w.Isolation)
	r.warnOfConflicts()
}

// warnUnread logs what of a worker cannot be read: once, and again for another reason. Each heartbeat tries again.
func (r *workerRegistry) warnUnread(id, what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := what + ": " + err.Error(); text != r.unread[id] {
		r.unread[id] = text
		r.log.Warn(what, "worker", id, "error", err)
	}
}

// catalogChanged tells those who wait for a change of the catalog. The lock is held.
func (r *workerRegistry) catalogChanged() {
	r.changes.Add(1)
	close(r.changed)
	r.changed = make(chan struct{})
}

// warnOfConflicts logs the names that several pools or origins offer, the pools of which tools are left out, and those
// whose workers have different tags, each conflict once while it lasts. The lock is held.
func (r *workerRegistry) warnOfConflicts() {
	const most = 20
	now, fresh := map[string]bool{}, 0
	warn := func(what, text string) {
		if now[text] = true; r.conflicts[text] {
			return
		}
		if fresh++; fresh <= most {
			r.log.Warn(what, "conflict", text)
		}
	}
	for _, c := range r.catalog.Conflicts() {
		warn("a tool's name is offered more than once", c.String())
	}
	for _, text := range r.catalog.LeftOut() {
		warn("the workers offer more tools than a batch may see", text)
	}
	for _, pool := range r.catalog.Differ() {
		warn("the workers of a pool have different tags; what only some have does not count", fmt.Sprintf("pool %s", pool))
	}
	r.conflicts = now
	if more := fresh - most; more > 0 {
		r.log.Warn("there are more such conflicts; dispatcher workers lists them", "more", more)
	}
}

// forgetPools drops what pools offered last that have had no worker for so long that their work queues are deleted.
func (r *workerRegistry) forgetPools() {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := r.catalog.Forget(r.b.Settings().KeptFor(), time.Now())
	if len(gone) == 0 {
		return
	}
	r.catalogChanged()
	r.warnOfConflicts()
	r.log.Info("pools that have had no worker for long are forgotten, with their tools", "pools", gone)
}

// checkOverdue reads the entries of workers whose heartbeat is overdue. A worker without an entry is removed. If
// one has an entry, the watch has missed it, and restarts.
func (r *workerRegistry) checkOverdue(ctx context.Context) {
	r.mu.Lock()
	overdue := r.book.Overdue(time.Now())
	r.mu.Unlock()
	for _, id := range overdue {
		switch v, err := r.read(ctx, id); {
		case err != nil:
			if ctx.Err() == nil {
				r.log.Log(ctx, r.unproven.Level(err.Error()), "a worker was not heard of, and its entry cannot be read",
					"worker", id, "error", err)
			}
			return // so it is with the others
		case v == presence.Alive:
			level := slog.LevelWarn
			if r.b.Away() {
				level = slog.LevelDebug
			}
			r.log.Log(ctx, level, "the watch of the workers is late; it begins anew", "worker", id)
			select {
			case r.restart <- struct{}{}:
			default: // it is asked already
			}
			return
		case v == presence.Silent:
			r.unproven = ""
			r.mu.Lock()
			r.book.Forget(id)
			r.mu.Unlock()
			r.remove(id)
		}
	}
}

// read judges a worker by its entry, read through the leader.
func (r *workerRegistry) read(ctx context.Context, id string) (presence.Verdict, error) {
	reading, err := r.b.ReadEntry(ctx, id)
	if err != nil {
		return presence.Unproven, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.Read(id, reading, time.Now()), nil
}

func (r *workerRegistry) readToolset(ctx context.Context, w broker.Worker) (tools []registry.Entry, blocked []string,
	err error) {
	stored, err := r.b.Surface(ctx, w.Toolset)
	if err != nil {
		return nil, nil, err
	}
	s, err := registry.Decode(stored)
	if err != nil {
		return nil, nil, err
	}
	if s.Hash != w.Toolset {
		return nil, nil, fmt.Errorf("the toolset is named %.12s and is %.12s", w.Toolset, s.Hash)
	}
	// One worker's bad declaration must not take the tools of all others out of the registry.
	if _, err := (registry.Registry{}).Register(s.Tools...); err != nil {
		return nil, nil, err
	}
	return s.Tools, s.Blocked, nil
}

func (r *workerRegistry) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.live[id]; !ok {
		return
	}
	delete(r.live, id)
	delete(r.unread, id)
	r.catalog.Remove(id)
	r.catalogChanged()
	r.log.Info("worker left", "worker", id)
}

// askOf is what a batch asks of the workers that run its calls.
func askOf(b *toolyard.Batch) catalog.Ask {
	return catalog.Ask{Workspace: b.Workspace, Tags: b.Options.Tags, Undo: b.Options.Undo}
}

// tools returns the tools for an ask, as they are offered now.
func (r *workerRegistry) tools(ask catalog.Ask) (registry.Registry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.catalog.Tools(ask)
}

// unable returns what says why no worker runs a call for an ask: see [catalog.Catalog.Unable].
func (r *workerRegistry) unable(ask catalog.Ask) func(*registry.Entry, toolyard.Class) (message, detail string) {
	return func(e *registry.Entry, class toolyard.Class) (string, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.catalog.Unable(ask, e, class)
	}
}

// refuses reports whether the workers of a tool's pool are not what is asked for: see [catalog.Catalog.Refuses].
func (r *workerRegistry) refuses(ask catalog.Ask) func(*registry.Entry) bool {
	return func(e *registry.Entry) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.catalog.Refuses(ask, e)
	}
}

// settling returns for how long it is too early to say that nobody serves a workspace, and a channel that tells of
// changes. Workers that start together with the dispatcher may come a while after it, and while the watch is
// interrupted new ones are not seen.
func (r *workerRegistry) settling(wait time.Duration) (time.Duration, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := wait - time.Since(r.began)
	if !r.book.Hearing() { // also before the first look is complete
		left = max(left, sweepEvery)
	}
	return left, r.changed
}

// workers returns those that are live.
func (r *workerRegistry) workers() []broker.Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.live), func(a, b broker.Worker) int { return cmp.Compare(a.ID, b.ID) })
}

// checkToolset returns what is wrong with the tools that a worker announces under a hash.
func checkToolset(hash string, content []byte) error {
	s, err := registry.Decode(content)
	if err == nil && s.Hash != hash {
		err = fmt.Errorf("the toolset is named %.12s and is %.12s", hash, s.Hash)
	}
	return err
}

// count returns how many workers are live, and how many stalled calls they have counted.
func (r *workerRegistry) count(l *Load) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.Workers, l.Stalls = len(r.live), r.stalls
	for _, w := range r.live {
		l.Slots += w.Slots
		l.Busy += w.Busy
		l.Breakers += len(w.Breakers)
	}
}

// heardFrom notes a sign of life of a worker: a claim, or another event.
func (r *workerRegistry) heardFrom(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.Sign(id, time.Now())
}

// anyShard stands for all shards.
const anyShard = -1

// unserved returns those of the routes that no live worker serves in a shard, and none while that is not known.
func (r *workerRegistry) unserved(routes map[batch.Route]bool, shard int) []batch.Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.book.Hearing() {
		return nil
	}
	var out []batch.Route
	for route := range routes {
		served := false
		for _, w := range r.live {
			served = served || w.Pool == route.Pool && slices.Contains(w.Classes, route.Class) && w.Serves(shard)
		}
		if !served {
			out = append(out, route)
		}
	}
	return out
}

// serving is how many live workers serve each route in a shard, or in any shard at all if it is [anyShard].
func (r *workerRegistry) serving(shard int) map[batch.Route]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[batch.Route]int{}
	for _, w := range r.live {
		if shard != anyShard && !w.Serves(shard) {
			continue
		}
		for _, class := range w.Classes {
			out[batch.Route{Pool: w.Pool, Class: class}]++
		}
	}
	return out
}

// registered reports whether a worker is in the registry, as far as is known.
func (r *workerRegistry) registered(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.book.Entered(id)
}

// provenSilent reports whether it is proven that a worker which holds a claim and does not answer cannot act any
// more.
func (r *workerRegistry) provenSilent(ctx context.Context, id string) (bool, error) {
	r.mu.Lock()
	read := r.book.ToRead(id, time.Now())
	r.mu.Unlock()
	if !read {
		return false, nil
	}
	v, err := r.read(ctx, id)
	return v == presence.Silent, err
}

// inPools returns the workers of some pools that are in the registry, as far as is known.
func (r *workerRegistry) inPools(pools map[toolyard.Pool]bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id, w := range r.live {
		if pools[w.Pool] || w.Pool == "" { // an entry that cannot be read names none
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
