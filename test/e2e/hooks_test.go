//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// hooked is a place with a file of hooks, and scripts beside it, outside of the workspace.
type hooked struct {
	place
	hooks string
}

// newHooked writes the configuration, under "hooks", and scripts that are found by TOOLYARD_HOOKS_DIR.
func newHooked(t *testing.T, config string, scripts map[string]string) hooked {
	t.Helper()
	p := newPlace(t, map[string]string{"a.txt": "one\n"})
	dir := workspace(t, scripts)
	for name := range scripts {
		must.OK(t, os.Chmod(filepath.Join(dir, name), 0o755))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "hooks.json"), []byte(`{"hooks": `+config+`}`), 0o600))
	return hooked{p, filepath.Join(dir, "hooks.json")}
}

// call runs one call, and returns its result and what the command logged.
func (h hooked) call(tool string, in map[string]any, args ...string) (toolyard.Result, string) {
	h.t.Helper()
	file := batchFile(h.t, toolyard.Batch{Calls: []toolyard.Call{{ID: "c1", Tool: tool, Input: input(in)}}})
	args = append([]string{"run", "--json", "--hooks", h.hooks}, append(args, file)...)
	stdout, stderr, status := h.run(nil, []string{"API_TOKEN=tok-4711-en"}, args...)
	if status != 0 {
		h.t.Fatalf("exit status %d: %s", status, stderr)
	}
	v := viewOf(h.t, stdout)
	if len(v.Results) != 1 {
		h.t.Fatalf("%d results", len(v.Results))
	}
	return v.Results[0], stderr
}

// fact is what a result says of one phase, the last time that it ran.
func fact(r toolyard.Result, phase toolyard.Phase) (f toolyard.Fact) {
	for _, p := range r.Phases {
		if p.Phase == phase {
			f = p
		}
	}
	return f
}

// fieldGuard is a script as people have them: it knows nothing of this project.
const fieldGuard = `#!/usr/bin/env bash
# Blocks edits of protected files. Configure it as a PreToolUse hook with the matcher "Edit|Write".
set -euo pipefail

INPUT=$(cat)
EVENT=$(jq -r '.hook_event_name' <<<"$INPUT")
TOOL=$(jq -r '.tool_name' <<<"$INPUT")
FILE_PATH=$(jq -r '.tool_input.file_path // empty' <<<"$INPUT")

[[ "$EVENT" == "PreToolUse" ]] || exit 0
[[ "$TOOL" == "Edit" || "$TOOL" == "Write" ]] || exit 0

PROTECTED=(".env" "package-lock.json" ".git/")
for pattern in "${PROTECTED[@]}"; do
  if [[ "$FILE_PATH" == "$CLAUDE_PROJECT_DIR/$pattern"* ]]; then
    echo "Blocked: $FILE_PATH matches the protected pattern '$pattern'" >&2
    exit 2
  fi
done
exit 0
`

// fieldFormatter is another one, which runs behind the tool.
const fieldFormatter = `#!/usr/bin/env python3
import json, sys

try:
    data = json.load(sys.stdin)
except json.JSONDecodeError as e:
    print(f"Error: Invalid JSON input: {e}", file=sys.stderr)
    sys.exit(1)

path = data.get("tool_input", {}).get("file_path", "")
if data.get("tool_name") not in ("Edit", "MultiEdit", "Write") or not path.endswith(".txt"):
    sys.exit(0)

with open(path) as f:
    text = f.read()
if text.endswith("\n"):
    sys.exit(0)
with open(path, "w") as f:
    f.write(text + "\n")
print(json.dumps({
    "continue": True,
    "suppressOutput": True,
    "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": f"Formatted {data['tool_response']['filePath']}"},
}))
`

// TestScriptsFromTheField: they run unchanged.
func TestScriptsFromTheField(t *testing.T) {
	t.Parallel()
	h := newHooked(t, `{
		"PreToolUse": [{"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "\"$TOOLYARD_HOOKS_DIR\"/guard.sh"}]}],
		"PostToolUse": [{"matcher": "Edit|MultiEdit|Write", "hooks": [{"type": "command", "command": "\"$TOOLYARD_HOOKS_DIR\"/format.py", "timeout": 60}]}]
	}`, map[string]string{"guard.sh": fieldGuard, "format.py": fieldFormatter})
	r, _ := h.call("write_file", map[string]any{"file_path": "./.env", "content": "A=1"}, "--permission-mode",
		"accept_edits")
	if want := fmt.Sprintf("Blocked: %s/.env matches the protected pattern '.env'",
		h.dir); r.Code != toolyard.HookBlocked || !strings.Contains(r.Error, want) {
		t.Errorf("%s %s, want %s", r.Code, r.Error, want)
	}
	if _, err := os.Stat(filepath.Join(h.dir, ".env")); !os.IsNotExist(err) {
		t.Errorf("the file was written: %v", err)
	}
	r, _ = h.call("write_file", map[string]any{"file_path": "b.txt", "content": "no end"}, "--permission-mode",
		"accept_edits")
	if r.IsError || !strings.Contains(r.Output, "[added by a hook] Formatted "+h.dir+"/b.txt") {
		t.Errorf("%s %s", r.Code, r.Output)
	}
	if got, err := os.ReadFile(filepath.Join(h.dir, "b.txt")); err != nil || string(got) != "no end\n" {
		t.Errorf("the formatter left %q, %v", got, err)
	}
}

// say is a hook that prints an answer.
func say(event, answer string) string {
	command, err := json.Marshal("echo '" + answer + "'")
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{%q: [{"hooks": [{"type": "command", "command": %s}]}]}`, event, command)
}

// specific is an answer with its fields.
func specific(event, fields string) string {
	return say(event, fmt.Sprintf(`{"hookSpecificOutput": {"hookEventName": %q, %s}}`, event, fields))
}

func TestHookDecisions(t *testing.T) {
	t.Parallel()
	read, write := map[string]any{"file_path": "a.txt"}, map[string]any{"file_path": "new.txt", "content": "x"}
	for _, c := range []struct {
		name, config, tool string
		in                 map[string]any
		args               []string
		code               toolyard.Code
		says               string // in error or output
		detail             string // in the fact of pre_hooks or permission
	}{
		{"deny", specific("PreToolUse", `"permissionDecision": "deny", "permissionDecisionReason": "not today"`),
			"read_file", read, nil, toolyard.PermissionDenied, "not today", "a hook denied"},
		{"ask, and nobody is there", specific("PreToolUse",
			`"permissionDecision": "ask", "permissionDecisionReason": "are you sure?"`), "read_file", read, nil,
			toolyard.PermissionDenied, "are you sure?", "hook"},
		{"allow what is undecided", specific("PreToolUse", `"permissionDecision": "allow"`), "write_file", write, nil,
			"", "", "allowed: hook"},
		{"allow beats no rule", specific("PreToolUse", `"permissionDecision": "allow"`), "write_file", write,
			[]string{"--deny", "write_file"}, toolyard.BlockedTool, "", ""},
		{"allow beats no ask", specific("PreToolUse", `"permissionDecision": "allow"`), "write_file", write,
			[]string{"--ask", "write_file"}, toolyard.PermissionDenied, "", "ask"},
		{"stop", say("PreToolUse", `{"continue": false, "stopReason": "enough"}`), "read_file", read, nil,
			toolyard.HookBlocked, "enough", "asks for the agent to stop"},
		{"context", specific("PreToolUse", `"additionalContext": "a.txt is made by a program"`), "read_file", read, nil,
			"", "[added by a hook] a.txt is made by a program", "context added"},
		{"what is wrong comes before any hook", specific("PreToolUse",
			`"updatedInput": {"file_path": "a.txt", "limit": 1}`), "read_file", map[string]any{"file_path": "gone"},
			nil, toolyard.InvalidArguments, "", ""},
		{"input that is fine", specific("PreToolUse", `"updatedInput": {"file_path": "a.txt", "limit": 1}`),
			"read_file", read, nil, "", "one", "input changed by hooks.PreToolUse[0].hooks[0]"},
		{"input of the wrong form", specific("PreToolUse", `"updatedInput": {"file": "a.txt"}`), "read_file", read, nil,
			toolyard.SchemaValidationFailed, "file", ""},
		{"input that leads out", specific("PreToolUse", `"updatedInput": {"file_path": "../../etc/passwd"}`),
			"read_file", read, nil, toolyard.SandboxViolation, "", ""},
		{"input that a rule denies", specific("PreToolUse",
			`"permissionDecision": "allow", "updatedInput": {"file_path": "secret/a.txt", "content": "x"}`),
			"write_file", write,
			[]string{"--permission-mode", "accept_edits", "--deny", "write_file(secret/**)"}, toolyard.PermissionDenied,
			"secret", ""},
		{"output", specific("PostToolUse", `"updatedToolOutput": "clean"`), "read_file", read, nil, "", "clean", ""},
		{"feedback", say("PostToolUse", `{"decision": "block", "reason": "the tests fail now"}`), "read_file", read,
			nil, "", "[added by a hook] the tests fail now", ""},
		{"broken", `{"PreToolUse": [{"hooks": [{"type": "command", "command": "echo oops >&2; exit 1"}]}]}`,
			"read_file", read, nil, toolyard.HookFailed, "", "exit status 1: oops"},
		{"broken, behind",
			`{"PostToolUse": [{"hooks": [{"type": "command", "command": "exit 1", "on_failure": "block"}]}]}`,
			"read_file", read, nil, toolyard.PostHookFailed, "its output is kept", ""},
		{"withheld",
			`{"PostToolUse": [{"hooks": [{"type": "command", "command": "exit 1", "on_failure": "withhold"}]}]}`,
			"read_file", read, nil, toolyard.HookBlocked, "withheld", ""},
		{"late", `{"PreToolUse": [{"hooks": [{"type": "command", "command": "sleep 60", "timeout": 0.2}]}]}`,
			"read_file", read, nil, toolyard.HookFailed, "", "it did not answer within 200ms"},
		{"late, and left out",
			`{"PreToolUse": [{"hooks": [{"type": "command", "command": "sleep 60", "timeout": 0.2, "on_failure": "continue"}]}]}`, "read_file", read, nil, "", "one", "left out: hooks.PreToolUse[0].hooks[0]: it did not answer within 200ms"},
		{"another tool", `{"PreToolUse": [{"matcher": "Write", "hooks": [{"type": "command", "command": "exit 2"}]}]}`,
			"read_file", read, nil, "", "one", ""},
		{"another path",
			`{"PreToolUse": [{"hooks": [{"type": "command", "command": "exit 2", "if": "Read(docs/**)"}]}]}`,
			"read_file", read, nil, "", "one", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHooked(t, c.config, nil)
			r, _ := h.call(c.tool, c.in, c.args...)
			if r.Code != c.code || !strings.Contains(r.Output+r.Error, c.says) {
				t.Errorf("%q: %s%s; want %q with %q", r.Code, r.Output, r.Error, c.code, c.says)
			}
			if details := fact(r, toolyard.PhasePreHooks).Detail +
				fact(r, toolyard.PhasePermission).Detail; !strings.Contains(details, c.detail) {
				t.Errorf("the facts say %q, want %q", details, c.detail)
			}
			if c.name == "output" && strings.Contains(r.Output, "one") {
				t.Errorf("the tool's own output is still there: %s", r.Output)
			}
		})
	}
}

// TestHooksAroundCommands: hooks on a tool that runs commands in the sandbox. What a hook makes of a command is what
// permission sees and what runs.
func TestHooksAroundCommands(t *testing.T) {
	t.Parallel()
	if code := commandCode(t); code != toolyard.OK {
		h := newHooked(t, specific("PreToolUse", `"updatedInput": {"command": "touch made"}`), nil)
		if r, _ := h.call("bash", map[string]any{"command": "touch asked"}, "--permission-mode",
			"bypass"); r.Code != code {
			t.Errorf("without a sandbox: %s %s", r.Code, r.Error)
		}
		return
	}
	command := func(c string) string {
		return specific("PreToolUse", `"permissionDecision": "allow", "updatedInput": {"command": "`+c+`"}`)
	}
	touch := map[string]any{"command": "touch asked"}
	for _, c := range []struct {
		name, config string
		in           map[string]any
		args         []string
		code         toolyard.Code
		says         string // in error or output
		made         string // what is there after
		detail       string // in the facts
	}{
		{"as it was", say("PreToolUse", `{}`), touch, []string{"--allow", "bash(touch asked)"}, "", "", "asked", ""},
		{"another command, which is allowed", specific("PreToolUse", `"updatedInput": {"command": "touch made"}`),
			touch, []string{"--allow", "bash(touch made)"}, "", "", "made", "input changed"},
		{"what is allowed is what runs, not what was asked",
			specific("PreToolUse", `"updatedInput": {"command": "touch made"}`), touch,
			[]string{"--allow", "bash(touch asked)"}, toolyard.PermissionDenied, "", "", "input changed"},
		{"a hook's own allow beats no rule on what it has written", command("touch made"), touch,
			[]string{"--allow", "bash(touch:*)", "--deny", "bash(touch made)"}, toolyard.PermissionDenied, "touch made",
			"", "input changed"},
		{"an empty command", command(""), touch, []string{"--permission-mode", "bypass"}, toolyard.InvalidArguments,
			"command is empty", "", ""},
		{"no command at all", specific("PreToolUse", `"updatedInput": {"cmd": "touch made"}`), touch,
			[]string{"--permission-mode", "bypass"}, toolyard.SchemaValidationFailed, "command", "", ""},
		{"a read that becomes a write would run beside others", command("touch made"), map[string]any{"command": "ls"},
			[]string{"--permission-mode", "bypass"}, toolyard.HookFailed, "", "", "scheduled as READ_ONLY"},
		{"blocked",
			`{"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "if": "Bash(touch *)", "command": "cat > /dev/null; echo leave it >&2; exit 2"}]}]}`, touch,
			[]string{"--permission-mode", "bypass"}, toolyard.HookBlocked, "leave it", "", ""},
		{"not the one that is blocked",
			`{"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "if": "Bash(rm *)", "command": "exit 2"}]}]}`, touch, []string{"--permission-mode", "bypass"}, "", "", "asked", ""},
		{"another output", specific("PostToolUse", `"updatedToolOutput": "nothing to see"`),
			map[string]any{"command": "touch asked; echo tok-of-the-command"}, []string{"--permission-mode", "bypass"},
			"", "nothing to see", "asked", "output changed"},
		{"another output, as bash has it", specific("PostToolUse",
			`"updatedToolOutput": {"stdout": "clean", "stderr": "", "interrupted": false}`),
			map[string]any{"command": "echo tok-of-the-command; touch asked"},
			[]string{"--permission-mode", "bypass"}, "", "clean", "asked", "output changed"},
		{"broken behind it, and left out",
			`{"PostToolUse": [{"hooks": [{"type": "command", "command": "echo oops >&2; exit 1"}]}]}`, touch,
			[]string{"--permission-mode", "bypass"}, "", "", "asked",
			"left out: hooks.PostToolUse[0].hooks[0]: exit status 1: oops"},
		{"what failed", specific("PostToolUseFailure", `"additionalContext": "try it with care"`),
			map[string]any{"command": "touch asked; exit 3"}, []string{"--permission-mode", "bypass"},
			toolyard.ExecutionFailed, "try it with care", "asked", "context added"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHooked(t, c.config, nil)
			r, _ := h.call("bash", c.in, c.args...)
			if r.Code != c.code || !strings.Contains(r.Output+r.Error, c.says) ||
				strings.Contains(r.Output+r.Error, "tok-of-the-command") {
				t.Errorf("%q: %s%s; want %q with %q", r.Code, r.Output, r.Error, c.code, c.says)
			}
			for _, name := range []string{"asked", "made"} {
				if _, err := os.Stat(filepath.Join(h.dir, name)); (err == nil) != (name == c.made) {
					t.Errorf("%s: %v, and %q was to be made", name, err, c.made)
				}
			}
			details := ""
			for _, f := range r.Phases {
				details += f.Detail + "\n"
			}
			if !strings.Contains(details, c.detail) {
				t.Errorf("the facts say %s, want %q", details, c.detail)
			}
			if ran := c.made != ""; ran != (r.Isolation == sandbox.Native || r.Isolation == sandbox.Bwrap) {
				t.Errorf("isolation %q, and it ran: %t", r.Isolation, ran)
			}
		})
	}
}

// TestSecretsStayInside: what the environment holds and what looks like a token is in no result and in no event, and a
// hook gets neither.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	token := "ghp_" + strings.Repeat("a1B2", 9)
	h := newHooked(t,
		`{"PreToolUse": [{"hooks": [{"type": "command", "command": "cat >> told.json; env >> told.json"}]}]}`, nil)
	h.write("secrets.txt", "api tok-4711-en\ngithub "+token+"\nplain\n")
	log := filepath.Join(t.TempDir(), "log.jsonl")
	r, _ := h.call("read_file", map[string]any{"file_path": "secrets.txt"}, "--events", log)
	if r.Code != toolyard.ResultRedacted || r.IsError || !strings.Contains(r.Output, "api [redacted: API_TOKEN]") ||
		!strings.Contains(r.Output, "github [redacted: GitHub token]") || !strings.Contains(r.Output, "plain") {
		t.Errorf("%s %s", r.Code, r.Output)
	}
	// In an error too: the name of a file that is not there.
	r, _ = h.call("read_file", map[string]any{"file_path": "gone-tok-4711-en"})
	if r.Code != toolyard.InvalidArguments || strings.Contains(r.Error+r.Detail, "4711") ||
		!strings.Contains(r.Error, "[redacted: API_TOKEN]") {
		t.Errorf("%s %s %s", r.Code, r.Error, r.Detail)
	}
	// And in what is wrong with an input, which the dispatcher says.
	r, _ = h.call("read_file", map[string]any{"file_path": "a.txt", "limit": token})
	if r.Code != toolyard.SchemaValidationFailed || strings.Contains(r.Error+r.Detail, token) {
		t.Errorf("%s %s %s", r.Code, r.Error, r.Detail)
	}
	events := must.Read(t, log)
	told := must.Read(t, filepath.Join(h.dir, "told.json"))
	for _, secret := range []string{"tok-4711-en", token} {
		if strings.Contains(string(events), secret) || strings.Contains(string(told), secret) {
			t.Errorf("%s stands in an event, or a hook was told", secret)
		}
	}
}

// TestBadHooks: what is wrong with hooks and secrets is said before anything runs.
func TestBadHooks(t *testing.T) {
	t.Parallel()
	p := newPlace(t, map[string]string{"fine.json": fine,
		"calls.json":  `{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "x"}]}]}}`,
		"typo.json":   `{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "comand": "x"}]}]}}`,
		"server.json": `{"hooks": {"PreToolUse": [{"hooks": [{"type": "mcp_tool", "server": "s", "tool": "t"}]}]}}`,
		"rule.json":   `{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "x", "if": "read_result(x)"}]}]}}`})
	for _, c := range []struct{ args, want []string }{
		{[]string{"--hooks", "gone.json"}, []string{"--hooks gone.json", "no such file"}},
		{[]string{"--hooks", "."}, []string{"--hooks .", "not a regular file"}},
		{[]string{"--hooks", "typo.json"}, []string{"typo.json", "hooks.PreToolUse[0].hooks[0].comand"}},
		{[]string{"--hooks", "rule.json"}, []string{"rule.json", "hooks.PreToolUse[0].hooks[0]", "read_result"}},
		{[]string{"--hooks", "server.json"}, []string{"server.json", "hooks.PreToolUse[0].hooks[0]", `no MCP server "s"`}},
		{[]string{"--secret", "NOT_SET_AT_ALL"}, []string{"--secret", "NOT_SET_AT_ALL"}},
		{[]string{"--secret", "SHORT"}, []string{"--secret", "SHORT", "8 bytes"}},
		{[]string{"--credential", "web_fetch"}, []string{"--credential", "TOOL=NAME"}},
		{[]string{"--credential", "nope=LONG"}, []string{"--credential", `no tool "nope"`}},
	} {
		stdout, stderr, status := p.run(nil, []string{"SHORT=abc", "LONG=long-enough"},
			append(append([]string{"run"}, c.args...), "fine.json")...)
		refused(t, stdout, stderr, status, c.want...)
	}
	stdout, stderr, status := p.run(nil, nil, "serve", "--hooks", "calls.json", "--listen", "127.0.0.1:0",
		"--nats-listen", "127.0.0.1:0", "--data", t.TempDir())
	refused(t, stdout, stderr, status, "--hooks", "--with-worker")
}
