package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// twins makes two directories with a file each, of one size and one time, as unpacked packages have it.
func (y *yard) twins(t *testing.T) {
	t.Helper()
	released := time.Unix(499_162_500, 0)
	for dir, content := range map[string]string{"current": "1", "next": "2"} {
		y.write(t, dir+"/version", content)
		must.OK(t, os.Chtimes(y.at(dir, "version"), released, released))
	}
}

// swap gives the two directories each other's name. That touches nothing that is in them.
func (y *yard) swap(t *testing.T) {
	t.Helper()
	current, next, old := y.at("current"), y.at("next"), y.at("old")
	must.OK(t, errors.Join(os.Rename(current, old), os.Rename(next, current), os.Rename(old, next)))
}

// edit changes a listing that is stored.
func (y *yard) edit(t *testing.T, k Key, kind string, change func(*listing)) {
	t.Helper()
	file := filepath.Join(y.home(t), k.listingName(kind))
	l, err := readListing(file)
	must.OK(t, err)
	change(l)
	must.OK(t, l.write(file))
}

// atOneTick has a listing say of each of the two files what it would if both were written at one tick of the clock:
// when they are swapped, the times of neither name change.
func atOneTick(l *listing) {
	at := map[string]*entry{}
	for i := range l.entries {
		at[string(l.entries[i].Path)] = &l.entries[i]
	}
	a, b := at["current/version"], at["next/version"]
	a.Touched, b.Touched = b.Touched, a.Touched
}

// TestSwappedDirectoriesAreKept: a snapshot has the content that files of the same size and times have now.
func TestSwappedDirectoriesAreKept(t *testing.T) {
	for name, old := range map[string]bool{"inodes are listed": false, "the listing is of an older version": true} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			y.twins(t)
			first, second := key("b", 0), key("c", 0)
			y.take(t, first)
			y.edit(t, first, before, func(l *listing) {
				atOneTick(l)
				l.Begun = l.Begun.Add(2 * trusted)
				for i := range l.entries {
					if old {
						l.entries[i].Inode = 0
					}
				}
			})
			y.swap(t)
			want := y.look(t)
			y.take(t, second)
			y.write(t, "other", "x")
			w := Wish{Key: second, Groups: []int{0}, Force: true}
			if _, err := y.store.Restore(t.Context(), y.root, w); err != nil {
				t.Fatal(err)
			}
			same(t, y.look(t), want)
		})
	}
}

// TestOthersSwapDirectories: that is seen, and only force undoes it.
func TestOthersSwapDirectories(t *testing.T) {
	y := newYard(t)
	y.twins(t)
	k := key("b", 0)
	y.take(t, k)
	y.write(t, "made", "x")
	y.after(t, k)
	y.edit(t, k, after, atOneTick)
	y.swap(t)
	if _, err := y.store.Restore(t.Context(), y.root, Wish{Key: k, Groups: []int{0}}); err == nil {
		t.Error("the workspace is set back without force")
	}
	if got, err := os.ReadFile(y.at("current", "version")); err != nil || string(got) != "2" {
		t.Errorf("others have put \"2\" there, and it is %q (%v)", got, err)
	}
}

// TestSwappedDirectoriesAreCommitted: a swap in an overlay is a change of the files.
func TestSwappedDirectoriesAreCommitted(t *testing.T) {
	y := newYard(t)
	y.twins(t)
	k := key("b", 0)
	o := y.overlay(t, k)
	y.edit(t, k, made, atOneTick)
	o.swap(t)
	c, err := y.store.Changes(t.Context(), y.root, k)
	must.OK(t, err)
	if c.Changed != 2 {
		t.Errorf("the overlay has other files in two directories, and says: %s", c)
	}
	if _, err := y.commit(t, Commit{Key: k}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(y.at("current", "version")); err != nil || string(got) != "2" {
		t.Errorf("the overlay has \"2\", and the workspace %q (%v)", got, err)
	}
}

// TestOthersSwapDirectoriesBeforeACommit: that is seen. Another inode alone is no change: the content says so.
func TestOthersSwapDirectoriesBeforeACommit(t *testing.T) {
	for name, swapped := range map[string]bool{"swapped": true, "other inodes": false} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			y.twins(t)
			k := key("b", 0)
			o := y.overlay(t, k)
			o.write(t, "current/version", "of the batch")
			if swapped {
				y.edit(t, k, base, atOneTick)
				y.swap(t)
			} else {
				y.edit(t, k, base, func(l *listing) {
					for i := range l.entries {
						l.entries[i].Inode++
					}
				})
			}
			if _, err := y.commit(t, Commit{Key: k}); (err != nil) != swapped {
				t.Errorf("others have swapped directories: %v, and the commit says: %v", swapped, err)
			}
		})
	}
}

// TestAnotherInode is a change of a file unless the contents are known to be equal, and none of anything else.
func TestAnotherInode(t *testing.T) {
	for _, c := range []struct {
		kind, sum, otherSum string
		inode, other        uint64
		same                bool
	}{
		{kind: aFile, inode: 1, other: 1, same: true},
		{kind: aFile, inode: 1, other: 2},
		{kind: aFile},
		{kind: aFile, inode: 1, other: 2, sum: "a"},
		{kind: aFile, inode: 1, other: 2, sum: "a", otherSum: "b"},
		{kind: aFile, inode: 1, other: 2, sum: "a", otherSum: "a", same: true},
		{kind: aDir, inode: 1, other: 2, same: true},
		{kind: aLink, inode: 1, other: 2, same: true},
	} {
		a, b := entry{Kind: c.kind, Inode: c.inode, Sum: c.sum}, entry{Kind: c.kind, Inode: c.other, Sum: c.otherSum}
		if got := a.same(&b); got != c.same {
			t.Errorf("%+v: the same: %v", c, got)
		}
	}
}
