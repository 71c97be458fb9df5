package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// deepTree makes a directory with so many others in one another.
func (y *yard) deepTree(t *testing.T, name string, depth int) {
	t.Helper()
	y.mkdir(t, name+strings.Repeat("/d", depth))
}

// leftovers are the names at the top that nobody asked for.
func (y *yard) leftovers(t *testing.T) (left []string) {
	t.Helper()
	names, err := os.ReadDir(y.dir)
	must.OK(t, err)
	for _, n := range names {
		if strings.HasPrefix(n.Name(), passing) {
			left = append(left, n.Name())
		}
	}
	return left
}

// TestADeepTreeInPlaceOfAFile: a restore removes all of a tree that stands where a file was.
func TestADeepTreeInPlaceOfAFile(t *testing.T) {
	y := newYard(t)
	y.write(t, "f", "before")
	want := y.look(t)
	k := key("b", 0)
	y.take(t, k)
	must.OK(t, os.Remove(y.at("f")))
	y.deepTree(t, "f", manyOpen+10)
	if _, err := y.store.Restore(t.Context(), y.root, Wish{Key: k, Groups: []int{0}, Force: true}); err != nil {
		t.Fatal(err)
	}
	if left := y.leftovers(t); len(left) > 0 {
		t.Errorf("the restore succeeded and left %q at the top", left)
	}
	got := y.look(t)
	if len(got) != len(want) {
		t.Errorf("%d names, and %d were there before", len(got), len(want))
	}
}

// TestACommitByForceRemovesDeepTrees: so does a commit by force.
func TestACommitByForceRemovesDeepTrees(t *testing.T) {
	y := newYard(t)
	y.write(t, "d/f", "before")
	k := key("b", 0)
	o := y.overlay(t, k)
	must.OK(t, os.RemoveAll(filepath.Join(o.dir, "d")))
	y.deepTree(t, "d/others", manyOpen+10)
	if _, err := y.commit(t, Commit{Key: k, Force: true}); err != nil {
		t.Fatal(err)
	}
	if left := y.leftovers(t); len(left) > 0 {
		t.Errorf("the commit succeeded and left %q at the top", left)
	}
}
