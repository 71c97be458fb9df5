package follow

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/registry"
)

// ToolStore is what the tools of workers are read from.
type ToolStore interface {
	broker.Registry
	broker.Blobs
}

// Offers says whose tools are followed.
type Offers struct {
	Store ToolStore
	// Base are the tools that are known without any worker.
	Base []registry.Entry
	// Blocked reports what a deny rule takes out. Nil: nothing.
	Blocked func(name string, aliases []string) bool
	Log     *slog.Logger
}

// Follow gives see the tools that the live workers of a system offer, and again whenever they may be others, until ctx
// ends. Of a pool whose workers differ, as while it is being replaced, the youngest speaks. The first time is when all
// workers that are there were looked at.
func (f Offers) Follow(ctx context.Context, see func(registry.Surface) error) {
	o := &offered{Offers: f, see: see, toolsets: map[string]registry.Surface{}}
	for ctx.Err() == nil {
		o.live, o.began = map[string]broker.Worker{}, false
		err := o.Store.WatchWorkers(ctx, nil, func(c broker.WorkerChange, err error) {
			if err == nil && o.changed(c) && o.began {
				o.tell(ctx)
			}
		})
		select {
		case <-ctx.Done():
		case <-time.After(reread):
			o.Log.Warn("the workers' tools are looked at again", "error", err)
		}
	}
}

// offered is what is known of the offers.
type offered struct {
	Offers
	see func(registry.Surface) error

	live     map[string]broker.Worker
	toolsets map[string]registry.Surface // by their hash: of live workers alone, since one may have megabytes
	began    bool
}

// changed takes a change in, and reports whether other tools may be offered after it.
func (o *offered) changed(c broker.WorkerChange) bool {
	have, there := o.live[c.ID]
	switch {
	case c.State == broker.WatchCaughtUp:
		o.began = true
		return true
	case c.State != "":
		return false
	case c.Worker == nil:
		delete(o.live, c.ID)
		return there
	}
	o.live[c.ID] = *c.Worker
	return !there || have.Toolset != c.Worker.Toolset || have.Pool != c.Worker.Pool
}

func (o *offered) tell(ctx context.Context) {
	surface, err := o.surface(ctx)
	if err == nil {
		err = o.see(surface)
	}
	if err != nil && ctx.Err() == nil {
		o.Log.Warn("the workers' tools cannot be listed", "error", err)
	}
}

// surface is what is offered now. A pool whose tools cannot be read or registered offers none. Where all pools together
// offer more than a registry takes, each has the same share of it.
func (o *offered) surface(ctx context.Context) (registry.Surface, error) {
	o.forget()
	var all []registry.Entry
	seen := map[string]bool{}
	var blocked []string
	for _, w := range broker.Youngest(maps.Values(o.live)) {
		set, err := o.toolset(ctx, w.Toolset)
		if err != nil {
			o.Log.Warn("the tools of a pool cannot be read", "pool", w.Pool, "error", err)
			continue
		}
		entries := unseen(set.Tools, seen)
		if _, err := (registry.Registry{}).Register(entries...); err != nil {
			o.Log.Warn("the tools of a pool cannot be listed", "pool", w.Pool, "error", err)
			continue
		}
		for i := range entries {
			entries[i].Pool = w.Pool
			seen[entries[i].Name] = true
		}
		all = append(all, entries...)
		for i := range o.Base {
			if name := o.Base[i].Name; o.Base[i].Pool == w.Pool && slices.Contains(set.Blocked, name) && !seen[name] {
				blocked = append(blocked, name)
			}
		}
	}
	for _, name := range blocked { // by the rules of the pool's worker
		seen[name] = true
	}
	kept, left, err := registry.Fit(append(all, unseen(o.Base, seen)...))
	if err != nil {
		return registry.Surface{}, err
	}
	for pool, n := range left {
		o.Log.Warn("tools of a pool are not listed: all pools offer too many together", "pool", pool, "left_out", n)
	}
	reg, err := registry.Registry{}.Register(kept...)
	if err != nil {
		return registry.Surface{}, fmt.Errorf("register the tools: %w", err)
	}
	return registry.Assemble(reg, o.Blocked)
}

// unseen are the entries for models whose names are still free.
func unseen(entries []registry.Entry, seen map[string]bool) []registry.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e registry.Entry) bool {
		return seen[e.Name] || !registry.ForModels(e.Name)
	})
}

// forget drops the toolsets that no live worker has any more.
func (o *offered) forget() {
	used := map[string]bool{}
	for _, w := range o.live {
		used[w.Toolset] = true
	}
	maps.DeleteFunc(o.toolsets, func(hash string, _ registry.Surface) bool { return !used[hash] })
}

// toolset reads the tools behind a hash, once while a live worker has them.
func (o *offered) toolset(ctx context.Context, hash string) (registry.Surface, error) {
	if have, ok := o.toolsets[hash]; ok {
		return have, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stored, err := o.Store.Surface(ctx, hash)
	if err != nil {
		return registry.Surface{}, err
	}
	set, err := registry.Decode(stored)
	if err != nil {
		return registry.Surface{}, err
	}
	o.toolsets[hash] = *set
	return *set, nil
}
