package registry

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestConflicts: names that two pools or two origins offer are found, whatever the order; one pool's own versions are
// no conflict.
func TestConflicts(t *testing.T) {
	other := func(e *Entry) { e.Description = "another" }
	hashed := func(e Entry) Entry {
		hash, err := Hash(e.Declaration)
		if err != nil {
			t.Fatal(err)
		}
		e.Hash = hash
		return e
	}
	entries := []Entry{
		hashed(entry(Toolset, "search", pool("b"))), hashed(entry(Toolset, "search", pool("a"), other)),
		hashed(entry(Builtin, "glob", pool("a"))), hashed(entry(Builtin, "glob", pool("b"))),
		hashed(entry(Toolset, "glob", pool("a"))),
		hashed(entry(Toolset, "new", pool("a"))), hashed(entry(Toolset, "new", pool("a"), other)),
		hashed(entry(Builtin, "alone")),
	}
	want := `"glob" is offered by pool "a" (builtin) and pool "b" (builtin) and pool "a" (toolset), with one declaration; a batch sees one of them
"search" is offered by pool "a" (toolset) and pool "b" (toolset), with different declarations; a batch sees one of them`
	for range 2 {
		var got []string
		for _, c := range Conflicts(entries) {
			got = append(got, fmt.Sprint(c))
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("the conflicts are\n%s\nwant\n%s", strings.Join(got, "\n"), want)
		}
		slices.Reverse(entries)
	}
}
