//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestCommandsOverHTTP: what a command does at --nats it does at --server, with a token, and the two see the same.
func TestCommandsOverHTTP(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	tokens := must.File(t, "tokens", "tok-ann ann interactive=yes\ntok-op *\n")
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir, "--token-file", tokens)
	at := func(token string, args ...string) []string {
		return slices.Concat(args[:1], []string{"--server", d.says["http"], "--token", token}, args[1:])
	}
	refuses := func(status int, says string, args ...string) {
		t.Helper()
		if stdout, stderr, got := run(t, nil, "dispatcher", args...); got != status ||
			!strings.Contains(stderr, says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("dispatcher %q: status %d, want %d with %q\n%s%s", args, got, status, says, stdout, stderr)
		}
	}
	// The tools are the same from either side, but for what the dispatcher's caller takes out.
	overHTTP, overNATS := said(t, at("tok-ann", "tools", "--format", "anthropic", "--deny", "bash")...),
		said(t, "tools", "--nats", d.says["nats"], "--format", "anthropic", "--deny", "bash")
	if overHTTP != overNATS || !strings.Contains(overHTTP, `"read_file"`) || strings.Contains(overHTTP, `"bash"`) {
		t.Errorf("the tools over HTTP:\n%s\nover NATS:\n%s", overHTTP, overNATS)
	}
	said(t, at("tok-ann", "tools", "--format", "openai", "--session", "s")...)
	refuses(2, "exclude each other", at("tok-ann", "tools", "--nats", d.says["nats"])...)
	// The batch is the token's agent's, who is named nowhere else.
	file := batchFile(t, toolyard.Batch{ID: "b", Session: "s", Interactive: true, Calls: []toolyard.Call{
		{ID: "c1", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})},
		{ID: "c2", Tool: "write_file", Input: input(map[string]any{"file_path": "b.txt", "content": "two\n"})},
	}})
	log := filepath.Join(t.TempDir(), "log.jsonl")
	submitted := make(chan string, 1)
	go func() {
		stdout, stderr, _ := run(t, nil, "dispatcher", at("tok-ann", "submit", "--json", "--events", log, file)...)
		submitted <- stdout + stderr
	}()
	var list []client.Approval
	for deadline := time.Now().Add(30 * time.Second); len(list) == 0; time.Sleep(20 * time.Millisecond) {
		if err := json.Unmarshal([]byte(said(t, at("tok-ann", "approvals", "--json")...)), &list); err != nil ||
			time.Now().After(deadline) {
			t.Fatal("no call waits for a person", err)
		}
	}
	if list[0].Agent != "ann" || list[0].Tool != "write_file" {
		t.Errorf("%+v", list)
	}
	if text := said(t, at("tok-op", "batches", "--agent", "ann", "--session", "s")...); !strings.Contains(text,
		"ann/b") {
		t.Errorf("the list:\n%s", text)
	}
	refuses(1, "operator's token", at("tok-ann", "approve", "--input-sha256", list[0].InputSHA256, list[0].ID)...)
	said(t, at("tok-op", "approve", "--remember", "session", "--input-sha256", list[0].InputSHA256, list[0].ID)...)
	refuses(2, "", at("tok-op", "deny", list[0].ID)...)
	var v toolyard.BatchView
	if out := <-submitted; json.Unmarshal([]byte(out), &v) != nil || v.Agent != "ann" ||
		v.Status != toolyard.StatusCompleted || len(v.Results) != 2 || v.Results[1].IsError {
		t.Fatalf("submit says\n%s", out)
	}
	watched := said(t, at("tok-ann", "watch", "--json", "b")...)
	kept, err := os.ReadFile(log)
	if err != nil || len(strings.Split(string(kept), "\n")) != len(strings.Split(watched, "\n")) {
		t.Errorf("watched\n%s\nkept, %v\n%s", watched, err, kept)
	}
	var reports [2]struct {
		Batch toolyard.BatchView `json:"batch"`
	}
	for i, args := range [][]string{at("tok-ann", "replay", "--json", "b"),
		{"replay", "--nats", d.says["nats"], "--agent", "ann", "--json", "b"}} {
		must.OK(t, json.Unmarshal([]byte(said(t, args...)), &reports[i]))
	}
	if a, b := encoded(t, reports[0]), encoded(t, reports[1]); a != b || len(reports[0].Batch.Results) != 2 {
		t.Errorf("a replay over HTTP\n%s\nover NATS\n%s", a, b)
	}
	if text := said(t, at("tok-ann", "session", "s")...); !strings.Contains(text, "allowed: ") {
		t.Errorf("the session:\n%s", text)
	}
	if text := said(t, at("tok-ann", "session", "--forget", "s")...); strings.Contains(text, "allowed: ") {
		t.Errorf("the session, when it has forgotten:\n%s", text)
	}
	said(t, at("tok-ann", "interrupt", "s")...)
	if text := said(t, at("tok-ann", "workers")...); !strings.Contains(text, "1 worker") {
		t.Errorf("the workers:\n%s", text)
	}
	if text := said(t, at("tok-op", "dead")...); !strings.Contains(text, "0 dead letters") {
		t.Errorf("the dead letters:\n%s", text)
	}
	refuses(1, "operator's token", at("tok-ann", "dead")...)
	refuses(2, "every call of ann/b has its result", at("tok-ann", "cancel", "b")...)
	refuses(2, "no such batch", at("tok-ann", "watch", "nope")...)
	refuses(1, "none of this server's", at("wrong", "batches")...)
	refuses(2, "exclude each other", at("tok-ann", "batches", "--nats", d.says["nats"])...)
	refuses(2, "not the URL of a server", "batches", "--server", "nats://127.0.0.1")
	refuses(1, "connect to Toolyard at http://127.0.0.1:1", "batches", "--server", "http://127.0.0.1:1")
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.MarshalIndent(v, "", " ")
	must.OK(t, err)
	return string(raw)
}
