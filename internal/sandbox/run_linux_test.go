//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// gone is how long a process tree may take to disappear after a command was stopped.
const gone = 100 * time.Millisecond

// sh runs a shell command and returns what it said.
func sh(t *testing.T, box Sandbox, p Policy, command string) (Result, string) {
	t.Helper()
	var out bytes.Buffer
	res, err := box.Run(t.Context(), p, Command{Argv: []string{"bash", "-c", command}}, Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	return res, out.String()
}

// newPlace is a directory for a workspace, with no symbolic link on the way.
func newPlace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestEndsAreToldApart(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for _, tt := range []struct {
			name, command string
			limits        Limits
			want          Reason
			exit, signal  int
			out           string
		}{
			{"success", "echo out; echo err >&2", Limits{}, Exited, 0, 0, "out\nerr\n"},
			{"status", "echo out; exit 7", Limits{}, Exited, 7, 0, "out\n"},
			{"signal", "kill -SEGV $$", Limits{}, Exited, -1, 11, ""},
			{"timeout", "echo out; sleep 60", Limits{Wall: 300 * time.Millisecond}, Timeout, -1, 0, "out\n"},
			{"memory", `a=x; while :; do a=$a$a; done`, Limits{Memory: 64 << 20, Wall: 20 * time.Second}, OutOfMemory, -1, 9, ""},
			{"memory of many", `for i in 1 2 3 4; do (a=x; while [ ${#a} -lt 16777216 ]; do a=$a$a; done; sleep 20) & done; wait`, Limits{Memory: 64 << 20, Wall: 20 * time.Second}, OutOfMemory, -1, 9, ""},
			{"cpu", "while :; do :; done", Limits{CPU: 500 * time.Millisecond, Wall: 20 * time.Second}, CPULimit, -1, 9, ""},
			{"cpu of many", "for i in 1 2; do (while :; do :; done) & done; wait", Limits{CPU: 500 * time.Millisecond, Wall: 20 * time.Second}, CPULimit, -1, 9, ""},
			{"cpu of one by the kernel", `ulimit -t`, Limits{CPU: 5 * time.Second}, Exited, 0, 0, "5\n"},
			{"output", "yes", Limits{Output: 1000, Wall: 20 * time.Second}, OutputLimit, -1, 0, strings.Repeat("y\n", 500)},
			{"output that fits", "head -c 1000 /dev/zero | tr '\\0' x", Limits{Output: 1000}, Exited, 0, 0, strings.Repeat("x", 1000)},
			{"file size", "head -c 100000 /dev/zero > big; echo $?; stat -c %s big", Limits{FileSize: 4096}, Exited, 0, 0, "4096\n"},
			{"scratch", "head -c 3000000 /dev/zero > /tmp/big; echo $?", Limits{Scratch: 1 << 20}, Exited, 0, 0, "1\n"},
			{"files", "ulimit -n", Limits{Files: 77}, Exited, 0, 0, "77\n"},
			{"no such program", "no-such-program", Limits{}, Exited, 127, 0, "no-such-program: command not found"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: newPlace(t), Writable: true}, Limits: tt.limits}, tt.command)
				if res.Reason != tt.want || tt.want == Exited && (res.ExitCode != tt.exit || res.Signal != tt.signal) || !strings.Contains(out, tt.out) {
					t.Errorf("%+v\n%.200q", res, out)
				}
				if res.Isolation != box.Name() || len(res.Layers) < 8 || tt.want == OutputLimit && len(out) != 1000 {
					t.Errorf("%+v, %d bytes", res, len(out))
				}
			})
		}
	})
}

func TestForkBomb(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		p := Policy{Limits: Limits{Processes: 20, Wall: 1500 * time.Millisecond, Output: 8 << 20}}
		began := time.Now()
		res, out := sh(t, box, p, `n=0; while [ $n -lt 200 ]; do sleep 5 & n=$((n+1)); done; echo started all; sleep 5`)
		if strings.Contains(out, "started all") || !strings.Contains(out, "fork") || time.Since(began) > 5*time.Second {
			t.Errorf("%+v after %s: %.300q", res, time.Since(began), out)
		}
		// The control: with room for them the same processes start.
		p.Limits.Processes = 400
		p.Limits.Wall = 10 * time.Second
		if _, out := sh(t, box, p, `n=0; while [ $n -lt 200 ]; do sleep 5 & n=$((n+1)); done; echo started all`); !strings.Contains(out, "started all") {
			t.Errorf("%.300q", out)
		}
	})
}

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
	time.Sleep(3 * gone)
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
				var stopped time.Time
				sign := func() {
					stopped = time.Now()
					cancel(errors.New("stopped by the test"))
				}
				switch how {
				case "timeout":
					p.Limits.Wall, want = 1500*time.Millisecond, Timeout
					sign = func() {}
				case "exit":
					command, want = strings.TrimSuffix(outlive, "sleep 60"), Exited
					sign = func() {}
				}
				var out bytes.Buffer
				if how == "cancel" {
					time.AfterFunc(1200*time.Millisecond, sign)
				}
				began := time.Now()
				res, err := box.Run(ctx, p, Command{Argv: []string{"bash", "-c", command}}, Streams{Stdout: &out, Stderr: &out})
				took := time.Since(began)
				if how == "timeout" {
					stopped = began.Add(p.Limits.Wall)
				}
				if err != nil || res.Reason != want || !strings.Contains(out.String(), "begun") {
					t.Fatalf("%+v, %v, %q", res, err, out.String())
				}
				if how != "exit" && time.Since(stopped) > gone+slack() {
					t.Errorf("Run returned %s after it was to stop (%s in all)", time.Since(stopped), took)
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
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		if silent(t, dir) {
			t.Error("without a sandbox everything is gone too: the test proves nothing")
		}
		if err := killTree(cmd.Process.Pid, "TOOLYARD_TEST_OUTLIVE="+dir); err != nil {
			t.Error(err)
		}
	})
}

// slack is what a loaded machine with the race detector may add.
func slack() time.Duration { return 150 * time.Millisecond }

// TestWorkerDeath: when the worker is killed, so is all that it runs.
func TestWorkerDeath(t *testing.T) {
	if name := os.Getenv("TOOLYARD_TEST_WORKER"); name != "" { // the worker that is killed
		boxes := Backends(Options{})
		box := boxes[slices.IndexFunc(boxes, func(b Sandbox) bool { return b.Name() == name })]
		_, err := box.Run(t.Context(), Policy{Workspace: &Workspace{Dir: os.Getenv("TOOLYARD_TEST_DIR"), Writable: true}},
			Command{Argv: []string{"bash", "-c", outlive}}, Streams{})
		t.Fatal("the worker outlived its killing:", err)
	}
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		cmd := exec.Command(bin, "-test.run", "^TestWorkerDeath$")
		cmd.Env = append(os.Environ(), "TOOLYARD_TEST_WORKER="+box.Name(), "TOOLYARD_TEST_DIR="+dir, actorVar+"=worker")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if info, err := os.Stat(filepath.Join(dir, "alive")); err == nil && info.Size() > 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		time.Sleep(gone)
		if !silent(t, dir) {
			t.Error("what the worker ran outlived it")
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
		res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true}}, "touch begun; sleep 20; echo survived")
		if res.Reason != SandboxLost || strings.Contains(out, "survived") {
			t.Errorf("%+v %q", res, out)
		}
	})
}

// children are the processes that a process has started and that have not ended.
func children(t *testing.T, pid int) (found []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range stats {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		var state string
		var child, parent int
		if _, err := fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %s %d", &state, &parent); err != nil || parent != pid {
			continue
		}
		if _, err := fmt.Sscanf(string(text), "%d", &child); err != nil {
			t.Fatal(err)
		}
		found = append(found, child)
	}
	return found
}

// TestNothingIsLeft: two hundred runs leave no mount, descriptor, process, zombie or file.
func TestNothingIsLeft(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		run := func(n int) {
			if res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: n%2 == 0}, Secrets: []Secret{{"s", []byte("x")}}}, "exit 0"); res.ExitCode != 0 {
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
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{"children": len(children(t, os.Getpid())), "mounts": bytes.Count(mounts, []byte("\n"))}
	for what, pattern := range map[string]string{
		"descriptors": "/proc/self/fd/*", "files": dir + "/*", "hidden files": dir + "/.[!.]*", "probes": os.TempDir() + "/toolyard-probe-*", "shared memory": "/dev/shm/*",
	} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found[what] = len(names)
	}
	return found
}

func TestWhatACommandSees(t *testing.T) {
	t.Setenv("TOOLYARD_TEST_LEAK", "leaked")
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		ro, rw := &Workspace{Dir: dir}, &Workspace{Dir: dir, Writable: true}
		for _, tt := range []struct {
			name    string
			p       Policy
			command string
			exit    int
			out     string
		}{
			{"the zero policy has no workspace", Policy{}, "pwd; ls -A /tmp", 0, "/tmp\n"},
			{"the workspace is at its own path", Policy{Workspace: ro}, "pwd; cat file", 0, dir + "\ncontent\n"},
			{"a read-only workspace", Policy{Workspace: ro}, "echo x > made", 1, "Read-only file system"},
			{"a writable one", Policy{Workspace: rw}, "echo x > made && cat made && rm made", 0, "x\n"},
			{"the environment is exact", Policy{Env: map[string]string{"A": "b", "HOME": "/"}}, "env -u PATH -u PWD -u SHLVL -u _ | sort | tr '\\n' ' '", 0, "A=b HOME=/ LANG=C.UTF-8 LOGNAME=sandbox TMPDIR=/tmp USER=sandbox "},
			{"a secret is a file", Policy{Secrets: []Secret{{"token", []byte("s3cret")}}}, "cat /run/secrets/token; env | grep -c s3cret; ls -l /run/secrets | grep -o -- -r--------; (echo > /run/secrets/token) 2>&1 | grep -c -e denied -e Read-only", 0, "s3cret0\n-r--------\n1\n"},
			{"no secret stays", Policy{}, "ls -A /run/secrets", 0, ""},
			{"the usual devices", Policy{}, "echo x > /dev/null; head -c 3 /dev/zero | wc -c; ls /dev | tr '\\n' ' '", 0, "3\nfd full null random shm stderr stdin stdout urandom zero "},
			{"own processes only", Policy{}, "[ $(ls /proc | grep -c '^[0-9]') -le 5 ] && echo few", 0, "few\n"},
			{"nothing to read", Policy{}, "cat; echo end", 0, "end\n"},
			{"its own loopback", Policy{}, "(exec 3<>/dev/tcp/127.0.0.1/1) 2>&1 | grep -o -m1 refused", 0, "refused\n"},
			{"no way out", Policy{}, "(exec 3<>/dev/tcp/192.0.2.1/80) 2>&1 | grep -o -m1 unreachable", 0, "unreachable\n"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				res, out := sh(t, box, tt.p, tt.command)
				if res.ExitCode != tt.exit || tt.exit == 0 && out != tt.out || !strings.Contains(out, tt.out) || strings.Contains(out, "leaked") {
					t.Errorf("%+v\n got %q\nwant %q", res, out, tt.out)
				}
			})
		}
	})
}

// TestWhoseFilesTheyAre: a root worker's commands are an ordinary user's, whose files in the workspace are the owner's.
func TestWhoseFilesTheyAre(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		hidden, err := os.MkdirTemp("/tmp", "toolyard-hidden-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(hidden); err != nil {
				t.Error(err)
			}
		})
		if err := os.Chmod(hidden, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(hidden, "mine"), []byte("root's"), 0o600); err != nil {
			t.Fatal(err)
		}
		res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true}, Read: []string{hidden}}, "id -u; touch made; mkdir sub; stat -c %u made; read -r in out n < /proc/self/uid_map; echo $in $out $n; cat "+hidden+"/mine")
		info, err := os.Stat(filepath.Join(dir, "made"))
		if err != nil {
			t.Fatal(err, out)
		}
		host, readable := os.Getuid(), "root's"
		if host == 0 {
			host, readable = DefaultUID, "Permission denied"
		}
		if want := fmt.Sprintf("1000\n1000\n1000 %d 1\n", host); !strings.HasPrefix(out, want) || !strings.Contains(out, readable) {
			t.Errorf("%+v %q, want %q and %q", res, out, want, readable)
		}
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Getuid() {
			t.Errorf("what the command made belongs to %d", st.Uid)
		}
	})
}

func TestWorkspacesThatCannotBeProtected(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for name, prepare := range map[string]func(dir, elsewhere string) error{
			"a link for .git": func(dir, elsewhere string) error { return os.Symlink(elsewhere, filepath.Join(dir, ".git")) },
			"a link for .git/hooks": func(dir, elsewhere string) error {
				return errors.Join(os.Mkdir(filepath.Join(dir, ".git"), 0o755), os.Mkdir(filepath.Join(dir, ".git/refs"), 0o755), os.Symlink(elsewhere, filepath.Join(dir, ".git/hooks")))
			},
			"a link for .git/config": func(dir, elsewhere string) error {
				return errors.Join(os.Mkdir(filepath.Join(dir, ".git"), 0o755), os.Mkdir(filepath.Join(dir, ".git/refs"), 0o755), os.Symlink(elsewhere+"/config", filepath.Join(dir, ".git/config")))
			},
			"a pipe for .envrc": func(dir, _ string) error { return syscall.Mkfifo(filepath.Join(dir, ".envrc"), 0o644) },
		} {
			t.Run(name, func(t *testing.T) {
				dir, elsewhere := newPlace(t), newPlace(t)
				if err := prepare(dir, elsewhere); err != nil {
					t.Fatal(err)
				}
				_, err := box.Run(t.Context(), Policy{Workspace: &Workspace{Dir: dir, Writable: true}}, Command{Argv: []string{"touch", "ran"}}, Streams{})
				if !errors.Is(err, ErrViolation) {
					t.Errorf("%v", err)
				}
				left, err := os.ReadDir(elsewhere)
				if err != nil || len(left) > 0 {
					t.Errorf("something was made where the link leads: %v %v", left, err)
				}
				if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
					t.Error("it ran")
				}
				// Read-only there is nothing to protect.
				if res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir}}, "pwd"); res.ExitCode != 0 || out != dir+"\n" {
					t.Errorf("%+v %q", res, out)
				}
			})
		}
	})
}

func TestTrespassIsUndone(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		res, _ := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true}}, "mkdir -p .vscode && echo '{}' > .vscode/tasks.json; echo x > .envrc; echo kept > kept")
		if res.Reason != Trespass || !strings.Contains(res.Detail, ".vscode") || !strings.Contains(res.Detail, ".envrc") {
			t.Errorf("%+v", res)
		}
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		hidden, herr := filepath.Glob(filepath.Join(dir, ".[!.]*"))
		if err := errors.Join(err, herr); err != nil || len(names) != 1 || len(hidden) != 0 {
			t.Errorf("%q %q %v", names, hidden, err)
		}
	})
}

// TestGitWorksInside: what is protected does not keep git from its work.
func TestGitWorksInside(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		before, err := os.ReadDir(filepath.Join(dir, ".git"))
		if err != nil {
			t.Fatal(err)
		}
		const commit = `echo x > f && git add -A && git -c user.name=n -c user.email=e commit -qm first && git checkout -qb other && git log --oneline | wc -l && git status --short`
		if res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true}}, commit); res.ExitCode != 0 || out != "1\n" {
			t.Errorf("%+v %s", res, out)
		}
		for _, p := range []string{"commondir", "config.worktree"} {
			if _, err := os.Lstat(filepath.Join(dir, ".git", p)); err == nil {
				t.Errorf(".git/%s was left there", p)
			}
		}
		after, err := os.ReadDir(filepath.Join(dir, ".git"))
		if err != nil || len(after) < len(before) {
			t.Errorf("%d entries of .git became %d (%v)", len(before), len(after), err)
		}
	})
}

// TestTheNetworkIsTheProxy: a command reaches what is listed, through the proxy of its own, and nothing beside it.
func TestTheNetworkIsTheProxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "from outside")
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	const ask = `ask() { exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n' "$1" >&3; read -r line <&3; echo "${line%$'\r'}"; tail -n1 <&3; echo; }
`
	each(t, func(t *testing.T, box Sandbox) {
		p := Policy{Network: Network{Allow: []string{"localhost:" + port, "127.0.0.1:1"}, Private: func(_ string, a netip.Addr) bool { return a.IsLoopback() }}}
		res, out := sh(t, box, p, ask+"ask localhost:"+port+"; ask other.test:80; echo $https_proxy; (exec 4<>/dev/tcp/127.0.0.1/"+port+") 2>&1 | grep -o -m1 refused")
		want := "HTTP/1.1 200 OK\nfrom outside\nHTTP/1.1 403 Forbidden\n" + errNotAllowed.Error() + "\n\nhttp://127.0.0.1:3128\nrefused\n"
		if res.ExitCode != 0 || out != want {
			t.Errorf("%+v\n got %q\nwant %q", res, out, want)
		}
		p.Network.Private = nil // a listed name whose address is private
		if _, out := sh(t, box, p, ask+"ask localhost:"+port); !strings.HasPrefix(out, "HTTP/1.1 403") {
			t.Errorf("%q", out)
		}
	})
}

func TestOneWriterAtATime(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		p := Policy{Workspace: &Workspace{Dir: newPlace(t), Writable: true}, Limits: Limits{Wall: 20 * time.Second}}
		first := make(chan error, 1)
		go func() {
			_, err := box.Run(t.Context(), p, Command{Argv: []string{"bash", "-c", "echo begin >> log; sleep 0.5; echo end >> log"}}, Streams{})
			first <- err
		}()
		res, _ := sh(t, box, p, "echo begin >> log; sleep 0.5; echo end >> log; cat log")
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		log, err := os.ReadFile(filepath.Join(p.Workspace.Dir, "log"))
		if err != nil || string(log) != "begin\nend\nbegin\nend\n" || res.ExitCode != 0 {
			t.Errorf("%q %v", log, err)
		}
		// One who cannot wait is told so.
		held, err := take(t.Context(), p.Workspace)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := box.Run(ctx, p, Command{Argv: []string{"true"}}, Streams{}); !errors.Is(err, ErrBusy) {
			t.Errorf("%v", err)
		}
		if _, err := held.release(); err != nil {
			t.Error(err)
		}
	})
}

// TestNoNamespacesLeft: a machine whose quota is used up refuses, and says which sysctl to set. bwrap's --unshare-all would go
// on without the namespace.
func TestNoNamespacesLeft(t *testing.T) {
	if os.Getenv("TOOLYARD_TEST_QUOTA") != "" { // root of a namespace of its own, whose quota it sets
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
		_, err := Backends(Options{UID: 1})[0].Probe(t.Context())
		fmt.Println("refusal:", err)
		return
	}
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-test.run", "^TestNoNamespacesLeft$")
	cmd.Env = append(os.Environ(), "TOOLYARD_TEST_QUOTA=1", actorVar+"=quota")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "refusal: no isolation: native") || !strings.Contains(string(out), "max_user_namespaces") {
		t.Errorf("%v\n%s", err, out)
	}
}

func BenchmarkStart(b *testing.B) {
	command := []string{"/bin/true"}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command(command[0]).Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, box := range backends() {
		if _, err := box.Probe(b.Context()); err != nil {
			b.Logf("%s: %v", box.Name(), err)
			continue
		}
		dir := b.TempDir()
		ws := &Workspace{Dir: dir, Writable: true}
		for _, c := range []struct {
			name  string
			ws    *Workspace
			pause time.Duration
		}{{"no workspace", nil, think}, {"read-only", &Workspace{Dir: dir}, think}, {"writable", ws, think}, {"burst", ws, 0}} {
			b.Run(box.Name()+"/"+c.name, func(b *testing.B) { benchmark(b, box, Policy{Workspace: c.ws}, command, c.pause) })
		}
	}
}

// think is the pause of a model between two calls, as short as it never is: the time in which a spare is made ready. A burst
// has none.
const think = 25 * time.Millisecond

// benchmark reports medians, of runs that take turns with plain ones: the machine's other work meets both.
func benchmark(b *testing.B, box Sandbox, p Policy, command []string, pause time.Duration) {
	var plain, boxed []time.Duration
	for b.Loop() {
		time.Sleep(pause)
		began := time.Now()
		if err := exec.Command(command[0]).Run(); err != nil {
			b.Fatal(err)
		}
		plain = append(plain, time.Since(began))
		began = time.Now()
		if res, err := box.Run(b.Context(), p, Command{Argv: command}, Streams{}); err != nil || res.ExitCode != 0 {
			b.Fatal(res, err)
		}
		boxed = append(boxed, time.Since(began))
	}
	b.ReportMetric(0, "ns/op") // it would be the pauses
	slices.Sort(plain)
	slices.Sort(boxed)
	b.ReportMetric(float64(boxed[len(boxed)/2].Microseconds()), "median-µs")
	b.ReportMetric(float64(plain[len(plain)/2].Microseconds()), "plain-median-µs")
	b.ReportMetric(float64(boxed[len(boxed)/2])/float64(plain[len(plain)/2]), "times-plain")
}
