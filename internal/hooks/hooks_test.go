//go:build unix

package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// rig is a set of hooks in its own directory, which is also the workspace.
type rig struct {
	t   *testing.T
	dir string
	log bytes.Buffer
	env map[string]string
	// callTool calls the tools of MCP servers.
	callTool CallTool
}

func newRig(t *testing.T) *rig {
	return &rig{t: t, dir: t.TempDir(), env: map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/home/u",
		"SECRET_TOKEN": "tok", "GIVEN": "given"}}
}

// set makes the set; config is the part under "hooks".
func (r *rig) set(config string, funcs ...Func) *Set {
	r.t.Helper()
	c, err := Read([]byte(`{"hooks": ` + config + `}`))
	must.OK(r.t, err)
	s, err := New(Options{Config: c, Funcs: funcs, Dir: "/etc/hooks", Mode: policy.AcceptEdits,
		Declarations: declarations(), CallTool: r.callTool, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		LookupEnv: func(name string) (string, bool) { v, ok := r.env[name]; return v, ok }})
	must.OK(r.t, err)
	return s
}

// hook is one command hook for an event.
func hook(event Event, command string, more ...string) string {
	fields := append([]string{`"type": "command"`, `"command": ` + quote(command)}, more...)
	return fmt.Sprintf(`{%q: [{"hooks": [{%s}]}]}`, event, strings.Join(fields, ", "))
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (r *rig) write(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	must.OK(r.t, os.WriteFile(path, []byte(text), 0o755))
	return path
}

func (r *rig) read(name string) string {
	r.t.Helper()
	b := must.Read(r.t, filepath.Join(r.dir, name))
	return string(b)
}

func (r *rig) input(name, input string) pipeline.HookInput {
	root, err := place.Hold(r.dir, nil)
	must.OK(r.t, err)
	r.t.Cleanup(func() { _ = root.Close() })
	return pipeline.HookInput{
		CallContext: pipeline.CallContext{
			Key: toolyard.BatchKey{Agent: "agent-1", ID: "b-1"}, Index: 3, Session: "s-1", Workspace: "ws",
			WorkspaceDir: r.dir, Root: root,
		},
		CallID: "toolu_01", Tool: name,
		Judgement: tool.Judgement{Class: toolyard.Unsafe, Destructive: true}, Input: json.RawMessage(input),
		InputHash: "abc",
	}
}

func (r *rig) pre(s *Set, name, input string) pipeline.HookVerdict {
	r.t.Helper()
	v, err := s.Pre(r.t.Context(), r.input(name, input))
	must.OK(r.t, err)
	return v
}

// TestWhatACommandIsTold: the event on stdin in Claude Code's form, and the environment.
func TestWhatACommandIsTold(t *testing.T) {
	r := newRig(t)
	s := r.set(fmt.Sprintf(`{"PreToolUse": [{"hooks": [{"type": "command", "command": "cat > told.json; env > env.txt; pwd > pwd.txt", "allowedEnvVars": ["GIVEN", "UNSET"]}]}],
		"PostToolUse": [{"hooks": [%s]}], "PostToolUseFailure": [{"hooks": [%[1]s]}]}`, `{"type": "command", "command": "cat > told.json"}`))
	told := func() map[string]any {
		var m map[string]any
		must.OK(t, json.Unmarshal([]byte(r.read("told.json")), &m))
		return m
	}
	r.pre(s, "write_file", `{"content":"<x>","file_path":"a/../b.txt"}`)
	want := map[string]any{
		"session_id": "s-1", "transcript_path": "", "cwd": r.dir, "permission_mode": "acceptEdits",
		"hook_event_name": "PreToolUse",
		"tool_name":       "Write", "tool_use_id": "toolu_01",
		"tool_input": map[string]any{"content": "<x>", "file_path": filepath.Join(r.dir, "b.txt")},
		"toolyard": map[string]any{"agent": "agent-1", "batch": "b-1", "session": "s-1", "workspace": "ws",
			"tool": "write_file", "index": 3., "call_id": "toolu_01",
			"input_hash": "abc", "interactive": false, "judgement": map[string]any{"class": "UNSAFE",
				"destructive": true}},
	}
	if d := cmp.Diff(want, told()); d != "" {
		t.Errorf("before the call (-want +got):\n%s", d)
	}
	if pwd, err := filepath.EvalSymlinks(strings.TrimSpace(r.read("pwd.txt"))); err != nil || pwd != r.dir {
		t.Errorf("it ran in %s: %v", pwd, err)
	}
	env := map[string]string{}
	for line := range strings.Lines(r.read("env.txt")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	// the shell's, and what its processes are found by
	for _, own := range []string{"PWD", "SHLVL", "_", "OLDPWD", "TOOLYARD_LAUNCH"} {
		delete(env, own)
	}
	if d := cmp.Diff(map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/home/u", "GIVEN": "given",
		"CLAUDE_PROJECT_DIR": r.dir, "TOOLYARD_HOOKS_DIR": "/etc/hooks"}, env); d != "" {
		t.Errorf("the environment (-want +got):\n%s", d)
	}

	after := func(in pipeline.HookInput, o pipeline.HookOutcome) map[string]any {
		in.Outcome = o
		if _, err := s.Post(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		return told()
	}
	m := after(r.input("bash", `{"command":"ls"}`), pipeline.HookOutcome{Output: "a\n", ExecuteMS: 12.7})
	if d := cmp.Diff(map[string]any{"stdout": "a\n", "stderr": "", "interrupted": false, "isImage": false},
		m["tool_response"]); d != "" || m["duration_ms"] != 12. || m["tool_name"] != "Bash" {
		t.Errorf("after bash: %v", m)
	}
	m = after(r.input("edit_file", `{"file_path":"x.go"}`), pipeline.HookOutcome{Output: "done"})
	if d := cmp.Diff(map[string]any{"filePath": r.dir + "/x.go", "success": true, "output": "done"},
		m["tool_response"]); d != "" {
		t.Errorf("after edit_file: %s", d)
	}
	in := r.input("mcp__a__b", `{}`)
	in.CallID, in.Session = "", ""
	m = after(in, pipeline.HookOutcome{Output: "text"})
	if d := cmp.Diff(map[string]any{"output": "text"}, m["tool_response"]); d != "" || m["tool_name"] != "mcp__a__b" ||
		m["tool_use_id"] != "agent-1/b-1/3" || m["session_id"] != "agent-1" {
		t.Errorf("after a tool of MCP: %v", m)
	}
	m = after(in, pipeline.HookOutcome{IsError: true, Code: toolyard.Canceled, Error: "stopped"})
	if m["hook_event_name"] != "PostToolUseFailure" || m["error"] != "stopped" || m["is_interrupt"] != true ||
		m["tool_response"] != nil || m["toolyard"].(map[string]any)["code"] != "canceled" {
		t.Errorf("after a failure: %v", m)
	}
}

// TestHooksRunInOrder: each sees what the one before has left, and the pipeline gets the last version.
func TestHooksRunInOrder(t *testing.T) {
	r := newRig(t)
	s := r.set(`{"PreToolUse": [
		{"matcher": "Bash", "hooks": [
			{"type": "command", "command": "jq '{hookSpecificOutput: {updatedInput: (.tool_input + {command: (.tool_input.command + \" b\")}), additionalContext: \"one\"}}'"},
			{"type": "command", "command": "jq '{hookSpecificOutput: {updatedInput: (.tool_input + {command: (.tool_input.command + \" c\")})}}'", "if": "Bash(go b:*)"},
			{"type": "command", "command": "exit 9", "if": "Bash(make *)"}]},
		{"matcher": "Write", "hooks": [{"type": "command", "command": "exit 9"}]}]}`,
		Func{Name: "go", Event: PreToolUse, Matcher: "bash",
			Run: func(_ context.Context, in pipeline.HookInput) (pipeline.HookVerdict, error) {
				var m map[string]any
				if err := json.Unmarshal(in.Input, &m); err != nil {
					return pipeline.HookVerdict{}, err
				}
				in.Input[0] = 'x' // its own copy
				m["command"] = "go"
				b, err := json.Marshal(m)
				return pipeline.HookVerdict{Input: b}, err
			}})
	in := r.input("bash", `{"command":"a","description":"d"}`)
	v, err := s.Pre(t.Context(), in)
	if err != nil || string(v.Input) != `{"command":"go b c","description":"d"}` || v.Context != "one" ||
		v.By != "go, hooks.PreToolUse[0].hooks[0], hooks.PreToolUse[0].hooks[1]" {
		t.Errorf("%s %+v, %v", v.Input, v, err)
	}
	if string(in.Input) != `{"command":"a","description":"d"}` {
		t.Errorf("a hook changed what it was shown: %s", in.Input)
	}
	post := r.set(`{"PostToolUse": [{"hooks": [
		{"type": "command", "command": "jq '{hookSpecificOutput: {updatedToolOutput: (.tool_response + {stdout: (.tool_response.stdout + \"b\")})}}'"},
		{"type": "command", "command": "jq '{hookSpecificOutput: {updatedToolOutput: (.tool_response.stdout + \"c\")}}'"}]}]}`)
	in.Outcome.Output = "a"
	if v, err := post.Post(t.Context(), in); err != nil || v.Output == nil || *v.Output != "abc" {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestAPathThatWasMadeAbsolute: a path that a hook does not change is returned as the model wrote it.
func TestAPathThatWasMadeAbsolute(t *testing.T) {
	r := newRig(t)
	const echo = `jq '{hookSpecificOutput: {updatedInput: .tool_input}}'`
	if v := r.pre(r.set(hook(PreToolUse, echo)), "write_file",
		`{"content":"x","file_path":"./b.txt"}`); string(v.Input) != `{"content":"x","file_path":"./b.txt"}` {
		t.Errorf("sent back as it was: %s", v.Input)
	}
	if v := r.pre(r.set(hook(PreToolUse, `jq '{hookSpecificOutput: {updatedInput: (.tool_input + {content: "y"})}}'`)),
		"write_file", `{"content":"x","file_path":"b.txt"}`); string(v.Input) != `{"content":"y","file_path":"b.txt"}` {
		t.Errorf("with other content: %s", v.Input)
	}
	if v := r.pre(r.set(hook(PreToolUse,
		`jq '{hookSpecificOutput: {updatedInput: (.tool_input + {file_path: "/other"})}}'`)), "write_file",
		`{"content":"x","file_path":"b.txt"}`); string(v.Input) != `{"content":"x","file_path":"/other"}` {
		t.Errorf("with another path: %s", v.Input)
	}
}

// TestWhatWasSeenInPart: a text of which a hook saw only a part must come back unchanged or completely new.
func TestWhatWasSeenInPart(t *testing.T) {
	r := newRig(t)
	const cut, redacted = `abc… [cut: 5000 bytes in all]`, `curl -H [redacted: TOKEN] x`
	for _, c := range []struct{ input, change, want string }{
		{cut, `.tool_input`, ""},
		{cut, `.tool_input + {description: "d"}`, ""},
		{cut, `.tool_input + {content: "new"}`, ""},
		{cut, `.tool_input + {content: (.tool_input.content + "\n")}`, "updatedInput.content was changed"},
		{redacted, `.tool_input + {content: ("sudo " + .tool_input.content)}`, "updatedInput.content was changed"},
		{redacted, `{content: "x", more: [{"a": .tool_input.content}]}`, "updatedInput.more[0].a was changed"},
		{redacted, `{(.tool_input.content): 1}`, "in a name"},
	} {
		s := r.set(hook(PreToolUse, `jq '{hookSpecificOutput: {updatedInput: (`+c.change+`)}}'`))
		_, err := s.Pre(t.Context(), r.input("x", `{"content":`+quote(c.input)+`}`))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.change, err, c.want)
		}
	}
}

// TestBrokenHooks: however a hook breaks, the operator's setting decides what happens.
func TestBrokenHooks(t *testing.T) {
	broken := map[string]string{
		"exit status":  "exit status 3: oops",
		"no command":   "exit status 127",
		"killed":       "ended by a signal",
		"bad JSON":     "not JSON",
		"too much":     "more than 1048576 bytes to stdout",
		"late":         "it did not answer within 50ms",
		"wrong event":  "hookEventName",
		"bad input":    "updatedInput: want object",
		"no directory": "was replaced since the worker started",
	}
	for name, command := range map[string]string{
		"exit status": "echo oops >&2; exit 3", "no command": "./gone", "killed": "kill -9 $$",
		"bad JSON": "echo '{x}'", "too much": "head -c 1048577 /dev/zero; sleep 0",
		"late": "sleep 60", "wrong event": `echo '{"hookSpecificOutput": {"hookEventName": "Stop"}}'`,
		"bad input": `echo '{"hookSpecificOutput": {"updatedInput": 1}}'`, "no directory": "true",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			in := r.input("bash", `{"command":"ls"}`)
			if name == "no directory" {
				if err := os.Rename(r.dir, r.dir+"-gone"); err != nil { // the rig's directory goes with the test's
					t.Fatal(err)
				}
			}
			limit := `"timeout": 30`
			if name == "late" {
				limit = `"timeout": 0.05`
			}
			if v, err := r.set(hook(PreToolUse, command, limit)).Pre(t.Context(), in); err == nil ||
				!strings.HasPrefix(err.Error(), "hooks.PreToolUse[0].hooks[0]: ") ||
				(!strings.Contains(err.Error(), broken[name]) && name != "bad JSON") {
				t.Errorf("block: %+v, %v; want %q", v, err, broken[name])
			}
			if v, err := r.set(hook(PreToolUse, command, limit, `"on_failure": "continue"`)).Pre(t.Context(),
				in); err != nil || v.Block || v.Input != nil {
				t.Errorf("continue: %+v, %v", v, err)
			}
			if !strings.Contains(r.log.String(), "a hook broke and is left out") {
				t.Errorf("the log does not say so: %s", r.log.String())
			}
			if name == "bad input" || name == "wrong event" {
				return // after the call another event is right
			}
			if v, err := r.set(hook(PostToolUse, command, limit)).Post(t.Context(), in); err != nil || v.Block {
				t.Errorf("behind a call: %+v, %v", v, err)
			}
			if v, err := r.set(hook(PostToolUse, command, limit, `"on_failure": "block"`)).Post(t.Context(),
				in); err == nil {
				t.Errorf("block behind a call: %+v", v)
			}
			if v, err := r.set(hook(PostToolUse, command, limit, `"on_failure": "withhold"`)).Post(t.Context(),
				in); err != nil || !v.Block {
				t.Errorf("withhold: %+v, %v", v, err)
			}
		})
	}
}

// TestAnOutputThatWasReplacedStaysSo: a later hook that breaks does not bring the tool's own output back.
func TestAnOutputThatWasReplacedStaysSo(t *testing.T) {
	r := newRig(t)
	s := r.set(`{"PostToolUse": [{"hooks": [{"type": "command", "command": "echo '{\"hookSpecificOutput\": {\"updatedToolOutput\": \"clean\"}}'"},
		{"type": "command", "command": "exit 1", "on_failure": "block"}]}]}`)
	in := r.input("bash", `{}`)
	in.Outcome.Output = "dirty"
	if v, err := s.Post(t.Context(), in); err != nil || !v.Block {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestAllHooksAreHeard: a hook after one that blocks also runs.
func TestAllHooksAreHeard(t *testing.T) {
	r := newRig(t)
	s := r.set(`{"PreToolUse": [{"hooks": [{"type": "command", "command": "echo no >&2; exit 2"}, {"type": "command", "command": "touch audited"}]}]}`)
	v := r.pre(s, "bash", `{"command":"ls"}`)
	if !v.Block || v.Reason != "no" || v.Input != nil {
		t.Errorf("%+v", v)
	}
	r.read("audited")
}

// hopping is a program whose processes each start the next one, in a new session, and end.
func hopping(hops int) string {
	return fmt.Sprintf(`perl -e 'use POSIX; for (1..%d) { fork and exit; setsid } exec "sleep", "300"'`, hops)
}

// TestATreeIsKilled: at its timeout a command is killed with all that it has started.
func TestATreeIsKilled(t *testing.T) {
	for name, command := range map[string]string{
		"at the timeout":            "exec 9>alive; (sleep 300; echo) & sh -c 'sleep 300; echo' & wait",
		"when it is over":           "exec 9>alive; (sleep 300; echo) & exit 0",
		"from a session of its own": "exec 9>alive; " + hopping(2) + "; exit 0",
		"after a few hops":          "exec 9>alive; " + hopping(20) + "; exit 0",
		"after many hops":           "exec 9>alive; " + hopping(200) + "; exit 0",
		"while it hops":             "exec 9>alive; " + hopping(2_000) + "; exit 0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			pipe := filepath.Join(r.dir, "alive")
			must.OK(t, syscall.Mkfifo(pipe, 0o600))
			// Every live process has the pipe open: reading ends when all have ended.
			dead := make(chan error, 1)
			go func() {
				f, err := os.Open(pipe)
				if err == nil {
					_, err = io.Copy(io.Discard, f)
					err = errors.Join(err, f.Close())
				}
				dead <- err
			}()
			r.set(hook(PreToolUse, command, `"timeout": 1`, `"on_failure": "continue"`)).Pre(t.Context(),
				r.input("bash", `{}`))
			select {
			case err := <-dead:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Error("something of it still lives")
			}
		})
	}
}

// TestTheEndOfTheCallEndsItsHooks: at once, and whatever on_failure says.
func TestTheEndOfTheCallEndsItsHooks(t *testing.T) {
	r := newRig(t)
	s := r.set(hook(PreToolUse, "sleep 300", `"on_failure": "continue"`),
		Func{Name: "f", Event: PreToolUse, OnFailure: Continue,
			Run: func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error) {
				return pipeline.HookVerdict{}, nil
			}})
	why := errors.New("the call is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	if _, err := s.Pre(ctx, r.input("bash", `{}`)); !errors.Is(err, why) {
		t.Errorf("it ended with %v", err)
	}
}

// TestExecForm: args are passed unchanged, without a shell.
func TestExecForm(t *testing.T) {
	r := newRig(t)
	r.write("say.sh", "#!/bin/sh\nprintf '%s|' \"$@\" > args.txt\n")
	r.pre(r.set(`{"PreToolUse": [{"hooks": [{"type": "command", "command": "${CLAUDE_PROJECT_DIR}/say.sh", "args": ["a b", "$HOME", "${TOOLYARD_HOOKS_DIR}/x", "it's;"]}]}]}`), "x", `{}`)
	if got := r.read("args.txt"); got != "a b|$HOME|/etc/hooks/x|it's;|" {
		t.Errorf("args: %s", got)
	}
	r.pre(r.set(`{"PreToolUse": [{"hooks": [{"type": "command", "command": "[[ a == a ]] && touch bash.txt", "shell": "bash"}]}]}`), "x", `{}`)
	r.read("bash.txt")
}

// TestACommandThatReadsNothing: a large event does not block a command that does not read it.
func TestACommandThatReadsNothing(t *testing.T) {
	r := newRig(t)
	if v := r.pre(r.set(hook(PreToolUse, "echo no >&2; exit 2")), "x", `{"a":"`+strings.Repeat("a", 1<<20)+
		`"}`); !v.Block {
		t.Errorf("%+v", v)
	}
	if v := r.pre(r.set(hook(PreToolUse, "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 2")), "x", `{}`); !v.Block ||
		len(v.Reason) > MaxReasonChars+len("…") {
		t.Errorf("%d bytes of reason", len(v.Reason))
	}
}

// TestConditions: an if excludes only the calls that certainly do not match.
func TestConditions(t *testing.T) {
	r := newRig(t)
	must.OK(t, os.Symlink(".", filepath.Join(r.dir, "link")))
	for _, c := range []struct {
		condition, tool, input string
		runs                   bool
	}{
		{"Bash", "bash", `{"command":"ls"}`, true},
		{"Bash", "read_file", `{}`, false},
		{"Bash(*)", "bash", `{"command":"ls"}`, true},
		{"Bash(rm *)", "bash", `{"command":"rm -rf x"}`, true},
		{"bash(rm:*)", "bash", `{"command":"echo a && rm x"}`, true},
		{"Bash(rm *)", "bash", `{"command":"echo $(rm x)"}`, true},
		{"Bash(rm *)", "bash", `{"command":"ls"}`, false},
		{"Bash(rm *)", "bash", `{"command":"ls 'unclosed"}`, true},
		{"Bash(rm *)", "bash", `{"command":"ls… [cut: 5000 bytes in all]"}`, true},
		{"Bash(rm *)", "bash", `{"command":"ls [redacted: TOKEN]"}`, true},
		{"Bash(rm *)", "bash", `{}`, true},
		{"Write(*.go)", "write_file", `{"file_path":"a.go"}`, true},
		{"Write(*.go)", "write_file", `{"file_path":"./x/../a.go"}`, true},
		{"Write(*.go)", "write_file", `{"file_path":"a.txt"}`, false},
		{"Write(src/**)", "write_file", `{"file_path":"docs/a.txt"}`, false},
		{"Write(src/**)", "write_file", `{"file_path":"link/src/a.txt"}`, true},
		{"Write(src/**)", "write_file", `{"file_path":"/elsewhere/a.txt"}`, true},
		{"Write(src/**)", "write_file", `{"file_path":"` + r.dir + `/src/new/a.txt"}`, true},
		{"Write(src/**)", "write_file", `{"file_path":"` + r.dir + `/doc/new/a.txt"}`, false},
		{"glob(src/**)", "glob", `{"pattern":"*"}`, false},
		{"glob(src/**)", "glob", `{"path":["src/a"]}`, true},
		{"Write(src/**)", "write_file", `{"file_path":"docs/a","File_Path":"src/a"}`, true},
		{"WebFetch(domain:example.com)", "web_fetch", `{"url":"https://www.example.com/x"}`, true},
		{"WebFetch(domain:example.com)", "web_fetch", `{"url":"https://example.org/x"}`, false},
		{"Edit(src/**)", "write_file", `{"file_path":"src/new/a.txt"}`, true},
		{"Edit(src/**)", "write_file", `{"file_path":"docs/a.txt"}`, false},
		{"Edit(*)", "write_file", `{"file_path":"docs/a.txt"}`, true},
		{"mcp__a", "mcp__a__b", `{}`, true},
		{"mcp__a__*", "mcp__a__b", `{}`, true},
		{"mcp__a__b(x)", "mcp__a__b", `{}`, true}, // nothing is known of the tool
		{"mcp__a__*", "mcp__c__b", `{}`, false},
	} {
		s := r.set(hook(PreToolUse, "exit 2", `"if": `+quote(c.condition)))
		if v := r.pre(s, c.tool, c.input); v.Block != c.runs {
			t.Errorf("%s on %s %s: ran %t", c.condition, c.tool, c.input, v.Block)
		}
	}
	s := r.set(hook(PreToolUse, "exit 2", `"if": "Write(/srv/app/src/**)"`))
	for path, runs := range map[string]bool{"src/a.txt": true, "docs/a.txt": false} { // in a copy of the workspace
		in := r.input("write_file", `{"file_path":"`+path+`"}`)
		in.CopyOf = "/srv/app"
		v, err := s.Pre(t.Context(), in)
		must.OK(t, err)
		if v.Block != runs {
			t.Errorf("%s in a copy: ran %t", path, v.Block)
		}
	}
}

// TestEndpoints: the event is posted, and the body of the response is the answer.
func TestEndpoints(t *testing.T) {
	r := newRig(t)
	var got *http.Request
	var body []byte
	mux := http.NewServeMux()
	mux.HandleFunc("POST /ok", func(w http.ResponseWriter, req *http.Request) {
		got, body = req, sure(io.ReadAll(req.Body))
		fmt.Fprint(w,
			` {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask", "permissionDecisionReason": "sure?"}} `)
	})
	mux.HandleFunc("POST /empty", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /text", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") })
	mux.HandleFunc("POST /error", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"decision": "approve"}`, http.StatusForbidden)
	})
	mux.HandleFunc("POST /away", func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, "/empty", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("POST /long", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte(" "), MaxAnswerBytes+1))
	})
	mux.HandleFunc("POST /late", func(_ http.ResponseWriter, req *http.Request) {
		_ = sure(io.ReadAll(req.Body)) // only then does the server see that the client has gone
		<-req.Context().Done()
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	post := func(url string, more ...string) (pipeline.HookVerdict, error) {
		fields := append([]string{`"type": "http"`, `"url": ` + quote(url)}, more...)
		s := r.set(`{"PreToolUse": [{"hooks": [{` + strings.Join(fields, ", ") + `}]}]}`)
		return s.Pre(t.Context(), r.input("bash", `{"command":"ls"}`))
	}
	v, err := post(srv.URL+"/ok?key=1", `"headers": {"Authorization": "Bearer ${SECRET_TOKEN}", "X-A": "$GIVEN!"}`,
		`"allowedEnvVars": ["SECRET_TOKEN", "GIVEN"]`)
	if err != nil || v.Opinion != pipeline.Ask || v.Reason != "sure?" {
		t.Errorf("%+v, %v", v, err)
	}
	if got.Header.Get("Content-Type") != "application/json" || got.Header.Get("Authorization") != "Bearer tok" ||
		got.Header.Get("X-A") != "given!" {
		t.Errorf("the headers are %v", got.Header)
	}
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil || m["tool_name"] != "Bash" || m["hook_event_name"] != "PreToolUse" {
		t.Errorf("the body is %s: %v", body, err)
	}
	if v, err := post(srv.URL + "/empty"); err != nil || v.Block || v.Opinion != "" {
		t.Errorf("no content: %+v, %v", v, err)
	}
	for url, want := range map[string]string{
		srv.URL + "/text": "no JSON object", srv.URL + "/error": "HTTP status 403", srv.URL +
			"/away": "HTTP status 307", srv.URL + "/gone": "HTTP status 404",
		srv.URL + "/long": "more than 1048576 bytes", srv.URL +
			"/late": "did not answer within 200ms", "http://127.0.0.1:1/?key=s3cret": "the request failed",
	} {
		timeout := `"timeout": 30`
		if strings.HasSuffix(url, "/late") {
			timeout = `"timeout": 0.2`
		}
		if v, err := post(url, timeout); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %+v, %v; want %q", url, v, err, want)
		}
	}
}

func sure[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestFuncs: what Go hooks may do, and what happens to those that misbehave.
func TestFuncs(t *testing.T) {
	r := newRig(t)
	text := "x"
	type fn = func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error)
	says := func(v pipeline.HookVerdict) fn {
		return func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error) { return v, nil }
	}
	for name, c := range map[string]struct {
		event Event
		fn    fn
		want  string
	}{
		"block": {PreToolUse, says(pipeline.HookVerdict{Block: true, Reason: "no"}), ""},
		"panic": {PreToolUse, func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error) { panic("boom") },
			"panic: boom"},
		"goexit": {PreToolUse, func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error) {
			runtime.Goexit()
			return pipeline.HookVerdict{}, nil
		}, "ended its goroutine"},
		"error": {PreToolUse, func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error) {
			return pipeline.HookVerdict{}, errors.New("oops")
		}, "oops"},
		"output, pre": {PreToolUse, says(pipeline.HookVerdict{Output: &text}), "before there is one"},
		"opinion":     {PreToolUse, says(pipeline.HookVerdict{Opinion: "perhaps"}), `"perhaps" is not known`},
		"input":       {PreToolUse, says(pipeline.HookVerdict{Input: json.RawMessage("{")}), "cannot be read"},
		"input, post": {PostToolUse, says(pipeline.HookVerdict{Input: json.RawMessage("{}")}),
			"after the call has run"},
		"allow, post":  {PostToolUse, says(pipeline.HookVerdict{Opinion: pipeline.Allow}), "after the call has run"},
		"block, post":  {PostToolUse, says(pipeline.HookVerdict{Block: true}), ""},
		"output, fail": {PostToolUseFailure, says(pipeline.HookVerdict{Output: &text}), "of a call that failed"},
	} {
		s := r.set(`{}`, Func{Name: "f", Event: c.event, OnFailure: Block, Run: c.fn})
		in := r.input("x", `{}`)
		in.Outcome.IsError = c.event == PostToolUseFailure
		run := s.Post
		if c.event == PreToolUse {
			run = s.Pre
		}
		v, err := run(t.Context(), in)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || c.want == "" &&
			!v.Block {
			t.Errorf("%s: %+v, %v; want %q", name, v, err, c.want)
		}
	}
	for want, f := range map[string]Func{
		"has no name":                {Event: PreToolUse, Run: says(pipeline.HookVerdict{})},
		"hook f: has no function":    {Name: "f", Event: PreToolUse},
		`hook f: "Stop" is no event`: {Name: "f", Event: "Stop", Run: says(pipeline.HookVerdict{})},
		"hook f: the timeout -1s": {Name: "f", Event: PreToolUse, Timeout: -time.Second,
			Run: says(pipeline.HookVerdict{})},
		"hook f: matcher": {Name: "f", Event: PreToolUse, Matcher: "(", Run: says(pipeline.HookVerdict{})},
		`hook f: on failure: "withho`: {Name: "f", Event: PreToolUse, OnFailure: Withhold,
			Run: says(pipeline.HookVerdict{})},
	} {
		if _, err := New(Options{Funcs: []Func{f}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestAFuncThatNeverReturns: it is abandoned, and after too many of them no more are started.
func TestAFuncThatNeverReturns(t *testing.T) {
	r := newRig(t)
	never := make(chan struct{})
	s := r.set(`{}`, Func{Name: "f", Event: PreToolUse, Timeout: time.Millisecond,
		Run: func(context.Context, pipeline.HookInput) (pipeline.HookVerdict, error) {
			<-never
			return pipeline.HookVerdict{}, nil
		}})
	for range MaxLeftBehind {
		if _, err := s.Pre(t.Context(), r.input("x", `{}`)); err == nil ||
			!strings.Contains(err.Error(), "did not answer within 1ms") {
			t.Fatal(err)
		}
	}
	if _, err := s.Pre(t.Context(), r.input("x", `{}`)); err == nil ||
		!strings.Contains(err.Error(), "it was not started") {
		t.Errorf("one too many: %v", err)
	}
	close(never)
	for s.left.Load() > 0 {
		runtime.Gosched()
	}
	if _, err := s.Pre(t.Context(), r.input("x", `{}`)); err != nil &&
		!strings.Contains(err.Error(), "did not answer") {
		t.Errorf("when they are gone: %v", err)
	}
}

// TestBatch: when a batch has completed, its hooks see all calls in order, and can stop the agent.
func TestBatch(t *testing.T) {
	r := newRig(t)
	in := BatchInput{Key: toolyard.BatchKey{Agent: "a", ID: "b"}, Session: "s", Workspace: "ws", WorkspaceDir: r.dir,
		Calls: []BatchCall{
			{CallID: "c1", Tool: "read_file", Input: json.RawMessage(`{"file_path":"a"}`), Text: "1\tx"},
			{Tool: "nope", Code: toolyard.UnknownTool, Text: "There is no tool.", IsError: true},
			{CallID: "c3", Tool: "grep", Input: json.RawMessage(`{}`), Text: strings.Repeat("x", MaxBatchBytes)},
		}}
	s := r.set(`{"PostToolBatch": [{"hooks": [{"type": "command", "command": "cat > told.json; echo '{\"hookSpecificOutput\": {\"additionalContext\": \"run the tests\"}}'"},
		{"type": "command", "command": "exit 1"}, {"type": "command", "command": "echo enough >&2; exit 2"}]}], "PreToolUse": [{"hooks": [{"type": "command", "command": "exit 2"}]}]}`)
	v, err := s.Batch(t.Context(), in)
	want := BatchVerdict{Stop: true, Reason: "enough", Context: "run the tests",
		By: "hooks.PostToolBatch[0].hooks[0], hooks.PostToolBatch[0].hooks[2]"}
	if err != nil || v != want {
		t.Errorf("%+v, %v", v, err)
	}
	var m map[string]any
	must.OK(t, json.Unmarshal([]byte(r.read("told.json")), &m))
	calls := []any{
		map[string]any{"tool_name": "Read", "tool_input": map[string]any{"file_path": r.dir + "/a"},
			"tool_use_id": "c1", "tool_response": "1\tx", "toolyard": map[string]any{"tool": "read_file"}},
		map[string]any{"tool_name": "nope", "tool_input": map[string]any{}, "tool_use_id": "a/b/1",
			"tool_response": "There is no tool.", "toolyard": map[string]any{"tool": "nope", "code": "unknown_tool",
				"is_error": true}},
		map[string]any{"tool_name": "Grep", "tool_input": map[string]any{}, "tool_use_id": "c3",
			"tool_response": fmt.Sprintf("[cut: %d bytes in all]", MaxBatchBytes),
			"toolyard":      map[string]any{"tool": "grep"}},
	}
	if d := cmp.Diff(any(calls), m["tool_calls"]); d != "" || m["hook_event_name"] != "PostToolBatch" ||
		m["session_id"] != "s" || m["tool_name"] != nil {
		t.Errorf("it was told %v (-want +got):\n%s", m, d)
	}
	broken := r.set(hook(PostToolBatch, "exit 1", `"on_failure": "block"`))
	if v, err := broken.Batch(t.Context(), in); err == nil ||
		!strings.HasPrefix(err.Error(), "hooks.PostToolBatch[0].hooks[0]: ") {
		t.Errorf("a broken hook: %+v, %v", v, err)
	}
	if v, err := r.set(`{}`).Batch(t.Context(), in); err != nil || v != (BatchVerdict{}) {
		t.Errorf("no hooks: %+v, %v", v, err)
	}
}
