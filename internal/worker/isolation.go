package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// maxNoIsolation bounds what a worker announces of why it isolates nothing, in bytes.
const maxNoIsolation = 2_000

// maxHost bounds the name of a machine that a worker announces, in bytes. Linux's is 64.
const maxHost = 256

// host is what the worker can put around calls.
func (c *Config) host() registry.Host {
	return registry.Host{Isolation: c.Isolation, Unsandboxed: c.Unsandboxed}
}

// takes are the classes that a worker takes calls of: not UNSAFE ones when it could run none of any of its tools.
// They are left to another worker of the pool, and where there is none the dispatcher answers them.
func takes(c *Config) ([]toolyard.Class, error) {
	tools := slices.Concat(c.Tools, c.Declared)
	if len(tools) == 0 || len(c.Toolsets) > 0 || slices.ContainsFunc(tools,
		func(t tool.Tool) bool { return c.host().RunsUnsafe(&t.Declaration) }) {
		return c.Classes, nil
	}
	left := slices.DeleteFunc(slices.Clone(c.Classes), func(c toolyard.Class) bool { return c == toolyard.Unsafe })
	if len(left) > 0 {
		return left, nil
	}
	if c.NoIsolation != "" {
		return nil, fmt.Errorf("the worker is to take UNSAFE calls only, and can run none: %s", c.NoIsolation)
	}
	return nil, errors.New("the worker is to take UNSAFE calls only, and none of its tools can be isolated; give " +
		"it other classes or other tools")
}

// peers are the other live workers, as far as this one knows them. The zero value knows none.
type peers struct {
	mu   sync.Mutex
	live map[string]broker.Worker
	// all says that all who are there have been heard of.
	all bool
}

// maxPeers bounds how many are remembered: of one pool, a handful that isolate are enough to leave calls to.
const maxPeers = 10_000

// setState notes the state of the watch of the workers.
func (p *peers) setState(state broker.WatchState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = state == broker.WatchCaughtUp
}

// toolsets are those of the other live workers that take a pool's calls of a class; ok is false while it is not known
// who is there.
func (p *peers) toolsets(pool toolyard.Pool, class toolyard.Class) (hashes map[string]bool, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hashes = map[string]bool{}
	for _, w := range p.live {
		if w.Pool == pool && slices.Contains(w.Classes, class) {
			hashes[w.Toolset] = true
		}
	}
	return hashes, p.all && len(p.live) < maxPeers
}

// withdrawn reports whether no worker of the pool has a tool any more that was offered when a batch was planned. What
// is not known says no: a server may be on its way back, or another worker may have the tool.
func (w *Worker) withdrawn(ctx context.Context, call *events.RequestedCall) bool {
	for _, set := range w.toolsets.list() {
		if set.Tools() == nil {
			return false
		}
	}
	return !w.mayOffer(ctx, call.Judgement.Class, func(d *tool.Declaration) bool { return d.Name == call.Tool })
}

// mayBeElsewhere reports whether another worker of the pool may have the tool of a declaration. A call that was handed
// out often may just have met workers without the tool: how long it waits for one with it is its owner's decision.
func (w *Worker) mayBeElsewhere(ctx context.Context, call *events.RequestedCall) bool {
	return w.mayOffer(ctx, call.Judgement.Class, func(d *tool.Declaration) bool {
		hash, err := registry.Hash(*d)
		return err != nil || hash == call.Declaration
	})
}

// mayOffer reports whether another worker of the pool may offer a tool and take calls of a class. It reports false only
// when it is known that none does.
func (w *Worker) mayOffer(ctx context.Context, class toolyard.Class, is func(*tool.Declaration) bool) bool {
	hashes, ok := w.peers.toolsets(w.cfg.Pool, class)
	if !ok {
		return true
	}
	for hash := range hashes {
		tools, err := w.surfaces.offered(ctx, w.b, hash)
		if err != nil || slices.ContainsFunc(tools, func(t tool.Offered) bool { return is(&t.Declaration) }) {
			return true
		}
	}
	return false
}

// lacks are the tags that a call asks for, or its tool, and that this worker does not have.
func (w *Worker) lacks(r *running, e *registry.Entry) []toolyard.Tag {
	return slices.DeleteFunc(slices.Concat(r.d.Tags, e.Tags),
		func(t toolyard.Tag) bool { return slices.Contains(w.cfg.Tags, t) })
}

// taggedElsewhere reports whether another worker of the pool may have all the tags that a call asks for. It reports
// false only when it is known that none does.
func (w *Worker) taggedElsewhere(r *running, e *registry.Entry) bool {
	w.peers.mu.Lock()
	defer w.peers.mu.Unlock()
	for _, p := range w.peers.live {
		if p.Pool == w.cfg.Pool && slices.Contains(p.Classes, r.call.Judgement.Class) &&
			!slices.ContainsFunc(slices.Concat(r.d.Tags, e.Tags),
				func(t toolyard.Tag) bool { return !slices.Contains(p.Tags, t) }) {
			return true
		}
	}
	return !w.peers.all || len(w.peers.live) >= maxPeers
}

// update takes note of a worker, or that it is gone (nil).
func (p *peers) update(id string, w *broker.Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w == nil {
		delete(p.live, id)
		return
	}
	if p.live == nil {
		p.live = map[string]broker.Worker{}
	}
	if _, known := p.live[id]; known || len(p.live) < maxPeers {
		p.live[id] = *w
	}
}

// elsewhere reports whether a call is for another worker of the pool: this one cannot isolate it, and that one can.
func (w *Worker) elsewhere(d *tool.Declaration, class toolyard.Class) bool {
	if w.cfg.host().Refuses(d, class) == "" {
		return false
	}
	w.peers.mu.Lock()
	defer w.peers.mu.Unlock()
	for _, p := range w.peers.live {
		host := registry.Host{Isolation: p.Isolation, Unsandboxed: p.Unsandboxed}
		if p.Pool == w.cfg.Pool && slices.Contains(p.Classes, class) && host.Refuses(d, class) == "" {
			return true
		}
	}
	return false
}
