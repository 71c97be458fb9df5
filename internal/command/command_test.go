package command

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// acts is a sandbox that does what a test says.
type acts struct {
	probe error
	run   func(sandbox.Policy, sandbox.Command, sandbox.Streams) (sandbox.Result, error)
}

func (acts) Name() string { return "acts" }
func (a acts) Probe(context.Context) (sandbox.Capabilities, error) {
	return sandbox.Capabilities{Backend: "acts"}, a.probe
}
func (a acts) Run(_ context.Context, p sandbox.Policy, c sandbox.Command, s sandbox.Streams) (sandbox.Result, error) {
	return a.run(p, c, s)
}

// declared is the tool of a manifest: what is beside its command.
func declared(t *testing.T, box sandbox.Sandbox, more, command string) tool.Tool {
	t.Helper()
	f, err := manifest.Decode([]byte(`{"tools":[{"name":"x","description":"d",` + more + `"input_schema":{"type":"object","properties":{"a":{"type":"string"},"line":{"type":"string"}}},
		"command":` + command + `}]}`))
	must.OK(t, err)
	made, err := New(f.Tools[0], box, sandbox.Policy{Read: []string{"/opt"},
		Limits: sandbox.Limits{Memory: 7 << 20, Processes: 9}})
	must.OK(t, err)
	return made
}

func env(dir string) tool.Env {
	var held tool.Root
	if dir != "" {
		root, err := place.Hold(dir, nil)
		if err != nil {
			panic(err)
		}
		held = root
	}
	return tool.Env{
		Root: held, Agent: "ann", Batch: "b1", Session: "s", Index: 3, CallID: "c3", Workspace: "w", WorkspaceDir: dir,
		Attempt: 2, IdempotencyKey: "ty-1", FencingToken: 5,
		Progress: func(tool.Progress) {}, Granted: func(name string) (string, bool) {
			return "value of " +
				name, name == "KEY"
		},
	}
}

// TestACommandGetsWhatTheManifestSays, and nothing else.
func TestACommandGetsWhatTheManifestSays(t *testing.T) {
	var p sandbox.Policy
	var argv []string
	var read string
	box := acts{run: func(policy sandbox.Policy, c sandbox.Command, s sandbox.Streams) (sandbox.Result, error) {
		p, argv = policy, c.Argv
		if s.Stdin != nil {
			raw, err := io.ReadAll(s.Stdin)
			if err != nil {
				t.Error(err)
			}
			read = string(raw)
		}
		_, err := io.WriteString(s.Stdout, "out")
		return sandbox.Result{Reason: sandbox.Exited}, err
	}}
	x := declared(t, box, `"timeout_ms":5000,"credentials":["KEY"],`,
		`{"argv":["p","{a}"],"stdin":"json","env":{"LC_ALL":"C"},"network":["api.example:443"],"read":["/srv/data"],"limits":{"memory_mib":64,"output_bytes":100}}`)
	called := env("/tmp")
	called.TraceParent, called.TraceState, called.Baggage = "00-a-b-01", "v=1", "user=ann"
	out, err := x.Run(t.Context(), called, json.RawMessage(`{"a":"b c"}`))
	if err != nil || out.Text != "out" || read != `{"a":"b c"}` || !slices.Equal(argv, []string{"p", "b c"}) {
		t.Errorf("%+v, %v; argv %q, stdin %s", out, err, argv, read)
	}
	for name, want := range map[string]string{
		"LC_ALL": "C", "TOOLYARD_AGENT": "ann", "TOOLYARD_BATCH": "b1", "TOOLYARD_CALL_ID": "c3", "TOOLYARD_INDEX": "3",
		"TOOLYARD_IDEMPOTENCY_KEY": "ty-1",
		"TOOLYARD_ATTEMPT":         "2", "TOOLYARD_FENCING_TOKEN": "5", "TOOLYARD_SESSION": "s",
		"TOOLYARD_WORKSPACE": "w", "TRACEPARENT": "00-a-b-01", "TRACESTATE": "v=1", "BAGGAGE": "user=ann",
	} {
		if p.Env[name] != want {
			t.Errorf("%s is %q, want %q", name, p.Env[name], want)
		}
	}
	if len(p.Env) != 13 || len(p.Secrets) != 1 || p.Secrets[0].Name != "KEY" ||
		string(p.Secrets[0].Content) != "value of KEY" {
		t.Errorf("the environment is %v, the secrets %v", p.Env, p.Secrets)
	}
	if !slices.Equal(p.Network.Allow, []string{"api.example:443"}) ||
		!slices.Equal(p.Read, []string{"/opt", "/srv/data"}) || !p.Workspace.Writable ||
		p.Workspace.Root.Dir() != "/tmp" {
		t.Errorf("the policy is %+v", p)
	}
	if l := p.Limits; l.Wall != 5*time.Second || l.Memory != 64<<20 || l.Processes != 9 || l.Output != 100 {
		t.Errorf("the limits are %+v", l)
	}
	if x.Execution != tool.InSandbox {
		t.Errorf("it runs in %q", x.Execution)
	}
}

// TestAReadOnlyCommandCannotWrite: a command that is declared or judged to only read gets the workspace read-only.
func TestAReadOnlyCommandCannotWrite(t *testing.T) {
	for _, c := range []struct {
		more, input string
		writable    bool
	}{
		{`"concurrency_class":"READ_ONLY",`, `{}`, false}, {`"concurrency_class":"WRITE_EXCLUSIVE",`, `{}`, true},
		{``, `{}`, true},
		{`"concurrency_class":{"shell":"line"},`, `{"line":"ls -la"}`, false},
		{`"concurrency_class":{"shell":"line"},`, `{"line":"rm x"}`, true},
		{`"concurrency_class":{"shell":"line"},`, `{}`, true},
	} {
		var got *sandbox.Workspace
		box := acts{run: func(p sandbox.Policy, _ sandbox.Command, _ sandbox.Streams) (sandbox.Result, error) {
			got = p.Workspace
			return sandbox.Result{Reason: sandbox.Exited}, nil
		}}
		if _, err := declared(t, box, c.more, `{"argv":["p","{line}"]}`).Run(t.Context(), env("/tmp"),
			json.RawMessage(c.input)); err != nil || got.Writable != c.writable {
			t.Errorf("%s %s: %+v, %v", c.more, c.input, got, err)
		}
	}
	var got *sandbox.Workspace
	box := acts{run: func(p sandbox.Policy, _ sandbox.Command, _ sandbox.Streams) (sandbox.Result, error) {
		got = p.Workspace
		return sandbox.Result{Reason: sandbox.Exited}, nil
	}}
	if _, err := declared(t, box, `"uses_workspace":false,`, `{"argv":["p"]}`).Run(t.Context(), env(""),
		json.RawMessage(`{}`)); err != nil || got != nil {
		t.Errorf("a command without a workspace got %+v, %v", got, err)
	}
}

// TestHowACommandEnds: each end has its code.
func TestHowACommandEnds(t *testing.T) {
	for name, c := range map[string]struct {
		box     acts
		command string
		want    toolyard.Code
		words   string
	}{
		"a status": {acts{run: ends(sandbox.Result{ExitCode: 4, Reason: sandbox.Exited}, "some output",
			"no such city\n")}, `{"argv":["p"]}`, toolyard.ExecutionFailed, "no such city\nsome output"},
		"without words": {acts{run: ends(sandbox.Result{ExitCode: 4, Reason: sandbox.Exited}, "some output", "")},
			`{"argv":["p"]}`, toolyard.ExecutionFailed, "some output"},
		"its time": {acts{run: ends(sandbox.Result{Reason: sandbox.Timeout}, "", "")}, `{"argv":["p"]}`,
			toolyard.Timeout, "time limit"},
		"lost": {acts{run: ends(sandbox.Result{Reason: sandbox.SandboxLost}, "", "")}, `{"argv":["p"]}`,
			toolyard.OutcomeUnknown, "nobody knows"},
		"no JSON": {acts{run: ends(sandbox.Result{Reason: sandbox.Exited}, "{]", "")},
			`{"argv":["p"],"output":"json"}`, toolyard.ResultMappingFailed, "JSON"},
		"no isolation": {acts{probe: sandbox.ErrNoIsolation}, `{"argv":["p"]}`, toolyard.SetupRequired,
			"cannot isolate"},
		"no program": {acts{run: func(sandbox.Policy, sandbox.Command, sandbox.Streams) (sandbox.Result, error) {
			return sandbox.Result{}, sandbox.ErrNotStarted
		}}, `{"argv":["p"]}`, toolyard.SetupRequired, `no program "p"`},
		"an option": {acts{}, `{"argv":["p","{a}"]}`, toolyard.InvalidArguments, "option"},
	} {
		out, err := declared(t, c.box, "", c.command).Run(t.Context(), env("/tmp"), json.RawMessage(`{"a":"-x"}`))
		if e := tool.AsError(errors.Join(err)); err == nil || e.Code != c.want ||
			!strings.Contains(e.Message+"\n"+out.Text, c.words) {
			t.Errorf("%s: %v, %q, want %s with %q", name, err, out.Text, c.want, c.words)
		}
	}
	out, err := declared(t, acts{run: ends(sandbox.Result{Reason: sandbox.Exited}, `{"n":12345678901234567890}`, "")},
		"", `{"argv":["p"],"output":"json"}`).Run(t.Context(), env("/tmp"), json.RawMessage(`{}`))
	if err != nil || string(out.Structured) != `{"n":12345678901234567890}` {
		t.Errorf("JSON: %s, %v", out.Structured, err)
	}
	x := declared(t, acts{}, `"credentials":["OTHER"],`, `{"argv":["p"]}`)
	if err := x.Check(t.Context(), env("/tmp"),
		json.RawMessage(`{}`)); tool.AsError(err).Code != toolyard.SetupRequired {
		t.Errorf("a credential that is not granted: %v", err)
	}
}

func ends(res sandbox.Result, stdout, stderr string) func(sandbox.Policy, sandbox.Command,
	sandbox.Streams) (sandbox.Result, error) {
	return func(_ sandbox.Policy, _ sandbox.Command, s sandbox.Streams) (sandbox.Result, error) {
		_, err1 := io.WriteString(s.Stdout, stdout)
		_, err2 := io.WriteString(s.Stderr, stderr)
		return res, errors.Join(err1, err2)
	}
}

// TestLinesOfStderrAreProgress, and so is any output.
func TestLinesOfStderrAreProgress(t *testing.T) {
	box := acts{run: func(_ sandbox.Policy, _ sandbox.Command, s sandbox.Streams) (sandbox.Result, error) {
		for _, piece := range []string{"half ", "done\nnext\nre", "st"} {
			if _, err := io.WriteString(s.Stderr, piece); err != nil {
				return sandbox.Result{}, err
			}
		}
		_, err := io.WriteString(s.Stdout, "out")
		return sandbox.Result{Reason: sandbox.Exited}, err
	}}
	e := env("/tmp")
	var mu sync.Mutex
	var seen []string
	e.Progress = func(p tool.Progress) { mu.Lock(); defer mu.Unlock(); seen = append(seen, p.Status) }
	if _, err := declared(t, box, "", `{"argv":["p"]}`).Run(t.Context(), e, json.RawMessage(`{}`)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []string{"", "next", "", ""}) {
		t.Errorf("the progress is %q", seen)
	}
}

// TestACommandInTheSandbox runs real ones; where nothing can isolate them, none runs.
func TestACommandInTheSandbox(t *testing.T) {
	box, err := sandbox.Open(sandbox.Options{})
	must.OK(t, err)
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "a; touch b"), []byte("one two three"), 0o644))
	count := declared(t, box, `"concurrency_class":"READ_ONLY",`, `{"argv":["wc","-w","--","{a}"]}`)
	fails := declared(t, box, "",
		`{"argv":["sh","-c","echo said >&2; cat /run/secrets/KEY; touch made; exit 3"],"stdin":"none"}`)
	asks := declared(t, box, "", `{"argv":["sh","-c","cat; echo $TOOLYARD_IDEMPOTENCY_KEY"],"stdin":"json"}`)
	if _, err := box.Probe(t.Context()); err != nil {
		if _, err := count.Run(t.Context(), env(dir),
			json.RawMessage(`{"a":"a; touch b"}`)); tool.AsError(err).Code != toolyard.SetupRequired {
			t.Errorf("without isolation: %v", err)
		}
		return
	}
	out, err := count.Run(t.Context(), env(dir), json.RawMessage(`{"a":"a; touch b"}`))
	if err != nil || !strings.HasPrefix(strings.TrimSpace(out.Text), "3 ") {
		t.Errorf("it counts %q, %v", out.Text, err)
	}
	if out, err = asks.Run(t.Context(), env(dir), json.RawMessage(`{"a":"b"}`)); err != nil ||
		out.Text != "{\"a\":\"b\"}ty-1\n" {
		t.Errorf("it reads %q, %v", out.Text, err)
	}
	if out, err = fails.Run(t.Context(), env(dir),
		json.RawMessage(`{}`)); tool.AsError(err).Code != toolyard.ExecutionFailed ||
		!strings.HasPrefix(out.Text, "said\n") {
		t.Errorf("it fails with %v, %q", err, out.Text)
	}
	if _, err := os.Stat(filepath.Join(dir, "b")); err == nil {
		t.Error("a value was read as a command")
	}
}

// TestAnAnswerIsNoFailure: a declared grep that finds nothing has answered.
func TestAnAnswerIsNoFailure(t *testing.T) {
	for _, c := range []struct {
		argv, want string
		status     int
	}{
		{`["grep","-rn","--","{a}","."]`, "[exit status 1: nothing was found]", 1},
		{`["/usr/bin/diff","a","b"]`, "[exit status 1: there are differences]", 1},
		{`["grep","x","f"]`, "", 2}, {`["wc","f"]`, "", 1},
	} {
		x := declared(t, acts{run: ends(sandbox.Result{ExitCode: c.status, Reason: sandbox.Exited}, "", "")}, "",
			`{"argv":`+c.argv+`}`)
		out, err := x.Run(t.Context(), env("/tmp"), json.RawMessage(`{"a":"y"}`))
		if (err == nil) != (c.want != "") || out.Text != c.want {
			t.Errorf("%s: %q, %v; want %q", c.argv, out.Text, err, c.want)
		}
	}
}

// TestOutputThatItsLimitCutsHasNoHalfASecret: the end of the stream that was cut goes, and the other one stays.
func TestOutputThatItsLimitCutsHasNoHalfASecret(t *testing.T) {
	secret := strings.Repeat("7", 40)
	called := env("/tmp")
	called.Redact = func(text string) string { return strings.ReplaceAll(text, secret, "[redacted]") }
	for name, want := range map[string]string{
		"stdout": "no such host 9\nkey [redacted]",
		"stderr": "key [redacted]\nno such host 9",
	} {
		box := acts{run: func(_ sandbox.Policy, _ sandbox.Command, s sandbox.Streams) (sandbox.Result, error) {
			full, other := s.Stdout, s.Stderr
			if name == "stderr" {
				full, other = other, full
			}
			_, err := io.WriteString(other, "no such host 9")
			_, more := io.WriteString(full, "key "+secret+" and "+secret[:30])
			return sandbox.Result{Reason: sandbox.OutputLimit, ExitCode: -1}, errors.Join(err, more)
		}}
		out, err := declared(t, box, "", `{"argv":["p"]}`).Run(t.Context(), called, json.RawMessage(`{}`))
		if err == nil || out.Text != want {
			t.Errorf("%s is full: %q, %v, want %q", name, out.Text, err, want)
		}
	}
}
