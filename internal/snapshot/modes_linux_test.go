package snapshot

import (
	"errors"
	"os"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// modeOf is the mode of a name of the workspace.
func (y *yard) modeOf(t *testing.T, name string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(y.at(name))
	must.OK(t, err)
	return info.Mode().Perm()
}

func (y *yard) chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	must.OK(t, os.Chmod(y.at(name), mode))
}

// TestACommitLeavesTheModesOfOthers: a directory that a commit only puts files into keeps the mode that others have
// given it since the overlay was made.
func TestACommitLeavesTheModesOfOthers(t *testing.T) {
	for _, c := range []struct{ was, now os.FileMode }{
		{0o755, 0o555}, {0o555, 0o755}, {0o555, 0o500}, {0o555, 0o555}, {0o755, 0o750},
	} {
		y := newYard(t)
		y.write(t, "d/f", "before")
		y.chmod(t, "d", c.was)
		w := Commit{Key: key("b", 0)}
		o := y.overlay(t, w.Key)
		o.chmod(t, "d", 0o755)
		o.write(t, "d/f", "after")
		o.chmod(t, "d", c.was)
		y.chmod(t, "d", c.now)
		if _, err := y.commit(t, w); err != nil {
			t.Fatal(err)
		}
		if is := y.modeOf(t, "d"); is != c.now {
			t.Errorf("it was %o, and %o before the commit; behind it, it is %o", c.was, c.now, is)
		}
		if content, err := os.ReadFile(y.at("d", "f")); err != nil || string(content) != "after" {
			t.Errorf("%q, %v", content, err)
		}
		y.chmod(t, "d", 0o755)
	}
}

// TestACommitThatWasBrokenOffClosesDirectories: whoever goes on with it gives a directory its mode back that the first
// one opened.
func TestACommitThatWasBrokenOffClosesDirectories(t *testing.T) {
	y := newYard(t)
	y.write(t, "d/f", "before")
	y.write(t, "d/gone", "before")
	y.chmod(t, "d", 0o555)
	w := Commit{Key: key("b", 0)}
	o := y.overlay(t, w.Key)
	o.chmod(t, "d", 0o755)
	o.write(t, "d/f", "after")
	must.OK(t, os.Remove(o.at("d", "gone")))
	o.chmod(t, "d", 0o555)
	broken := errors.New("broken off")
	w.Act = func() error {
		if _, err := os.Lstat(y.at("d", "gone")); err != nil {
			return broken
		}
		return nil
	}
	if _, err := y.commit(t, w); !errors.Is(err, broken) || y.modeOf(t, "d") != 0o755 {
		t.Fatalf("it was not broken off in an open directory: %v, %o", err, y.modeOf(t, "d"))
	}
	w.Act = nil
	if _, err := y.commit(t, w); err != nil || y.modeOf(t, "d") != 0o555 {
		t.Errorf("%v, %o", err, y.modeOf(t, "d"))
	}
}
