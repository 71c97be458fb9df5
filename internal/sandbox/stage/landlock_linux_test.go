package stage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const wallVar = "TOOLYARD_TEST_WALL"

// TestTheSecondWallHoldsAlone: without a namespace, a mount or a filter, Landlock alone keeps a process to the places
// that it may write in, whatever names it has for others. Where the kernel has none, the stage says so and goes on.
func TestTheSecondWallHoldsAlone(t *testing.T) {
	if dir := os.Getenv(wallVar); dir != "" {
		behindTheWall(dir)
		return
	}
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	for _, wall := range []bool{true, false} {
		dir := t.TempDir()
		for _, d := range []string{"mine", "theirs"} {
			if err := os.MkdirAll(filepath.Join(dir, d, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "theirs", "file"), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestTheSecondWallHoldsAlone$")
		cmd.Env = append(os.Environ(), wallVar+"="+dir, fmt.Sprintf("TOOLYARD_TEST_WALLED=%t", wall))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		said := string(out)
		switch {
		case wall && errno != 0:
			if !strings.Contains(said, "missing landlock: this kernel has none") {
				t.Errorf("the kernel has no Landlock (%v), and nobody says so:\n%s", errno, said)
			}
		case wall:
			if !strings.Contains(said, "holds landlock") || strings.Count(said, "held: ") != 8 ||
				strings.Count(said, "worked: ") != 6 {
				t.Errorf("the wall has holes, or is too narrow:\n%s", said)
			}
		case strings.Count(said, "worked: ") != 14:
			t.Errorf("without the wall it does not work either, and proves nothing:\n%s", said)
		}
	}
}

// behindTheWall does what must work, and then what must not.
func behindTheWall(dir string) {
	runtime.LockOSThread()
	// a descriptor that was left open
	theirs, err := unix.Open(filepath.Join(dir, "theirs"), unix.O_PATH|unix.O_DIRECTORY, 0)
	w := &watch{}
	if os.Getenv("TOOLYARD_TEST_WALLED") == "true" {
		err = errors.Join(err, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
			w.landlock([]string{filepath.Join(dir, "mine")}, []string{"/dev/null"}))
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
