package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// foreign makes what names lead to another user's, in directories that everybody may write in.
func (y *yard) foreign(t *testing.T, dirs, files []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	if err := y.asAnother(t, func() error { return nil }); err != nil { // makes the store nobody's
		t.Fatal(err)
	}
	for _, dir := range dirs {
		y.chmod(t, dir, 0o777)
	}
	for _, name := range append(files, dirs...) {
		must.OK(t, os.Lchown(y.at(name), 0, 0))
	}
}

// TestDirectoriesOfAnotherUser: a batch that has changed names in directories which the worker may write in, and does
// not own, can be undone. The worker cannot give such a directory its time back.
func TestDirectoriesOfAnotherUser(t *testing.T) {
	y := newYard(t)
	y.write(t, "d/gone", "before")
	y.write(t, "d/stays", "before")
	y.foreign(t, []string{".", "d"}, []string{"d/stays"})
	want := y.promised(t)
	k := key("b", 0)
	var r Report
	err := asNobody(func() error {
		if _, err := y.store.Take(t.Context(), y.root, k); err != nil {
			return err
		}
		err := errors.Join(os.Remove(y.at("d", "gone")), os.WriteFile(y.at("d", "new"), nil, 0o644),
			os.WriteFile(y.at("new"), nil, 0o644), y.store.After(t.Context(), y.root, k, nil))
		if err == nil {
			r, err = y.store.Restore(t.Context(), y.root, Wish{Key: k, Groups: []int{0}})
		}
		return err
	})
	must.OK(t, err)
	same(t, y.promised(t), want)
	if r.Owners != 0 {
		t.Errorf("%d names have another owner", r.Owners)
	}
}

// TestFilesOfAnotherUser: a file with the right content whose mode and time the worker may not change is written anew.
func TestFilesOfAnotherUser(t *testing.T) {
	y := newYard(t)
	y.write(t, "touched", "before")
	y.write(t, "closed", "before")
	y.foreign(t, []string{"."}, []string{"touched", "closed"})
	k := key("b", 0)
	err := asNobody(func() error {
		_, err := y.store.Take(t.Context(), y.root, k)
		return err
	})
	must.OK(t, err)
	was, err := os.Lstat(y.at("touched"))
	must.OK(t, err)
	y.chmod(t, "closed", 0o604)
	must.OK(t, os.Chtimes(y.at("touched"), time.Unix(1, 0), time.Unix(1, 0)))
	var r Report
	err = asNobody(func() error {
		r, err = y.store.Restore(t.Context(), y.root, Wish{Key: k, Groups: []int{0}, Force: true})
		return err
	})
	must.OK(t, err)
	is, err := os.Lstat(y.at("touched"))
	if err != nil || !is.ModTime().Equal(was.ModTime()) || y.modeOf(t, "closed") != 0o644 || r.Owners != 2 {
		t.Errorf("%v, %v, %o, %d owners", is, err, y.modeOf(t, "closed"), r.Owners)
	}
}

// TestDirectoriesOfAnotherUserKeepTheirMode: whose owner has changed its mode since, a worker cannot give it back. All
// else is set back, also what comes behind it, and the report says how many there are.
func TestDirectoriesOfAnotherUserKeepTheirMode(t *testing.T) {
	y := newYard(t)
	y.write(t, "d/f", "before")
	y.write(t, "z", "before")
	y.foreign(t, []string{".", "d"}, nil)
	k := key("b", 0)
	err := asNobody(func() error {
		_, err := y.store.Take(t.Context(), y.root, k)
		return errors.Join(err, os.WriteFile(y.at("d", "f"), []byte("behind"), 0o644),
			os.WriteFile(y.at("z"), []byte("behind"), 0o644))
	})
	must.OK(t, err)
	y.chmod(t, "d", 0o757)
	y.chmod(t, ".", 0o757)
	var r Report
	err = asNobody(func() error {
		r, err = y.store.Restore(t.Context(), y.root, Wish{Key: k, Groups: []int{0}, Force: true})
		return err
	})
	must.OK(t, err)
	for _, name := range []string{"d/f", "z"} {
		if text, err := os.ReadFile(y.at(name)); err != nil || string(text) != "before" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if r.Modes != 2 || y.modeOf(t, "d") != 0o757 {
		t.Errorf("%d directories have another mode, %o", r.Modes, y.modeOf(t, "d"))
	}
}

// TestACommitToAFileOfAnotherUser: a commit that changes nothing but its mode writes it anew.
func TestACommitToAFileOfAnotherUser(t *testing.T) {
	y := newYard(t)
	y.write(t, "f", "before")
	y.foreign(t, []string{"."}, []string{"f"})
	w := Commit{Key: key("b", 0)}
	err := asNobody(func() error {
		over, err := y.store.Overlay(t.Context(), y.root, w.Key, "w", nil)
		if err != nil {
			return err
		}
		o := &yard{dir: over.Dir()}
		if err := errors.Join(over.Close(), os.Chmod(o.at("f"), 0o755)); err != nil {
			return err
		}
		_, err = y.store.Commit(t.Context(), y.root, w)
		return err
	})
	if err != nil || y.modeOf(t, "f") != 0o755 {
		t.Errorf("%v, %o", err, y.modeOf(t, "f"))
	}
}

// TestACommitLeavesDirectoriesOfAnotherUserTheirMode: a worker cannot change it. All else is committed, and the result
// counts such directories, also when the same commit is run again.
func TestACommitLeavesDirectoriesOfAnotherUserTheirMode(t *testing.T) {
	y := newYard(t)
	y.write(t, "a/f", "before")
	y.write(t, "b/f", "before")
	y.write(t, "z", "before")
	y.foreign(t, []string{".", "a", "b"}, nil)
	w := Commit{Key: key("b", 0)}
	kept := 0
	w.Kept = func(modes int) { kept += modes }
	err := asNobody(func() error {
		over, err := y.store.Overlay(t.Context(), y.root, w.Key, "w", nil)
		if err != nil {
			return err
		}
		o := &yard{dir: over.Dir()}
		err = errors.Join(over.Close(), os.Chmod(o.at("a"), 0o755),
			os.WriteFile(o.at("a", "f"), []byte("after"), 0o644), os.RemoveAll(o.at("b")),
			os.Mkdir(o.at("b"), 0o700), os.WriteFile(o.at("b", "f"), []byte("after"), 0o644),
			os.WriteFile(o.at("z"), []byte("after"), 0o644))
		for range 2 {
			if err == nil {
				_, err = y.store.Commit(t.Context(), y.root, w)
			}
		}
		return err
	})
	must.OK(t, err)
	for _, name := range []string{"a/f", "b/f", "z"} {
		if text, err := os.ReadFile(y.at(name)); err != nil || string(text) != "after" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if kept != 2*2 || y.modeOf(t, "a") != 0o777 || y.modeOf(t, "b") != 0o777 {
		t.Errorf("%d modes were kept, %o and %o", kept, y.modeOf(t, "a"), y.modeOf(t, "b"))
	}
}

// TestDirectoriesThatAreClosedToAnotherUser: a directory that its owner, another user, may not write in stays as it is,
// such as one of a cache of modules: a restore sets back what lies beside it, or what the worker may change in it.
func TestDirectoriesThatAreClosedToAnotherUser(t *testing.T) {
	for name, modes := range map[string]map[string]fs.FileMode{
		"below": {"cache": 0o555},
		"top":   {".": 0o577, "cache": 0o755},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			y.write(t, "cache/module", "before")
			y.write(t, "f", "before")
			y.foreign(t, []string{"."}, []string{"cache", "cache/module"})
			for dir, mode := range modes {
				y.chmod(t, dir, mode)
			}
			want := y.promised(t)
			k := key("b", 0)
			err := asNobody(func() error {
				if _, err := y.store.Take(t.Context(), y.root, k); err != nil {
					return err
				}
				err := errors.Join(os.Remove(y.at("f")), os.WriteFile(y.at("f"), []byte("behind"), 0o644),
					y.store.After(t.Context(), y.root, k, nil))
				if err == nil {
					_, err = y.store.Restore(t.Context(), y.root, Wish{Key: k, Groups: []int{0}})
				}
				return err
			})
			must.OK(t, err)
			same(t, y.promised(t), want)
		})
	}
}
