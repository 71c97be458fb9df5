package stage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

const wallVar = "TOOLYARD_TEST_WALL"

// behind runs the acts of [behindTheWall] in a process of its own, with the wall for a version of Landlock: "own" for
// that of the kernel, "" for no wall.
func behind(t *testing.T, version string) (said string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"mine", "theirs"} {
		must.OK(t, os.MkdirAll(filepath.Join(dir, d, "sub"), 0o755))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "theirs", "file"), []byte("content"), 0o644))
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestTheSecondWallHoldsAlone$")
	cmd.Env = append(os.Environ(), wallVar+"="+dir, "TOOLYARD_TEST_WALLED="+version)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestTheSecondWallHoldsAlone: without a namespace, a mount or a filter, Landlock alone keeps a process to the places
// that it may write in, whatever names it has for others. Where the kernel has none, the stage says so and goes on.
func TestTheSecondWallHoldsAlone(t *testing.T) {
	if dir := os.Getenv(wallVar); dir != "" {
		behindTheWall(dir)
		return
	}
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	said := behind(t, "own")
	switch {
	case errno != 0 || version < movesVersion:
		if !strings.Contains(said, "missing landlock: this kernel") {
			t.Errorf("the kernel has no Landlock that fits (%v), and nobody says so:\n%s", errno, said)
		}
	case !strings.Contains(said, "holds landlock"), strings.Count(said, "held: ") != 8,
		strings.Count(said, "worked: ") != 6:
		t.Errorf("the wall has holes, or is too narrow:\n%s", said)
	}
	if said := behind(t, ""); strings.Count(said, "worked: ") != 14 {
		t.Errorf("without the wall it does not work either, and proves nothing:\n%s", said)
	}
}

// TestNoWallThatIsTooNarrow: the first version of Landlock lets no file move to another directory, which builds and git
// rely on. There the layer is missing, and says so.
func TestNoWallThatIsTooNarrow(t *testing.T) {
	said := behind(t, "1")
	if !strings.Contains(said, "missing landlock: ") || strings.Contains(said, "holds landlock") ||
		!strings.Contains(said, "worked: rename there\n") || !strings.Contains(said, "worked: link there\n") {
		t.Errorf("a command cannot do its work:\n%s", said)
	}
}

// behindTheWall does what must work, and then what must not.
func behindTheWall(dir string) {
	runtime.LockOSThread()
	// a descriptor that was left open
	theirs, err := unix.Open(filepath.Join(dir, "theirs"), unix.O_PATH|unix.O_DIRECTORY, 0)
	w := &watch{}
	if version := os.Getenv("TOOLYARD_TEST_WALLED"); version != "" {
		err = errors.Join(err, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		writable, devices := []string{filepath.Join(dir, "mine")}, []string{"/dev/null"}
		if n, e := strconv.Atoi(version); e == nil {
			err = errors.Join(err, w.landlockOf(n, writable, devices))
		} else {
			err = errors.Join(err, w.landlock(writable, devices))
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, l := range w.layers {
		fmt.Println("holds", l)
	}
	for _, m := range w.missing {
		fmt.Println("missing", m)
	}
	in := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	write := func(path string) error {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT, 0o644)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	for _, act := range []struct {
		what string
		err  error
	}{
		{"write in its own place", write(in("mine", "f"))},
		{"rename there", unix.Rename(in("mine", "f"), in("mine", "sub", "g"))},
		{"link there", unix.Link(in("mine", "sub", "g"), in("mine", "h"))},
		{"link symbolically there", unix.Symlink("/", in("mine", "s"))},
		{"read elsewhere", func() error { _, err := os.ReadFile(in("theirs", "file")); return err }()},
		{"write to a device", write("/dev/null")},
		{"write elsewhere", write(in("theirs", "f"))},
		{"write through a link", write(in("mine", "s") + in("theirs", "f2"))},
		{"write by a descriptor", func() error {
			fd, err := unix.Openat(theirs, "f3", unix.O_WRONLY|unix.O_CREAT, 0o644)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		}()},
		{"truncate elsewhere", unix.Truncate(in("theirs", "file"), 0)},
		{"link out", unix.Link(in("theirs", "file"), in("mine", "linked"))},
		{"rename out", unix.Rename(in("mine", "h"), in("theirs", "h"))},
		{"make a directory elsewhere", unix.Mkdir(in("theirs", "d"), 0o755)},
		{"remove elsewhere", unix.Rmdir(in("theirs", "sub"))},
	} {
		if act.err != nil {
			fmt.Printf("held: %s: %v\n", act.what, act.err)
		} else {
			fmt.Println("worked:", act.what)
		}
	}
	os.Exit(0)
}
