//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// keeping runs a command with what an earlier one left in from, and keeps what it leaves in the file that is returned.
func keeping(t *testing.T, box Sandbox, from *os.File, k Keep, limits Limits, command string) (Result, string,
	*os.File) {
	t.Helper()
	to, err := os.CreateTemp(t.TempDir(), "kept")
	must.OK(t, err)
	t.Cleanup(func() { _ = to.Close() })
	k.From, k.To = from, to
	if k.Bytes == 0 {
		k.Bytes, k.Names = 1<<20, 1000
	}
	res, out := sh(t, box, Policy{Keep: &k, Limits: limits}, command)
	return res, out, to
}

func TestKeep(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		res, _, kept := keeping(t, box, nil, Keep{Note: ".note", MaxNote: 10}, Limits{},
			`mkdir -p /tmp/a/b; echo one > /tmp/a/b/f; ln -s /etc/passwd /tmp/l; echo -n told > /tmp/.note
			chmod 751 /tmp/a; mkfifo /tmp/p; echo x > /tmp/locked; chmod 000 /tmp/locked; touch -d 2020-01-02 /tmp/a/b/f
			(while :; do echo more >> /tmp/a/b/f; sleep 0.01; done) & sleep 0.05; kill $!; wait
			echo one > /tmp/a/b/f; touch -d 2020-01-02 /tmp/a/b/f`)
		if res.Kept == nil || res.Kept.Problem != "" || string(res.Kept.Note) != "told" || res.Kept.Names != 4 ||
			res.Kept.Left != 2 || len(res.Env) == 0 {
			t.Fatalf("%+v %+v", res, res.Kept)
		}
		for range 2 { // a spare stage and a new one; what is not kept changes nothing
			out := ""
			res, out, _ = keeping(t, box, kept, Keep{}, Limits{},
				`cd /tmp; find . -mindepth 1 | sort | tr '\n' ' '; cat a/b/f; stat -c '%a %Y' a; stat -c %y a/b/f;
				readlink l; id -u; stat -c %u a; touch a/b/new`)
			want := "./a ./a/b ./a/b/f ./l one\n751 "
			if !strings.HasPrefix(out, want) || !strings.Contains(out, "2020-01-02") ||
				!strings.HasSuffix(out, "/etc/passwd\n1000\n1000\n") {
				t.Errorf("%q\n%+v", out, res)
			}
		}
	})
}

// TestKeepHasLimits: what is too much is not kept, and the command's own end stands.
func TestKeepHasLimits(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		for command, k := range map[string]Keep{
			"head -c 5000 /dev/zero > /tmp/f":              {Bytes: 4000, Names: 10},
			"for i in 1 2 3 4; do echo > /tmp/$i; done":    {Bytes: 4000, Names: 3},
			"truncate -s 5000 /tmp/sparse; echo > /tmp/.n": {Bytes: 4000, Names: 10},
		} {
			res, _, _ := keeping(t, box, nil, k, Limits{}, command)
			if res.Reason != Exited || res.ExitCode != 0 || res.Kept == nil || res.Kept.Problem == "" {
				t.Errorf("%s: %+v %+v", command, res, res.Kept)
			}
		}
		// A note that is too long, or is no file, is none.
		for _, command := range []string{"head -c 11 /dev/zero > /tmp/.note", "mkfifo /tmp/.note",
			"ln -s /etc/passwd /tmp/.note", "mkdir /tmp/.note"} {
			res, _, _ := keeping(t, box, nil, Keep{Note: ".note", MaxNote: 10}, Limits{}, command)
			if res.Kept == nil || res.Kept.Problem != "" || res.Kept.Note != nil || res.Kept.Names != 0 {
				t.Errorf("%s: %+v %+v", command, res, res.Kept)
			}
		}
		// A command that is told to stop is kept as far as it came, and one that is killed leaves nothing.
		dir := newPlace(t)
		to, err := os.Create(filepath.Join(t.TempDir(), "kept"))
		must.OK(t, err)
		defer func() { _ = to.Close() }()
		res, _ := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true},
			Keep: &Keep{To: to, Bytes: 1000, Names: 10}, Limits: Limits{Wall: 500 * time.Millisecond}},
			"echo x > /tmp/f; sleep 60")
		if res.Reason != Timeout || res.Kept == nil || res.Kept.Names != 1 {
			t.Errorf("%+v %+v", res, res.Kept)
		}
		res, _, _ = keeping(t, box, nil, Keep{}, Limits{Wall: 300 * time.Millisecond}, "echo x > /tmp/f; sleep 60")
		if res.Reason != Timeout || res.Kept != nil {
			t.Errorf("%+v %+v", res, res.Kept)
		}
	})
}

// TestAWorkspaceBelowTmpIsNotKept: it is the machine's, as are the directories that lead to it.
func TestAWorkspaceBelowTmpIsNotKept(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		dir := newPlace(t) // below /tmp
		if !strings.HasPrefix(dir, "/tmp/") {
			t.Fatal(dir)
		}
		must.OK(t, os.WriteFile(filepath.Join(dir, "big"), make([]byte, 5000), 0o644))
		var kept *os.File
		for i, command := range []string{"echo mine > ../mine; echo > more", "cat ../mine; ls"} {
			to, err := os.Create(filepath.Join(t.TempDir(), "kept"))
			must.OK(t, err)
			defer func() { _ = to.Close() }()
			res, out := sh(t, box, Policy{Workspace: &Workspace{Dir: dir, Writable: true},
				Keep: &Keep{From: kept, To: to, Bytes: 1000, Names: 10}}, command)
			if res.Kept == nil || res.Kept.Problem != "" || res.Kept.Names != 1 || res.Kept.Bytes != 5 || i == 1 &&
				out != "mine\nbig\nmore\n" {
				t.Errorf("%+v %+v %q", res, res.Kept, out)
			}
			kept = to
		}
	})
}

// TestWhatCannotComeBack: nothing runs with half of what was kept.
func TestWhatCannotComeBack(t *testing.T) {
	each(t, func(t *testing.T, box Sandbox) {
		_, _, kept := keeping(t, box, nil, Keep{}, Limits{}, "echo whole > /tmp/f")
		info, err := kept.Stat()
		must.OK(t, err)
		dir := newPlace(t)
		for name, change := range map[string]func() error{
			"cut":     func() error { return kept.Truncate(info.Size() - 1) },
			"foreign": func() error { return os.WriteFile(kept.Name(), bytes.Repeat([]byte{0xff}, 100), 0o600) },
			"empty":   func() error { return kept.Truncate(0) },
		} {
			must.OK(t, change())
			_, err := box.Run(t.Context(), Policy{Keep: &Keep{From: kept, Bytes: 1000, Names: 10},
				Workspace: &Workspace{Dir: dir, Writable: true}},
				Command{Argv: []string{"bash", "-c", "touch ran"}}, Streams{})
			if !errors.Is(err, ErrKeep) || errors.Is(err, ErrNoIsolation) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Errorf("%s: it ran all the same", name)
			}
		}
	})
}

// TestOnlyASandboxKeeps: without one, /tmp is the machine's.
func TestOnlyASandboxKeeps(t *testing.T) {
	if err := nothingKept(&Keep{}); !errors.Is(err, ErrViolation) {
		t.Error(err)
	}
	if err := nothingKept(nil); err != nil {
		t.Error(err)
	}
}
