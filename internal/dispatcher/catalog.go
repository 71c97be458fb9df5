package dispatcher

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// The limits of what is made of what pools offer.
const (
	maxBuilt  = 64 // registries that are kept
	maxListed = 20 // workspaces that an answer lists
)

// offers is what pools offer: tools, and workspaces. It is not safe for concurrent use; the lock of its roster is
// around it.
type offers struct {
	base []registry.Entry
	// live are the live workers, which are the roster's to change.
	live map[string]broker.Worker
	// toolsets are the declarations behind the hashes of toolsets that a live worker has, or a pool offered last: a
	// tool whose workers are all gone is unavailable, not unknown.
	toolsets map[string][]registry.Entry
	// blocked are names that the rules of a worker take out of its toolset, by the toolset's hash.
	blocked map[string][]string
	last    map[toolyard.Pool]offer
	// changed is closed when something changes.
	changed chan struct{}

	// What follows from the above is made when it is needed. pools is nil before.
	pools map[toolyard.Pool]*pool
	named map[toolyard.Workspace]bool // by any pool
	ways  map[toolyard.Workspace]string
	built map[string]registry.Registry // by way
}

// offer is what the worker of a pool offers that joined last.
type offer struct {
	toolset    string
	workspaces []toolyard.Workspace
}

// pool is what is known of one by its live workers; when there are none, by what it offered last.
type pool struct {
	live bool
	// named are the workspaces that its workers name. every says that one of them names none: it serves every
	// workspace, and tools get no directory there.
	named    map[toolyard.Workspace]bool
	every    bool
	hosts    map[registry.Host]bool
	toolsets []string
}

func newPool(toolsets ...string) *pool {
	return &pool{named: map[toolyard.Workspace]bool{}, hosts: map[registry.Host]bool{}, toolsets: toolsets}
}

// service is how a pool stands to a workspace. More is better.
type service int

// The services.
const (
	refused    service = iota // its workers serve other workspaces
	nameless                  // one of them serves every workspace
	servedLast                // it has no workers now, and the last one served the workspace
	served
)

func (p *pool) service(w toolyard.Workspace) service {
	switch {
	case p.named[w] && p.live:
		return served
	case p.named[w]:
		return servedLast
	case p.every:
		return nameless
	}
	return refused
}

func newOffers(base []registry.Entry, live map[string]broker.Worker) *offers {
	return &offers{
		base: base, live: live, toolsets: map[string][]registry.Entry{}, blocked: map[string][]string{}, last: map[toolyard.Pool]offer{},
		changed: make(chan struct{}),
	}
}

// renew notes that workers, or what they offer, have changed.
func (o *offers) renew() {
	o.pools, o.named, o.ways, o.built = nil, nil, nil, nil
	close(o.changed)
	o.changed = make(chan struct{})
	used := map[string]bool{}
	for _, l := range o.last {
		used[l.toolset] = true
	}
	for _, w := range o.live {
		used[w.Toolset] = true
	}
	maps.DeleteFunc(o.toolsets, func(hash string, _ []registry.Entry) bool { return !used[hash] })
	maps.DeleteFunc(o.blocked, func(hash string, _ []string) bool { return !used[hash] })
}

// look makes what follows from the workers.
func (o *offers) look() {
	if o.pools != nil {
		return
	}
	o.pools, o.named = map[toolyard.Pool]*pool{}, map[toolyard.Workspace]bool{}
	o.ways, o.built = map[toolyard.Workspace]string{}, map[string]registry.Registry{}
	note := func(name toolyard.Pool, toolset string, workspaces []toolyard.Workspace) *pool {
		p := o.pools[name]
		if p == nil {
			p = newPool()
			o.pools[name] = p
		}
		if !slices.Contains(p.toolsets, toolset) {
			p.toolsets = append(p.toolsets, toolset)
		}
		for _, w := range workspaces {
			p.named[w], o.named[w] = true, true
		}
		p.every = p.every || len(workspaces) == 0
		return p
	}
	living := map[toolyard.Pool]bool{}
	for _, w := range o.live {
		living[w.Pool] = true
	}
	// What a pool offered last decides; what other live workers have stands beside it, since a server that one worker
	// cannot reach may be there for another.
	for name, l := range o.last {
		if !living[name] {
			note(name, l.toolset, l.workspaces)
		} else {
			o.pools[name] = newPool(l.toolset)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(o.live)) {
		w := o.live[id]
		p := note(w.Pool, w.Toolset, w.Workspaces)
		p.live, p.hosts[hostOf(&w)] = true, true
	}
}

// way tells workspaces apart as far as it makes a difference which one it is: by how all pools stand to it. There are
// as many as workers name workspaces, and one more, however many names batches have for theirs.
func (o *offers) way(w toolyard.Workspace) string {
	if !o.named[w] {
		w = "" // which is no name
	}
	if way, ok := o.ways[w]; ok {
		return way
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(o.pools)) {
		b.WriteString(strconv.Itoa(int(o.pools[name].service(w))))
	}
	o.ways[w] = b.String()
	return o.ways[w]
}

// registry returns the tools for a workspace: the base, and what pools offer or last offered. Of several pools with
// one tool, the one wins that serves the workspace best, then one that can run all its calls, isolated rather than
// not, then the first by name. What the rules of one worker take out of its pool is not offered by that pool.
func (o *offers) registry(w toolyard.Workspace) (registry.Registry, error) {
	o.look()
	way := o.way(w)
	if reg, ok := o.built[way]; ok {
		return reg, nil
	}
	rank := func(name toolyard.Pool, e *registry.Entry) int {
		p, best := o.pools[name], 0
		for h := range p.hosts {
			switch {
			case !e.NeedsIsolation(worst(&e.Class)) || h.Refuses(&e.Declaration, worst(&e.Class)) != "":
			case h.Unsandboxed:
				best = max(best, 1)
			default:
				best = 2
			}
		}
		return 4*int(p.service(w)) + best
	}
	// By origin too: whoever comes first of those that have one name is the surface's to say.
	type key struct {
		origin registry.Origin
		name   string
	}
	best := map[key]registry.Entry{}
	blocked, denied := []string{}, map[toolyard.Pool][]string{}
	for _, name := range slices.Sorted(maps.Keys(o.last)) {
		for _, toolset := range o.pools[name].toolsets {
			denied[name] = append(denied[name], o.blocked[toolset]...)
		}
		blocked = append(blocked, denied[name]...)
	}
	for _, name := range slices.Sorted(maps.Keys(o.last)) {
		for _, toolset := range o.pools[name].toolsets {
			for _, e := range o.toolsets[toolset] {
				if e.Pool = name; slices.Contains(denied[name], e.Name) {
					continue
				}
				k := key{e.Origin, e.Name}
				if have, ok := best[k]; !ok || rank(name, &e) > rank(have.Pool, &have) {
					best[k] = e
				}
			}
		}
	}
	for _, e := range o.base {
		k := key{e.Origin, e.Name}
		if _, ok := best[k]; !ok && !slices.Contains(denied[e.Pool], e.Name) {
			best[k] = e
		}
	}
	reg, err := registry.Registry{}.Register(slices.Collect(maps.Values(best))...)
	if err != nil {
		return reg, fmt.Errorf("put the workers' tools together: %w", err)
	}
	reg = reg.Block(blocked...)
	if len(o.built) >= maxBuilt {
		clear(o.built)
	}
	o.built[way] = reg
	return reg, nil
}

// conflicts are the names that several pools or origins offer.
func (o *offers) conflicts() []registry.Conflict {
	o.look()
	var all []registry.Entry // of the pools that live: what is built in is offered by those
	for name, p := range o.pools {
		for _, toolset := range p.toolsets {
			for _, e := range o.toolsets[toolset] {
				e.Pool = name
				all = append(all, e)
			}
		}
	}
	return registry.Conflicts(all)
}

// refuses reports whether the workers of a tool's pool serve other workspaces than the one that its calls act on. A
// pool of which nothing is known refuses none.
func (o *offers) refuses(w toolyard.Workspace, e *registry.Entry) bool {
	o.look()
	p := o.pools[e.Pool]
	return p != nil && e.NeedsWorkspace() && p.service(w) == refused
}

// unable says why no worker of a tool's pool runs a call of it that is of a class, for a workspace, to the model and
// to the operator. The first is empty when one does, and when the pool has no workers and the last ones did: one that
// joins may.
func (o *offers) unable(w toolyard.Workspace, e *registry.Entry, class toolyard.Class) (message, detail string) {
	if o.refuses(w, e) {
		message = fmt.Sprintf("No worker serves the workspace %q; %s. The batch has to name one of them, or an "+
			"operator has to serve this one; go on without it, and say so.", w, o.list())
		if o.named[w] {
			message = fmt.Sprintf("The workers that have the tool %q do not serve the workspace %q, which others do. "+
				"An operator has to set this up; go on without it, and say so.", e.Name, w)
		}
		return message, fmt.Sprintf("pool %s: its workers serve other workspaces than %q", e.Pool, w)
	}
	for _, id := range slices.Sorted(maps.Keys(o.live)) {
		worker := o.live[id]
		if worker.Pool != e.Pool {
			continue
		}
		why := hostOf(&worker).Refuses(&e.Declaration, class)
		if why == "" {
			return "", ""
		}
		message = why
		if detail == "" && e.Execution != tool.InWorker {
			detail = worker.NoIsolation
		}
	}
	if message == "" {
		return "", ""
	}
	message += " An operator has to set this up; go on without it, and say so."
	if e.Execution == tool.InWorker {
		detail = fmt.Sprintf("give calls of %q a class, or say in its declaration that it runs in a sandbox or a service; "+
			"--dangerously-run-unsandboxed runs it as it is", e.Name)
	} else if detail == "" {
		detail = "\"worker check\" on the workers' machines says what is missing"
	}
	return message, fmt.Sprintf("pool %s: %s", e.Pool, detail)
}

// list says which workspaces are served.
func (o *offers) list() string {
	names := slices.Sorted(maps.Keys(o.named))
	if len(names) == 0 {
		return "none is served"
	}
	var b strings.Builder
	b.WriteString("served are ")
	for i, w := range names[:min(len(names), maxListed)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", w)
	}
	if more := len(names) - maxListed; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
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
