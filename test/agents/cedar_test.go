package agents

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestCedarDecides: the example of a policy engine allows and denies calls by its policies. A policy that cannot be
// evaluated, and an engine that is not there, let no call run.
func TestCedarDecides(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("ws/a.txt", "one\n")
	write("ws/key.pem", "secret\n")
	given := must.Read(t, example("cedar/policies.cedar"))
	policies := write("policies.cedar", string(given)+`
forbid (principal, action, resource == Tool::"glob") when { context.input.no_such_field == 1 };`)
	hook := (&pool{T: t}).start(1, "cedar", "--listen", "127.0.0.1:0", "--policies", policies)["hook"]
	run := func(agent, hook string, calls ...toolyard.Call) []toolyard.Result {
		t.Helper()
		file := must.Read(t, example("cedar/hooks.json"))
		batch, err := json.Marshal(toolyard.Batch{Agent: toolyard.Agent(agent), Calls: calls,
			Options: toolyard.Options{OnError: toolyard.Continue}})
		must.OK(t, err)
		cmd := exec.Command(filepath.Join(bin, "dispatcher"), "run", "--json", "--workspace", filepath.Join(dir, "ws"),
			"--hooks", write("hooks.json", strings.Replace(string(file), "http://127.0.0.1:8181/", hook, 1)),
			write("batch.json", string(batch)))
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var v struct{ Results []toolyard.Result }
		if err := json.Unmarshal(out, &v); err != nil || len(v.Results) != len(calls) {
			t.Fatalf("%v: %s", err, out)
		}
		return v.Results
	}
	call := func(tool, input string) toolyard.Call {
		return toolyard.Call{Tool: tool, Input: json.RawMessage(input)}
	}
	read, key := call("read_file", `{"file_path":"a.txt"}`), call("read_file", `{"file_path":"key.pem"}`)
	note := call("write_file", `{"file_path":"notes/n.txt","content":"n"}`)
	for agent, want := range map[string][]string{
		"writer": {"", "keys are nobody's to read", "", "no policy permits this call", "HTTP status 500"},
		"reader": {"", "keys are nobody's to read", "no policy permits this call", "no policy permits this call",
			"HTTP status 500"},
	} {
		got := run(agent, hook, read, key, note, call("write_file", `{"file_path":"b.txt","content":"b"}`),
			call("glob", `{"pattern":"*"}`))
		for i, r := range got {
			if r.IsError != (want[i] != "") || r.IsError && !strings.Contains(r.Error+r.Detail, want[i]) {
				t.Errorf("agent %s, call %d: %q %s %s, want %q", agent, i, r.Code, r.Error, r.Detail, want[i])
			}
		}
	}
	if r := run("writer", "http://127.0.0.1:1/", read)[0]; r.Code != toolyard.HookFailed {
		t.Errorf("without the engine: %+v", r)
	}
	if _, err := os.Stat(filepath.Join(dir, "ws", "b.txt")); err == nil {
		t.Error("a call that was denied ran")
	}
}
