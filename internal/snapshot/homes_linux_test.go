package snapshot

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// names are how many files and directories a store has.
func (y *yard) names(t *testing.T) (n int) {
	t.Helper()
	err := filepath.WalkDir(y.store.dir, func(p string, _ fs.DirEntry, err error) error {
		if p != y.store.dir {
			n++
		}
		return err
	})
	must.OK(t, err)
	return n
}

// TestNothingStaysOfWorkspacesThatAreGone: where each worker, or each task, has a directory of its own as its
// workspace, a store that they share keeps nothing of those whose snapshots are too old.
func TestNothingStaysOfWorkspacesThatAreGone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	long := time.Now().Add(-2 * lifetime)
	for range 20 {
		one := newYard(t)
		one.store = y.store
		for _, content := range []string{"a", "b", "c", "d", "e"} {
			one.write(t, content, content)
		}
		k := key("b", 0)
		one.take(t, k)
		one.after(t, k)
		for _, kind := range []string{before, after} {
			must.OK(t, os.Chtimes(filepath.Join(one.home(t), k.listingName(kind)), long, long))
		}
	}
	y.write(t, "f", "x")
	y.take(t, key("b", 1))
	must.OK(t, y.store.Sweep(t.Context()))
	if got := y.objects(t); got != 1 {
		t.Errorf("%d objects of the workspace that is there, want 1", got)
	}
	// Its home, lock, listing, object, and the directories of objects.
	if got := y.names(t); got > 7 {
		t.Errorf("%d names are in the store, 20 workspaces later", got)
	}
}

// TestASweepBesideSnapshots: a sweep that takes away what a store has of a workspace takes nothing from who is about to
// use it.
func TestASweepBesideSnapshots(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.write(t, "f", "x")
	long := time.Now().Add(-2 * lifetime)
	done := make(chan struct{})
	var sweeping sync.WaitGroup
	for range 2 {
		sweeping.Go(func() {
			for {
				if err := y.store.Sweep(t.Context()); err != nil {
					t.Errorf("sweep: %v", err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	defer sweeping.Wait()
	defer close(done)
	for n := range 200 {
		k := key("b", n)
		if _, err := y.store.Take(t.Context(), y.root, k); err != nil {
			t.Fatalf("snapshot %d: %v", n, err)
		}
		file := filepath.Join(y.home(t), k.listingName(before))
		if _, err := readListing(file); err != nil {
			t.Fatalf("snapshot %d: %v", n, err)
		}
		must.OK(t, os.Chtimes(file, long, long))
		if n%4 == 0 {
			testenv.Until(t, "the snapshot is swept", func() bool {
				_, err := os.Lstat(file)
				return err != nil
			})
		}
	}
}
