//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// actorVar says, in a test process, as whom it runs.
const actorVar = "TOOLYARD_TEST_ACTOR"

// The ordinary user of the tests, and a group that can read what it should not: that of /etc/shadow. A worker's
// supplementary groups cannot be dropped without privilege, and must not help a command.
const (
	nobody      = 65_534
	shadowGroup = 42
)

// TestMain runs every test of this package as root and as an ordinary user when it is root, each in a mount namespace
// of its own: some of the tests attack, and none may reach the machine. It also is the attacker, when it is started as
// that.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "attack":
		os.Exit(attack(os.Args[2]))
	case len(os.Args) == 5 && os.Args[1] == "play":
		os.Exit(play(os.Args[2], os.Args[3], os.Args[4]))
	case len(os.Args) == 5 && os.Args[1] == "plant":
		os.Exit(plant(os.Args[2], os.Args[3], os.Args[4]))
	case len(os.Args) == 3 && os.Args[1] == "hog":
		os.Exit(hog(os.Args[2]))
	case len(os.Args) == 3 && os.Args[1] == "operate":
		os.Exit(operate(os.Args[2]))
	// Workers of a fuzz test talk to it on descriptors.
	case slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz") }):
		os.Exit(m.Run())
	case os.Getuid() != 0 || os.Getenv(actorVar) != "":
		os.Exit(m.Run())
	}
	code, err := asBoth()
	if err != nil {
		fmt.Fprintln(os.Stderr, "run the tests as root and as an ordinary user:", err)
		code = 1
	}
	os.Exit(code)
}

// plant runs a command in a workspace, as a worker that somebody is about to kill.
func plant(backend, dir, command string) int {
	for _, box := range Backends(Options{}) {
		if box.Name() != backend {
			continue
		}
		res, err := box.Run(context.Background(), Policy{Workspace: &Workspace{Dir: dir, Writable: true},
			Limits: Limits{Wall: time.Minute}},
			Command{Argv: []string{"bash", "-c", command}}, Streams{Stdout: os.Stderr, Stderr: os.Stderr})
		fmt.Fprintln(os.Stderr, res, err)
	}
	return 1
}

// asBoth runs this test binary twice, from a place that everybody can read.
func asBoth() (code int, err error) {
	dir, err := os.MkdirTemp("/tmp", "toolyard-sandbox-test-")
	if err != nil {
		return 1, err
	}
	defer func() {
		if e := os.RemoveAll(dir); e != nil && err == nil {
			err = e
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	bin := filepath.Join(dir, "sandbox.test")
	if err := copyFile("/proc/self/exe", bin); err != nil {
		return 1, err
	}
	// Both run at the same time, since they wait more than they work. What the ordinary user's says comes behind the
	// other, or tools that read it would mix them up.
	root := actor(bin, "root", os.Args[1:])
	root.Stdout, root.Stderr = os.Stdout, os.Stderr
	// The go command's own log, in its own directory, is written by the other run.
	user := actor(bin, "user", slices.DeleteFunc(slices.Clone(os.Args[1:]), func(a string) bool {
		return strings.HasPrefix(a, "-test.testlogfile") || strings.HasPrefix(a, "-test.coverprofile")
	}))
	user.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{shadowGroup}}
	var said bytes.Buffer
	user.Stdout, user.Stderr = &said, &said
	runtime.LockOSThread() // a process with a Pdeathsig ends with the thread that started it
	if err := user.Start(); err != nil {
		return 1, err
	}
	asRoot := root.Run()
	asUser := user.Wait()
	if _, err := said.WriteTo(os.Stdout); err != nil {
		return 1, err
	}
	if err := errors.Join(asRoot, asUser); err != nil {
		return 1, fmt.Errorf("as root: %v; as an ordinary user: %v", asRoot, asUser)
	}
	return 0, nil
}

// actor is a run of the tests as somebody.
func actor(bin, name string, args []string) *exec.Cmd {
	cmd := exec.Command(bin, args...)
	cmd.Stdin = os.Stdin
	cmd.Env = append(os.Environ(), actorVar+"="+name, "TMPDIR=/tmp", "HOME=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// required names the backends that must work here, as "native,bwrap"; CI sets it, so that it never tests refusals
// alone.
const required = "TOOLYARD_TEST_SANDBOXES"

// backends are those of this process, as in a worker.
var backends = sync.OnceValue(func() []Sandbox { return Backends(Options{}) })

// each runs a test in every backend that works here. Where one does not, the test is that it refuses, and says why.
func each(t *testing.T, test func(t *testing.T, box Sandbox)) {
	t.Helper()
	for _, box := range backends() {
		t.Run(box.Name(), func(t *testing.T) {
			if _, err := box.Probe(t.Context()); err != nil {
				refuses(t, box, err)
				return
			}
			test(t, box)
		})
	}
}

// refuses checks that a backend that does not work says so in one line with a way out, and runs nothing.
func refuses(t *testing.T, box Sandbox, probe error) {
	t.Helper()
	if strings.Contains(os.Getenv(required), box.Name()) && !(os.Getuid() == 0 && box.Name() == Bwrap) {
		t.Errorf("%s is required here: %v", box.Name(), probe)
	}
	marker := filepath.Join(t.TempDir(), "ran")
	_, err := box.Run(t.Context(), Policy{}, Command{Argv: []string{"sh", "-c", "touch " + marker}}, Streams{})
	for _, err := range []error{probe, err} {
		if !strings.HasPrefix(fmt.Sprint(err), ErrNoIsolation.Error()+": ") || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), ";") {
			t.Errorf("not one line with a way out: %v", err)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran all the same")
	}
}
