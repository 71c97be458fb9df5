//go:build unix

package e2e

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestRulesHoldWhereverTheyAreGiven: the rules of a dispatcher hold for workers that were told nothing of them, those
// of a worker take its tools out of the surface, and names that people have mean our tools.
func TestRulesHoldWhereverTheyAreGiven(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "a\n", ".env": "S=1\n", "docs/b.txt": "b\n"})
	d := dispatcher(t, "--deny", "Bash(rm *)", "--deny", "Read(.env)", "--ask", "Edit(docs/**)", "--deny", "WebFetch",
		"--known-tool", "mcp__soon__y")
	worker(t, d.says["nats"], dir, "--permission-mode", "bypass", "--dangerously-run-unsandboxed", "--deny", "glob")
	b := toolyard.Batch{Options: toolyard.Options{OnError: toolyard.Continue}, Calls: []toolyard.Call{
		{ID: "env", Tool: "read_file", Input: input(map[string]string{"file_path": ".env"})},
		{ID: "read", Tool: "read_file", Input: input(map[string]string{"file_path": "a.txt"})},
		{ID: "write", Tool: "write_file", Input: input(map[string]string{"file_path": "docs/c.txt", "content": "c"})},
		{ID: "other", Tool: "write_file", Input: input(map[string]string{"file_path": "c.txt", "content": "c"})},
		{ID: "fetch", Tool: "web_fetch", Input: input(map[string]string{"url": "http://example.com/"})},
		{ID: "glob", Tool: "glob", Input: input(map[string]string{"pattern": "*"})},
	}}
	stdout, stderr, status := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], "--json", batchFile(t, b))
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	want := map[string]toolyard.Code{"env": toolyard.PermissionDenied, "write": toolyard.PermissionDenied,
		"fetch": toolyard.BlockedTool, "glob": toolyard.BlockedTool}
	for _, r := range viewOf(t, stdout).Results {
		if r.Code != want[r.CallID] {
			t.Errorf("%s: %q (%s), want %q", r.CallID, r.Code, r.Error, want[r.CallID])
		}
	}
	for _, args := range [][]string{{"--server", d.says["http"]}, {"--nats", d.says["nats"], "--deny", "WebFetch"}} {
		listed, stderr, status := run(t, nil, "dispatcher", append([]string{"tools"}, args...)...)
		var names []string
		for line := range strings.Lines(listed) {
			names = append(names, strings.Fields(line)[0])
		}
		if status != 0 || slices.Contains(names, "glob") || slices.Contains(names, "web_fetch") ||
			!slices.Contains(names, "grep") {
			t.Errorf("tools %v: status %d, %s lists %v", args, status, stderr, names)
		}
	}
	for rule, want := range map[string]int{"raed_file(.env)": http.StatusBadRequest, "Read(.env)": http.StatusOK,
		"mcp__later": http.StatusBadRequest, "mcp__soon__x": http.StatusOK} {
		body := `{"calls": [{"id": "a", "tool": "read_file", "input": {"file_path": "a.txt"}}], "options": {"deny": ["` + rule + `"]}}`
		resp, err := http.Post(d.says["http"]+"/v1/batches?wait=20", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a batch with the rule %s: status %d, want %d", rule, resp.StatusCode, want)
		}
	}
}

// TestRulesThatCannotHoldAreRefused: no rule is dropped in silence.
func TestRulesThatCannotHoldAreRefused(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"settings.json": `{"model": "x", "permissions": {"deny": ["Read(~/.ssh/**)", "WebSearch", "Read(./settings.json)"], "defaultMode": "acceptEdits"},
		"hooks": {"Stop": []}}`})
	batch := batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{ID: "a", Tool: "read_file", Input: input(map[string]string{"file_path": "settings.json"})},
		{ID: "b", Tool: "write_file", Input: input(map[string]string{"file_path": "a.txt", "content": "a"})},
	}, Options: toolyard.Options{OnError: toolyard.Continue}})
	nowhere := []string{"dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats", "nats://127.0.0.1:1"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{append(nowhere, "--allow", "bash"), "--allow bash: this process runs no calls"},
		{append(nowhere, "--permission-mode", "accept_edits"),
			"--permission-mode accept_edits: this process runs no calls"},
		{append(nowhere, "--deny", "read_file(/srv/x)"), "the directories of workspaces are not known here"},
		{append(nowhere, "--deny", "raed_file(x)"), `there is no tool "raed_file" here`},
		{[]string{"worker", "serve", "--nats", "nats://127.0.0.1:1", "--deny", "Raed(x)"},
			`there is no tool "Raed" here`},
		{[]string{"worker", "serve", "--nats", "nats://127.0.0.1:1", "--ask", "mcp__my"}, "no MCP server"},
		{[]string{"dispatcher", "run", "--workspace", dir, "--allow", "Bsh", batch}, `there is no tool "Bsh" here`},
		{[]string{"dispatcher", "explain", "--workspace", dir, "--deny", "MultiEdit", batch}, "has no counterpart"},
		{[]string{"dispatcher", "tools", "--deny", "globb"}, `there is no tool "globb" here`},
	} {
		_, stderr, status := run(t, nil, c.args[0], c.args[1:]...)
		if status != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: status %d, %s", c.args, status, stderr)
		}
	}
	stdout, stderr, status := run(t, nil, "dispatcher", "run", "--json", "--workspace", dir, "--hooks",
		filepath.Join(dir, "settings.json"), batch)
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	for i, want := range []toolyard.Code{toolyard.PermissionDenied, ""} {
		if got := viewOf(t, stdout).Results[i]; got.Code != want {
			t.Errorf("call %d: %q (%s), want %q", i, got.Code, got.Error, want)
		}
	}
	for _, want := range []string{"model: is not used", "permissions.deny[0]", "permissions.deny[1]", "hooks.Stop"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is not named: %s", want, stderr)
		}
	}
}

// TestASettingsFileAsItIs: the example's variables, rules, mode and hooks apply, and what does not is named once.
func TestASettingsFileAsItIs(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{".env": "KEY=1"})
	stdout, stderr, status := run(t, nil, "dispatcher", "run", "--json", "--workspace", dir, "--settings",
		"../../examples/settings/settings.json", "../../examples/settings/batch.json")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	got := viewOf(t, stdout).Results
	if len(got) != 3 || got[1].Code != toolyard.PermissionDenied || got[2].IsError {
		t.Fatalf("the results are %s", stdout)
	}
	if isolates(t) {
		text := got[0].Output + got[0].Error
		if !strings.Contains(text, "true\n") || !strings.Contains(text, "CI is true") ||
			strings.Contains(text, "0815") {
			t.Errorf("the command printed %q", text)
		}
	} else if got[0].Code != toolyard.SetupRequired {
		t.Errorf("without isolation: %+v", got[0])
	}
	for _, want := range []string{"model: is not used", "hooks.PermissionRequest: nothing of this kind", "hooks.Stop: ",
		"env.DEPLOY_TOKEN: its name says"} {
		if strings.Count(stderr, want) != 1 {
			t.Errorf("%q is not named once: %s", want, stderr)
		}
	}
	_, stderr, status = run(t, nil, "dispatcher", "run", "--workspace", dir, "--settings",
		"../../examples/settings/settings.json", "--hooks", "../../examples/settings/settings.json",
		"../../examples/settings/batch.json")
	if status != 2 || !strings.Contains(stderr, "exclude each other") {
		t.Errorf("both files: status %d, %s", status, stderr)
	}
}
