package snapshot

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestWhatIsNotedLate: who has the workspace no more when it has looked at it notes nothing, neither behind a group nor
// behind a restore. What it has seen may be what others have changed.
func TestWhatIsNotedLate(t *testing.T) {
	y, lapsed := newYard(t), errors.New("others may act")
	y.write(t, "own", "before")
	y.take(t, key("b", 0))
	y.write(t, "own", "after, and longer")
	y.write(t, "of others", "new")
	if err := y.store.After(t.Context(), y.root, key("b", 0), func() error { return lapsed }); !errors.Is(err, lapsed) {
		t.Fatal(err)
	}
	w := Wish{Key: key("b", 0), Groups: []int{0}}
	if _, err := y.store.Restore(t.Context(), y.root, w); err == nil || !strings.Contains(err.Error(), "nobody knows") {
		t.Errorf("the workspace is set back: %v", err)
	}
	if _, err := os.Stat(y.at("of others")); err != nil {
		t.Error(err)
	}
	y.after(t, key("b", 0))
	seen := 0
	w.Act = func() error {
		if seen++; seen > 2 { // one change, and one name that goes
			y.write(t, "late", "new")
			return lapsed
		}
		return nil
	}
	if _, err := y.store.Restore(t.Context(), y.root, w); !errors.Is(err, lapsed) {
		t.Fatal(err)
	}
	w.Act = nil
	if _, err := y.store.Restore(t.Context(), y.root, w); err == nil {
		t.Error("the workspace is set back, and nobody has noted what it was behind the restore before")
	}
	if _, err := os.Stat(y.at("late")); err != nil {
		t.Error(err)
	}
}

// TestOthersBetweenTwoRuns: a group gives the workspace back while a person is asked, and others change something. If
// the group had changed nothing by then, what the workspace is when it goes on is kept. Otherwise only force undoes it.
func TestOthersBetweenTwoRuns(t *testing.T) {
	for name, changes := range map[string]bool{"a run that only asks": false, "a run that changes something": true} {
		t.Run(name, func(t *testing.T) {
			y, k := newYard(t), key("b", 0)
			y.write(t, "own", "before")
			y.take(t, k)
			if changes {
				y.write(t, "own", "in between")
			}
			y.after(t, k)
			if info := y.take(t, k); !info.Kept {
				t.Errorf("nobody has changed anything, and %s", info)
			}
			y.write(t, "of others", "new")
			if info := y.take(t, k); info.Kept != changes {
				t.Errorf("others have changed something, and %s", info)
			}
			y.write(t, "own", "after, and longer")
			y.after(t, k)
			_, err := y.store.Restore(t.Context(), y.root, Wish{Key: k, Groups: []int{0}})
			if refused := err != nil && strings.Contains(err.Error(), "while group 1 waited"); refused != changes {
				t.Errorf("the workspace is set back: %v", err)
			}
			if _, err := os.Stat(y.at("of others")); err != nil {
				t.Error("what others have changed is lost:", err)
			}
			if _, err := y.store.Restore(t.Context(), y.root, Wish{Key: k, Groups: []int{0}, Force: true}); err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(y.at("own")); err != nil || string(got) != "before" {
				t.Errorf("the batch's own file is %q (%v)", got, err)
			}
		})
	}
}
