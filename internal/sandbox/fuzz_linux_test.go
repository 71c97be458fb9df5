//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// ground is what file operations are played on: a workspace, whose protected places lie open, and a neighbour of it.
type ground struct{ dir string }

func (g ground) workspace() string { return filepath.Join(g.dir, "workspace") }

// protectedThere are protected places that exist, protectedMissing some that do not.
var (
	protectedThere   = []string{".git/config", ".git/hooks", ".git/hooks/pre-push", ".vscode", ".vscode/tasks.json"}
	protectedMissing = []string{".envrc", ".mcp.json", ".idea", ".claude", ".git/commondir", ".git/hooks/post-commit",
		".vscode/launch.json"}
)

func newGround(t *testing.T) ground {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "toolyard-ground-")
	must.OK(t, err)
	t.Cleanup(func() {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error { // what they have closed
			if d != nil && d.IsDir() {
				return errors.Join(os.Chmod(p, 0o700))
			}
			return nil
		})
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
			t.Log(err)
		}
	})
	g := ground{dir}
	for _, d := range []string{"outside/dir/deep", "workspace/.git/hooks", "workspace/.git/refs", "workspace/.vscode",
		"workspace/d/e"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, d), 0o777))
	}
	for _, f := range []string{"outside/file", "outside/dir/deep/file", "workspace/.git/config",
		"workspace/.git/hooks/pre-push", "workspace/.vscode/tasks.json", "workspace/a", "workspace/d/e/f"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, f), []byte(f), 0o666))
	}
	err = errors.Join(err, os.Symlink("../outside", filepath.Join(dir, "workspace/d/out")),
		filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			// everybody may write: the control is another user where the tests run as root
			if err != nil || d.Type()&fs.ModeSymlink != 0 {
				return err
			}
			return os.Chmod(p, map[bool]fs.FileMode{true: 0o777, false: 0o666}[d.IsDir()])
		}))
	must.OK(t, err)
	return g
}

// names are what operations name: places of the workspace, protected ones, and every way out that a name can be.
func (g ground) names() []string {
	return append(append([]string{
		"a", "b", "d", "d/e", "d/e/f", "d/out", "d/out/file", "d/out/dir", "l", "l/file", "l/dir/deep/file", ".", "..",
		".git", ".git/refs", ".git/refs/x", ".hg", ".hg/hgrc",
		"../outside", "../outside/file", "../outside/dir/deep", "../workspace", "../made", g.dir, g.dir +
			"/outside", g.dir + "/outside/file", g.dir + "/made",
		"/proc/self/root" + g.dir + "/outside/file", "/proc/self/cwd/../outside/file", "/proc/1/root" + g.dir +
			"/outside/file", "/proc/1/cwd", "/proc/self/fd/3",
		"/tmp/toolyard-ops", "/dev/shm/toolyard-ops", "/run/secrets/toolyard-ops", "/etc/passwd", "/usr/bin/env",
	}, protectedThere...), protectedMissing...)
}

// operations are what is played, each on two names.
var operations = []func(p, q string, n byte) error{
	func(p, q string, _ byte) error { return unix.Rename(p, q) },
	func(p, q string, _ byte) error {
		return unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, q, unix.RENAME_EXCHANGE)
	},
	func(p, q string, _ byte) error { return unix.Link(p, q) },
	func(p, q string, _ byte) error {
		return unix.Linkat(unix.AT_FDCWD, p, unix.AT_FDCWD, q, unix.AT_SYMLINK_FOLLOW)
	},
	func(p, q string, _ byte) error { return unix.Symlink(p, q) },
	func(p, _ string, n byte) error { return unix.Chmod(p, []uint32{0, 0o444, 0o555, 0o777, 0o4755}[n%5]) },
	func(p, _ string, _ byte) error { return unix.Mkdir(p, 0o777) },
	func(p, _ string, n byte) error { return unix.Truncate(p, int64(n)) },
	func(p, _ string, _ byte) error { return unix.Unlink(p) },
	func(p, _ string, _ byte) error { return unix.Rmdir(p) },
	func(p, _ string, _ byte) error { return unix.Mkfifo(p, 0o666) },
	func(p, _ string, _ byte) error { return unix.Lchown(p, os.Getuid(), os.Getgid()) },
	func(p, _ string, _ byte) error { return unix.Setxattr(p, "user.x", []byte("x"), 0) },
	func(p, _ string, _ byte) error { return unix.UtimesNano(p, []unix.Timespec{{Sec: 1}, {Sec: 1}}) },
	func(p, _ string, n byte) error {
		return act(p, unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK,
			func(fd int) error { _, err := unix.Write(fd, []byte{n}); return err })
	},
	func(p, _ string, _ byte) error {
		return act(p, unix.O_RDONLY|unix.O_NONBLOCK, func(fd int) error { return unix.Fchmod(fd, 0o777) })
	},
	func(p, q string, _ byte) error { // by a directory that stays open when it is moved
		return act(p, unix.O_PATH|unix.O_DIRECTORY, func(fd int) error {
			return errors.Join(unix.Renameat(unix.AT_FDCWD, p, unix.AT_FDCWD, q), unix.Mkdirat(fd, "../../made", 0o777))
		})
	},
	func(p, _ string, _ byte) error { return unix.Chdir(p) },
}

func act(p string, flags int, do func(fd int) error) error {
	fd, err := unix.Open(p, flags, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(do(fd), unix.Close(fd))
}

// operate is the process that plays a script, of four bytes for each operation. What fails, fails.
func operate(dir string) int {
	script, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = os.Chdir(ground{dir}.workspace())
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	names, worked := ground{dir}.names(), 0
	for ; len(script) >= 4; script = script[4:] {
		if operations[int(script[0])%len(operations)](names[int(script[1])%len(names)],
			names[int(script[2])%len(names)], script[3]) == nil {
			worked++
		}
	}
	fmt.Println("played:", worked)
	return 0
}

// view is what the machine sees of everything that must not change: all outside of the workspace, and its protected
// places.
func (g ground) view(t *testing.T) map[string]string {
	t.Helper()
	seen := map[string]string{}
	note := func(p string) {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			seen[p] = err.Error()
			return
		}
		content, _ := os.ReadFile(p) // of a directory there is none
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			content = nil
		}
		x := make([]byte, 256)
		n, _ := unix.Listxattr(p, x) // some file systems have none
		seen[p] = fmt.Sprintf("%o %d:%d inode %d links %d size %d modified %d %x %q", st.Mode, st.Uid, st.Gid, st.Ino,
			st.Nlink, st.Size, st.Mtim.Nano(), sha256.Sum256(content), x[:max(n, 0)])
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			// what is in it is seen by its name
			seen[p] = fmt.Sprintf("%o %d:%d inode %d %q", st.Mode, st.Uid, st.Gid, st.Ino, x[:max(n, 0)])
		}
	}
	err := filepath.WalkDir(g.dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			seen[p] = err.Error()
			return nil
		case p == g.workspace():
			return fs.SkipDir
		}
		note(p)
		return nil
	})
	must.OK(t, err)
	for _, p := range protectedThere {
		note(filepath.Join(g.workspace(), p))
	}
	return seen
}

// changes are the differences of two views.
func changes(before, after map[string]string) (found []string) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if before[p] != after[p] {
			found = append(found, fmt.Sprintf("%s\n  was %s\n   is %s", p, before[p], after[p]))
		}
	}
	return found
}

// scriptOf is a script of many operations.
func scriptOf(seed uint64) []byte {
	const operationBytes, length = 4, 500
	r := rand.New(rand.NewPCG(seed, 0))
	script := make([]byte, operationBytes*length)
	for i := range script {
		script[i] = byte(r.Uint32())
	}
	return script
}

// playInside plays a script in a sandbox, and then looks whether anything changed that must not.
func playInside(t *testing.T, box Sandbox, bin string, script []byte) {
	t.Helper()
	g := newGround(t)
	before := g.view(t)
	var out bytes.Buffer
	res, err := box.Run(t.Context(), Policy{Workspace: &Workspace{Dir: g.workspace(), Writable: true},
		Read: []string{filepath.Dir(bin)}, Limits: Limits{Wall: time.Minute}},
		Command{Argv: []string{bin, "operate", g.dir}},
		Streams{Stdin: bytes.NewReader(script), Stdout: &out, Stderr: &out})
	if err != nil || res.Reason != Trespass && (res.Reason != Exited || !strings.HasPrefix(out.String(), "played: ")) {
		t.Errorf("it did not play: %+v, %v, %s", res, err, out.String())
	}
	for _, dir := range []string{"", ".git"} { // the command may close them: they are its own
		if err := os.Chmod(filepath.Join(g.workspace(), dir), 0o777); err != nil {
			t.Error(err)
		}
	}
	if found := changes(before, g.view(t)); len(found) > 0 {
		t.Errorf("changed from inside:\n%s", strings.Join(found, "\n"))
	}
	for _, p := range protectedMissing {
		if _, err := os.Lstat(filepath.Join(g.workspace(), p)); err == nil && res.Reason != Trespass {
			t.Errorf("%s was made, and nobody says so: %+v", p, res)
		}
	}
}

// FuzzFileOperationsStayInside: no sequence of file operations changes anything outside of the workspace, or a
// protected place in it. Find more with: go test -fuzz FuzzFileOperations ./internal/sandbox
func FuzzFileOperationsStayInside(f *testing.F) {
	bin, err := os.Executable()
	must.OK(f, err)
	const seeds = 12
	for seed := range uint64(seeds) {
		f.Add(scriptOf(seed))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > MaxStdinBytes {
			return
		}
		each(t, func(t *testing.T, box Sandbox) { playInside(t, box, bin, script) })
	})
}

// TestFileOperationsOutside is the control of the fuzzer: without a sandbox the same operations change what is outside,
// and what is protected.
func TestFileOperationsOutside(t *testing.T) {
	bin, err := os.Executable()
	must.OK(t, err)
	g := newGround(t)
	before := g.view(t)
	cmd := exec.Command(bin, "operate", g.dir)
	cmd.Stdin = bytes.NewReader(scriptOf(1))
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.HasPrefix(out, []byte("played: ")) {
		t.Fatalf("%v %s", err, out)
	}
	found := strings.Join(changes(before, g.view(t)), "\n")
	for _, place := range []string{"/outside", "/workspace/.git/", "/workspace/.vscode"} {
		if !strings.Contains(found, g.dir+place) {
			t.Errorf("nothing of %s changed: the fuzzer proves nothing\n%s%s", place, out, found)
		}
	}
}
