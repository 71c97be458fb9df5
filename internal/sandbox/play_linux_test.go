//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// play does random things to the files of a workspace, from inside. What fails, fails.
func play(outside, seed, count string) int {
	s, err := strconv.ParseUint(seed, 10, 64)
	n, nerr := strconv.Atoi(count)
	if err != nil || nerr != nil {
		fmt.Println(err, nerr)
		return 2
	}
	r := rand.New(rand.NewPCG(s, 1))
	parts := []string{"a", "b", ".git", "hooks", "config", "HEAD", "objects", "refs", ".vscode", "tasks.json",
		".github", "workflows", "ci.yml", "tools", "pre-commit", ".toolyard", "run", ".envrc", ".hg", "..", "."}
	name := func() string {
		if r.IntN(12) == 0 {
			return filepath.Join(outside, parts[r.IntN(2)])
		}
		var p []string
		for range 1 + r.IntN(3) {
			p = append(p, parts[r.IntN(len(parts))])
		}
		return strings.Join(p, "/")
	}
	did := 0
	for range n {
		a, b := name(), name()
		var err error
		switch r.IntN(9) {
		case 0:
			err = os.Rename(a, b)
		case 1:
			err = os.Link(a, b)
		case 2:
			err = os.Symlink([]string{a, "/etc", outside, "refs/heads/main"}[r.IntN(4)], b)
		case 3:
			err = os.Chmod(a, fs.FileMode(r.IntN(0o1000)))
		case 4:
			err = os.MkdirAll(a, fs.FileMode(0o500|r.IntN(0o400)))
		case 5:
			err = os.Truncate(a, int64(r.IntN(3)))
		case 6:
			err = os.WriteFile(a, []byte("ref: refs/heads/main\n"), 0o755)
		case 7:
			err = os.Remove(a)
		case 8:
			err = os.RemoveAll(a)
		}
		if err == nil {
			did++
		}
	}
	fmt.Println("did", did)
	return 0
}

// view is everything below a directory: what it is, and what is in it.
func view(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fmt.Fprintf(&b, "%s %s", rel, info.Mode())
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(content))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			b.WriteString(" -> " + to)
		}
		b.WriteString("\n")
		return nil
	})
	must.OK(t, err)
	return b.String()
}

// FuzzPlay plays random file operations inside a sandbox: afterwards nothing outside of the workspace has changed, and
// no protected place has, neither one that was there nor one that was missing. The workspace can still be used.
func FuzzPlay(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed, uint16(20*(seed+1)))
	}
	bin, err := os.Executable()
	must.OK(f, err)
	f.Fuzz(func(t *testing.T, seed uint64, count uint16) {
		each(t, func(t *testing.T, box Sandbox) {
			ws, outside := newPlace(t), newPlace(t)
			// so that the test's directory can go
			t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwx", ws).Run() })
			must.OK(t, os.WriteFile(filepath.Join(outside, "a"), []byte("mine"), 0o666))
			repository := seed%2 == 0
			if repository {
				if out, err := exec.Command("git", "init", "-q", ws).CombinedOutput(); err != nil {
					t.Fatal(string(out))
				}
				if out, err := exec.Command("git", "-C", ws, "config", "core.hooksPath",
					"tools/hooks").CombinedOutput(); err != nil {
					t.Fatal(string(out))
				}
			}
			if seed%3 == 0 {
				for _, p := range []string{".vscode/tasks.json", ".github/workflows/ci.yml", "tools/hooks/pre-commit"} {
					must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(ws, p)), 0o755))
					must.OK(t, os.WriteFile(filepath.Join(ws, p), []byte("mine"), 0o644))
				}
			}
			set, err := (*protect.List)(nil).Of(rootOf(t, ws), ws)
			must.OK(t, err)
			before := map[string]string{}
			for _, p := range set.Places() {
				if _, err := os.Lstat(filepath.Join(ws, p.Path)); err == nil {
					before[p.Path] = view(t, filepath.Join(ws, p.Path))
				}
			}
			untouched := view(t, outside)
			var out bytes.Buffer
			res, err := box.Run(t.Context(), Policy{Workspace: &Workspace{Dir: ws, Writable: true},
				Read: []string{filepath.Dir(bin)}},
				Command{Argv: []string{bin, "play", outside, strconv.FormatUint(seed, 10), strconv.Itoa(int(count))}},
				Streams{Stdout: &out, Stderr: &out})
			must.OK(t, err)
			if got := view(t, outside); got != untouched {
				t.Errorf("outside: %s\nwas %s", got, untouched)
			}
			for _, p := range set.Places() {
				was, there := before[p.Path]
				switch _, err := os.Lstat(filepath.Join(ws, p.Path)); {
				case !there && err == nil:
					t.Errorf("%s was made: %+v %s", p.Path, res, out.String())
				case there && err != nil:
					t.Errorf("%s is gone: %+v %s", p.Path, res, out.String())
				case there && view(t, filepath.Join(ws, p.Path)) != was:
					t.Errorf("%s was changed: %+v %s", p.Path, res, out.String())
				}
			}
			marker := filepath.Join(outside, "ran")
			if ran, said := gitStatus(t, ws, marker); ran {
				t.Errorf("git status ran a program: %s", said)
			}
			if res.Reason == Trespass && strings.Contains(res.Detail, "quarantine") {
				t.Errorf("%+v", res)
			}
		})
	})
}

func rootOf(t *testing.T, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	must.OK(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}
