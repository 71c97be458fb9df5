//go:build unix

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	held "github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func launch(t *testing.T, ctx context.Context, p Program) (Result, string) {
	t.Helper()
	var out bytes.Buffer
	p.Stdout, p.Stderr = &out, &out
	l, err := LaunchUnisolated(ctx, p)
	must.OK(t, err)
	res, err := l.Wait()
	must.OK(t, err)
	return res, out.String()
}

func TestLaunchedPrograms(t *testing.T) {
	t.Setenv("TOOLYARD_TEST_LEAK", "leaked")
	res, out := launch(t, t.Context(), Program{Argv: []string{"sh", "-c",
		"cat; echo $A; echo err >&2; env | grep -c LEAK; exit 3"}, Env: []string{"A=b", "PATH=/usr/bin:/bin"},
		Stdin: strings.NewReader("in\n")})
	if res.Reason != Exited || res.ExitCode != 3 || out != "in\nb\nerr\n0\n" || res.Isolation != IsolationNone ||
		len(res.Layers) > 0 {
		t.Errorf("%+v %q", res, out)
	}
	if res, out := launch(t, t.Context(), Program{Argv: []string{"sh", "-c", "while :; do echo y; done"},
		OutputBytes: 100}); res.Reason != OutputLimit || len(out) != 100 {
		t.Errorf("%+v %d bytes", res, len(out))
	}
	for _, bad := range []Program{{}, {Argv: []string{"/no/such/program"}},
		{Argv: []string{"sh"}, Dir: "/no/such/directory"}} {
		if _, err := LaunchUnisolated(t.Context(), bad); err == nil {
			t.Errorf("%+v was launched", bad)
		}
	}
}

// TestALaunchedProgramEndsWithItsContext: also what it has sent into the background, in a session of its own.
func TestALaunchedProgramEndsWithItsContext(t *testing.T) {
	for _, how := range []string{"timeout", "cancel", "exit"} {
		dir := t.TempDir()
		alive := filepath.Join(dir, "alive")
		script := "(setsid sh -c 'trap \"\" TERM HUP; while :; do echo x >> " + alive +
			"; sleep 0.05; done' >/dev/null 2>&1 &); while ! [ -s " + alive + " ]; do sleep 0.05; done"
		ctx, cancel := context.WithCancel(t.Context())
		want := Exited
		switch how {
		case "timeout":
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			script, want = script+"; sleep 30", Timeout
		case "cancel":
			time.AfterFunc(time.Second, cancel)
			script, want = script+"; sleep 30", Canceled
		}
		began := time.Now()
		res, _ := launch(t, ctx, Program{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}})
		cancel()
		if res.Reason != want || time.Since(began) > 10*time.Second {
			t.Errorf("%s: %+v after %s", how, res, time.Since(began))
		}
		before := must.Read(t, alive)
		time.Sleep(300 * time.Millisecond)
		if after, err := os.ReadFile(alive); err != nil || len(after) != len(before) {
			t.Errorf("%s: it still runs (%v)", how, err)
		}
	}
}

func TestUnsandboxedClaimsNothing(t *testing.T) {
	ctx, stamp := WithStamp(t.Context())
	var out bytes.Buffer
	dir := t.TempDir()
	res, err := Unsandboxed{}.Run(ctx, Policy{Workspace: &Workspace{Dir: dir}, Limits: Limits{Wall: 20 * time.Second}},
		Command{Argv: []string{"sh", "-c", "pwd"}}, Streams{Stdout: &out})
	caps, probe := Unsandboxed{}.Probe(ctx)
	if caps.Isolation() != IsolationNone || stamp.Isolation() != IsolationNone {
		t.Errorf("%+v, stamp %q", caps, stamp.Isolation())
	}
	if os.Getuid() == 0 {
		if !errors.Is(err, ErrNoIsolation) || !errors.Is(probe, ErrNoIsolation) || out.Len() > 0 {
			t.Errorf("root ran it: %v %v %s", err, probe, out.String())
		}
		return
	}
	if err != nil || probe != nil || res.Reason != Exited || res.ExitCode != 0 || res.Isolation != IsolationNone ||
		len(res.Layers) > 0 || !strings.HasSuffix(strings.TrimSpace(out.String()), filepath.Base(dir)) {
		t.Errorf("%+v %v %v %q", res, err, probe, out.String())
	}
}

// TestUnsandboxedHidesNothing: so it runs nothing where something is to be hidden. As root it runs nothing at all.
func TestUnsandboxedHidesNothing(t *testing.T) {
	key := func(p string) bool { return p == "key" }
	for how, workspace := range map[string]func(dir string) *Workspace{
		"by its path": func(dir string) *Workspace { return &Workspace{Dir: dir} },
		"held": func(dir string) *Workspace { // as tools have it
			root, err := held.Hold(dir, nil)
			must.OK(t, err)
			t.Cleanup(func() { _ = root.Close() })
			return &Workspace{Root: root}
		},
	} {
		dir := t.TempDir()
		w := workspace(dir)
		run := func(hidden func(string) bool) error {
			w.Hidden = hidden
			_, err := Unsandboxed{}.Run(t.Context(), Policy{Workspace: w}, Command{Argv: []string{"true"}}, Streams{})
			return err
		}
		for _, err := range []error{run(nil), run(key)} {
			if root := os.Getuid() == 0; root != errors.Is(err, ErrNoIsolation) || !root && err != nil {
				t.Errorf("%s: %v", how, err)
			}
		}
		must.OK(t, os.WriteFile(filepath.Join(dir, "key"), nil, 0o600))
		want := ErrViolation
		if os.Getuid() == 0 {
			want = ErrNoIsolation
		}
		if err := run(key); !errors.Is(err, want) ||
			want == ErrViolation && !strings.Contains(err.Error(), "hide key of the workspace") {
			t.Errorf("%s: %v; want %v", how, err, want)
		}
	}
}

// TestAProgramIsToldToStop: one that has a grace cleans up in it.
func TestAProgramIsToldToStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out strings.Builder
	ready, w := io.Pipe()
	l, err := LaunchUnisolated(ctx, Program{Argv: []string{"sh", "-c",
		"trap 'echo cleaned; exit 0' TERM; echo ready >&2; while :; do sleep 0.02; done"},
		Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: w, Grace: time.Minute})
	must.OK(t, err)
	if _, err := ready.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, ready) }()
	cancel()
	if res, err := l.Wait(); err != nil || res.Reason != Canceled || out.String() != "cleaned\n" {
		t.Errorf("%+v, %v, %q", res, err, out.String())
	}
}
