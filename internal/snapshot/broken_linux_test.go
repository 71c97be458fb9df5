package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

var errBroken = errors.New("broken off")

func brokenOff() error { return errBroken }

// TestACommitThatChangedNothing: a commit that was broken off before its first change is not a part of one. The overlay
// can be dropped, and what others do since is theirs.
func TestACommitThatChangedNothing(t *testing.T) {
	y := newYard(t)
	y.write(t, "f", "before")
	k := key("b", 0)
	o := y.overlay(t, k)
	o.write(t, "f", "of the batch")
	if _, err := y.commit(t, Commit{Key: k, Act: brokenOff}); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(y.home(t), k.listingName(commit))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the store says that a commit has begun: %v", err)
	}
	if err := y.store.Drop(t.Context(), y.root, Commit{Key: k, Act: brokenOff}); !errors.Is(err, errBroken) {
		t.Errorf("the overlay cannot be dropped: %v", err)
	}
	if err := os.Remove(y.at("f")); err != nil {
		t.Fatal(err)
	}
	if _, err := y.commit(t, Commit{Key: k}); err == nil {
		t.Error("committed without force, although others have removed f")
	}
}

// TestOthersRemoveAFileBehindAPartOfACommit: a commit gives a file its new content in one step, so it was others who
// removed it. What becomes of another kind the commit removes itself.
func TestOthersRemoveAFileBehindAPartOfACommit(t *testing.T) {
	for name, link := range map[string]bool{"a file": false, "a link in its place": true} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			y.write(t, "a", "before")
			y.write(t, "f", "before")
			k := key("b", 0)
			o := y.overlay(t, k)
			o.write(t, "a", "of the batch")
			o.write(t, "f", "of the batch")
			if link {
				if err := errors.Join(os.Remove(o.at("f")), os.Symlink("a", o.at("f"))); err != nil {
					t.Fatal(err)
				}
			}
			acts := 0
			w := Commit{Key: k, Act: func() error {
				if acts++; acts > 3 {
					return errBroken
				}
				return nil
			}}
			if _, err := y.commit(t, w); !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
			if err := y.store.Drop(t.Context(), y.root, Commit{Key: k}); err == nil {
				t.Fatal("an overlay is dropped that is committed in part")
			}
			if err := os.Remove(y.at("f")); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if _, err := y.commit(t, Commit{Key: k}); (err == nil) != link {
				t.Errorf("f is not there, and the commit says: %v", err)
			}
		})
	}
}

// TestAnUndoThatIsBrokenOffTwice: an undo that has changed something is under way until it ends, also if the next
// attempt ended before it changed anything. It goes on under its own ticket, and another one needs force.
func TestAnUndoThatIsBrokenOffTwice(t *testing.T) {
	for name, c := range map[string]struct {
		ticket uint64 // of the second attempt
		force  bool
	}{"under one ticket": {ticket: 5}, "by force under another ticket": {ticket: 6, force: true}} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			files := []string{"a", "b", "c"}
			for _, f := range files {
				y.write(t, f, "before")
			}
			k := key("b", 0)
			y.take(t, k)
			for _, f := range files {
				y.write(t, f, "after ")
			}
			y.after(t, k)
			left := 3
			first := Wish{Key: k, Groups: []int{0}, Ticket: 5, Act: func() error {
				if left--; left < 0 {
					return errBroken
				}
				return nil
			}}
			second := Wish{Key: k, Groups: []int{0}, Ticket: c.ticket, Force: c.force, Act: brokenOff}
			for _, w := range []Wish{first, second} {
				if _, err := y.store.Restore(t.Context(), y.root, w); !errors.Is(err, errBroken) {
					t.Fatal(err)
				}
			}
			for _, ticket := range []uint64{6, 5} {
				w := Wish{Key: k, Groups: []int{0}, Ticket: ticket}
				if _, err := y.store.Restore(t.Context(), y.root, w); (err == nil) != (ticket == first.Ticket) {
					t.Errorf("under ticket %d: %v", ticket, err)
				}
			}
		})
	}
}
