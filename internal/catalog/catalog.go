// Package catalog is the tool catalog of a dispatcher: which tools there are for a workspace, and which pool runs
// them, from what the live workers offer and what pools offered last.
//
// Authority: none. A batch sees the tools that its plan pins; what changes here is for the next one.
//
// The package is pure. A [Catalog] is not safe for concurrent use.
package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// The limits of what a catalog derives and says.
const (
	maxBuilt  = 64 // registries that are kept
	maxListed = 20 // workspaces that an answer lists
)

// Worker is what a live worker offers.
type Worker struct {
	Pool toolyard.Pool
	// Toolset is the hash of its tools.
	Toolset string
	// Workspaces are those that it serves. None: all of them, and tools get no directory.
	Workspaces []toolyard.Workspace
	// Tags are what calls may ask of it.
	Tags []toolyard.Tag
	// Host is what it can put around calls, and NoIsolation why that is nothing.
	Host        registry.Host
	NoIsolation string
}

// Catalog is the tools and workspaces that pools offer. Make it with [New].
type Catalog struct {
	base []registry.Entry
	live map[string]Worker
	// toolsets are the tools by the hash of their toolset, of all toolsets that a live worker has or a pool offered
	// last: a tool whose workers are all gone is unavailable, not unknown, until its pool is forgotten.
	toolsets map[string][]registry.Entry
	// blocked are names that the rules of a worker take out of its toolset, by the toolset's hash.
	blocked map[string][]string
	last    map[toolyard.Pool]offer
	checked registry.Checked

	// What follows is derived from the above when it is needed. pools is nil before.
	pools map[toolyard.Pool]*pool
	named map[toolyard.Workspace]bool // by any pool
	ways  map[toolyard.Workspace]string
	built map[string]made // by way, and by which pools have the tags that are asked for
}

// made is the tools for an ask, and how many of each pool there was no room for.
type made struct {
	tools registry.Registry
	left  map[toolyard.Pool]int
}

// offer is what the worker that joined a pool last offers.
type offer struct {
	toolset    string
	workspaces []toolyard.Workspace
	tags       []toolyard.Tag
	// gone is when [Catalog.Forget] has first found no worker of the pool; zero while there is one.
	gone time.Time
}

// pool is one pool, as its live workers offer it; when it has none, as it offered last.
type pool struct {
	live bool
	// named are the workspaces that its workers name. every says that one of them names none: it serves every
	// workspace, and tools get no directory there.
	named    map[toolyard.Workspace]bool
	every    bool
	hosts    map[registry.Host]bool
	toolsets []string
	// tags are those that all of its workers have: any of them may get a call. differ says that some have others.
	tags   []toolyard.Tag
	differ bool
}

func newPool(toolsets ...string) *pool {
	return &pool{named: map[toolyard.Workspace]bool{}, hosts: map[registry.Host]bool{}, toolsets: toolsets}
}

// tagged takes in the tags of one more worker.
func (p *pool) tagged(first bool, tags []toolyard.Tag) {
	if first {
		p.tags = slices.Clone(tags)
		return
	}
	p.differ = p.differ || !holds(p.tags, tags) || !holds(tags, p.tags)
	p.tags = slices.DeleteFunc(p.tags, func(t toolyard.Tag) bool { return !slices.Contains(tags, t) })
}

// holds reports whether a list of tags has all that are asked for.
func holds(tags, asked []toolyard.Tag) bool {
	return !slices.ContainsFunc(asked, func(t toolyard.Tag) bool { return !slices.Contains(tags, t) })
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

// New makes a catalog of tools that are known without any worker.
func New(base []registry.Entry) *Catalog {
	return &Catalog{
		base: base, live: map[string]Worker{}, toolsets: map[string][]registry.Entry{}, blocked: map[string][]string{},
		last: map[toolyard.Pool]offer{},
	}
}

// Has reports whether the tools of a toolset are known.
func (c *Catalog) Has(toolset string) bool {
	_, ok := c.toolsets[toolset]
	return ok
}

// Put adds or replaces a worker, which is the one that joined its pool last from then on. tools and blocked are those
// of its toolset; they are ignored if the toolset is known.
func (c *Catalog) Put(id string, w Worker, tools []registry.Entry, blocked []string) {
	if !c.Has(w.Toolset) {
		c.toolsets[w.Toolset], c.blocked[w.Toolset] = tools, blocked
	}
	c.live[id], c.last[w.Pool] = w, offer{toolset: w.Toolset, workspaces: w.Workspaces, tags: w.Tags}
	c.invalidate()
}

// Remove takes a worker out. What its pool offered last stays, until [Catalog.Forget].
func (c *Catalog) Remove(id string) {
	delete(c.live, id)
	c.invalidate()
}

// Forget drops what pools offered last that have had no worker for so long, and returns these pools. It is called again
// and again: pools come and go without end, and the tools of those that are gone take room from the others'. The
// default pool stays.
func (c *Catalog) Forget(after time.Duration, now time.Time) (gone []toolyard.Pool) {
	living := c.living()
	for name, last := range c.last {
		switch {
		case living[name]:
			last.gone = time.Time{}
		case last.gone.IsZero():
			last.gone = now
		case now.Sub(last.gone) > after && name != toolyard.DefaultPool:
			gone = append(gone, name)
		}
		c.last[name] = last
	}
	for _, name := range gone {
		delete(c.last, name)
	}
	if len(gone) > 0 {
		c.invalidate()
		slices.Sort(gone)
	}
	return gone
}

// living are the pools that have a worker.
func (c *Catalog) living() map[toolyard.Pool]bool {
	pools := map[toolyard.Pool]bool{}
	for _, w := range c.live {
		pools[w.Pool] = true
	}
	return pools
}

// invalidate drops what is derived, and toolsets that are no longer used.
func (c *Catalog) invalidate() {
	c.pools, c.named, c.ways, c.built = nil, nil, nil, nil
	used := map[string]bool{}
	for _, l := range c.last {
		used[l.toolset] = true
	}
	for _, w := range c.live {
		used[w.Toolset] = true
	}
	maps.DeleteFunc(c.toolsets, func(hash string, _ []registry.Entry) bool { return !used[hash] })
	maps.DeleteFunc(c.blocked, func(hash string, _ []string) bool { return !used[hash] })
}

// derive makes what follows from the workers, unless it is there.
func (c *Catalog) derive() {
	if c.pools != nil {
		return
	}
	c.pools, c.named = map[toolyard.Pool]*pool{}, map[toolyard.Workspace]bool{}
	c.ways, c.built = map[toolyard.Workspace]string{}, map[string]made{}
	note := func(name toolyard.Pool, toolset string, workspaces []toolyard.Workspace) *pool {
		p := c.pools[name]
		if p == nil {
			p = newPool()
			c.pools[name] = p
		}
		if !slices.Contains(p.toolsets, toolset) {
			p.toolsets = append(p.toolsets, toolset)
		}
		for _, w := range workspaces {
			p.named[w], c.named[w] = true, true
		}
		p.every = p.every || len(workspaces) == 0
		return p
	}
	living := c.living()
	// What a pool offered last decides; what other live workers have stands beside it, since a server that one worker
	// cannot reach may be there for another.
	for name, l := range c.last {
		if !living[name] {
			note(name, l.toolset, l.workspaces).tagged(true, l.tags)
		} else {
			c.pools[name] = newPool(l.toolset)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.live)) {
		w := c.live[id]
		p := note(w.Pool, w.Toolset, w.Workspaces)
		p.tagged(!p.live, w.Tags)
		p.live, p.hosts[w.Host] = true, true
	}
}

// way tells workspaces apart as far as it makes a difference which one it is: by how all pools stand to it. There are
// as many as workers name workspaces, and one more, however many names batches have for theirs.
func (c *Catalog) way(w toolyard.Workspace) string {
	if !c.named[w] {
		w = "" // which is no name
	}
	if way, ok := c.ways[w]; ok {
		return way
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.pools)) {
		b.WriteString(strconv.Itoa(int(c.pools[name].service(w))))
	}
	c.ways[w] = b.String()
	return c.ways[w]
}

// Ask is what a batch asks of the workers that run its calls.
type Ask struct {
	Workspace toolyard.Workspace
	Tags      []toolyard.Tag
	// Undo says that a person acts on another batch: no other batch sees the tools for that.
	Undo bool
}

// sees reports whether a tool is for an ask.
func (a *Ask) sees(e *registry.Entry) bool { return a.Undo || registry.ForModels(e.Name) }

// has reports whether a pool has the tags of an ask, and those that a tool asks for. One of which nothing is known has
// none.
func (c *Catalog) has(name toolyard.Pool, ask Ask, e *registry.Entry) bool {
	var tags []toolyard.Tag
	if p := c.pools[name]; p != nil {
		tags = p.tags
	}
	return holds(tags, ask.Tags) && holds(tags, e.Tags)
}

// Tools returns the tools for an ask: the base, and what pools offer or last offered. Of several pools with one tool,
// the one wins that has the tags, then one that serves the workspace best, then one that can run all its calls,
// isolated rather than not, then one with the fewest tags, then the first by name. What the rules of one worker take
// out of its pool is not offered by that pool. Where all pools together offer more than a registry takes, each has the
// same share of it: see [registry.Fit].
func (c *Catalog) Tools(ask Ask) (registry.Registry, error) {
	m, err := c.make(ask)
	return m.tools, err
}

// LeftOut says for which tools there is no room, a line for each pool.
func (c *Catalog) LeftOut() (lines []string) {
	m, err := c.make(Ask{})
	if err != nil { // a batch says so
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(m.left)) {
		lines = append(lines, fmt.Sprintf("pool %q: %d of its tools are left out; all pools together may offer %d, of "+
			"%d bytes", name, m.left[name], registry.MaxTools, registry.MaxBytes))
	}
	return lines
}

// make is Tools and what is left out.
func (c *Catalog) make(ask Ask) (made, error) {
	c.derive()
	way := c.way(ask.Workspace)
	for _, name := range slices.Sorted(maps.Keys(c.pools)) { // it does not matter which tags they lack
		if !holds(c.pools[name].tags, ask.Tags) {
			way += " " + strconv.Quote(string(name)) // a name may have blanks, or be "undo"
		}
	}
	if ask.Undo {
		way += " undo"
	}
	if have, ok := c.built[way]; ok {
		return have, nil
	}
	rank := func(name toolyard.Pool, e *registry.Entry) []int {
		p, best, tagged := c.pools[name], 0, 0
		if c.has(name, ask, e) {
			tagged = 1
		}
		for h := range p.hosts {
			switch {
			case !e.NeedsIsolation(worst(&e.Class)) || h.Refuses(&e.Declaration, worst(&e.Class)) != "":
			case h.Unsandboxed:
				best = max(best, 1)
			default:
				best = 2
			}
		}
		return []int{tagged, int(p.service(ask.Workspace)), best, -len(p.tags)}
	}
	// By origin too: whoever comes first of those that have one name is the surface's to say.
	type key struct {
		origin registry.Origin
		name   string
	}
	best := map[key]registry.Entry{}
	blocked, denied := []string{}, map[toolyard.Pool][]string{}
	for _, name := range slices.Sorted(maps.Keys(c.last)) {
		for _, toolset := range c.pools[name].toolsets {
			denied[name] = append(denied[name], c.blocked[toolset]...)
		}
		blocked = append(blocked, blockable(denied[name])...)
	}
	for _, name := range slices.Sorted(maps.Keys(c.last)) {
		for _, toolset := range c.pools[name].toolsets {
			for _, e := range c.toolsets[toolset] {
				if e.Pool = name; slices.Contains(denied[name], e.Name) || !ask.sees(&e) {
					continue
				}
				k := key{e.Origin, e.Name}
				if have, ok := best[k]; !ok || slices.Compare(rank(name, &e), rank(have.Pool, &have)) > 0 {
					best[k] = e
				}
			}
		}
	}
	for _, e := range c.base {
		k := key{e.Origin, e.Name}
		if _, ok := best[k]; !ok && !slices.Contains(denied[e.Pool], e.Name) && ask.sees(&e) {
			best[k] = e
		}
	}
	kept, left, err := registry.Fit(slices.Collect(maps.Values(best)))
	if err != nil {
		return made{}, fmt.Errorf("put the workers' tools together: %w", err)
	}
	reg, err := c.checked.Register(kept...)
	if err != nil {
		return made{}, fmt.Errorf("put the workers' tools together: %w", err)
	}
	if len(c.built) >= maxBuilt {
		clear(c.built)
	}
	c.built[way] = made{reg.Block(blocked...), left}
	return c.built[way], nil
}

// blockable are the names of a pool's list that a surface says are blocked: those that a tool can have, as many as a
// pool may have tools. A call of another one ends too, as one of an unknown tool.
func blockable(names []string) []string {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return toolyard.CheckName("", n) != nil })
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), registry.MaxTools)]
}

// Conflicts are the names that several pools or origins offer.
func (c *Catalog) Conflicts() []registry.Conflict {
	c.derive()
	var all []registry.Entry // of the pools that live: what is built in is offered by those
	for name, p := range c.pools {
		for _, toolset := range p.toolsets {
			for _, e := range c.toolsets[toolset] {
				e.Pool = name
				all = append(all, e)
			}
		}
	}
	return registry.Conflicts(all)
}

// Refuses reports whether the workers of a tool's pool lack a tag that is asked for, or serve other workspaces than the
// one that the tool's calls act on. A pool of which nothing is known refuses no workspace.
func (c *Catalog) Refuses(ask Ask, e *registry.Entry) bool {
	c.derive()
	return !c.has(e.Pool, ask, e) || c.elsewhere(ask.Workspace, e)
}

// elsewhere reports whether the workers of a tool's pool serve other workspaces.
func (c *Catalog) elsewhere(w toolyard.Workspace, e *registry.Entry) bool {
	p := c.pools[e.Pool]
	return p != nil && e.NeedsWorkspace() && p.service(w) == refused
}

// untagged says that no pool with a tool has the tags that are asked for, to the model and to the operator.
func (c *Catalog) untagged(ask Ask, e *registry.Entry) (message, detail string) {
	asked := slices.Concat(ask.Tags, e.Tags)
	slices.Sort(asked)
	asked = slices.Compact(asked)
	have, apart := []toolyard.Tag{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(c.pools)) {
		p := c.pools[name]
		if !slices.ContainsFunc(p.toolsets, func(toolset string) bool {
			return slices.ContainsFunc(c.toolsets[toolset], func(o registry.Entry) bool { return o.Name == e.Name })
		}) {
			continue
		}
		have = append(have, p.tags...)
		if p.differ && len(apart) < maxListed {
			apart = append(apart, fmt.Sprintf("%q", name))
		}
	}
	missing := slices.DeleteFunc(slices.Clone(asked), func(t toolyard.Tag) bool { return slices.Contains(have, t) })
	switch len(missing) {
	case 0:
		message = fmt.Sprintf("No worker that has the tool %q has the tags %s together.", e.Name, quoted(asked))
	case 1:
		message = fmt.Sprintf("No worker that has the tool %q has the tag %s.", e.Name, quoted(missing))
	default:
		message = fmt.Sprintf("No worker that has the tool %q has the tags %s.", e.Name, quoted(missing))
	}
	detail = fmt.Sprintf("asked for are the tags %s; \"dispatcher workers\" lists what there is", quoted(asked))
	if len(apart) > 0 {
		detail += fmt.Sprintf("; workers of pool %s differ in their tags, and what only some have does not count: "+
			"give them pools of their own", strings.Join(apart, ", "))
	}
	return message + " An operator has to set this up; go on without it, and say so.", detail
}

func quoted(tags []toolyard.Tag) string {
	out := make([]string, len(tags))
	for i, t := range tags {
		out[i] = fmt.Sprintf("%q", t)
	}
	return strings.Join(out, ", ")
}

// Differ are the pools whose live workers do not all have the same tags.
func (c *Catalog) Differ() (out []toolyard.Pool) {
	c.derive()
	for name, p := range c.pools {
		if p.differ {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Unable says why no worker of a tool's pool runs a call of it that is of a class, for an ask, to the model and to the
// operator. The first is empty when one does, and when the pool has no workers and the last ones did: one that joins
// may.
func (c *Catalog) Unable(ask Ask, e *registry.Entry, class toolyard.Class) (message, detail string) {
	c.derive()
	w := ask.Workspace
	if !c.has(e.Pool, ask, e) {
		return c.untagged(ask, e)
	}
	if c.elsewhere(w, e) {
		message = fmt.Sprintf("No worker serves the workspace %q; %s. The batch has to name one of them, or an "+
			"operator has to serve this one; go on without it, and say so.", w, c.list())
		if c.named[w] {
			message = fmt.Sprintf("The workers that have the tool %q do not serve the workspace %q, which others do. "+
				"An operator has to set this up; go on without it, and say so.", e.Name, w)
		}
		return message, fmt.Sprintf("pool %s: its workers serve other workspaces than %q", e.Pool, w)
	}
	for _, id := range slices.Sorted(maps.Keys(c.live)) {
		worker := c.live[id]
		if worker.Pool != e.Pool {
			continue
		}
		why := worker.Host.Refuses(&e.Declaration, class)
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
		detail = fmt.Sprintf("give calls of %q a class, or say in its declaration that it runs in a sandbox or a "+
			"service; "+
			"--dangerously-run-unsandboxed runs it as it is", e.Name)
	} else if detail == "" {
		detail = "\"worker check\" on the workers' machines says what is missing"
	}
	return message, fmt.Sprintf("pool %s: %s", e.Pool, detail)
}

// list says which workspaces are served.
func (c *Catalog) list() string {
	names := slices.Sorted(maps.Keys(c.named))
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

// worst is the strictest class that calls of a tool can have.
func worst(c *tool.ClassRule) toolyard.Class {
	if c.Shell == "" && c.Static != "" {
		return c.Static
	}
	return toolyard.Unsafe
}
