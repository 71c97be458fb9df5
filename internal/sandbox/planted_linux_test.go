//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	held "github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// gitStatus is what a person, a prompt or an editor does in a workspace. It says whether that ran the program of
// [fsmonitor].
func gitStatus(t *testing.T, ws, marker string) (ran bool, out string) {
	t.Helper()
	cmd := exec.Command("git", "status")
	cmd.Dir = ws
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CEILING_DIRECTORIES=" + filepath.Dir(ws),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}
	said, _ := cmd.CombinedOutput() // that it fails is what should be
	_, err := os.Stat(marker)
	return err == nil, string(said)
}

// fsmonitor is a configuration that makes "git status" run a program.
func fsmonitor(marker, worktree string) string {
	return fmt.Sprintf("[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = %s\n\tfsmonitor = "+
		"\"touch %s; false\"\n", worktree, marker)
}

// plantRepository is a command that makes a directory a repository with that configuration, without a .git.
const plantRepository = `mkdir -p objects refs/heads && printf '%s' "$CONFIG" > config; printf 'ref: refs/heads/main\n' > HEAD; `

// TestNoRepositoryByTheBackDoor: no command makes the workspace's own directory a repository, neither while it runs nor
// after: the next "git status" on the machine would run what its configuration names.
func TestNoRepositoryByTheBackDoor(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for _, tt := range []struct {
			name, command string
			prepare       func(ws string) error
			during        bool // also while the command runs
		}{
			{"HEAD, objects, refs and config at the top", plantRepository, nil, true},
			{"objects and refs elsewhere, by commondir", `mkdir -p sub; cd sub; ` + plantRepository +
				`cd ..; echo sub > commondir; cp sub/config config; cp sub/HEAD HEAD; `, nil, true},
			{"HEAD is a link",
				`mkdir -p objects refs/heads && printf '%s' "$CONFIG" > config; ln -s refs/heads/main HEAD; `, nil,
				true},
			{"beside a .git that is empty", plantRepository,
				func(ws string) error { return os.Mkdir(filepath.Join(ws, ".git"), 0o755) }, false},
			{"beside a .git that the command has broken", `rm .git/HEAD; ` + plantRepository, func(ws string) error {
				return exec.Command("git", "init", "-q", ws).Run()
			}, false},
			{"in a .git that is empty", `cd .git && ` +
				plantRepository, func(ws string) error { return os.Mkdir(filepath.Join(ws, ".git"), 0o755) }, true},
			{"where the file .git leads", `printf '%s' "$CONFIG" > real/config; `, func(ws string) error {
				return exec.Command("git", "init", "-q", "--separate-git-dir", filepath.Join(ws, "real"), ws).Run()
			}, true},
			{"in a repository without .git", `printf '%s' "$CONFIG" > config; `, func(ws string) error {
				return exec.Command("git", "init", "-q", "--bare", ws).Run()
			}, true},
		} {
			t.Run(tt.name, func(t *testing.T) {
				ws, marker := newPlace(t), filepath.Join(newPlace(t), "ran")
				config := fsmonitor(marker, ws)
				if tt.prepare != nil {
					must.OK(t, tt.prepare(ws))
				}
				ended := make(chan error, 1)
				go func() {
					_, err := box.Run(t.Context(), Policy{Workspace: &Workspace{Dir: ws, Writable: true},
						Env: map[string]string{"CONFIG": config}},
						Command{Argv: []string{"bash", "-c", tt.command + "touch planted; sleep 0.3"}}, Streams{})
					ended <- err
				}()
				over := false
				for !over {
					if _, err := os.Stat(filepath.Join(ws, "planted")); err == nil && tt.during {
						if ran, out := gitStatus(t, ws, marker); ran {
							t.Errorf("while the command runs, git status ran its program: %s", out)
							tt.during = false
						}
					}
					select {
					case err := <-ended:
						must.OK(t, err)
						over = true
					case <-time.After(10 * time.Millisecond):
					}
				}
				must.OK(t, os.RemoveAll(marker))
				if ran, out := gitStatus(t, ws, marker); ran {
					t.Errorf("after the command, git status ran its program: %s", out)
				}
			})
		}
		t.Run("control", func(t *testing.T) {
			ws, marker := newPlace(t), filepath.Join(newPlace(t), "ran")
			cmd := exec.Command("bash", "-c", plantRepository)
			cmd.Dir, cmd.Env = ws, append(os.Environ(), "CONFIG="+fsmonitor(marker, ws))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
			if ran, out := gitStatus(t, ws, marker); !ran {
				t.Errorf("without a sandbox git status runs nothing, and so the test proves nothing: %s", out)
			}
		})
	})
}

// TestWhatGitsConfigurationPointsAt: a program, a directory of hooks or a file of configuration in the workspace that
// .git/config names is as .git/hooks is.
func TestWhatGitsConfigurationPointsAt(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for _, tt := range []struct {
			key, value, path string
			held             bool // it cannot be written; else it is taken away
		}{
			{"core.hooksPath", "tools/hooks", "tools/hooks/pre-commit", true},
			{"core.hooksPath", "tools/hooks", "tools/hooks/post-commit", true},
			{"core.hooksPath", ".missing", ".missing/pre-commit", false},
			{"core.hooksPath", "WS/tools/hooks", "tools/hooks/pre-commit", true},
			{"include.path", "../extra.cfg", "extra.cfg", true},
			{"include.path", "../missing.cfg", "missing.cfg", false},
			{"includeIf.gitdir:/.path", "../extra.cfg", "extra.cfg", true},
			{"core.fsmonitor", "tools/watch.sh", "tools/watch.sh", true},
			{"core.fsmonitor", "tools/missing.sh", "tools/missing.sh", false},
			{"core.sshCommand", "sh tools/ssh.sh -v", "tools/ssh.sh", true},
			{"core.pager", "'tools/pager one.sh' -x", "tools/pager one.sh", true},
			{"filter.x.clean", "tools/clean.sh %f", "tools/clean.sh", true},
			{"filter.x.process", "node clean.js", "clean.js", true},
			{"filter.x.smudge", "\"$PWD/tools/clean.sh\" || cat; ./tools/pager.sh", "tools/pager.sh", true},
			{"diff.x.textconv", "tools/clean.sh", "tools/clean.sh", true},
			{"merge.x.driver", "tools/clean.sh %O %A %B", "tools/clean.sh", true},
			{"alias.x", "!tools/clean.sh", "tools/clean.sh", true},
			{"credential.helper", "!tools/clean.sh", "tools/clean.sh", true},
			{"gpg.program", "WS/tools/clean.sh", "tools/clean.sh", true},
		} {
			t.Run(tt.key+"="+strings.ReplaceAll(tt.value, "/", "|")+" "+filepath.Base(tt.path), func(t *testing.T) {
				ws := newPlace(t)
				must.OK(t, exec.Command("git", "init", "-q", ws).Run())
				must.OK(t, os.MkdirAll(filepath.Join(ws, "tools/hooks"), 0o755))
				for _, f := range []string{"tools/hooks/pre-commit", "tools/watch.sh", "tools/ssh.sh",
					"tools/pager one.sh", "tools/pager.sh", "tools/clean.sh", "clean.js", "extra.cfg"} {
					must.OK(t, os.WriteFile(filepath.Join(ws, f), nil, 0o755))
				}
				if out, err := exec.Command("git", "-C", ws, "config", tt.key,
					strings.ReplaceAll(tt.value, "WS", ws)).CombinedOutput(); err != nil {
					t.Fatal(err, string(out))
				}
				_, err := os.Lstat(filepath.Join(ws, tt.path))
				was := err == nil
				res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: ws, Writable: true}},
					fmt.Sprintf(`mkdir -p %q; echo owned > %q; mv tools tools2; mkdir -p tools; cp -r tools2/. tools; echo owned > %q; git status >/dev/null && echo works`, filepath.Dir(tt.path), tt.path, tt.path))
				if b, err := os.ReadFile(filepath.Join(ws, tt.path)); len(b) > 0 || (err == nil) != was {
					t.Errorf("%s: %q %v\n%+v %s", tt.path, b, err, res, out)
				}
				if !tt.held && res.Reason != Trespass || tt.held && !strings.Contains(out, "works") {
					t.Errorf("%+v %s", res, out)
				}
			})
		}
	})
}

// TestAPlantedPlaceReallyGoesAway, however the command has tried to keep it.
func TestAPlantedPlaceReallyGoesAway(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for _, tt := range []struct{ name, command, path string }{
			{"in directories that cannot be written",
				"mkdir .vscode && touch .vscode/tasks.json && chmod 555 .vscode .", ".vscode"},
			{"in directories that cannot be read",
				"mkdir -p .vscode/a && touch .vscode/a/b && chmod 0 .vscode/a .vscode .", ".vscode"},
			{"a link for .hg", "mkdir mine && echo '[hooks]' > mine/hgrc && ln -s mine .hg", ".hg"},
			{"a link that leads out", "ln -s /etc .hg", ".hg"},
			{"the first hgrc", "mkdir .hg && echo '[hooks]' > .hg/hgrc", ".hg"},
			{"a link on the way", "mkdir -p docs/workflows && touch docs/workflows/ci.yml && ln -s docs .github",
				".github"},
			{"below a directory that is no place itself",
				"mkdir -p .github/workflows && touch .github/workflows/ci.yml && chmod 555 .github/workflows .github",
				".github/workflows"},
			{"a pipe", "mkfifo .envrc", ".envrc"},
			{"deep directories", "perl -e 'mkdir \"x\"; for (1..3000) { mkdir \"y\"; rename \"x\", \"y/d\"; rename " +
				"\"y\", \"x\" } rename \"x\", \".vscode\"'", ".vscode"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				ws := newPlace(t)
				res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: ws, Writable: true}}, tt.command)
				if _, err := os.Lstat(filepath.Join(ws, tt.path)); err == nil {
					t.Errorf("it is there: %+v %s", res, out)
				}
				if res.Reason != Trespass || !strings.Contains(res.Detail, tt.path) {
					t.Errorf("%+v %s", res, out)
				}
				if res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: ws, Writable: true}},
					"touch next && echo works"); out != "works\n" {
					t.Errorf("the workspace cannot be used any more: %+v %s", res, out)
				}
			})
		}
	})
}

// TestWhatAKilledWorkerLeaves: what a command has planted whose worker was killed in the middle is gone with the next
// command, and so is what stood there for the run.
func TestWhatAKilledWorkerLeaves(t *testing.T) {
	bin, err := os.Executable()
	must.OK(t, err)
	each(t, func(t *testing.T, box Sandbox) {
		ws := newPlace(t)
		must.OK(t, os.WriteFile(filepath.Join(ws, ".npmrc"), []byte("mine"), 0o644))
		cmd := exec.Command(bin, "plant", box.Name(), ws, "touch ready; until [ -e go ]; do sleep 0.01; done; mkdir "+
			".vscode; touch .vscode/tasks.json; ln -s /etc .hg; sleep 60")
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		must.OK(t, cmd.Start())
		appears(t, filepath.Join(ws, "ready"))
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil { // it would see what is planted
			t.Fatal(err)
		}
		must.OK(t, os.WriteFile(filepath.Join(ws, "go"), nil, 0o644))
		appears(t, filepath.Join(ws, ".hg"))
		must.OK(t, cmd.Process.Kill())
		if err := cmd.Wait(); err == nil {
			t.Fatal("it had ended by itself")
		}
		if res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: ws, Writable: true}}, "cat .npmrc"); out != "mine" {
			t.Errorf("%+v %s", res, out)
		}
		entries, err := os.ReadDir(ws)
		must.OK(t, err)
		for _, e := range entries {
			if name := e.Name(); name != ".npmrc" && name != "ready" && name != "go" {
				t.Errorf("%s is still there", e.Name())
			}
		}
	})
}

// TestWhatCannotBeTakenAwayMovesTheWorkspaceToQuarantine: nothing is said to be removed that is not, and nothing runs
// there any more, also not read-only, until an operator has ended that.
func TestWhatCannotBeTakenAwayMovesTheWorkspaceToQuarantine(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for _, tt := range []struct {
			name        string
			stick, free func(ws string) error
			root        bool
			left        bool // what was planted is still there
		}{
			{"something is mounted over it", func(ws string) error {
				return unix.Mount(ws, filepath.Join(ws, ".vscode"), "", unix.MS_BIND, "")
			}, func(ws string) error { return unix.Unmount(filepath.Join(ws, ".vscode"), unix.MNT_DETACH) }, true,
				true},
			{"somebody's files are among the marks", func(ws string) error {
				return os.WriteFile(filepath.Join(ws, ".toolyard", "mine"), nil, 0o644)
			}, func(ws string) error { return os.Remove(filepath.Join(ws, ".toolyard", "mine")) }, false, false},
		} {
			if tt.root && os.Getuid() != 0 {
				continue // an ordinary user mounts nothing
			}
			t.Run(tt.name, func(t *testing.T) {
				ws := newPlace(t)
				root, err := held.Hold(ws, nil)
				must.OK(t, err)
				t.Cleanup(func() { _ = root.Close() })
				rw, ro := Policy{Workspace: &Workspace{Root: root, Writable: true}},
					Policy{Workspace: &Workspace{Root: root}}
				l, err := acquire(t.Context(), rw.Workspace)
				must.OK(t, err)
				must.OK(t, errors.Join(os.Mkdir(filepath.Join(ws, ".vscode"), 0o755), tt.stick(ws)))
				names, undone := l.release()
				said := trespassed(names, undone)
				if len(names) != 1 || undone == nil || strings.Contains(said, "was removed") ||
					!strings.Contains(said, "quarantine") {
					t.Errorf("%q, %v: %s", names, undone, said)
				}
				for _, p := range []Policy{rw, ro, {Workspace: &Workspace{Dir: ws}},
					{Workspace: &Workspace{Dir: ws, Writable: true}}} {
					if _, err := box.Run(t.Context(), p, Command{Argv: []string{"true"}}, Streams{}); !errors.Is(err,
						ErrViolation) || !strings.Contains(err.Error(), "quarantine") {
						t.Errorf("%v", err)
					}
				}
				must.OK(t, tt.free(ws))
				if tt.left {
					if err := root.ClearQuarantine(false); err == nil {
						t.Error("the quarantine ends while what it is about is there")
					}
					must.OK(t, os.Remove(filepath.Join(ws, ".vscode")))
				}
				must.OK(t, root.ClearQuarantine(false))
				if res, out := sh(t, box, rw, "touch works && ls"); out != "works\n" {
					t.Errorf("%+v %s", res, out)
				}
			})
		}
	})
}

// TestACommandThatPlantsIsEndedAtOnce: it has no time to make use of what it has planted.
func TestACommandThatPlantsIsEndedAtOnce(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		ws := newPlace(t)
		began := time.Now()
		res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: ws, Writable: true}},
			"mkdir .vscode; sleep 20; touch late")
		if _, err := os.Lstat(filepath.Join(ws, "late")); err == nil || res.Reason != Trespass ||
			time.Since(began) > 15*time.Second {
			t.Errorf("after %s: %+v %s", time.Since(began), res, out)
		}
	})
}

// appears waits for a file.
func appears(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(name); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not appear", name)
		}
	}
}

// TestEveryPlaceOfTheListIsKept: what is missing goes away when it appears, what is there cannot be written, moved or
// replaced.
func TestEveryPlaceOfTheListIsKept(t *testing.T) {
	list, err := protect.New("deploy/prod.yml")
	must.OK(t, err)
	open := func(t *testing.T) (string, *held.Root, []string) {
		ws := newPlace(t)
		root, err := held.Hold(ws, list)
		must.OK(t, err)
		t.Cleanup(func() { _ = root.Close() })
		set, err := root.Protection()
		must.OK(t, err)
		var all []string
		for _, p := range set.Places() {
			if p.Path != protect.MarkDir && p.Make == "" {
				all = append(all, p.Path)
			}
		}
		return ws, root, all
	}
	t.Run("missing", func(t *testing.T) {
		ws, root, all := open(t)
		l, err := acquire(t.Context(), &Workspace{Root: root, Writable: true})
		must.OK(t, err)
		for _, p := range all {
			must.OK(t, os.MkdirAll(filepath.Join(ws, p, "sub"), 0o755))
		}
		if err := os.WriteFile(filepath.Join(ws, ".git"), nil, 0o644); err != nil { // what bars git stands there
			t.Fatal(err)
		}
		names, err := l.release()
		slices.Sort(names)
		slices.Sort(all)
		if err != nil || !slices.Equal(names, all) {
			t.Errorf("%v: taken away %q\nof %q", err, names, all)
		}
		for _, p := range append(all, ".git", protect.MarkDir) {
			if _, err := os.Lstat(filepath.Join(ws, p)); err == nil {
				t.Errorf("%s is there", p)
			}
		}
	})
	each(t, func(t *testing.T, box Sandbox) {
		ws, root, all := open(t)
		// of which only parts are kept
		all = slices.DeleteFunc(all, func(p string) bool { return p == ".hg" || p == ".jj" })
		for _, p := range all {
			must.OK(t, os.MkdirAll(filepath.Join(ws, p), 0o755))
		}
		res, out := sh(t, box, Policy{Workspace: &Workspace{Root: root, Writable: true}},
			`for p in `+strings.Join(all, " ")+
				`; do touch "$p/owned" || true; mv "$p" "$p-moved" || true; rm -rf "$p" || true; mkdir -p "$p" && touch "$p/owned"; d=${p%%/*}; mv "$d" "$d-moved"; done 2>/dev/null; touch works; ls`)
		if !strings.Contains(out, "works") {
			t.Errorf("%+v %s", res, out)
		}
		for _, p := range all {
			if entries, err := os.ReadDir(filepath.Join(ws, p)); err != nil ||
				slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "owned" }) {
				t.Errorf("%s: %v %v", p, entries, err)
			}
		}
	})
}

// TestAPlaceThatComesAndGoes: a command is ended for what it has made, also when it has taken it away again by then.
func TestAPlaceThatComesAndGoes(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for range 10 {
			res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: newPlace(t), Writable: true},
				Limits: Limits{Wall: 20 * time.Second}},
				"while :; do mkdir .vscode; rmdir .vscode; done")
			if res.Reason != Trespass || !strings.Contains(res.Detail, ".vscode") {
				t.Fatalf("%+v %s", res, out)
			}
		}
	})
}
