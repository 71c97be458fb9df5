//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

// said runs a command that must succeed, and returns what it printed.
func said(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, status := run(t, nil, "dispatcher", args...)
	if status != 0 {
		t.Fatalf("dispatcher %q: status %d\n%s%s", args, status, stdout, stderr)
	}
	return stdout
}

// waiting waits until so many calls wait for a person.
func waiting(t *testing.T, url string, n int) []client.Approval {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var list []client.Approval
		if err := json.Unmarshal([]byte(said(t, "approvals", "--nats", url, "--json")), &list); err != nil {
			t.Fatal(err)
		}
		if len(list) == n {
			return list
		}
	}
	t.Fatalf("not within 30 s: %d calls wait for a person", n)
	return nil
}

// TestAnApprovalSurvivesKills parks a batch on a person, kills dispatcher and worker without a word, starts others on
// the same data, and lets the person decide.
func TestAnApprovalSurvivesKills(t *testing.T) {
	t.Parallel()
	dir, data := workspace(t, map[string]string{"a.txt": "one\n"}), t.TempDir()
	d := dispatcher(t, "--data", data)
	w := worker(t, d.says["nats"], dir)
	file := batchFile(t, toolyard.Batch{Agent: "agent-1", ID: "parked", Session: "s-1", Interactive: true,
		Calls: []toolyard.Call{
			{ID: "c1", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})},
			{ID: "c2", Tool: "write_file", Input: input(map[string]any{"file_path": "b.txt", "content": "two\n"})},
			{ID: "c3", Tool: "read_file", Input: input(map[string]any{"file_path": "b.txt"})},
		}})
	submitted := make(chan string, 1)
	go func() {
		stdout, _, _ := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], "--json", file)
		submitted <- stdout
	}()
	list := waiting(t, d.says["nats"], 1)
	if text := said(t, "approvals", "--nats", d.says["nats"]); !strings.Contains(text, "write_file") ||
		!strings.Contains(text, "1 call waits") || !strings.Contains(text, "b.txt") ||
		!strings.Contains(text, "what it would change") || !strings.Contains(text, "+ two") {
		t.Errorf("the list for people:\n%s", text)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if strings.Contains(said(t, "batches", "--nats", d.says["nats"], "--agent", "agent-1", "--session", "s-1"),
			"waiting") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the batch does not wait")
		}
	}
	w.stop(syscall.SIGKILL)
	d.stop(syscall.SIGKILL)

	d = dispatcher(t, "--data", data)
	url := d.says["nats"]
	worker(t, url, dir)
	if _, err := os.Stat(filepath.Join(dir, "b.txt")); err == nil {
		t.Fatal("the call ran before anybody allowed it")
	}
	if got := waiting(t, url, 1); got[0].ID != list[0].ID {
		t.Errorf("after the restart %q waits, not %q", got[0].ID, list[0].ID)
	}
	if _, stderr, status := run(t, nil, "dispatcher", "approve", "--nats", url, "--input-sha256", "00",
		list[0].ID); status != 2 || !strings.Contains(stderr, "does not wait with the input that was shown") {
		t.Errorf("an approval of another input: status %d, %s", status, stderr)
	}
	said(t, "approve", "--nats", url, "--by", "ann", "--remember", "session", list[0].ID)
	v := viewOf(t, said(t, "submit", "--nats", url, "--json", file))
	if len(v.Results) != 3 || v.Status != toolyard.StatusCompleted {
		t.Fatalf("got %+v", v)
	}
	for i, r := range v.Results {
		if r.IsError || r.Attempts != 1 {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	if v.Results[1].ApprovalWaitMS <= 0 {
		t.Errorf("the write waited %v ms for a person", v.Results[1].ApprovalWaitMS)
	}
	if _, stderr, status := run(t, nil, "dispatcher", "deny", "--nats", url, list[0].ID); status != 2 ||
		!strings.Contains(stderr, "has its result") {
		t.Errorf("a decision that comes too late: status %d, %s", status, stderr)
	}
	if text := said(t, "session", "--nats", url, "--agent", "agent-1", "s-1"); !strings.Contains(text,
		"allowed: write_file(./b.txt)") {
		t.Errorf("the session:\n%s", text)
	}
	if text := said(t, "replay", "--nats", url, "--agent", "agent-1", "parked"); !strings.Contains(text,
		"ann says yes") {
		t.Errorf("the replay does not say who decided:\n%s", text)
	}
	if _, stderr, status := run(t, nil, "dispatcher", "approve", "--nats", url, "nonsense"); status != 2 ||
		!strings.Contains(stderr, "AGENT.BATCH.INDEX") {
		t.Errorf("an id that is none: status %d, %s", status, stderr)
	}
}

// TestAnInterruptedSession stops a batch that waits for a person through the command.
func TestAnInterruptedSession(t *testing.T) {
	t.Parallel()
	dir := workspace(t, nil)
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir)
	url := d.says["nats"]
	file := batchFile(t, toolyard.Batch{Agent: "agent-1", ID: "stopped", Session: "s-1", Calls: []toolyard.Call{
		{ID: "c1", Tool: "write_file", Input: input(map[string]any{"file_path": "b.txt", "content": "two\n"})},
	}})
	done := make(chan string, 1)
	go func() {
		stdout, _, _ := run(t, nil, "dispatcher", "submit", "--nats", url, "--interactive", "--json", file)
		done <- stdout
	}()
	waiting(t, url, 1)
	if text := said(t, "interrupt", "--resolve", "--nats", url, "--agent", "agent-1",
		"s-2"); text != "no call of session s-2 of agent-1 waits for a person; nothing was ended\n" {
		t.Errorf("of another session it says %s", text)
	}
	if text := said(t, "interrupt", "--nats", url, "--agent", "agent-1", "--reason", "the user said stop",
		"s-1"); !strings.Contains(text, "1 batch") {
		t.Errorf("it says %s", text)
	}
	if v := viewOf(t, <-done); v.Results[0].Code != toolyard.Canceled ||
		!strings.Contains(v.Results[0].Error, "the user said stop") {
		t.Errorf("got %+v", v.Results[0])
	}
	waiting(t, url, 0)
}

// TestASessionIsResolved ends what waits for a person through the command, in words and as JSON. The rest of the batch
// goes on.
func TestASessionIsResolved(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t, "--with-worker", "--workspace", "default="+dir)
	url := d.says["nats"]
	file := batchFile(t, toolyard.Batch{Session: "s-1", Calls: []toolyard.Call{
		{ID: "c1", Tool: "write_file", Input: input(map[string]any{"file_path": "b.txt", "content": "two\n"})},
		{ID: "c2", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})},
	}})
	for _, c := range []struct{ flag, says, reason string }{
		{"--reason=no time", "1 call of session s-1 of default waited for a person; that is over, in 1 batch\n",
			"no time"},
		{"--json", `"calls": 1`, "the session was interrupted"},
	} {
		done := make(chan string, 1)
		go func() {
			stdout, _, _ := run(t, nil, "dispatcher", "submit", "--nats", url, "--interactive", "--json", file)
			done <- stdout
		}()
		waiting(t, url, 1)
		if text := said(t, "interrupt", "--resolve", c.flag, "--nats", url, "s-1"); !strings.Contains(text, c.says) {
			t.Errorf("it says %s", text)
		}
		v := viewOf(t, <-done)
		if r := v.Results[0]; r.Code != toolyard.ApprovalExpired || !strings.Contains(r.Error,
			"Nobody decided about this call before the session went on: "+c.reason+".") {
			t.Errorf("what waited: %+v", r)
		}
		if r := v.Results[1]; r.IsError {
			t.Errorf("the call behind it: %+v", r)
		}
	}
}
