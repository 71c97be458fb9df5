package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// yard is a workspace and a store.
type yard struct {
	dir   string
	root  *place.Root
	store *Store
}

const lifetime = time.Hour

func newYard(t *testing.T) *yard {
	t.Helper()
	base := t.TempDir()
	y := &yard{dir: filepath.Join(base, "workspace"), store: New(filepath.Join(base, "snapshots"))}
	y.store.Keep(lifetime)
	y.mkdir(t, ".")
	root, err := place.Hold(y.dir, nil)
	must.OK(t, err)
	t.Cleanup(func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	y.root = root
	return y
}

func key(batch string, group int) Key {
	return Key{Workspace: "w", Batch: toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(batch)}, Group: group}
}

func (y *yard) at(names ...string) string { return filepath.Join(append([]string{y.dir}, names...)...) }

func (y *yard) mkdir(t *testing.T, name string) {
	t.Helper()
	must.OK(t, os.MkdirAll(y.at(name), 0o755))
}

func (y *yard) write(t *testing.T, name, content string) {
	t.Helper()
	y.mkdir(t, filepath.Dir(name))
	must.OK(t, os.WriteFile(y.at(name), []byte(content), 0o644))
}

func (y *yard) take(t *testing.T, k Key) Info {
	t.Helper()
	info, err := y.store.Take(t.Context(), y.root, k)
	must.OK(t, err)
	return info
}

func (y *yard) after(t *testing.T, k Key) {
	t.Helper()
	must.OK(t, y.store.After(t.Context(), y.root, k, nil))
}

// look is what a workspace is, name by name: all that a restore promises.
func (y *yard) look(t *testing.T) map[string]string {
	t.Helper()
	all, named := map[string]string{}, map[uint64][]string{}
	err := filepath.WalkDir(y.dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		said := fmt.Sprintf("mode %o owner %d:%d time %d", st.Mode, st.Uid, st.Gid, st.Mtim.Nano())
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			said += fmt.Sprintf(" %x", sha256.Sum256(content))
			named[st.Ino] = append(named[st.Ino], p)
		case unix.S_IFLNK:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			said += " to " + to
		case unix.S_IFIFO:
			said = fmt.Sprintf("pipe mode %o", st.Mode)
		}
		all[strings.TrimPrefix(p, y.dir)] = said
		return nil
	})
	must.OK(t, err)
	for _, names := range named {
		slices.Sort(names)
		for _, p := range names {
			all[strings.TrimPrefix(p, y.dir)] += " is " + strings.TrimPrefix(names[0], y.dir)
		}
	}
	return all
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if got[p] != want[p] {
			t.Errorf("%q is\n%q, and was\n%q", p, got[p], want[p])
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%q was not there", p)
		}
	}
}

// TestEveryKindComesBack: all kinds of names, changed in every way.
func TestEveryKindComesBack(t *testing.T) {
	y := newYard(t)
	outside := filepath.Join(t.TempDir(), "secret")
	must.OK(t, os.WriteFile(outside, []byte("not of the workspace"), 0o644))
	y.write(t, "a/one", "1")
	y.write(t, "a/new\nline", "2")
	y.write(t, "a/\xff\xfe", "not UTF-8")
	y.write(t, ".git/config", "[core]\n\tfsmonitor = touch /tmp/run-by-git\n")
	y.write(t, ".git/hooks/post-checkout", "#!/bin/sh\nexit 1\n")
	y.write(t, ".gitattributes", "* filter=evil\n")
	y.write(t, "twice", "two names")
	y.write(t, "mode", "x")
	y.write(t, "gone", "")
	y.write(t, "-rf *", "-")
	y.mkdir(t, "empty/deeper")
	deep := strings.Repeat("d/", 300)
	y.write(t, deep+"leaf", "deep")
	for _, err := range []error{
		os.Symlink(outside, y.at("out")), os.Symlink("nowhere", y.at("dangling")), os.Symlink("..", y.at("a", "up")),
		os.Link(y.at("twice"), y.at("a", "again")), os.Chmod(y.at("mode"), 0o751|fs.ModeSetuid|fs.ModeSticky),
		unix.Mkfifo(y.at("pipe"), 0o640), os.Chmod(y.at("empty"), 0o555),
		os.Chtimes(y.at("a", "one"), time.Time{}, time.Unix(1, 23456789)),
		os.Chtimes(y.at("a"), time.Time{}, time.Unix(2, 3)),
	} {
		must.OK(t, err)
	}
	socket, err := net.Listen("unix", y.at("socket"))
	must.OK(t, err)
	defer func() { _ = socket.Close() }()
	want := y.look(t)
	info := y.take(t, key("b", 2))
	if info.Kept || info.Entries != len(want) {
		t.Errorf("%+v, and there are %d names", info, len(want))
	}
	y.after(t, key("b", 2))

	for _, err := range []error{
		os.WriteFile(y.at("a", "one"), []byte("other"), 0o644), os.Remove(y.at("a", "new\nline")),
		os.Remove(y.at("gone")), os.Mkdir(y.at("gone"), 0o700), os.Symlink(outside, y.at("gone", "planted")),
		os.Remove(y.at("out")), os.Mkdir(y.at("out"), 0o755), os.Chmod(y.at("mode"), 0o600),
		os.Remove(y.at("a", "again")), os.WriteFile(y.at("a", "again"), []byte("two names"), 0o600),
		os.Remove(y.at("pipe")), os.WriteFile(y.at("pipe"), nil, 0o600),
		os.RemoveAll(y.at(".git")), os.Symlink(filepath.Dir(outside), y.at(".git")),
		os.Remove(y.at("dangling")), os.Symlink("elsewhere", y.at("dangling")),
		os.RemoveAll(y.at("d")), os.Link(y.at("twice"), y.at("third")),
		os.Chmod(y.at("empty"), 0o755), os.RemoveAll(y.at("empty")),
		os.MkdirAll(y.at(strings.Repeat("e/", 400)), 0o755),
	} {
		must.OK(t, err)
	}
	w := Wish{Key: key("b", 2), Groups: []int{2}}
	_, err = y.store.Restore(t.Context(), y.root, w)
	if err == nil || !strings.Contains(err.Error(), "names since, such as") || !strings.Contains(err.Error(), `"`) {
		t.Fatalf("what others changed since is lost: %v", err)
	}
	y.after(t, key("b", 2)) // the batch itself had changed that
	report, err := y.store.Restore(t.Context(), y.root, w)
	must.OK(t, err)
	same(t, y.look(t), want)
	if report.Written == 0 || report.Removed == 0 || report.Unchanged == 0 || len(report.Left) != 0 {
		t.Errorf("%+v", report)
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "not of the workspace" {
		t.Errorf("outside is %q, %v", b, err)
	}
	again, err := y.store.Restore(t.Context(), y.root, w)
	if err != nil || again.Written != 0 || again.Removed != 0 {
		t.Errorf("a second restore: %+v, %v", again, err)
	}
}

// TestASocketThatIsGone is told: nobody can make it again.
func TestASocketThatIsGone(t *testing.T) {
	y := newYard(t)
	socket, err := net.Listen("unix", y.at("socket"))
	must.OK(t, err)
	y.take(t, key("b", 0))
	must.OK(t, socket.Close())
	report, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("b", 0), Force: true})
	if err != nil || !slices.Equal(report.Left, []string{"socket"}) {
		t.Errorf("%+v, %v", report, err)
	}
}

// change does something to a workspace that a call could do.
func change(r *rand.Rand, dir string) error {
	var all []string
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		all = append(all, p)
		return err
	})
	if err != nil {
		return err
	}
	some := func() string { return all[r.IntN(len(all))] }
	below := func() string {
		p := some()
		if info, err := os.Lstat(p); err != nil || !info.IsDir() {
			p = filepath.Dir(p)
		}
		return filepath.Join(p, fmt.Sprint("n", r.IntN(6), strings.Repeat("\n", r.IntN(2))))
	}
	content := []byte(strings.Repeat(fmt.Sprint(r.IntN(4)), r.IntN(3)*1000))
	p := some()
	if p == dir {
		p = below()
	}
	switch r.IntN(12) {
	case 0, 1, 2:
		p = below()
		if info, err := os.Lstat(p); err == nil && !info.Mode().IsRegular() {
			return nil
		}
		err = os.WriteFile(p, content, 0o644)
	case 3:
		err = os.Mkdir(below(), 0o755)
	case 4:
		err = os.RemoveAll(p)
	case 5:
		err = os.Rename(p, below())
	case 6:
		err = os.Symlink([]string{"/dev/null", "..", "n1", "gone"}[r.IntN(4)], below())
	case 7:
		err = os.Link(p, below())
	case 8:
		if info, err := os.Lstat(p); err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return nil
		}
		err = os.Chmod(p, fs.FileMode(0o700|r.IntN(64)))
	case 9:
		if info, err := os.Lstat(p); err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return nil
		}
		err = os.Chtimes(p, time.Time{}, time.Unix(r.Int64N(1e9), r.Int64N(1e9)))
	case 10:
		err = unix.Mkfifo(below(), 0o600)
	case 11: // what it had, with its time: only the inode tells
		info, serr := os.Lstat(p) // not what a link leads to
		if serr != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			return nil
		}
		err = errors.Join(os.WriteFile(p, []byte(strings.Repeat("x", int(info.Size()))), 0o644),
			os.Chtimes(p, time.Time{}, info.ModTime()))
	}
	for _, harmless := range []error{fs.ErrExist, fs.ErrNotExist, syscall.ENOTEMPTY, syscall.EINVAL, syscall.EPERM,
		syscall.ENOTDIR, syscall.EISDIR, syscall.EXDEV, syscall.ENXIO, syscall.EBUSY, syscall.ELOOP} {
		if errors.Is(err, harmless) {
			return nil
		}
	}
	return err
}

// TestWhateverHappensIsUndone: random workspaces, random changes, and a restore that is broken off at a random change
// and run again.
func TestWhateverHappensIsUndone(t *testing.T) {
	const runs = 60
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	broken := errors.New("broken off")
	cut := 0
	for n := range runs {
		y := newYard(t)
		changes := func(most int) {
			for range r.IntN(most) {
				must.OK(t, change(r, y.dir))
			}
		}
		changes(60)
		want := y.look(t)
		k := key("b", n)
		y.take(t, k)
		changes(60)
		y.after(t, k)
		left, changed := r.IntN(20), false
		w := Wish{Key: k, Groups: []int{n}, Ticket: uint64(n + 1), Act: func() error {
			if left--; left < 0 {
				return broken
			}
			changed = true
			return nil
		}}
		_, err := y.store.Restore(t.Context(), y.root, w)
		if errors.Is(err, broken) {
			cut++
			w.Act = nil
			if again := w; changed {
				again.Ticket += uint64(runs) // others may have had the workspace meanwhile
				if _, err := y.store.Restore(t.Context(), y.root, again); err == nil {
					t.Errorf("seed %d, run %d: what was broken off goes on under another ticket", seed, n)
				}
			}
			_, err = y.store.Restore(t.Context(), y.root, w)
		}
		if err != nil {
			t.Fatalf("seed %d, run %d: %v", seed, n, err)
		}
		if same(t, y.look(t), want); t.Failed() {
			t.Fatalf("seed %d, run %d", seed, n)
		}
	}
	if cut == 0 || cut == runs {
		t.Errorf("%d of %d were broken off", cut, runs)
	}
}

// TestASnapshotThatIsBrokenOff leaves none, and the next one is whole.
func TestASnapshotThatIsBrokenOff(t *testing.T) {
	y := newYard(t)
	for i := range 20 {
		y.write(t, fmt.Sprint("f", i), fmt.Sprint("content ", i))
	}
	want := y.look(t)
	stop := errors.New("broken off")
	left := 7
	y.store.stored = func() error {
		if left--; left < 0 {
			return stop
		}
		return nil
	}
	if _, err := y.store.Take(t.Context(), y.root, key("b", 0)); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	_, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("b", 0), Force: true})
	if err == nil || !strings.Contains(err.Error(), "sees no snapshot") {
		t.Errorf("half a snapshot was used: %v", err)
	}
	same(t, y.look(t), want)
	y.store.stored = nil
	if info := y.take(t, key("b", 0)); info.Kept || info.New >= info.Bytes {
		t.Errorf("%+v", info)
	}
	must.OK(t, os.RemoveAll(y.at("f3")))
	if _, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("b", 0), Force: true}); err != nil {
		t.Fatal(err)
	}
	same(t, y.look(t), want)
}

// TestTheFirstAttemptCounts: a later attempt of a group finds what the first one has changed, and keeps its snapshot.
func TestTheFirstAttemptCounts(t *testing.T) {
	y := newYard(t)
	y.write(t, "f", "before")
	want := y.look(t)
	y.take(t, key("b", 0))
	y.write(t, "f", "half done")
	if info := y.take(t, key("b", 0)); !info.Kept {
		t.Errorf("%+v", info)
	}
	if _, err := y.store.Restore(t.Context(), y.root, Wish{Key: key("b", 0), Force: true}); err != nil {
		t.Fatal(err)
	}
	same(t, y.look(t), want)
}

// TestWhatCameAfter: what others change between groups of a batch, behind them, or behind a restore, is not lost
// without force, and a refusal names it.
func TestWhatCameAfter(t *testing.T) {
	y := newYard(t)
	group := func(n int) {
		y.take(t, key("b", n))
		y.write(t, fmt.Sprint("own", n), "x")
		y.after(t, key("b", n))
	}
	group(0)
	group(2)
	w := Wish{Key: key("b", 0), Groups: []int{0, 2}, Later: []string{"a/other"}}
	restore := func(what, says string) {
		t.Helper()
		_, err := y.store.Restore(t.Context(), y.root, w)
		if said, ok := errors.AsType[*tool.Error](err); says == "" && err != nil ||
			says != "" && (!ok || !strings.Contains(said.Message, says)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	y.write(t, "theirs", "x")
	restore("another batch", `"theirs"`)
	restore("another batch", "a/other")
	w.Hidden = func(p string) bool { return p == "theirs" }
	restore("what is hidden", "others have changed 1 name since; since")
	w.Hidden = nil
	must.OK(t, os.Remove(y.at("theirs")))
	restore("nobody", "")
	restore("nobody, again", "")
	y.write(t, "theirs", "x")
	restore("another batch, behind a restore", `"theirs"`)
	w.Force = true
	restore("by force", "")

	y = newYard(t)
	group(0)
	y.write(t, "between", "x")
	group(2)
	w.Force = false
	restore("between two groups", `"between"`)
	w.Key.Group = 2
	restore("behind it", "")

	y = newYard(t)
	y.take(t, key("b", 0))
	w = Wish{Key: key("b", 0), Groups: []int{0}}
	restore("a worker that was lost", "nobody knows what group 1 has changed")
	w.Force = true
	restore("a worker that was lost, by force", "")
}
