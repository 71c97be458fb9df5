package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestLimits: what is past a limit has no snapshot, and says which.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limit func(*Limits)
		says  string
	}{
		"names":  {func(l *Limits) { l.Entries = 5 }, "more than 250000 names"},
		"depth":  {func(l *Limits) { l.Depth = 3 }, "deep in one another"},
		"bytes":  {func(l *Limits) { l.Bytes = 100 }, "bytes"},
		"store":  {func(l *Limits) { l.Store = 100 }, "no room left"},
		"a disk": {func(l *Limits) { l.MustFree = 1 << 60 }, "no room left"},
	} {
		y := newYard(t)
		c.limit(&y.store.limits)
		y.write(t, "a/b/c/d", strings.Repeat("x", 200))
		y.write(t, "e", strings.Repeat("y", 200))
		_, err := y.store.Take(t.Context(), y.root, key("b", 0))
		said, ok := errors.AsType[*tool.Error](err)
		if !ok || said.Code != toolyard.SetupRequired || !strings.Contains(said.Message, c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	y := newYard(t)
	y.write(t, "a", "a")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, errSlow)
	defer cancel()
	if _, err := y.store.Take(ctx, y.root, key("b", 0)); err == nil || !strings.Contains(err.Error(), "took longer") {
		t.Errorf("time: %v", err)
	}
}

// asAnother does something as a user that is not root, who has no right to pass over modes.
func (y *yard) asAnother(t *testing.T, do func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		return do()
	}
	y.mkdir(t, "../snapshots")
	for _, dir := range []string{filepath.Dir(filepath.Dir(y.dir)), filepath.Dir(y.dir), y.store.dir} {
		must.OK(t, os.Chmod(dir, 0o777))
	}
	err := filepath.WalkDir(y.dir, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, nobody, nobody))
	})
	must.OK(t, err)
	return asNobody(do)
}

const nobody = 65_534

// asNobody does something as a user that is not root. The test runs as root.
func asNobody(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, and its user with it
		if err := errors.Join(syscall.Setfsgid(nobody), syscall.Setfsuid(nobody)); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

// TestWhatCannotBeRead has no snapshot.
func TestWhatCannotBeRead(t *testing.T) {
	for _, closed := range []string{"closed/f", "closed"} {
		y := newYard(t)
		y.write(t, "closed/f", "x")
		must.OK(t, os.Chmod(y.at(closed), 0))
		err := y.asAnother(t, func() error {
			_, err := y.store.Take(t.Context(), y.root, key("b", 0))
			return err
		})
		said, ok := errors.AsType[*tool.Error](err)
		if !ok || said.Code != toolyard.SetupRequired || !strings.Contains(said.Message, "may not read all of it") ||
			!strings.Contains(fmt.Sprint(said.Err), "closed") || strings.Contains(said.Message, "closed") {
			t.Errorf("%s: %v", closed, err)
		}
		must.OK(t, os.Chmod(y.at(closed), 0o755))
	}
}

// TestClosedDirectoriesAreSetBack: modes that keep the owner out stop nobody from setting the workspace back, and are
// set back too.
func TestClosedDirectoriesAreSetBack(t *testing.T) {
	y := newYard(t)
	y.write(t, "a/b/f", "before")
	y.write(t, "a/b/gone", "before")
	must.OK(t, errors.Join(os.Chmod(y.at("a", "b"), 0o555), os.Chmod(y.at("a"), 0o500)))
	var want map[string]string
	err := y.asAnother(t, func() error {
		want = y.look(t)
		if _, err := y.store.Take(t.Context(), y.root, key("b", 0)); err != nil {
			return err
		}
		return errors.Join(os.Chmod(y.at("a"), 0o700), os.Chmod(y.at("a", "b"), 0o700),
			os.WriteFile(y.at("a", "b", "f"), []byte("after"), 0o644), os.Remove(y.at("a", "b", "gone")),
			os.MkdirAll(y.at("a", "new", "deeper"), 0o700), os.Chmod(y.at("a", "b", "f"), 0),
			os.Chmod(y.at("a", "new"), 0), os.Chmod(y.at("a", "b"), 0), os.Chmod(y.at("a"), 0))
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

// TestAFileThatChangesWhileItIsRead has no snapshot.
func TestAFileThatChangesWhileItIsRead(t *testing.T) {
	y := newYard(t)
	y.write(t, "log", "")
	n := 0
	y.store.stored = func() error {
		n++
		return os.WriteFile(y.at("log"), []byte(strings.Repeat("x", n)), 0o644)
	}
	_, err := y.store.Take(t.Context(), y.root, key("b", 0))
	if said, ok := errors.AsType[*tool.Error](err); !ok || said.Code != toolyard.DependencyUnavailable ||
		!errors.Is(err, errUnquiet) {
		t.Errorf("%v", err)
	}
}

// TestOldContentIsKnownByItsTimes: only what was changed is read again, and what was changed a moment ago always is.
func TestOldContentIsKnownByItsTimes(t *testing.T) {
	y := newYard(t)
	y.write(t, "f", "content")
	y.take(t, key("b", 0))
	home := y.home(t)
	if known := newest(home); len(known) != 0 {
		t.Errorf("a file of a moment ago is trusted: %v", known)
	}
	file := filepath.Join(home, new(key("b", 0)).listingName(before))
	l, err := readListing(file)
	must.OK(t, err)
	l.Begun = l.Begun.Add(2 * trusted)
	must.OK(t, l.write(file))
	if known := newest(home); known["f"] == nil {
		t.Errorf("an old file is not known: %v", known)
	}
	info := y.take(t, key("b", 1))
	if info.New != 0 || info.Bytes != int64(len("content")) {
		t.Errorf("%+v", info)
	}
	then, err := os.Stat(y.at("f"))
	must.OK(t, err)
	y.write(t, "f", "CONTENT")
	must.OK(t, os.Chtimes(y.at("f"), time.Time{}, then.ModTime()))
	want := y.look(t)
	if info := y.take(t, key("b", 2)); info.New == 0 {
		t.Errorf("a change with the old time was passed over: %+v", info)
	}
	y.write(t, "f", "third")
	if _, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("b", 2), Force: true}); err != nil {
		t.Fatal(err)
	}
	same(t, y.look(t), want)
}

// home is where the store keeps the workspace.
func (y *yard) home(t *testing.T) string {
	t.Helper()
	info, err := os.Stat(y.dir)
	must.OK(t, err)
	return y.store.home("w", info.Sys().(*syscall.Stat_t).Ino)
}

func (y *yard) objects(t *testing.T) (n int) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(y.home(t), objects), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a sweep takes away what is empty
		t.Fatal(err)
	}
	return n
}

// TestSweep: snapshots go when they are old, and content with the last of them; what a broken snapshot left goes too.
func TestSweep(t *testing.T) {
	y := newYard(t)
	if err := y.store.Sweep(t.Context()); err != nil {
		t.Fatalf("a store without a directory: %v", err)
	}
	y.write(t, "both", "in both")
	y.write(t, "first", "in the first")
	y.take(t, key("old", 0))
	y.after(t, key("old", 0))
	must.OK(t, os.Remove(y.at("first")))
	y.write(t, "second", "in the second")
	want := y.look(t)
	y.take(t, key("new", 0))
	sweep := func(want int) {
		t.Helper()
		must.OK(t, y.store.Sweep(t.Context()))
		if got := y.objects(t); got != want {
			t.Errorf("%d objects, want %d", got, want)
		}
	}
	sweep(3)
	long := time.Now().Add(-2 * lifetime)
	for _, kind := range []string{before, after} {
		k := key("old", 0)
		must.OK(t, os.Chtimes(filepath.Join(y.home(t), k.listingName(kind)), long, long))
	}
	sweep(2)
	y.store.stored = func() error { return errors.New("broken off") }
	y.write(t, "third", "in none")
	if _, err := y.store.Take(t.Context(), y.root, key("broken", 0)); err == nil {
		t.Fatal("it was not broken off")
	}
	if got := y.objects(t); got != 3 {
		t.Fatalf("%d objects", got)
	}
	sweep(2)
	if _, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("new", 0), Force: true}); err != nil {
		t.Fatal(err)
	}
	same(t, y.look(t), want)
}

// TestADamagedStore changes nothing.
func TestADamagedStore(t *testing.T) {
	y := newYard(t)
	y.write(t, "f", "content")
	y.take(t, key("b", 0))
	y.write(t, "f", "changed")
	want := y.look(t)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("content")))
	for what, damage := range map[string]func() error{
		"other content": func() error { return os.WriteFile(objectFile(y.home(t), sum), []byte("CONTENT"), 0o600) },
		"no content":    func() error { return os.Remove(objectFile(y.home(t), sum)) },
	} {
		must.OK(t, damage())
		_, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("b", 0), Force: true})
		if err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", what, err)
		}
		got := y.look(t)
		delete(got, "")
		delete(want, "") // the time of the directory, in which a temporary file was
		same(t, got, want)
	}
}

// TestToolyardsOwnStays: marks of a quarantine and of sandboxes are not of the workspace.
func TestToolyardsOwnStays(t *testing.T) {
	y := newYard(t)
	y.write(t, "f", "x")
	y.take(t, key("b", 0))
	y.write(t, ".toolyard/record", "of a sandbox")
	y.write(t, ".git/toolyard/record", "of a sandbox")
	y.write(t, ".git/config", "made since")
	y.write(t, ".toolyard-sub/file", "a name like it")
	if _, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("b", 0), Force: true}); err != nil {
		t.Fatal(err)
	}
	for name, there := range map[string]bool{".toolyard/record": true, ".git/toolyard/record": true, "f": true,
		".git/config": false, ".toolyard-sub": false} {
		if _, err := os.Lstat(y.at(name)); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnotherDirectoryOfTheSameName has no snapshots of the first.
func TestAnotherDirectoryOfTheSameName(t *testing.T) {
	y := newYard(t)
	y.take(t, key("b", 0))
	other := newYard(t)
	other.write(t, "kept", "x")
	_, err := y.store.Restore(t.Context(), other.root, Wish{Key: key("b", 0), Force: true})
	if err == nil || !strings.Contains(err.Error(), "sees no snapshot") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(other.at("kept")); err != nil {
		t.Error(err)
	}
}
