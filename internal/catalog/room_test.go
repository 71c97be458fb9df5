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

// many are the names of so many tools.
func many(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return names
}

// TestAPoolWithTooManyToolsTakesNobodyElses has a pool offer as many tools as a registry may have. The tools of all
// other pools are there as before, wherever its name sorts.
func TestAPoolWithTooManyToolsTakesNobodyElses(t *testing.T) {
	for _, pool := range []toolyard.Pool{"a-greedy", "z-greedy"} {
		f := newFleet(t)
		f.join("m1", "modest", many("own", 10), "one")
		f.join("n1", "other", many("own-too", 300), "one")
		f.join("g1", pool, many("flood", registry.MaxTools), "one")
		of := map[toolyard.Pool]int{}
		for _, e := range f.surface("one").Tools {
			of[e.Pool]++
		}
		if of["modest"] != 10 || of["other"] != 300 || of[pool] != registry.MaxTools-310 {
			t.Errorf("pools have %v tools in a surface", of)
		}
		if said := f.LeftOut(); len(said) != 1 || !strings.Contains(said[0], string(pool)) ||
			!strings.Contains(said[0], "310") {
			t.Errorf("the operator is told %q", said)
		}
	}
}

// TestAPoolWithTooLongToolsTakesNobodyElses does the same with the bytes of declarations: what is stored of a surface
// has a limit.
func TestAPoolWithTooLongToolsTakesNobodyElses(t *testing.T) {
	f := newFleet(t)
	f.join("m1", "modest", many("own", 10), "one")
	long := json.RawMessage(`{"type":"object","description":"` +
		strings.Repeat("x", registry.MaxDeclarationBytes/2) + `"}`)
	var entries []registry.Entry
	for _, name := range many("long", 2*registry.MaxBytes/len(long)) {
		entries = append(entries, registry.Entry{Origin: registry.Toolset, Declaration: tool.Declaration{
			Name: name, Description: "d", InputSchema: long, Class: tool.ClassRule{Static: toolyard.ReadOnly},
		}})
	}
	f.Put("g1", Worker{Pool: "a-greedy", Toolset: "long", Workspaces: []toolyard.Workspace{"one"}}, entries, nil)
	s := f.surface("one")
	for _, name := range many("own", 10) {
		if !slices.ContainsFunc(s.Tools, func(e registry.Entry) bool { return e.Name == name }) {
			t.Errorf("the tool %q of a modest pool is not there", name)
		}
	}
	encoded, err := s.Encode()
	must.OK(t, err)
	if len(s.Tools) < 20 || len(encoded) > registry.MaxBytes+registry.MaxBytes/100 {
		t.Errorf("the surface has %d tools and %d bytes", len(s.Tools), len(encoded))
	}
	if said := f.LeftOut(); len(said) != 1 || !strings.Contains(said[0], "a-greedy") {
		t.Errorf("the operator is told %q", said)
	}
}

// TestNothingIsLeftOutWithoutNeed looks at a fleet that fits.
func TestNothingIsLeftOutWithoutNeed(t *testing.T) {
	f := newFleet(t)
	f.join("a1", "a", many("a", registry.MaxTools/2), "one")
	f.join("b1", "b", many("b", registry.MaxTools/2), "one")
	if n := len(f.surface("one").Tools); n != registry.MaxTools || len(f.LeftOut()) > 0 {
		t.Errorf("there are %d tools, and left out are %q", n, f.LeftOut())
	}
}

// TestAPoolThatBlocksTooManyNamesTakesNobodyElses has the workers of a pool block more names, and longer ones, than a
// surface could be stored with.
func TestAPoolThatBlocksTooManyNamesTakesNobodyElses(t *testing.T) {
	f := newFleet(t)
	f.join("m1", "modest", many("own", 10), "one")
	for worker := range 3 {
		blocked := many(fmt.Sprintf("%d-%s", worker, strings.Repeat("b", 200)), 5*registry.MaxTools)
		blocked = append(blocked, strings.Repeat("x", registry.MaxBytes))
		f.Put(fmt.Sprint("g", worker), Worker{Pool: "a-greedy", Toolset: fmt.Sprint(worker)}, nil, blocked)
	}
	s := f.surface("one")
	encoded, err := s.Encode()
	must.OK(t, err)
	if len(s.Tools) != 10 || len(encoded) > 2<<20 {
		t.Errorf("the surface has %d tools and %d bytes", len(s.Tools), len(encoded))
	}
}

// TestToolsThatStayAreNotCheckedAgain: when one worker joins, the tools of the others are put together again, and their
// schemas, which take the longest, are not compiled again.
func TestToolsThatStayAreNotCheckedAgain(t *testing.T) {
	const n = 100
	f := newFleet(t)
	f.join("first", "p", many("tool", n))
	allocates := func(do func()) float64 { return testing.AllocsPerRun(1, do) } // which does it twice
	compiles := allocates(func() {
		if _, err := (registry.Registry{}).Register(f.toolsets[f.last["p"].toolset]...); err != nil {
			t.Fatal(err)
		}
	})
	joined := 0
	joins := allocates(func() {
		joined++
		f.join(fmt.Sprint("next ", joined), "q", []string{fmt.Sprint("other", joined)})
		f.surface("w")
	})
	if 4*joins > compiles {
		t.Errorf("a join of one tool beside %d makes %.0f allocations; to check those makes %.0f", n, joins, compiles)
	}
}
