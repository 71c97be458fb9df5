package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// fleet is what pools offer, of workers that a test adds and takes away.
type fleet struct {
	*Catalog
	t *testing.T
}

func newFleet(t *testing.T) *fleet {
	return &fleet{New(nil), t}
}

// join adds a worker with tools of these names, for these workspaces.
func (f *fleet) join(id string, pool toolyard.Pool, tools []string, workspaces ...toolyard.Workspace) {
	f.t.Helper()
	hash := strings.Join(tools, " ")
	var entries []registry.Entry
	for _, name := range tools {
		entries = append(entries, registry.Entry{Origin: registry.Toolset, Declaration: tool.Declaration{
			Name: name, Description: "d", InputSchema: json.RawMessage(`{"type":"object"}`),
			Class: tool.ClassRule{Static: toolyard.ReadOnly},
		}})
	}
	f.Put(id, Worker{Pool: pool, Toolset: hash, Workspaces: workspaces}, entries, nil)
}

// entry is a tool as batches of a workspace see it.
func (f *fleet) entry(w toolyard.Workspace, name string) registry.Entry {
	f.t.Helper()
	s := f.surface(w)
	i := slices.IndexFunc(s.Tools, func(e registry.Entry) bool { return e.Name == name })
	if i < 0 {
		f.t.Fatalf("workspace %q has no tool %q", w, name)
	}
	return s.Tools[i]
}

func (f *fleet) surface(w toolyard.Workspace) registry.Surface {
	f.t.Helper()
	reg, err := f.Tools(Ask{Workspace: w})
	must.OK(f.t, err)
	s, err := registry.Assemble(reg, nil)
	must.OK(f.t, err)
	return s
}

// expect looks where the calls of a tool go for a workspace, and whether they are refused.
func (f *fleet) expect(w toolyard.Workspace, name string, pool toolyard.Pool, refused bool) {
	f.t.Helper()
	e := f.entry(w, name)
	if got := f.Refuses(Ask{Workspace: w}, &e); e.Pool != pool || got != refused {
		f.t.Errorf("calls of %q for workspace %q go to pool %q, refused %v; want %q, %v", name, w, e.Pool, got, pool,
			refused)
	}
}

// TestWhoServesAWorkspace goes through a fleet's life.
func TestWhoServesAWorkspace(t *testing.T) {
	f := newFleet(t)
	read := []string{"read"}
	f.join("a1", "a", read, "one")
	f.expect("one", "read", "a", false)
	f.expect("two", "read", "a", true)
	f.join("b1", "b", read, "two", "three")
	f.expect("one", "read", "a", false)
	f.expect("two", "read", "b", false)
	f.expect("tow", "read", "a", true)
	f.Remove("b1") // it is being started again
	f.expect("two", "read", "b", false)
	f.expect("one", "read", "a", false)
	f.Remove("a1")
	f.expect("one", "read", "a", false)
	f.expect("two", "read", "b", false)
	f.expect("tow", "read", "a", true)
	f.join("b2", "b", read, "three") // with another configuration
	f.expect("two", "read", "a", true)
	f.expect("three", "read", "b", false)
	f.join("c1", "c", append(read, "search")) // of a program that has nothing to do with directories
	f.expect("tow", "read", "c", false)
	f.expect("three", "read", "b", false)
	f.expect("one", "read", "a", false) // its pool comes back sooner or later
	f.expect("three", "search", "c", false)
	if e := (registry.Entry{Pool: "never seen"}); f.Refuses(Ask{Workspace: "x"}, &e) {
		t.Error("a pool that was never seen refuses something")
	}
	no := false
	e := registry.Entry{Pool: "b", Declaration: tool.Declaration{UsesWorkspace: &no}}
	if f.Refuses(Ask{Workspace: "x"}, &e) {
		t.Error("a tool that has nothing to do with workspaces is refused one")
	}
}

func TestARefusalNamesTheWorkspaces(t *testing.T) {
	f := newFleet(t)
	f.join("a", "a", []string{"read"}, "docs", "default")
	e := f.entry("defualt", "read")
	message, detail := f.Unable(Ask{Workspace: "defualt"}, &e, toolyard.ReadOnly)
	for _, want := range []string{`"defualt"`, `"default", "docs"`} {
		if !strings.Contains(message, want) {
			t.Errorf("%q does not name %s", message, want)
		}
	}
	if !strings.Contains(detail, "pool a") || strings.Contains(message+detail, "\n") {
		t.Errorf("the operator reads %q", detail)
	}
	var many []toolyard.Workspace
	for n := range 100 {
		many = append(many, toolyard.Workspace(fmt.Sprintf("w%02d", n)))
	}
	f.join("a", "a", []string{"read"}, many...)
	message, _ = f.Unable(Ask{Workspace: "defualt"}, &e, toolyard.ReadOnly)
	if !strings.Contains(message, `"w19" and 80 more`) || strings.Contains(message, "w20") {
		t.Errorf("a long list: %s", message)
	}
	f.join("b", "b", []string{"write"}, "elsewhere")
	message, _ = f.Unable(Ask{Workspace: "elsewhere"}, &e, toolyard.ReadOnly)
	if !strings.Contains(message, "which others do") {
		t.Errorf("another pool's workspace: %s", message)
	}
}

// TestRegistriesAreNotKeptByName: what batches call their workspaces costs nothing, and what workers do is bounded.
// Whatever is kept, a workspace sees the same surface.
func TestRegistriesAreNotKeptByName(t *testing.T) {
	f := newFleet(t)
	f.join("a", "a", []string{"read", "write"}, "one")
	f.join("b", "b", []string{"read"}, "two")
	want := map[toolyard.Workspace]string{}
	for _, w := range []toolyard.Workspace{"one", "two", "x"} {
		want[w] = f.surface(w).Hash
	}
	if want["one"] == want["two"] {
		t.Error("two pools serve two workspaces, and one surface is all there is")
	}
	for n := range 10_000 {
		if _, err := f.Tools(Ask{
			Workspace: toolyard.Workspace(fmt.Sprint("made up ", n)),
			Tags:      []toolyard.Tag{toolyard.Tag(fmt.Sprint("t", n))},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.built) != 4 || len(f.ways) != 3 { // the fourth is for tags that no pool has
		t.Errorf("10,003 names are kept as %d registries by %d names, want 4 and 3", len(f.built), len(f.ways))
	}
	for n := range 3 * maxBuilt {
		f.join(fmt.Sprint(n), toolyard.Pool(fmt.Sprint("pool", n)), []string{"other"},
			toolyard.Workspace(fmt.Sprint("w", n)))
	}
	for n := range 3 * maxBuilt {
		if e := f.entry(toolyard.Workspace(fmt.Sprint("w", n)), "other"); e.Pool != toolyard.Pool(fmt.Sprint("pool",
			n)) {
			t.Errorf("the calls for workspace w%d go to %s", n, e.Pool)
		}
	}
	if len(f.built) > maxBuilt {
		t.Errorf("%d registries are kept", len(f.built))
	}
	for n := range 3 * maxBuilt {
		f.Remove(fmt.Sprint(n))
		delete(f.last, toolyard.Pool(fmt.Sprint("pool", n)))
	}
	f.invalidate()
	for w, hash := range want {
		if got := f.surface(w).Hash; got != hash {
			t.Errorf("workspace %s sees the surface %.12s, and saw %.12s", w, got, hash)
		}
	}
	f.join("a", "a", []string{"new"}, "one")
	if len(f.toolsets) != 2 {
		t.Errorf("%d toolsets are kept of two workers: %v", len(f.toolsets), f.toolsets)
	}
}

// TestARegistryThatIsKeptIsForOneAsk: whatever pools are called, an ask gets the tools that it would get alone.
func TestARegistryThatIsKeptIsForOneAsk(t *testing.T) {
	fleetOf := func() *fleet {
		f := newFleet(t)
		f.join("1", "undo", []string{"read", toolyard.UndoTool})
		for id, pool := range map[string]toolyard.Pool{"2": "a", "3": "b", "4": "a b"} {
			w := Worker{Pool: pool, Toolset: "t", Tags: []toolyard.Tag{"all"}}
			w.Tags = append(w.Tags, map[string]toolyard.Tag{"2": "words", "3": "words", "4": "letters"}[id])
			f.Put(id, w, tagged(), nil)
		}
		return f
	}
	asks := []Ask{{Undo: true}, {}, {Tags: []toolyard.Tag{"all"}}, {Tags: []toolyard.Tag{"all"}, Undo: true},
		{Tags: []toolyard.Tag{"words"}}, {Tags: []toolyard.Tag{"letters"}}}
	kept := fleetOf()
	for _, ask := range asks {
		var hashes []string
		for _, f := range []*fleet{kept, fleetOf()} {
			reg, err := f.Tools(ask)
			must.OK(t, err)
			s, err := registry.Assemble(reg, nil)
			must.OK(t, err)
			if _, code := s.Resolve(toolyard.UndoTool, nil); (code == toolyard.OK) != ask.Undo {
				t.Errorf("%+v: the tool for people is %s", ask, code)
			}
			hashes = append(hashes, s.Hash)
		}
		if hashes[0] != hashes[1] {
			t.Errorf("%+v gets the tools of another ask", ask)
		}
	}
}
