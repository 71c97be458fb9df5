//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestSpansOfAnApprovalAndOfHooks: what a person takes to decide is a span of the batch, and each hook that runs has
// one of its own, with its place in the file and not what it says.
func TestSpansOfAnApprovalAndOfHooks(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	hooks := must.File(t, "hooks.json", `{"hooks": {
		"PreToolUse": [{"hooks": [{"type": "command", "command": "true"}, {"type": "command", "command": "true"}]}],
		"PostToolUse": [{"matcher": "Write", "hooks": [{"type": "command", "command": "exit 1"}]}],
		"PostToolBatch": [{"hooks": [{"type": "command", "command": "true"}]}]}}`)
	dir := workspace(t, nil)
	args := []string{"serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--metrics-listen",
		"127.0.0.1:0", "--data", t.TempDir(), "--with-worker", "--workspace", "default=" + dir, "--hooks", hooks}
	d := startIn(t, 5, c.env(), "dispatcher", args...)
	body, err := json.Marshal(toolyard.Batch{ID: "b", Interactive: true, Calls: []toolyard.Call{{ID: "c1",
		Tool: "write_file", Input: input(map[string]any{"file_path": "a.txt", "content": "one\n"})}}})
	must.OK(t, err)
	post := func(path string, body []byte, status int) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.says["http"]+path, bytes.NewReader(body))
		must.OK(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("traceparent", "00-"+agentsTrace+"-"+agentsSpan+"-01")
		r.Header.Set("tracestate", agentsState)
		resp, err := http.DefaultClient.Do(r)
		must.OK(t, err)
		defer func() { _ = resp.Body.Close() }()
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != status {
			t.Fatalf("POST %s: %s %s %v", path, resp.Status, text, err)
		}
	}
	post("/v1/batches", body, http.StatusAccepted)
	id := waiting(t, d.says["nats"], 1)[0].ID
	c.has(t, agentsTrace, "execute_tool write_file", 1) // up to the question
	asked := c.of(agentsTrace)
	if len(asked) == 0 {
		t.Fatal("no span before the decision")
	}
	for _, s := range asked {
		if s.TraceState != agentsState {
			t.Errorf("%s has the trace state %q; want the agent's", s.Name, s.TraceState)
		}
	}
	post("/v1/approvals/"+id, []byte(`{"decision": "allow"}`), http.StatusOK)

	batch, approval := c.has(t, agentsTrace, "batch", 1)[0], c.has(t, agentsTrace, "approval", 1)[0]
	calls := c.has(t, agentsTrace, "execute_tool write_file", 2)
	if approval.parent() != batch.id() || approval.is("toolyard.call.index") != "0" {
		t.Errorf("the approval is call %q under %s, want 0 under %s", approval.is("toolyard.call.index"),
			approval.parent(), batch.id())
	}
	if approval.StartTimeUnixNano < calls[0].StartTimeUnixNano ||
		approval.EndTimeUnixNano <= approval.StartTimeUnixNano ||
		approval.EndTimeUnixNano > batch.EndTimeUnixNano {
		t.Errorf("the approval took from %d to %d, the question came in a call from %d on, the batch ended at %d",
			approval.StartTimeUnixNano, approval.EndTimeUnixNano, calls[0].StartTimeUnixNano, batch.EndTimeUnixNano)
	}
	// Hooks before the tool run once: before the person is asked.
	places := map[string]bool{}
	for _, hook := range c.has(t, agentsTrace, "hook PreToolUse", 2) {
		places[hook.is("toolyard.hook")] = true
		if hook.parent() != calls[0].id() || hook.is("error.type") != "" {
			t.Errorf("%s is under %s, want %s", hook.Name, hook.parent(), calls[0].id())
		}
	}
	if len(places) != 2 || places[""] {
		t.Errorf("the hooks are %v", places)
	}
	if hook := c.has(t, agentsTrace, "hook PostToolUse", 1)[0]; hook.parent() != calls[1].id() ||
		hook.is("error.type") != "broken" {
		t.Errorf("%s is under %s, want %s; it ended with %q", hook.Name, hook.parent(), calls[1].id(),
			hook.is("error.type"))
	}
	if hook := c.has(t, agentsTrace, "hook PostToolBatch", 1)[0]; hook.parent() != batch.id() {
		t.Errorf("%s is under %s, want the batch %s", hook.Name, hook.parent(), batch.id())
	}
}
