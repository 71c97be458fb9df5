//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestUndo: the example is undone, by a group and as a whole, by a person's leave and by a rule, over NATS and HTTP.
// What others changed since is lost by force only.
func TestUndo(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"note.txt": "one\n", ".git/HEAD": "ref: refs/heads/main\n"})
	before := filesIn(t, dir)
	d := dispatcher(t)
	url, snapshots := d.says["nats"], filepath.Join(t.TempDir(), "snapshots")
	asks := worker(t, url, dir, "--permission-mode", "accept_edits", "--snapshots", snapshots)
	submit := func(id string, more ...string) toolyard.BatchView {
		t.Helper()
		args := append([]string{"submit", "--nats", url, "--json", "--id", id}, more...)
		stdout, stderr, status := run(t, nil, "dispatcher", args...)
		v := viewOf(t, stdout)
		for _, r := range v.Results {
			if r.IsError {
				t.Fatalf("status %d, %s: %s", status, stderr, r.Error)
			}
		}
		return v
	}
	undo := func(wantStatus int, says string, args ...string) string {
		t.Helper()
		where := []string{"--nats", url}
		if slices.Contains(args, "--server") {
			where = nil
		}
		stdout, stderr, status := run(t, nil, "dispatcher", slices.Concat([]string{"undo"}, where, args)...)
		// as if no line were broken
		all := strings.Join(strings.Fields(strings.ReplaceAll(stdout+stderr, "|", "")), " ")
		if status != wantStatus || !strings.Contains(all, says) {
			t.Fatalf("undo %q: status %d, want %d and %q:\n%s%s", args, status, wantStatus, says, stdout, stderr)
		}
		return all
	}
	const example = "../../examples/undo/batch.json"
	first := submit("first", example)
	after := filesIn(t, dir)
	if after["note.txt"] != "two\n" || after["made/new.txt"] != "new\n" || len(first.Groups) != 3 {
		t.Fatalf("%q, groups %v", after, first.Groups)
	}
	undo(1, "Permission is needed", "first")
	sameFiles(t, "without permission", dir, after)

	asked := make(chan string)
	go func() {
		stdout, stderr, status := run(t, nil, "dispatcher", "undo", "--nats", url, "--interactive", "--id", "asked",
			"first")
		if status != 0 {
			stdout += stderr
		}
		asked <- stdout
	}()
	said(t, "approve", "--nats", url, waiting(t, url, 1)[0].ID)
	if text := <-asked; !strings.Contains(text, "The workspace is as it was before group 1 of batch first") {
		t.Errorf("%s", text)
	}
	sameFiles(t, "undone", dir, before)

	if status := asks.stop(syscall.SIGTERM); status != 0 {
		t.Errorf("the worker ended with status %d", status)
	}
	worker(t, url, dir, "--permission-mode", "accept_edits", "--snapshots", snapshots, "--allow", toolyard.UndoTool)
	undo(0, "", "asked") // what was undone is undone
	sameFiles(t, "undone twice", dir, after)
	undo(1, "has no snapshot before group 2; groups with one are 1, 3, counted from 1", "--group", "2", "first")
	undo(2, "no such batch", "nobody's")

	second := "second"
	submit(second, "--snapshot", batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{Tool: "write_file", Input: input(map[string]any{"file_path": "a", "content": "a"})},
		{Tool: "write_file", Input: input(map[string]any{"file_path": "b", "content": "b"})}}}))
	undo(0, "before group 2 of batch second", "--group", "2", second)
	now := filesIn(t, dir)
	if _, ok := now["b"]; ok || now["a"] != "a" {
		t.Errorf("before the second group there is %q", now)
	}
	submit("theirs", "--agent", "other", batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{Tool: "write_file", Input: input(map[string]any{"file_path": "theirs", "content": "x"})}}}))
	undo(1, "was not handed in with the option snapshot", "--agent", "other", "theirs")
	if text := undo(1, `such as ["theirs"]`, second); !strings.Contains(text, `batch "theirs" of agent "other"`) {
		t.Errorf("the refusal does not say who it was: %s", text)
	}
	undo(0, "", "--force", "--server", d.says["http"], second)
	sameFiles(t, "by force", dir, after)

	resp, err := http.Post(d.says["http"]+"/v1/batches/first/undo", "application/json",
		bytes.NewReader([]byte(`{"force": true}`)))
	must.OK(t, err)
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%s %s %v", resp.Status, body, err)
	}
	var v toolyard.BatchView
	must.OK(t, json.Unmarshal(body, &v))
	testenv.Until(t, "the batch over HTTP", func() bool {
		resp, err := http.Get(d.says["http"] + resp.Header.Get("Location") + "?wait=30")
		must.OK(t, err)
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode == http.StatusOK
	})
	sameFiles(t, "over HTTP", dir, before)

	stdout, _, _ := run(t, nil, "dispatcher", "tools", "--nats", url, "--json")
	if strings.Contains(stdout, toolyard.UndoTool) || !strings.Contains(stdout, "read_file") {
		t.Errorf("models are offered: %s", stdout)
	}
	stdout, _, _ = run(t, nil, "dispatcher", "submit", "--nats", url, "--json", batchFile(t, toolyard.Batch{
		Calls: []toolyard.Call{{Tool: toolyard.UndoTool, Input: input(map[string]any{"batch": "first"})}}}))
	if r := viewOf(t, stdout).Results; len(r) != 1 || r[0].Code != toolyard.UnknownTool {
		t.Errorf("a model's call: %+v", r)
	}
}

// TestUndoIsOfTheBatchAlone: background calls and calls of scripts are batches, which are undone by their own ids. A
// batch before whose first snapshot they may have changed the workspace is not said to be undone without them.
func TestUndoIsOfTheBatchAlone(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"note.txt": "one\n"})
	before := filesIn(t, dir)
	d := dispatcher(t, "--run-code")
	url := d.says["nats"]
	worker(t, url, dir, "--permission-mode", "accept_edits", "--snapshots", filepath.Join(t.TempDir(), "snapshots"),
		"--background", "--run-code", "--allow", toolyard.RunCodeTool, "--allow", toolyard.UndoTool)
	write := func(name string) map[string]any { return map[string]any{"file_path": name, "content": name} }
	start := toolyard.Call{Tool: toolyard.BackgroundStart, Input: input(map[string]any{"tool": "write_file",
		"input": write("started"), "workspace": true, "wait_ms": 300_000})}
	script := toolyard.Call{Tool: toolyard.RunCodeTool, Input: input(map[string]any{
		"code": "from toolyard import call\ncall('write_file', file_path='called', content='x')"})}
	own := toolyard.Call{Tool: "write_file", Input: input(write("own"))}
	child := func(of toolyard.BatchID) string {
		return string(submission.ChildID(toolyard.Parent{Batch: of, Attempt: 1, N: 1}))
	}
	background := func(of toolyard.BatchID) string {
		return string(toolyard.BackgroundID(toolyard.BatchKey{Agent: toolyard.DefaultAgent, ID: of}, 0, true))
	}
	undo := func(wantStatus int, says string, args ...string) {
		t.Helper()
		stdout, stderr, status := run(t, nil, "dispatcher", append([]string{"undo", "--nats", url}, args...)...)
		all := strings.Join(strings.Fields(strings.ReplaceAll(stdout+stderr, "|", "")), " ")
		if status != wantStatus || !strings.Contains(all, says) {
			t.Errorf("undo %q: status %d, want %d and %q:\n%s", args, status, wantStatus, says, all)
		}
	}
	for _, c := range []struct {
		id      string
		calls   []toolyard.Call
		made    string
		ownsToo bool
		sandbox bool
	}{
		{"starts", []toolyard.Call{start}, background("starts"), false, false},
		{"starts-and-writes", []toolyard.Call{start, own}, background("starts-and-writes"), true, false},
		{"calls-and-writes", []toolyard.Call{script, own}, child("calls-and-writes"), true, true},
	} {
		if c.sandbox && commandCode(t) != toolyard.OK {
			continue
		}
		stdout, stderr, status := run(t, nil, "dispatcher", "submit", "--nats", url, "--json", "--snapshot", "--id",
			c.id, batchFile(t, toolyard.Batch{Calls: c.calls}))
		for _, r := range viewOf(t, stdout).Results {
			if r.IsError {
				t.Fatalf("%s: status %d, %s: %s", c.id, status, stderr, r.Error)
			}
		}
		undo(1, c.made, c.id)
		if c.ownsToo {
			undo(0, "before group 2 of batch "+c.id, "--group", "2", c.id)
		}
		undo(0, "as it was before group 1", c.made)
		sameFiles(t, c.id, dir, before)
	}
}

// TestSnapshotsFailClosed: where none can be kept nothing runs that asks for one, and the rest runs.
func TestSnapshotsFailClosed(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"note.txt": "one\n"})
	d := dispatcher(t)
	worker(t, d.says["nats"], dir, "--permission-mode", "accept_edits", "--snapshots", "none")
	stdout, _, _ := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], "--json",
		"../../examples/undo/batch.json")
	results := viewOf(t, stdout).Results
	if len(results) != 3 || results[0].Code != toolyard.SetupRequired || results[0].Attempts != 0 ||
		!strings.Contains(results[0].Error, "this worker keeps no snapshots") || results[1].Code != "" ||
		results[2].Code != toolyard.SetupRequired {
		t.Errorf("%s", stdout)
	}
	sameFiles(t, "nothing ran", dir, map[string]string{"./": "", "note.txt": "one\n"})
	_, stderr, status := run(t, nil, "dispatcher", "run", "--workspace", dir, "../../examples/undo/batch.json")
	if status != 2 || !strings.Contains(stderr, "for a system that stays") {
		t.Errorf("run: status %d, %s", status, stderr)
	}
}
