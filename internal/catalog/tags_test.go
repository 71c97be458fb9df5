package catalog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// tagged is a toolset of one tool, which asks for tags.
func tagged(tags ...toolyard.Tag) []registry.Entry {
	return []registry.Entry{{Origin: registry.Toolset, Declaration: tool.Declaration{
		Name: "t", Description: "d", InputSchema: json.RawMessage(`{"type":"object"}`), Tags: tags,
		Class: tool.ClassRule{Static: toolyard.ReadOnly},
	}}}
}

// TestCallsGoWhereTheirTagsAre plays random fleets against what may be said of them: a call goes to a pool only if all
// of its workers have each tag that is asked for, it is refused only if there is no such pool, and the refusal names
// what is missing.
func TestCallsGoWhereTheirTagsAre(t *testing.T) {
	all := []toolyard.Tag{"gpu", "region=eu", "region=us", "team=web"}
	some := func(r *rand.Rand) (out []toolyard.Tag) {
		for _, tag := range all {
			if r.IntN(2) == 0 {
				out = append(out, tag)
			}
		}
		return out
	}
	served, refusals := 0, 0
	for seed := range uint64(3_000) {
		r := rand.New(rand.NewPCG(seed, 9))
		c := New(nil)
		asks := []toolyard.Tag(nil)
		if r.IntN(3) == 0 {
			asks = some(r)
		}
		// The model: the tags of each pool's live workers, and of the worker that joined it last.
		live, last := map[toolyard.Pool]map[string][]toolyard.Tag{}, map[toolyard.Pool][]toolyard.Tag{}
		for n := range r.IntN(8) {
			pool, id, tags := toolyard.Pool(fmt.Sprint("p", r.IntN(4))), fmt.Sprint(n), some(r)
			c.Put(id, Worker{Pool: pool, Toolset: fmt.Sprint(asks), Tags: tags}, tagged(asks...), nil)
			if live[pool] == nil {
				live[pool] = map[string][]toolyard.Tag{}
			}
			live[pool][id], last[pool] = tags, tags
			if r.IntN(3) == 0 {
				c.Remove(id)
				delete(live[pool], id)
			}
		}
		ask := Ask{Workspace: "w", Tags: some(r)}
		has := func(pool toolyard.Pool) bool {
			workers := live[pool]
			if len(workers) == 0 {
				return holds(last[pool], ask.Tags) && holds(last[pool], asks)
			}
			for _, tags := range workers {
				if !holds(tags, ask.Tags) || !holds(tags, asks) {
					return false
				}
			}
			return true
		}
		reg, err := c.Tools(ask)
		must.OK(t, err)
		s, err := registry.Assemble(reg, nil)
		must.OK(t, err)
		if len(s.Tools) == 0 {
			if len(last) > 0 {
				t.Fatalf("seed %d: pools %v have a tool, and a batch sees none", seed, last)
			}
			continue
		}
		e := s.Tools[0]
		message, detail := c.Unable(ask, &e, toolyard.ReadOnly)
		if c.Refuses(ask, &e) != (message != "") {
			t.Fatalf("seed %d: refused is %v, and the message %q", seed, message == "", message)
		}
		if message == "" {
			served++
			if !has(e.Pool) {
				t.Fatalf("seed %d: a call that asks for %v and %v goes to %s, which has %v", seed, ask.Tags, asks, e.Pool,
					live[e.Pool])
			}
			continue
		}
		refusals++
		for pool := range last {
			if has(pool) {
				t.Fatalf("seed %d: %s is refused, and %s would have %v and %v", seed, message, pool, ask.Tags, asks)
			}
		}
		c.derive()
		named := false
		for _, tag := range slices.Concat(ask.Tags, asks) {
			missing := true
			for _, p := range c.pools {
				missing = missing && !slices.Contains(p.tags, tag)
			}
			if quote := fmt.Sprintf("%q", tag); missing && !strings.Contains(message, quote) ||
				!strings.Contains(detail, quote) {
				t.Fatalf("seed %d: %s does not say that %s is missing; %s", seed, message, tag, detail)
			}
			named = named || strings.Contains(message, fmt.Sprintf("%q", tag))
		}
		if !named {
			t.Fatalf("seed %d: %s names no tag", seed, message)
		}
	}
	if served < 300 || refusals < 300 {
		t.Errorf("%d calls went somewhere, and %d were refused: the test sees too little", served, refusals)
	}
}

// TestOfPoolsWithTheTags the one wins that serves the workspace, and of those the one that has no tags for nothing.
func TestOfPoolsWithTheTags(t *testing.T) {
	c := New(nil)
	put := func(id string, pool toolyard.Pool, ws []toolyard.Workspace, tags ...toolyard.Tag) {
		c.Put(id, Worker{Pool: pool, Toolset: "s", Workspaces: ws, Tags: tags}, tagged(), nil)
	}
	expect := func(pool toolyard.Pool, w toolyard.Workspace, tags ...toolyard.Tag) {
		t.Helper()
		reg, err := c.Tools(Ask{Workspace: w, Tags: tags})
		must.OK(t, err)
		s, err := registry.Assemble(reg, nil)
		if err != nil || len(s.Tools) != 1 || s.Tools[0].Pool != pool {
			t.Errorf("for %s with %v: %v, %v; want pool %s", w, tags, s.Tools, err, pool)
		}
	}
	one := []toolyard.Workspace{"one"}
	put("1", "all", one, "gpu", "region=eu")
	put("2", "gpu", one, "gpu")
	put("3", "none", one)
	expect("none", "one")
	expect("gpu", "one", "gpu")
	expect("all", "one", "region=eu")
	expect("all", "one", "gpu", "region=eu")
	put("4", "two", []toolyard.Workspace{"two"}, "gpu", "other")
	expect("two", "two") // it serves the workspace
	expect("gpu", "one", "gpu")
	c.Remove("2") // it is being started again: what serves the workspace now wins
	expect("all", "one", "gpu")
	c.Remove("1")
	expect("gpu", "one", "gpu") // until one of them comes back
	if got := c.Differ(); len(got) != 0 {
		t.Errorf("pools %v differ", got)
	}
	put("5", "none", one, "gpu")
	if got := c.Differ(); !slices.Equal(got, []toolyard.Pool{"none"}) {
		t.Errorf("pools %v differ", got)
	}
	expect("none", "one")
	expect("gpu", "one", "gpu")
	message, detail := c.Unable(Ask{Workspace: "one", Tags: []toolyard.Tag{"gpu"}}, &registry.Entry{Pool: "none",
		Declaration: tool.Declaration{Name: "t"}}, toolyard.ReadOnly)
	if message == "" || !strings.Contains(detail, `pool "none" differ`) {
		t.Errorf("of a pool whose workers differ: %s; %s", message, detail)
	}
}
