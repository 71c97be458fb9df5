//go:build unix

package builtin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/tool"
)

// acts is a backend that does what a test says.
type acts struct {
	probe error
	run   func(sandbox.Policy, sandbox.Command, sandbox.Streams) (sandbox.Result, error)
}

func (acts) Name() string { return "acts" }
func (a acts) Probe(context.Context) (sandbox.Capabilities, error) {
	return sandbox.Capabilities{Backend: "acts", Layers: []string{"pid"}}, a.probe
}
func (a acts) Run(_ context.Context, p sandbox.Policy, c sandbox.Command, s sandbox.Streams) (sandbox.Result, error) {
	return a.run(p, c, s)
}

func TestBashNeedsASandbox(t *testing.T) {
	b := newBench(t)
	command := in{"command": "touch ran", "timeout_ms": 1000, "description": "Makes a file"}
	message := b.refused(toolyard.SetupRequired, "bash", command)
	b.contains(message, "this worker cannot isolate commands")
	check := b.tools["bash"].Check(t.Context(), b.env, encode(command))
	if e := tool.AsError(check); e.Err == nil || !strings.Contains(e.Err.Error(), "worker check") ||
		strings.Contains(e.Message, "worker check") {
		t.Errorf("the operator reads %v, the model %q", e.Err, e.Message)
	}
	if names := b.names(); names != "." {
		t.Errorf("something ran: %s", names)
	}
	if d := b.tools["bash"].Declaration; d.ReadOnly || d.Class.Shell != "command" || d.Specifier.Command != "command" ||
		!d.NeedsPermission() {
		t.Errorf("declared as %+v", d)
	}
	for _, bad := range []in{
		{"command": ""}, {"command": " \n"}, {"command": "a\x00b"}, {"command": strings.Repeat("x", MaxCommandBytes+1)},
		{"command": "ls", "timeout_ms": 0}, {"command": "ls", "timeout_ms": MaxBashTimeout.Milliseconds() + 1},
		{"command": "ls", "description": strings.Repeat("x", MaxDescriptionBytes+1)},
	} {
		b.refused(toolyard.InvalidArguments, "bash", bad)
	}
}

func TestBashAsksForNoMoreThanACommandNeeds(t *testing.T) {
	b := newBench(t)
	var policy sandbox.Policy
	var command sandbox.Command
	box := acts{run: func(p sandbox.Policy, c sandbox.Command, s sandbox.Streams) (sandbox.Result, error) {
		policy, command = p, c
		_, err := s.Stdout.Write([]byte("said"))
		return sandbox.Result{Reason: sandbox.Exited}, err
	}}
	bash, err := bash(box, sandbox.Policy{Limits: sandbox.Limits{Memory: 1 << 20}}, nil)
	b.must(err)
	b.tools["bash"] = bash
	for text, writable := range map[string]bool{"ls -la": false, "cat a | grep b": false, "touch a": true,
		"ls > a": true, "ls $(rm a)": true, "'": true} {
		if got := b.ok("bash", in{"command": text, "timeout_ms": 5000}); got != "said" {
			t.Errorf("%s: %q", text, got)
		}
		if policy.Workspace.Writable != writable || policy.Workspace.Root != b.env.Root ||
			policy.Limits.Wall != 5*time.Second || policy.Limits.Memory != 1<<20 ||
			len(policy.Network.Allow) > 0 || len(policy.Env) > 0 ||
			!slices.Equal(command.Argv, []string{"bash", "-c", text}) {
			t.Errorf("%s: %+v %+v", text, policy, command)
		}
	}
}

// TestBashTellsItsOutputAsItComes: both streams, while the command runs.
func TestBashTellsItsOutputAsItComes(t *testing.T) {
	b := newBench(t)
	var told []string
	b.env.Progress = func(p tool.Progress) {
		if p.Fraction >= 0 {
			t.Errorf("nobody knows how far a command is, and %g is told", p.Fraction)
		}
		told = append(told, p.Output)
	}
	box := acts{run: func(_ sandbox.Policy, _ sandbox.Command, s sandbox.Streams) (sandbox.Result, error) {
		for i, w := range []io.Writer{s.Stdout, s.Stderr, s.Stdout} {
			if _, err := fmt.Fprintf(w, "piece %d", i); err != nil || len(told) != i+1 {
				t.Errorf("told %q after piece %d, %v", told, i, err)
			}
		}
		return sandbox.Result{Reason: sandbox.Exited}, nil
	}}
	bashed, err := bash(box, sandbox.Policy{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := bashed.Run(t.Context(), b.env, encode(in{"command": "make"}))
	if want := []string{"piece 0", "piece 1", "piece 2"}; err != nil || !slices.Equal(told, want) ||
		out.Text != strings.Join(want, "") {
		t.Errorf("told %q, and in the end %q, %v", told, out.Text, err)
	}
}

// TestBashSaysWhereARepositoryCanBe: git's own words about a placeholder would send a model anywhere.
func TestBashSaysWhereARepositoryCanBe(t *testing.T) {
	for text, says := range map[string]bool{
		"fatal: cannot copy 'x' to '/ws/.git/description': Read-only file system":   true,
		"fatal: destination path '.' already exists and is not an empty directory.": true,
		"make: *** No rule to make target 'x'. Stop.":                               false,
	} {
		for _, held := range []bool{true, false} {
			err := tool.AsError(CommandEnded(t.Context(),
				sandbox.Result{Reason: sandbox.Exited, ExitCode: 128, Held: held}, sandbox.Limits{}, time.Second, text))
			if strings.Contains(err.Message, "below it") != (says && held) || err.Code != toolyard.ExecutionFailed {
				t.Errorf("held %t: %s", held, err.Message)
			}
		}
	}
}

// TestBashDoesNotSayThatAllHasEnded where something may not be killed.
func TestBashDoesNotSayThatAllHasEnded(t *testing.T) {
	for left, says := range map[string]string{
		"": "nothing that it started runs on", "kill process 1: not permitted": "may run on",
	} {
		res := sandbox.Result{Reason: sandbox.Timeout, Left: left}
		err := tool.AsError(CommandEnded(t.Context(), res, sandbox.Limits{}, time.Second, ""))
		if err.Code != toolyard.Timeout || !strings.Contains(err.Message, says) || left != "" && err.Err == nil {
			t.Errorf("%q: %v", left, err)
		}
		res.Reason = sandbox.Exited
		if err := CommandEnded(t.Context(), res, sandbox.Limits{}, time.Second, ""); err != nil {
			t.Errorf("%q: it has succeeded: %v", left, err)
		}
	}
}

func TestBashTellsEndsApart(t *testing.T) {
	b := newBench(t)
	for _, tt := range []struct {
		res  sandbox.Result
		err  error
		code toolyard.Code
		says []string
	}{
		{sandbox.Result{Reason: sandbox.Exited, ExitCode: 3}, nil, toolyard.ExecutionFailed, []string{"exit status 3"}},
		{sandbox.Result{Reason: sandbox.ObjectLimit, Detail: "more than 1024"}, nil, toolyard.ExecutionFailed,
			[]string{"sockets"}},
		{sandbox.Result{Reason: sandbox.DiskLimit, Detail: "full"}, nil, toolyard.ExecutionFailed,
			[]string{"the disk under the workspace"}},
		{sandbox.Result{Reason: sandbox.Exited, ExitCode: -1, Signal: 11}, nil, toolyard.ExecutionFailed,
			[]string{"signal 11"}},
		{sandbox.Result{Reason: sandbox.Timeout}, nil, toolyard.Timeout, []string{"1.5s"}},
		{sandbox.Result{Reason: sandbox.OutOfMemory}, nil, toolyard.ExecutionFailed, []string{"512 MiB of memory"}},
		{sandbox.Result{Reason: sandbox.CPULimit}, nil, toolyard.ExecutionFailed, []string{"CPU time"}},
		{sandbox.Result{Reason: sandbox.OutputLimit}, nil, toolyard.ExecutionFailed, []string{"1048576 bytes"}},
		{sandbox.Result{Reason: sandbox.SandboxLost}, nil, toolyard.OutcomeUnknown, []string{"nobody knows"}},
		{sandbox.Result{Reason: sandbox.Trespass, Detail: "it made .envrc"}, nil, toolyard.SandboxViolation,
			[]string{"it made .envrc"}},
		{err: fmt.Errorf("%w: no namespaces", sandbox.ErrNoIsolation), code: toolyard.SetupRequired,
			says: []string{"cannot isolate"}},
		{err: fmt.Errorf("%w: .git is a symbolic link", sandbox.ErrViolation), code: toolyard.SandboxViolation,
			says: []string{".git is a symbolic link"}},
		{err: fmt.Errorf("%w: bash", sandbox.ErrNotStarted), code: toolyard.SetupRequired,
			says: []string{"neither bash nor sh"}},
		{err: sandbox.ErrBusy, code: toolyard.DependencyUnavailable, says: []string{"could not be started"}},
	} {
		bash, err := bash(acts{run: func(_ sandbox.Policy, _ sandbox.Command, s sandbox.Streams) (sandbox.Result,
			error) {
			if tt.err == nil {
				_, err := s.Stderr.Write([]byte("the output\n"))
				b.must(err)
			}
			return tt.res, tt.err
		}}, sandbox.Policy{}, nil)
		b.must(err)
		b.tools["bash"] = bash
		out, err := bash.Run(t.Context(), b.env, encode(in{"command": "x", "timeout_ms": 1500}))
		e := tool.AsError(err)
		if e.Code != tt.code || (tt.err == nil) != (out.Text == "the output\n") {
			t.Errorf("%+v %v: %s, output %q", tt.res, tt.err, e, out.Text)
		}
		for _, s := range tt.says {
			b.contains(e.Message, s)
		}
	}
}

// TestShReadsNothingThatWasJudgedAsBash: without bash, sh runs only what it reads in the same way. Else a command that
// Bash would only read with could remove a file.
func TestShReadsNothingThatWasJudgedAsBash(t *testing.T) {
	for command, runs := range map[string]bool{
		"for x in rm; do [[ a || $x == f ]]; done": false, "echo $'a\\'; rm f #'": false, "ls | head -3 2>&1": true,
	} {
		b := newBench(t)
		ran := false
		bash, err := bash(acts{run: func(_ sandbox.Policy, c sandbox.Command, _ sandbox.Streams) (sandbox.Result,
			error) {
			if c.Argv[0] == "bash" {
				return sandbox.Result{}, sandbox.ErrNotStarted
			}
			ran = true
			return sandbox.Result{Reason: sandbox.Exited}, nil
		}}, sandbox.Policy{}, nil)
		b.must(err)
		_, err = bash.Run(t.Context(), b.env, encode(in{"command": command}))
		if ran != runs || runs != (err == nil) {
			t.Errorf("%q: sh ran it: %t, %v", command, ran, err)
		}
		if err != nil {
			b.contains(tool.AsError(err).Message, "only Bash")
		}
	}
}

// TestAFailedCommandsOutputIsItsOutput: it is beside the error and not in it, with the limits of a success.
func TestAFailedCommandsOutputIsItsOutput(t *testing.T) {
	b := newBench(t)
	said := strings.Repeat("line\n", 5_000)
	bash, err := bash(acts{run: func(_ sandbox.Policy, _ sandbox.Command, s sandbox.Streams) (sandbox.Result, error) {
		_, err := io.WriteString(s.Stdout, said)
		return sandbox.Result{Reason: sandbox.Exited, ExitCode: 1}, err
	}}, sandbox.Policy{}, nil)
	b.must(err)
	out, err := bash.Run(t.Context(), b.env, encode(in{"command": "seq 1 5000; exit 1"}))
	if e := tool.AsError(err); out.Text != said || e.Message != "the command ended with exit status 1" {
		t.Errorf("%d bytes of output, the error has %d: %.80q", len(out.Text), len(e.Message), e.Message)
	}
}

// TestAnAnswerIsNoFailure: exit status 1 of a search or a test is an answer.
func TestAnAnswerIsNoFailure(t *testing.T) {
	for _, c := range []struct {
		command, said, want string
		res                 sandbox.Result
	}{
		{"grep x f", "", "[exit status 1: nothing was found]", sandbox.Result{ExitCode: 1}},
		{"cd src && grep -rn x . | sort | grep y", "", "[exit status 1: nothing was found]",
			sandbox.Result{ExitCode: 1}},
		{"test -f x", "", "[exit status 1: the test is false]", sandbox.Result{ExitCode: 1}},
		{"diff a b", "1c1\n< a", "1c1\n< a\n[exit status 1: there are differences]", sandbox.Result{ExitCode: 1}},
		{"grep x f", "grep: f: No such file", "", sandbox.Result{ExitCode: 2}},
		{"grep x f", "", "", sandbox.Result{ExitCode: 1, Reason: sandbox.OutputLimit}},
		{"cd src && grep x f", "bash: line 1: cd: src: No such file or directory\n", "", sandbox.Result{ExitCode: 1}},
		{"npm test", "", "", sandbox.Result{ExitCode: 1}},
	} {
		b := newBench(t)
		bash, err := bash(acts{run: func(_ sandbox.Policy, _ sandbox.Command, s sandbox.Streams) (sandbox.Result,
			error) {
			_, err := io.WriteString(s.Stdout, c.said)
			if c.res.Reason == "" {
				c.res.Reason = sandbox.Exited
			}
			return c.res, err
		}}, sandbox.Policy{}, nil)
		b.must(err)
		out, err := bash.Run(t.Context(), b.env, encode(in{"command": c.command}))
		if (err == nil) != (c.want != "") || err == nil && out.Text != c.want {
			t.Errorf("%s: %q, %v; want %q", c.command, out.Text, err, c.want)
		}
	}
}

// TestOutputThatItsLimitCutsHasNoHalfASecret: half a secret is not recognised by who removes secrets, and the tail of a
// long output is shown.
func TestOutputThatItsLimitCutsHasNoHalfASecret(t *testing.T) {
	b := newBench(t)
	secret := strings.Repeat("7", 40)
	b.env.Redact = func(text string) string { return strings.ReplaceAll(text, secret, "[redacted]") }
	lines := strings.Repeat("line "+secret+"\n", 1_000)
	for _, cut := range []string{secret[:39], secret[:20], "\xc3"} {
		bash, err := bash(acts{run: func(_ sandbox.Policy, _ sandbox.Command, s sandbox.Streams) (sandbox.Result,
			error) {
			_, err := io.WriteString(s.Stdout, lines+cut)
			return sandbox.Result{Reason: sandbox.OutputLimit, ExitCode: -1}, err
		}}, sandbox.Policy{}, nil)
		b.must(err)
		out, err := bash.Run(t.Context(), b.env, encode(in{"command": "cat log"}))
		if err == nil || strings.Contains(out.Text, "7") || !utf8.ValidString(out.Text) {
			t.Errorf("cut in %q: %v, the end is %q", cut, err, out.Text[max(0, len(out.Text)-60):])
		}
		if !strings.HasPrefix(b.env.Redact(lines), out.Text) || strings.Count(out.Text, "line [redacted]\n") < 700 {
			t.Errorf("cut in %q: %d bytes are left", cut, len(out.Text))
		}
	}
}
