package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAClosedTopIsSetBack: a batch that takes the owner's right to write from the workspace's own directory can be
// undone, and the directory has its earlier mode then.
func TestAClosedTopIsSetBack(t *testing.T) {
	for _, earlier := range []os.FileMode{0o755, 0o555} {
		y := newYard(t)
		y.write(t, "f", "before")
		must.OK(t, os.Chmod(y.dir, earlier))
		var want map[string]string
		err := y.asAnother(t, func() error {
			want = y.look(t)
			if _, err := y.store.Take(t.Context(), y.root, key("b", 0)); err != nil {
				return err
			}
			return errors.Join(os.Chmod(y.dir, 0o700), os.Remove(y.at("f")), os.Chmod(y.dir, 0o500))
		})
		if err == nil {
			err = y.asAnother(t, func() error {
				_, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("b", 0), Force: true})
				return err
			})
		}
		if err != nil {
			t.Fatalf("a directory of mode %o: %v", earlier, err)
		}
		same(t, y.look(t), want)
		info, err := os.Stat(y.dir)
		must.OK(t, err)
		if info.Mode().Perm() != earlier {
			t.Errorf("the mode is %o, and was %o", info.Mode().Perm(), earlier)
		}
		if err := os.Chmod(y.dir, 0o755); err != nil { // or the test's directory could not be removed
			t.Fatal(err)
		}
	}
}

// TestDeepClosedDirectoriesAreRemoved: modes that keep the owner out of directories that lie deep in one another stop
// no restore.
func TestDeepClosedDirectoriesAreRemoved(t *testing.T) {
	y := newYard(t)
	y.write(t, "f", "before")
	var want map[string]string
	err := y.asAnother(t, func() error {
		want = y.look(t)
		if _, err := y.store.Take(t.Context(), y.root, key("b", 0)); err != nil {
			return err
		}
		deep := "new" + strings.Repeat("/d", manyOpen+10)
		if err := os.MkdirAll(y.at(deep), 0o700); err != nil {
			return err
		}
		for p := deep; p != "."; p = filepath.Dir(p) {
			if err := os.Chmod(y.at(p), 0o500); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = y.asAnother(t, func() error {
			_, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("b", 0), Force: true})
			return err
		})
	}
	must.OK(t, err)
	same(t, y.look(t), want)
}

// TestACommitByForceIntoClosedDirectories: a directory that others have removed is made again, although its own
// directory keeps the owner out. The mode of that stays.
func TestACommitByForceIntoClosedDirectories(t *testing.T) {
	y := newYard(t)
	y.write(t, "closed/d/f", "before")
	w := Commit{Key: key("b", 0), Force: true}
	y.chmod(t, "closed", 0o500)
	err := y.asAnother(t, func() error {
		over, err := y.store.Overlay(t.Context(), y.root, w.Key, "w", nil)
		if err != nil {
			return err
		}
		if err := over.Close(); err != nil {
			return err
		}
		err = errors.Join(os.WriteFile(filepath.Join(over.Dir(), "closed", "d", "f"), []byte("after"), 0o644),
			os.Chmod(y.at("closed"), 0o700), os.RemoveAll(y.at("closed", "d")), os.Chmod(y.at("closed"), 0o500))
		if err != nil {
			return err
		}
		_, err = y.store.Commit(t.Context(), y.root, w)
		return err
	})
	must.OK(t, err)
	if is := y.modeOf(t, "closed"); is != 0o500 {
		t.Errorf("the mode is %o", is)
	}
	if content, err := os.ReadFile(y.at("closed", "d", "f")); err != nil || string(content) != "after" {
		t.Errorf("%q, %v", content, err)
	}
}

// TestACommitByForceOfADeepTreeInAClosedTop: what lies too deep to be removed in its place goes to the top, although
// that keeps the owner out. The mode of the top stays.
func TestACommitByForceOfADeepTreeInAClosedTop(t *testing.T) {
	y := newYard(t)
	y.write(t, "d/f", "before")
	w := Commit{Key: key("b", 0), Force: true}
	err := y.asAnother(t, func() error {
		over, err := y.store.Overlay(t.Context(), y.root, w.Key, "w", nil)
		if err != nil {
			return err
		}
		err = errors.Join(over.Close(), os.Remove(filepath.Join(over.Dir(), "d", "f")),
			os.Remove(y.at("d", "f")), os.MkdirAll(y.at("d", "f"+strings.Repeat("/d", manyOpen+10)), 0o755),
			os.Chmod(y.dir, 0o555))
		if err != nil {
			return err
		}
		_, err = y.store.Commit(t.Context(), y.root, w)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if left := y.leftovers(t); len(left) > 0 || y.modeOf(t, ".") != 0o555 {
		t.Errorf("%q are left at the top, of mode %o", left, y.modeOf(t, "."))
	}
	y.chmod(t, ".", 0o755) // or the test's directory could not be removed
}
