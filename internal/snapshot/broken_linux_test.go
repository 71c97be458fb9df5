package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
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
	must.OK(t, os.Remove(y.at("f")))
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
				must.OK(t, errors.Join(os.Remove(o.at("f")), os.Symlink("a", o.at("f"))))
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

// killed runs what is killed where it would make its first change: what it has stored by then stays, and nobody cleans
// up.
func killed(t *testing.T, run func(act func() error) error) {
	t.Helper()
	defer func() {
		if said := recover(); said != errBroken {
			t.Fatalf("it ended by itself: %v", said)
		}
	}()
	panic(run(func() error { panic(errBroken) }))
}

// TestAKillBeforeTheFirstChange: nobody knows whether a worker that was killed has changed something. An undo goes on
// under its own ticket, and another one needs force. A commit goes on where nobody has changed anything since, and
// otherwise needs force.
func TestAKillBeforeTheFirstChange(t *testing.T) {
	for name, c := range map[string]struct {
		again       Wish
		changed, ok bool
	}{
		"under the same ticket":           {Wish{Ticket: 5}, false, true},
		"under another one":               {Wish{Ticket: 6}, false, false},
		"under another one, by force":     {Wish{Ticket: 6, Force: true}, false, true},
		"others were there, by force":     {Wish{Ticket: 6, Force: true}, true, true},
		"others were there, and no force": {Wish{Ticket: 6}, true, false},
	} {
		y := newYard(t)
		y.write(t, "f", "before")
		k := key("b", 0)
		y.take(t, k)
		y.write(t, "f", "after ")
		y.after(t, k)
		killed(t, func(act func() error) error {
			_, err := y.store.Restore(t.Context(), y.root, Wish{Key: k, Groups: []int{0}, Ticket: 5, Act: act})
			return err
		})
		if c.changed {
			y.write(t, "f", "others")
		}
		c.again.Key, c.again.Groups = k, []int{0}
		_, err := y.store.Restore(t.Context(), y.root, c.again)
		data, failed := os.ReadFile(y.at("f"))
		must.OK(t, failed)
		if is := string(data) == "before"; is != c.ok || (err == nil) != c.ok {
			t.Errorf("an undo %s: f is %q, %v", name, data, err)
		}
	}
	for name, c := range map[string]struct {
		others string
		force  bool
		want   string
	}{
		"nobody was there":            {"", false, "of the batch"},
		"others were there":           {"others", false, "others"},
		"others were there, by force": {"others", true, "of the batch"},
	} {
		y := newYard(t)
		y.write(t, "f", "before")
		k := key("b", 0)
		o := y.overlay(t, k)
		o.write(t, "f", "of the batch")
		killed(t, func(act func() error) error {
			_, err := y.commit(t, Commit{Key: k, Act: act})
			return err
		})
		if c.others != "" {
			y.write(t, "f", c.others)
		}
		_, err := y.commit(t, Commit{Key: k, Force: c.force})
		data, failed := os.ReadFile(y.at("f"))
		must.OK(t, failed)
		if string(data) != c.want || (err == nil) != (c.want == "of the batch") {
			t.Errorf("a commit, %s: f is %q, %v", name, data, err)
		}
		if y.store.Drop(t.Context(), y.root, Commit{Key: k}) == nil {
			t.Errorf("a commit, %s: its overlay is dropped", name)
		}
	}
}
