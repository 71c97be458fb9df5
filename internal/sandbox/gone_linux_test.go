//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// lives is how long what outlive starts lives when nobody ends it; ended is far below it, and far above what ending
// takes on a busy machine: what is over by then was ended, and did not come to its own end.
const (
	lives = time.Minute
	ended = lives / 3
)

// outlive leaves the process tree in every way that a shell knows, and writes a sign of life twenty times a second.
const outlive = `trap '' TERM HUP INT
(setsid bash -c 'trap "" TERM HUP INT; (while :; do date +%s%N >> alive; sleep 0.05; done) & disown; exec sleep 60' >/dev/null 2>&1 &)
for i in 1 2 3 4 5 6 7 8 9 10; do [ -s alive ] && break; sleep 0.1; done
echo begun
sleep 60`

// silent reports whether nobody writes signs of life any more.
func silent(t *testing.T, dir string) bool {
	t.Helper()
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "alive"))
		if err != nil {
			t.Fatal("it never lived:", err)
		}
		return info.Size()
	}
	before := size()
	time.Sleep(300 * time.Millisecond) // six signs of life
	return size() == before
}

func TestTheWholeTreeIsGone(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for _, how := range []string{"timeout", "cancel", "exit"} {
			t.Run(how, func(t *testing.T) {
				dir := newPlace(t)
				p := Policy{Workspace: &Workspace{Dir: dir, Writable: true}, Limits: Limits{Wall: 20 * time.Second}}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				command, want := outlive, Canceled
				switch how {
				case "timeout":
					p.Limits.Wall, want = 1500*time.Millisecond, Timeout
				case "cancel":
					time.AfterFunc(1200*time.Millisecond, func() { cancel(errors.New("stopped by the test")) })
				case "exit":
					command, want = strings.TrimSuffix(outlive, "sleep 60"), Exited
				}
				var out bytes.Buffer
				began := time.Now()
				res, err := box.Run(ctx, p, Command{Argv: []string{"bash", "-c", command}},
					Streams{Stdout: &out, Stderr: &out})
				took := time.Since(began)
				if err != nil || res.Reason != want || !strings.Contains(out.String(), "begun") {
					t.Fatalf("%+v, %v, %q", res, err, out.String())
				}
				if took > ended { // it does not listen when it is told
					t.Errorf("Run returned after %s: it waited for the command", took)
				}
				if !silent(t, dir) {
					t.Error("something still runs")
				}
			})
		}
	})
	// The control: without a sandbox, killing the process that was started leaves the others.
	t.Run("control", func(t *testing.T) {
		dir := newPlace(t)
		cmd := exec.Command("bash", "-c", outlive)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "TOOLYARD_TEST_OUTLIVE=" + dir}
		must.OK(t, cmd.Start())
		time.Sleep(time.Second)
		must.OK(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		if silent(t, dir) {
			t.Error("without a sandbox everything is gone too: the test proves nothing")
		}
		if err := killTree(cmd.Process.Pid, "TOOLYARD_TEST_OUTLIVE="+dir); err != nil {
			t.Error(err)
		}
	})
}

// TestWorkerDeath: when the worker is killed, so is all that it runs.
func TestWorkerDeath(t *testing.T) {
	if name := os.Getenv("TOOLYARD_TEST_WORKER"); name != "" { // the worker that is killed
		boxes := Backends(Options{})
		box := boxes[slices.IndexFunc(boxes, func(b Sandbox) bool { return b.Name() == name })]
		_, err := box.Run(t.Context(), Policy{Workspace: &Workspace{Dir: os.Getenv("TOOLYARD_TEST_DIR"),
			Writable: true}},
			Command{Argv: []string{"bash", "-c", outlive}}, Streams{})
		t.Fatal("the worker outlived its killing:", err)
	}
	bin, err := os.Executable()
	must.OK(t, err)
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		killWorker(t, bin, box, dir)
		if !silent(t, dir) {
			t.Error("something still runs")
		}
		// What the dead worker had put into the workspace to protect it is taken away by the next run.
		if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
			t.Errorf("the worker's death left no placeholder: the test does not test what it says (%v)", err)
		}
		if res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true}}, "true"); res.ExitCode != 0 {
			t.Errorf("%+v %s", res, out)
		}
		if _, err := os.Stat(filepath.Join(dir, ".git")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the placeholder is still there: %v", err)
		}
	})
}

// killWorker has a worker run what leaves the process tree in every way, kills it, and sees the last of its processes
// end.
func killWorker(t *testing.T, bin string, box Sandbox, dir string) {
	t.Helper()
	must.OK(t, os.RemoveAll(filepath.Join(dir, "alive")))
	cmd := exec.Command(bin, "-test.run", "^TestWorkerDeath$")
	cmd.Env = append(os.Environ(), "TOOLYARD_TEST_WORKER="+box.Name(), "TOOLYARD_TEST_DIR="+dir, actorVar+"=worker")
	must.OK(t, cmd.Start())
	for range 1000 {
		if info, err := os.Stat(filepath.Join(dir, "alive")); err == nil && info.Size() > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	left := descendants(t, cmd.Process.Pid)
	if len(left) < 4 { // the sandbox's init, the shell, the one that left it, and its sleep at least
		t.Fatalf("the worker has only %d processes below it: the test proves nothing", len(left))
	}
	must.OK(t, cmd.Process.Signal(syscall.SIGKILL))
	killed := time.Now()
	_ = cmd.Wait() // it was killed
	for left = alive(t, left); len(left) > 0; left = alive(t, left) {
		if time.Since(killed) > ended {
			t.Fatalf("%d processes still live %s after their worker was killed", len(left), ended)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestSandboxLoss: an init that is killed from outside is no command that failed.
func TestSandboxLoss(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		go func() {
			for range 200 {
				time.Sleep(20 * time.Millisecond)
				if _, err := os.Stat(filepath.Join(dir, "begun")); err == nil {
					break
				}
			}
			for _, pid := range children(t, os.Getpid()) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
		}()
		res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true}},
			"touch begun; sleep 20; echo survived")
		if res.Reason != SandboxLost || strings.Contains(out, "survived") {
			t.Errorf("%+v %q", res, out)
		}
	})
}

// descendants are the processes below a process that have not ended, with when each was started: a number may be given
// again.
func descendants(t *testing.T, pid int) map[int]string {
	t.Helper()
	found := map[int]string{}
	for _, child := range children(t, pid) {
		_, found[child] = stateOf(child)
		maps.Copy(found, descendants(t, child))
	}
	return found
}

// alive are those of some processes that still run; a zombie does not.
func alive(t *testing.T, of map[int]string) map[int]string {
	t.Helper()
	left := map[int]string{}
	for pid, started := range of {
		if state, now := stateOf(pid); state != "" && state != "Z" && state != "X" && now == started {
			left[pid] = started
		}
	}
	return left
}

// stateOf is a process's state and when it was started, from the kernel; empty when it is gone.
func stateOf(pid int) (state, started string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", ""
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	return fields[0], fields[19]
}

// children are the processes that a process has started and that have not ended.
func children(t *testing.T, pid int) (found []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must.OK(t, err)
	for _, f := range stats {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		var state string
		var child, parent int
		if _, err := fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %s %d", &state,
			&parent); err != nil || parent != pid {
			continue
		}
		if _, err := fmt.Sscanf(string(text), "%d", &child); err != nil {
			t.Fatal(err)
		}
		found = append(found, child)
	}
	return found
}

// TestNothingIsLeft: two hundred runs leave no mount, namespace, cgroup, descriptor, process, zombie or file.
func TestNothingIsLeft(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		run := func(n int) {
			if res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: n%2 == 0},
				Secrets: []Secret{{"s", []byte("x")}}}, "exit 0"); res.ExitCode != 0 {
				t.Fatalf("%+v %s", res, out)
			}
		}
		for n := range 4 {
			run(n) // what is made once
		}
		time.Sleep(200 * time.Millisecond) // what earlier tests have left is taken apart in the background
		before := inventory(t, dir)
		const runs = 200
		for n := range runs {
			run(n)
		}
		more := func() (grown []string) {
			for what, n := range inventory(t, dir) {
				if n > before[what] {
					grown = append(grown, fmt.Sprintf("%s: %d before, %d after", what, before[what], n))
				}
			}
			return grown
		}
		grown := more()
		for deadline := time.Now().Add(5 * time.Second); len(grown) > 0 && time.Now().Before(deadline); grown = more() {
			time.Sleep(50 * time.Millisecond)
		}
		if len(grown) > 0 {
			t.Error(grown)
		}
	})
}

func inventory(t *testing.T, dir string) map[string]int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must.OK(t, err)
	found := map[string]int{"processes": len(descendants(t, os.Getpid())), "mounts": bytes.Count(mounts, []byte("\n"))}
	for kind, n := range namespaces(t) {
		found["namespaces of kind "+kind] = n
	}
	groups := 0
	err = filepath.WalkDir("/sys/fs/cgroup", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			groups++
		}
		return nil // others make and remove theirs at any time
	})
	must.OK(t, err)
	found["cgroups, about"] = groups / 50 // those of others come and go; 200 of ours would not pass
	for what, pattern := range map[string]string{
		"descriptors": "/proc/self/fd/*", "files": dir + "/*", "hidden files": dir + "/.[!.]*", "probes": fmt.Sprintf(
			"%s/toolyard-probe-%d-*", os.TempDir(), os.Getpid()), "shared memory": "/dev/shm/*",
	} {
		names, err := filepath.Glob(pattern)
		must.OK(t, err)
		// Tests of other packages have the stores of their servers in shared memory.
		names = slices.DeleteFunc(names, func(name string) bool {
			return strings.HasPrefix(name, "/dev/shm/toolyard-")
		})
		found[what] = len(names)
	}
	return found
}

// namespaces counts those that this process and what it has started live in or hold open, by kind.
func namespaces(t *testing.T) map[string]int {
	t.Helper()
	seen := map[string]map[string]bool{}
	for pid := range descendants(t, os.Getpid()) {
		for _, pattern := range []string{"ns/*", "fd/*"} {
			links, err := filepath.Glob(fmt.Sprintf("/proc/%d/%s", pid, pattern))
			must.OK(t, err)
			for _, link := range links {
				to, err := os.Readlink(link)
				kind, _, ok := strings.Cut(to, ":[")
				if err != nil || !ok {
					continue // it has ended, or is something else
				}
				if seen[kind] == nil {
					seen[kind] = map[string]bool{}
				}
				seen[kind][to] = true
			}
		}
	}
	counts := map[string]int{}
	for kind, all := range seen {
		counts[kind] = len(all)
	}
	return counts
}
