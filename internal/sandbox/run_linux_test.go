//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"cmp"
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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// sh runs a shell command and returns what it said.
func sh(t *testing.T, box Sandbox, p Policy, command string) (Result, string) {
	t.Helper()
	p.Limits.Wall = cmp.Or(p.Limits.Wall, 4*DefaultWall) // the machine may have much else to do
	var out bytes.Buffer
	res, err := box.Run(t.Context(), p, Command{Argv: []string{"bash", "-c", command}},
		Streams{Stdout: &out, Stderr: &out})
	must.OK(t, err)
	return res, out.String()
}

// newPlace is a directory for a workspace, with no symbolic link on the way.
func newPlace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must.OK(t, err)
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
			{"memory", `a=x; while :; do a=$a$a; done`, Limits{Memory: 64 << 20, Wall: 20 * time.Second}, OutOfMemory,
				-1, 9, ""},
			{"memory of many",
				`for i in 1 2 3 4; do (a=x; while [ ${#a} -lt 16777216 ]; do a=$a$a; done; sleep 20) & done; wait`,
				Limits{Memory: 64 << 20, Wall: 20 * time.Second}, OutOfMemory, -1, 9, ""},
			{"cpu", "while :; do :; done", Limits{CPU: 500 * time.Millisecond, Wall: 20 * time.Second}, CPULimit, -1, 9,
				""},
			{"cpu of many", "for i in 1 2; do (while :; do :; done) & done; wait",
				Limits{CPU: 500 * time.Millisecond, Wall: 20 * time.Second}, CPULimit, -1, 9, ""},
			{"cpu of one by the kernel", `ulimit -t`, Limits{CPU: 5 * time.Second}, Exited, 0, 0, "5\n"},
			{"output", "yes", Limits{Output: 1000, Wall: 20 * time.Second}, OutputLimit, -1, 0,
				strings.Repeat("y\n", 500)},
			{"output that fits", "head -c 1000 /dev/zero | tr '\\0' x", Limits{Output: 1000}, Exited, 0, 0,
				strings.Repeat("x", 1000)},
			{"file size", "head -c 100000 /dev/zero > big; echo $?; stat -c %s big", Limits{FileSize: 4096}, Exited, 0,
				0, "4096\n"},
			{"disk, in many files", "for i in $(seq 200); do head -c 1000000 /dev/zero > f$i; done; sleep 20",
				Limits{DiskFree: 1 << 40, Wall: 20 * time.Second}, DiskLimit, -1, 9, ""},
			{"little, on a full disk", "head -c 1000000 /dev/zero > f; sleep 0.1; stat -c %s f",
				Limits{DiskFree: 1 << 40}, Exited, 0, 0, "1000000\n"},
			{"scratch", "head -c 3000000 /dev/zero > /tmp/big; echo $?", Limits{Scratch: 1 << 20}, Exited, 0, 0, "1\n"},
			{"files", "ulimit -n", Limits{Files: 77}, Exited, 0, 0, "77\n"},
			{"no such program", "no-such-program", Limits{}, Exited, 127, 0, "no-such-program: command not found"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: newPlace(t), Writable: true},
					Limits: tt.limits}, tt.command)
				for range 20 { // what others write meanwhile counts too, since it is one disk
					if res.Reason != DiskLimit || tt.want == DiskLimit {
						break
					}
					res, out = sh(t, box, Policy{Workspace: &Workspace{Dir: newPlace(t), Writable: true},
						Limits: tt.limits}, tt.command)
				}
				if res.Reason != tt.want || tt.want == Exited && (res.ExitCode != tt.exit || res.Signal != tt.signal) ||
					!strings.Contains(out, tt.out) {
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
		// A shell that cannot fork tries again for some seconds, and says so each time.
		p := Policy{Limits: Limits{Processes: 20, Wall: 5 * time.Second, Output: 8 << 20}}
		res, out := sh(t, box, p, `n=0; while [ $n -lt 200 ]; do sleep 5 & n=$((n+1)); done; echo started all; sleep 5`)
		if strings.Contains(out, "started all") || !strings.Contains(out, "fork") {
			t.Errorf("%+v: %.300q", res, out)
		}
		// The control: with room for them the same processes start.
		p.Limits.Processes = 400
		p.Limits.Wall = time.Minute
		if _, out := sh(t, box, p,
			`n=0; while [ $n -lt 200 ]; do sleep 5 & n=$((n+1)); done; echo started all`); !strings.Contains(out,
			"started all") {
			t.Errorf("%.300q", out)
		}
	})
}

// TestRepositoriesOfCommands: a command makes repositories below the workspace's directory, and not of that directory
// itself.
func TestRepositoriesOfCommands(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		for _, tt := range []struct {
			command string
			exit    int
			made    bool
		}{
			{"git init -q .", 128, false},
			{"git init -q sub && cd sub && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first", 0,
				true},
			{"git clone -q sub copy && git -C copy log --oneline | grep -c first", 0, true},
			{"git clone -q sub .", 128, true},
		} {
			res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true}}, tt.command)
			_, err := os.Stat(filepath.Join(dir, "sub", ".git", "HEAD"))
			if res.ExitCode != tt.exit || !res.Held || (err == nil) != tt.made {
				t.Errorf("%s: %+v, made %t\n%s", tt.command, res, err == nil, out)
			}
			if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
				t.Errorf("%s: the workspace has a .git after", tt.command)
			}
		}
	})
}

func TestWhatACommandSees(t *testing.T) {
	t.Setenv("TOOLYARD_TEST_LEAK", "leaked")
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		must.OK(t, os.WriteFile(filepath.Join(dir, "file"), []byte("content\n"), 0o644))
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
			{"the environment is exact", Policy{Env: map[string]string{"A": "b", "HOME": "/"}},
				"env -u PATH -u PWD -u SHLVL -u _ | sort | tr '\\n' ' '", 0,
				"A=b HOME=/ LANG=C.UTF-8 LOGNAME=sandbox TMPDIR=/tmp USER=sandbox "},
			{"a secret is a file", Policy{Secrets: []Secret{{"token", []byte("s3cret")}}}, "cat /run/secrets/token; " +
				"env | grep -c s3cret; ls -l /run/secrets | grep -o -- -r--------; (echo > /run/secrets/token) 2>&1 " +
				"| grep -c -e denied -e Read-only", 0, "s3cret0\n-r--------\n1\n"},
			{"no secret stays", Policy{}, "ls -A /run/secrets", 0, ""},
			{"the usual devices", Policy{}, "echo x > /dev/null; head -c 3 /dev/zero | wc -c; ls /dev | tr '\\n' ' '",
				0, "3\nfd full null random shm stderr stdin stdout urandom zero "},
			{"own processes only", Policy{}, "[ $(ls /proc | grep -c '^[0-9]') -le 5 ] && echo few", 0, "few\n"},
			{"nothing to read", Policy{}, "cat; echo end", 0, "end\n"},
			{"its own loopback", Policy{}, "(exec 3<>/dev/tcp/127.0.0.1/1) 2>&1 | grep -o -m1 refused", 0, "refused\n"},
			{"no way out", Policy{}, "(exec 3<>/dev/tcp/192.0.2.1/80) 2>&1 | grep -o -m1 unreachable", 0,
				"unreachable\n"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				res, out := sh(t, box, tt.p, tt.command)
				if res.ExitCode != tt.exit || tt.exit == 0 && out != tt.out || !strings.Contains(out, tt.out) ||
					strings.Contains(out, "leaked") {
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
		must.OK(t, err)
		t.Cleanup(func() {
			if err := os.RemoveAll(hidden); err != nil {
				t.Error(err)
			}
		})
		must.OK(t, os.Chmod(hidden, 0o755))
		must.OK(t, os.WriteFile(filepath.Join(hidden, "mine"), []byte("root's"), 0o600))
		res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true}, Read: []string{hidden}},
			"id -u; touch made; mkdir sub; stat -c %u made; read -r in out n < /proc/self/uid_map; echo $in $out $n; "+
				"cat "+hidden+"/mine")
		info, err := os.Stat(filepath.Join(dir, "made"))
		if err != nil {
			t.Fatal(err, out)
		}
		host, readable := os.Getuid(), "root's"
		if host == 0 {
			host, readable = DefaultUID, "Permission denied"
		}
		if want := fmt.Sprintf("1000\n1000\n1000 %d 1\n", host); !strings.HasPrefix(out, want) ||
			!strings.Contains(out, readable) {
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
			"a link for .git": func(dir, elsewhere string) error {
				return os.Symlink(elsewhere,
					filepath.Join(dir, ".git"))
			},
			"a link for .git/hooks": func(dir, elsewhere string) error {
				return errors.Join(os.Mkdir(filepath.Join(dir, ".git"), 0o755),
					os.WriteFile(filepath.Join(dir, ".git/HEAD"), []byte("ref: refs/heads/main\n"), 0o644),
					os.Symlink(elsewhere, filepath.Join(dir, ".git/hooks")))
			},
			"a link for .git/config": func(dir, elsewhere string) error {
				return errors.Join(os.Mkdir(filepath.Join(dir, ".git"), 0o755),
					os.WriteFile(filepath.Join(dir, ".git/HEAD"), []byte("ref: refs/heads/main\n"), 0o644),
					os.Symlink(elsewhere+"/config", filepath.Join(dir, ".git/config")))
			},
			"a pipe for .envrc": func(dir, _ string) error {
				return syscall.Mkfifo(filepath.Join(dir, ".envrc"),
					0o644)
			},
		} {
			t.Run(name, func(t *testing.T) {
				dir, elsewhere := newPlace(t), newPlace(t)
				must.OK(t, prepare(dir, elsewhere))
				_, err := box.Run(t.Context(), Policy{Workspace: &Workspace{Dir: dir, Writable: true}},
					Command{Argv: []string{"touch", "ran"}}, Streams{})
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
				if res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir}}, "pwd"); res.ExitCode != 0 ||
					out != dir+"\n" {
					t.Errorf("%+v %q", res, out)
				}
			})
		}
	})
}

// TestTrespassIsUndone: what a command makes in a protected place is said and taken away. The command is ended when it
// is seen, so a second place may not come to be.
func TestTrespassIsUndone(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for _, made := range []string{".vscode", ".envrc"} {
			dir := newPlace(t)
			command := "echo kept > kept; mkdir -p .vscode && echo '{}' > .vscode/tasks.json; echo x > .envrc"
			if made == ".envrc" {
				command = "echo kept > kept; echo x > .envrc; mkdir -p .vscode"
			}
			res, _ := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true}}, command)
			if res.Reason != Trespass || !strings.Contains(res.Detail, made) {
				t.Errorf("%+v", res)
			}
			names, err := filepath.Glob(filepath.Join(dir, "*"))
			hidden, herr := filepath.Glob(filepath.Join(dir, ".[!.]*"))
			if err := errors.Join(err, herr); err != nil || len(names) != 1 || len(hidden) != 0 {
				t.Errorf("%q %q %v", names, hidden, err)
			}
		}
	})
}

// TestHiddenPlaces: a command finds nothing of what is hidden, under no name, and changes none of it.
func TestHiddenPlaces(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		const content = "the-hidden-content"
		dir := newPlace(t)
		hidden := []string{"secret/key", "secret/deep/key", ".env", "sub/.env"}
		for _, f := range append(hidden, "seen", "led") {
			must.OK(t, errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o755),
				os.WriteFile(filepath.Join(dir, f), []byte(content), 0o644)))
		}
		must.OK(t, errors.Join(os.Link(filepath.Join(dir, "secret/key"), filepath.Join(dir, "sub/other")),
			os.Symlink("secret/key", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "abs"), 0o755),
			os.Symlink(filepath.Join(dir, "led"), filepath.Join(dir, "abs/.env"))))
		hides := func(p string) bool { return p == "secret" || filepath.Base(p) == ".env" }
		for _, command := range []string{
			"cat secret/key", "cat secret/deep/key", "cat .env", "cat sub/.env", "cat sub/other", "cat link",
			"cat abs/.env", "cat led",
			"ls secret", "grep -rh hidden . --exclude=seen",
			"mv secret moved; cat moved/key", "mv sub moved; cat moved/.env moved/other; mv moved sub",
			"chmod 777 secret .env; cat .env secret/key", "rm -rf secret .env; cat .env",
			"ln sub/other x; cat x", "ln sub/.env x; cat x", "cat /proc/self/root$PWD/.env", "cd secret && cat key",
			"umount .env; umount secret; cat .env secret/key",
			"mount --bind / /tmp; cat .env", "unshare -rm umount .env; cat .env", "echo new >.env",
			"echo new >secret/key", "rmdir secret; mkdir secret; touch secret/new",
			"mkdir a; mv secret a/; ls a/secret",
			"exec 9<. ; cat /proc/self/fd/9/.env", "cp -a . /tmp/copy; rm /tmp/copy/seen; grep -r hidden /tmp/copy",
		} {
			for _, writable := range []bool{true, false} {
				p := Policy{Workspace: &Workspace{Dir: dir, Writable: writable, Hidden: hides}}
				if res, out := sh(t, box, p, command); strings.Contains(out, content) ||
					strings.Contains(out, "deep") && !strings.Contains(command, "deep") || res.Reason != Exited {
					t.Errorf("%s, writable %v: %+v %q", command, writable, res, out)
				}
			}
			for _, f := range hidden {
				if got, err := os.ReadFile(filepath.Join(dir, f)); err != nil || string(got) != content {
					t.Fatalf("%s: then %s outside is %q, %v", command, f, got, err)
				}
			}
		}
		// The positive control: what is not hidden is there, and without the rule so is the rest.
		p := Policy{Workspace: &Workspace{Dir: dir, Writable: true, Hidden: hides}}
		if res, out := sh(t, box, p, "cat seen; echo more >new; cat new; ls -d secret"); res.ExitCode != 0 ||
			out != content+"more\nsecret\n" {
			t.Errorf("%+v %q", res, out)
		}
		p.Workspace.Hidden = nil
		if res, out := sh(t, box, p, "cat secret/key .env sub/other"); res.ExitCode != 0 || out != content+content+
			content {
			t.Errorf("without a rule: %+v %q", res, out)
		}
	})
}

// TestHiddenPlacesStayWhereTheyAre: a command cannot move what is above a hidden place, so that a later one would
// find it.
func TestHiddenPlacesStayWhereTheyAre(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		must.OK(t, errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o755),
			os.WriteFile(filepath.Join(dir, "a/b/key"), []byte("hidden"), 0o644),
			os.Mkdir(filepath.Join(dir, "c"), 0o755)))
		p := Policy{Workspace: &Workspace{Dir: dir, Writable: true,
			Hidden: func(p string) bool { return p == "a/b/key" }}}
		for _, move := range []string{"mv a x", "mv a/b x", "mv a/b/key x", "mv a c/", "mv -T c a", "git mv a x"} {
			sh(t, box, p, move)
		}
		if _, err := os.Stat(filepath.Join(dir, "a/b/key")); err != nil {
			t.Error(err)
		}
		if res, out := sh(t, box, p,
			"grep -r hidden .; echo x >a/b/other && mv a/b/other a/moved && cat a/moved"); !strings.HasSuffix(out,
			"x\n") || strings.Contains(out, "key:hidden") {
			t.Errorf("%+v %q", res, out)
		}
	})
}

// TestHiddenPlacesLeaveTheProtectedOnes: what stands in front of one thing in .git takes nothing away from what
// protects another.
func TestHiddenPlacesLeaveTheProtectedOnes(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t)
		for _, d := range []string{".git/hooks", ".git/refs", ".git/objects"} {
			must.OK(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
		}
		for _, f := range []string{".git/config", ".git/HEAD", ".git/secret"} {
			must.OK(t, os.WriteFile(filepath.Join(dir, f), []byte("content of "+f), 0o644))
		}
		p := Policy{Workspace: &Workspace{Dir: dir, Writable: true,
			Hidden: func(p string) bool { return p == ".git/config" || p == ".git/secret" }}}
		for _, write := range []string{"echo x >.git/hooks/pre-commit", "mv .git g", "mv .git/hooks h",
			"echo x >.git/config", "cat .git/config", "cat .git/secret", "echo x >.git/commondir"} {
			if res, out := sh(t, box, p, write); res.ExitCode == 0 || strings.Contains(out, "content of") {
				t.Errorf("%s: %+v %q", write, res, out)
			}
		}
		if res, out := sh(t, box, p, "cat .git/HEAD; echo x >.git/refs/x"); res.ExitCode != 0 ||
			out != "content of .git/HEAD" {
			t.Errorf("%+v %q", res, out)
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
		must.OK(t, err)
		const commit = `echo x > f && git add -A && git -c user.name=n -c user.email=e commit -qm first && git checkout -qb other && git log --oneline | wc -l && git status --short`
		if res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true}}, commit); res.ExitCode != 0 ||
			out != "1\n" {
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
	must.OK(t, err)
	const ask = `ask() { exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n' "$1" >&3; read -r line <&3; echo "${line%$'\r'}"; tail -n1 <&3; echo; }
`
	each(t, func(t *testing.T, box Sandbox) {
		p := Policy{Network: Network{Allow: []string{"localhost:" + port, "127.0.0.1:1"},
			Private: func(_ string, a netip.Addr) bool { return a.IsLoopback() }}}
		res, out := sh(t, box, p, ask+"ask localhost:"+port+
			"; ask other.test:80; echo $https_proxy; (exec 4<>/dev/tcp/127.0.0.1/"+port+") 2>&1 | grep -o -m1 refused")
		want := "HTTP/1.1 200 OK\nfrom outside\nHTTP/1.1 403 Forbidden\n" + errNotAllowed.Error() +
			"\n\nhttp://127.0.0.1:3128\nrefused\n"
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
			_, err := box.Run(t.Context(), p, Command{Argv: []string{"bash", "-c",
				"echo begin >> log; sleep 0.5; echo end >> log"}}, Streams{})
			first <- err
		}()
		res, _ := sh(t, box, p, "echo begin >> log; sleep 0.5; echo end >> log; cat log")
		must.OK(t, <-first)
		log, err := os.ReadFile(filepath.Join(p.Workspace.Dir, "log"))
		if err != nil || string(log) != "begin\nend\nbegin\nend\n" || res.ExitCode != 0 {
			t.Errorf("%q %v", log, err)
		}
		// One who cannot wait is told so.
		held, err := acquire(t.Context(), p.Workspace)
		must.OK(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // in which even a busy machine gets to the door
		defer cancel()
		if _, err := box.Run(ctx, p, Command{Argv: []string{"true"}}, Streams{}); !errors.Is(err, ErrBusy) {
			t.Errorf("%v", err)
		}
		if _, err := held.release(); err != nil {
			t.Error(err)
		}
	})
}

// TestNoNamespacesLeft: a machine whose quota is used up refuses, and says which sysctl to set. bwrap's --unshare-all
// would go on without the namespace.
func TestNoNamespacesLeft(t *testing.T) {
	if os.Getenv("TOOLYARD_TEST_QUOTA") != "" { // root of a namespace of its own, whose quota it sets
		must.OK(t, os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0))
		_, err := Backends(Options{UID: 1})[0].Probe(t.Context())
		fmt.Println("refusal:", err)
		return
	}
	bin, err := os.Executable()
	must.OK(t, err)
	cmd := exec.Command(bin, "-test.run", "^TestNoNamespacesLeft$")
	cmd.Env = append(os.Environ(), "TOOLYARD_TEST_QUOTA=1", actorVar+"=quota")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "refusal: no isolation: native") ||
		!strings.Contains(string(out), "max_user_namespaces") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestUnixSocketsWhereTheOperatorWantsThem: with the option they work inside, and without it they do not.
func TestUnixSocketsWhereTheOperatorWantsThem(t *testing.T) {
	const serve = `python3 -c '
import socket, os
s = socket.socket(socket.AF_UNIX); s.bind("/tmp/s"); s.listen(1)
c = socket.socket(socket.AF_UNIX); c.connect("/tmp/s"); print("connected")'`
	for _, unixSockets := range []bool{true, false} {
		for _, box := range Backends(Options{UnixSockets: unixSockets}) {
			if _, err := box.Probe(t.Context()); err != nil {
				refuses(t, box, err)
				continue
			}
			if _, out := sh(t, box, Policy{}, serve); strings.Contains(out, "connected") != unixSockets ||
				!unixSockets && !strings.Contains(out, "Operation not permitted") {
				t.Errorf("%s, Unix sockets: %t: %s", box.Name(), unixSockets, out)
			}
		}
	}
}
