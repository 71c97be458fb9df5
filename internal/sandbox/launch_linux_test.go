//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// becomesVar says, in a test process, that its programs may become another user.
const becomesVar = "TOOLYARD_TEST_BECOMES"

// endWithin is far longer than the end of a program takes.
const endWithin = time.Minute

// asOneWhoBecomes calls play in a process of an ordinary user whose programs may become another user: the run as root
// starts it, with this test alone. What becomes another user ends with that process, which closes stdin.
func asOneWhoBecomes(t *testing.T, play func(t *testing.T, stdin *os.File)) {
	t.Helper()
	if os.Getuid() != 0 {
		if os.Getenv(becomesVar) == "" { // not the process that the run as root has started
			return
		}
		stdin, ours, err := os.Pipe()
		must.OK(t, err)
		defer func() { _ = ours.Close() }()
		play(t, stdin)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), becomesVar+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
		AmbientCaps: []uintptr{unix.CAP_SETUID}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWaitEndsWhereAKillIsRefused: a program that becomes another user cannot be killed by an ordinary one. Waiting for
// it ends all the same, and says that it still runs.
func TestWaitEndsWhereAKillIsRefused(t *testing.T) {
	asOneWhoBecomes(t, waitEndsWhereAKillIsRefused)
}

func waitEndsWhereAKillIsRefused(t *testing.T, stdin *os.File) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	became := saying{"became", cancel}
	l, err := LaunchUnisolated(ctx, Program{Argv: []string{"perl", "-e",
		`$| = 1; $< = $> = 65533; print "became $<"; <STDIN>`}, Env: []string{"PATH=/usr/bin:/bin"}, Stdin: stdin,
		Stdout: became, Stderr: os.Stderr})
	must.OK(t, err)
	ended := make(chan struct{})
	var res Result
	go func() {
		res, err = l.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		if res.Reason != Canceled || err == nil || !strings.Contains(err.Error(), "operation not permitted") {
			t.Errorf("%+v, %v", res, err)
		}
	case <-time.After(endWithin):
		t.Error("waiting for it does not end")
	}
}

// TestACommandThatLeavesAnotherUsersProcess has run: it ends with its own status, and the result says what is left.
func TestACommandThatLeavesAnotherUsersProcess(t *testing.T) {
	asOneWhoBecomes(t, leavesAnotherUsersProcess)
}

func leavesAnotherUsersProcess(t *testing.T, stdin *os.File) {
	t.Helper()
	for how, want := range map[string]Result{
		"exit 0": {Reason: Exited}, "exit 3": {Reason: Exited, ExitCode: 3},
		"sleep 60": {Reason: Canceled, ExitCode: -1, Signal: int(syscall.SIGKILL)},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out bytes.Buffer
		said := io.Writer(&out)
		if want.Reason == Canceled {
			said = io.MultiWriter(&out, saying{"done", cancel})
		}
		res, err := Unsandboxed{}.Run(ctx, Policy{}, Command{Argv: []string{"perl", "-e",
			`pipe(R, W); $SIG{TERM} = "IGNORE";
if (!fork) { $< = $> = 65533; close STDOUT; close STDERR; close R; close W; <STDIN>; exit }
close W; <R>; print "done"; $| = 1; print "\n"; ` + how}}, Streams{Stdin: stdin, Stdout: said})
		if err != nil || res.Reason != want.Reason || res.ExitCode != want.ExitCode || res.Signal != want.Signal ||
			!strings.Contains(res.Left, "operation not permitted") || out.String() != "done\n" {
			t.Errorf("%s: %+v, %v, %q", how, res, err, out.String())
		}
	}
}

// saying calls a function when it is written a text.
type saying struct {
	text string
	then func()
}

func (s saying) Write(b []byte) (int, error) {
	if strings.Contains(string(b), s.text) {
		s.then()
	}
	return len(b), nil
}

// TestAProcessWhoseEnvironmentCannotBeReadEnds: it is found by the session of its program.
func TestAProcessWhoseEnvironmentCannotBeReadEnds(t *testing.T) {
	dir := t.TempDir()
	sh, err := filepath.EvalSymlinks("/bin/sh")
	must.OK(t, err)
	// Who may run a program and not read it may not look into its process either, unless that is root.
	must.OK(t, copyFile(sh, filepath.Join(dir, "sh")))
	must.OK(t, os.Chmod(filepath.Join(dir, "sh"), 0o111))
	alive := filepath.Join(dir, "alive")
	must.OK(t, unix.Mkfifo(alive, 0o600))
	f, err := os.OpenFile(alive, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must.OK(t, err)
	defer func() { _ = f.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The child is in a process group of its own, and has the pipe open as long as it lives.
	res, _ := launch(t, ctx, Program{Argv: []string{"sh", "-c", `exec 9>alive
perl -e 'setpgrp; exec "./sh", "-c", "echo up >up; while :; do sleep 1; done"' >/dev/null 2>&1 &
while ! [ -s up ]; do sleep 0.01; done`}, Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}})
	if res.Reason != Exited || res.ExitCode != 0 {
		t.Fatalf("%+v", res)
	}
	must.OK(t, f.SetReadDeadline(time.Now().Add(endWithin)))
	if n, err := f.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("it still lives: %v", err)
	}
}
