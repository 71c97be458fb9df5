//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestOverlay: the example leaves the workspace as it is until its overlay is committed, what others have changed stops
// a commit, and a commit can be undone.
func TestOverlay(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"note.txt": "one\n", ".git/HEAD": "ref: refs/heads/main\n"})
	before := filesIn(t, dir)
	d := dispatcher(t)
	url, http1 := d.says["nats"], d.says["http"]
	worker(t, url, dir, "--permission-mode", "accept_edits", "--snapshots", filepath.Join(t.TempDir(), "snapshots"),
		"--allow", toolyard.OverlayTool, "--allow", toolyard.UndoTool, "--allow", "bash")
	submit := func(id string, more ...string) toolyard.BatchView {
		t.Helper()
		stdout, stderr, _ := run(t, nil, "dispatcher", append([]string{"submit", "--nats", url, "--json", "--id", id},
			more...)...)
		v := viewOf(t, stdout)
		if len(v.Results) == 0 {
			t.Fatalf("%s%s", stdout, stderr)
		}
		return v
	}
	use := func(wantStatus int, says string, args ...string) string {
		t.Helper()
		if args[0] != "undo" {
			args = append([]string{"overlay"}, args...)
		}
		stdout, stderr, status := run(t, nil, "dispatcher", slices.Concat(args[:1], []string{"--nats", url},
			args[1:])...)
		all := strings.Join(strings.Fields(strings.ReplaceAll(stdout+stderr, "|", "")), " ")
		if status != wantStatus || !strings.Contains(all, says) {
			t.Fatalf("%q: status %d, want %d and %q:\n%s%s", args, status, wantStatus, says, stdout, stderr)
		}
		return all
	}
	const example = "../../examples/overlay/batch.json"
	v := submit("first", example)
	for _, r := range v.Results {
		if r.IsError {
			t.Fatalf("%+v", r)
		}
	}
	sameFiles(t, "the batch ran", dir, before)
	if !strings.Contains(v.Results[1].Output, "two") {
		t.Errorf("a read of the batch does not see what it wrote: %s", v.Results[1].Output)
	}
	last := v.Results[2].Overlay
	if last == nil || last.Added != 2 || last.Changed != 1 || last.Removed != 0 || len(last.Paths) != 3 ||
		last.Paths[2] != (toolyard.OverlayPath{Path: "note.txt", Change: toolyard.OverlayChanged}) ||
		v.Results[1].Overlay != nil {
		t.Errorf("%v, %+v", last, v.Results)
	}
	if text := use(0, `changed "note.txt"`, "diff", "first"); !strings.Contains(text, "-one +two") {
		t.Errorf("%s", text)
	}
	use(0, "The changes of batch first are in the workspace: 2 added, 1 changed", "commit", "--id", "commits",
		"first")
	after := filesIn(t, dir)
	if after["note.txt"] != "two\n" || after["made/new.txt"] != "new\n" {
		t.Fatalf("%q", after)
	}
	use(1, "is committed already", "drop", "first")
	use(0, "The workspace is as it was", "undo", "commits")
	sameFiles(t, "the commit was undone", dir, before)

	// A command too runs on the copy, and one of another batch in between stops the commit of its names.
	v = submit("second", "--overlay", batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{Tool: "bash", Input: input(map[string]any{"command": "echo three > note.txt; rm -r .git; mkdir d"})}}}))
	if r := v.Results[0]; r.IsError || r.Overlay == nil || r.Overlay.Changed != 1 || r.Overlay.Added != 1 {
		t.Fatalf("%+v", r)
	}
	// A name may be a secret that a command has found.
	token := "ghp_" + strings.Repeat("a1B2", 9)
	v = submit("names", "--overlay", batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{Tool: "bash", Input: input(map[string]any{"command": "mkdir d; >d/" + token})}}}))
	if r := v.Results[0]; r.IsError || r.Overlay == nil || r.Overlay.Added != 2 ||
		r.Overlay.Paths[1].Path != "d/[redacted: GitHub token]" {
		t.Errorf("%+v", r.Overlay)
	}
	submit("between", batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{Tool: "write_file", Input: input(map[string]any{"file_path": "other.txt", "content": "x"})},
		{Tool: "write_file", Input: input(map[string]any{"file_path": "note.txt", "content": "theirs"})}}}))
	now := filesIn(t, dir)
	use(1, `such as ["note.txt"]`, "commit", "second")
	sameFiles(t, "refused", dir, now)
	resp, err := http.Post(http1+"/v1/batches/second/overlay", "application/json",
		bytes.NewReader([]byte(`{"action": "commit", "force": true}`)))
	must.OK(t, err)
	var made toolyard.BatchView
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || resp.Body.Close() != nil ||
		resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%s %+v %v", resp.Status, made, err)
	}
	testenv.Until(t, "the commit over HTTP", func() bool {
		resp, err := http.Get(http1 + "/v1/batches/" + string(made.ID) + "?wait=30")
		must.OK(t, err)
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode == http.StatusOK
	})
	now["note.txt"], now["d/"] = "three\n", ""
	delete(now, ".git/HEAD") // the directory itself is held in place for commands
	sameFiles(t, "by force", dir, now)

	submit("third", "--overlay", example)
	use(1, "was not handed in with the option overlay", "diff", "between")
	use(0, "The overlay of batch third is gone", "drop", "third")
	use(1, "is dropped already", "commit", "third")
	sameFiles(t, "dropped", dir, now)
	stdout, _, _ := run(t, nil, "dispatcher", "tools", "--nats", url, "--json")
	if strings.Contains(stdout, toolyard.OverlayTool) || !strings.Contains(stdout, "read_file") {
		t.Errorf("models are offered: %s", stdout)
	}
	stdout, _, _ = run(t, nil, "dispatcher", "submit", "--nats", url, "--json", batchFile(t, toolyard.Batch{
		Calls: []toolyard.Call{{Tool: toolyard.OverlayTool, Input: input(map[string]any{"batch": "third",
			"action": "commit"})}}}))
	if r := viewOf(t, stdout).Results; len(r) != 1 || r[0].Code != toolyard.UnknownTool {
		t.Errorf("a model's call: %+v", r)
	}
}

// TestAnOverlayHasTheRulesOfItsWorkspace: what rules and git's configuration say of paths from the root of the machine
// to the workspace holds in the copy, too.
func TestAnOverlayHasTheRulesOfItsWorkspace(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"secret/key.txt": "hush\n", "docs/a.txt": "a\n", "tools/run.sh": "old\n",
		".git/HEAD": "ref: refs/heads/main\n"})
	must.OK(t, os.WriteFile(filepath.Join(dir, ".git/config"), []byte("[core]\n\thooksPath = "+dir+"/tools\n"), 0o600))
	url := dispatcher(t).says["nats"]
	worker(t, url, dir, "--permission-mode", "accept_edits", "--snapshots", filepath.Join(t.TempDir(), "snapshots"),
		"--allow", "bash", "--deny", "read_file("+dir+"/secret)", "--ask", "write_file("+dir+"/docs)",
		"--allow", "edit_file("+dir+"/tools/**)")
	for _, overlay := range []bool{true, false} {
		args := []string{"submit", "--nats", url, "--json"}
		if overlay {
			args = append(args, "--overlay")
		}
		stdout, stderr, _ := run(t, nil, "dispatcher", append(args, batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
			{Tool: "read_file", Input: input(map[string]any{"file_path": "secret/key.txt"})},
			{Tool: "grep", Input: input(map[string]any{"pattern": "hush"})},
			{Tool: "bash", Input: input(map[string]any{"command": "cat secret/key.txt"})},
			{Tool: "write_file", Input: input(map[string]any{"file_path": "docs/a.txt", "content": "b"})},
			{Tool: "write_file", Input: input(map[string]any{"file_path": "tools/run.sh", "content": "evil"})},
			{Tool: "bash", Input: input(map[string]any{"command": "echo evil >tools/run.sh"})},
			{Tool: "edit_file", Input: input(map[string]any{"file_path": "tools/run.sh", "old_string": "old",
				"new_string": "new"})},
		}}))...)
		v := viewOf(t, stdout)
		if len(v.Results) != 7 {
			t.Fatalf("%s%s", stdout, stderr)
		}
		for i, want := range []toolyard.Code{toolyard.PermissionDenied, "", toolyard.ExecutionFailed,
			toolyard.PermissionDenied, toolyard.PermissionDenied, toolyard.ExecutionFailed, ""} {
			if r := v.Results[i]; r.Code != want || strings.Contains(r.Output+r.Error, "hush\n") {
				t.Errorf("overlay %t, call %d: code %q, want %q: %s%s", overlay, i, r.Code, want, r.Output, r.Error)
			}
		}
	}
}

// TestWhatAKilledWorkerLeavesInAnOverlay: what its sandbox has made there for the time of a command is undone before
// anybody looks at the overlay, and is not committed.
func TestWhatAKilledWorkerLeavesInAnOverlay(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"note.txt": "one\n"})
	want := filesIn(t, dir)
	want["note.txt"], want["made"] = "two\n", ""
	url := dispatcher(t).says["nats"]
	snapshots := filepath.Join(t.TempDir(), "snapshots")
	args := []string{"--permission-mode", "accept_edits", "--snapshots", snapshots, "--allow", "bash", "--allow",
		toolyard.OverlayTool}
	first := worker(t, url, dir, args...)
	done := make(chan string, 1)
	go func() {
		stdout, _, _ := run(t, nil, "dispatcher", "submit", "--nats", url, "--json", "--id", "killed", "--overlay",
			batchFile(t, toolyard.Batch{Calls: []toolyard.Call{{Tool: "bash",
				Input: input(map[string]any{"command": "echo two >note.txt; >made; sleep 600"})}}}))
		done <- stdout
	}()
	testenv.Until(t, "the command runs", func() bool {
		found, err := filepath.Glob(filepath.Join(snapshots, "*", "overlays", "*", "tree", "made"))
		must.OK(t, err)
		return len(found) > 0
	})
	first.stop(syscall.SIGKILL)
	if r := viewOf(t, <-done).Results; len(r) != 1 || r[0].Code != toolyard.OutcomeUnknown {
		t.Fatalf("%+v", r)
	}
	worker(t, url, dir, args...)
	for _, action := range []string{"diff", "commit"} {
		stdout, stderr, status := run(t, nil, "dispatcher", "overlay", action, "--nats", url, "killed")
		if status != 0 || !strings.Contains(stdout, "1 added, 1 changed") {
			t.Errorf("%s: status %d: %s%s", action, status, stdout, stderr)
		}
	}
	sameFiles(t, "committed", dir, want)
}

// TestAnEditIsCheckedInTheOverlay: what a person makes of an input is checked where the call would run.
func TestAnEditIsCheckedInTheOverlay(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"note.txt": "one\n"})
	url := dispatcher(t).says["nats"]
	worker(t, url, dir, "--permission-mode", "accept_edits", "--ask", "edit_file", "--snapshots",
		filepath.Join(t.TempDir(), "snapshots"))
	done := make(chan string, 1)
	go func() {
		stdout, _, _ := run(t, nil, "dispatcher", "submit", "--nats", url, "--json", "--id", "asks", "--overlay",
			"--interactive", batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
				{Tool: "write_file", Input: input(map[string]any{"file_path": "note.txt", "content": "two\n"})},
				{Tool: "edit_file", Input: input(map[string]any{"file_path": "note.txt", "old_string": "two",
					"new_string": "three"})}}}))
		done <- stdout
	}()
	testenv.Until(t, "the call waits", func() bool {
		stdout, _, _ := run(t, nil, "dispatcher", "approvals", "--nats", url, "--json")
		return strings.Contains(stdout, "default.asks.1")
	})
	edited := string(input(map[string]any{"file_path": "note.txt", "old_string": "two", "new_string": "four"}))
	_, stderr, status := run(t, nil, "dispatcher", "approve", "--nats", url, "--input", edited, "default.asks.1")
	if status != 0 {
		t.Errorf("status %d: %s", status, stderr)
		_, _, _ = run(t, nil, "dispatcher", "deny", "--nats", url, "default.asks.1")
	}
	if r := viewOf(t, <-done).Results; len(r) != 2 || r[1].IsError || !strings.Contains(r[1].Output, "note.txt") {
		t.Errorf("%+v", r)
	}
}

// TestOverlaysFailClosed: where there is none, or a call could change more than it, nothing runs.
func TestOverlaysFailClosed(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"note.txt": "one\n"})
	before := filesIn(t, dir)
	d := dispatcher(t)
	url := d.says["nats"]
	none := worker(t, url, dir, "--permission-mode", "accept_edits", "--snapshots", "none")
	stdout, _, _ := run(t, nil, "dispatcher", "submit", "--nats", url, "--json", "../../examples/overlay/batch.json")
	for _, r := range viewOf(t, stdout).Results {
		if r.Code != toolyard.SetupRequired || r.Attempts != 0 || !strings.Contains(r.Error, "this worker keeps none") {
			t.Errorf("%+v", r)
		}
	}
	if status := none.stop(syscall.SIGTERM); status != 0 {
		t.Errorf("the worker ended with status %d", status)
	}
	hits := make(chan string, 1)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case hits <- r.URL.Path:
		default:
		}
	}))
	defer service.Close()
	manifest := filepath.Join(t.TempDir(), "tools.json")
	declared := `{"tools": [{"name": "order", "description": "Orders something.", "http": {"url": "` + service.URL +
		`/order", "method": "POST"}, "input_schema": {"type": "object"}}]}`
	must.OK(t, os.WriteFile(manifest, []byte(declared), 0o600))
	worker(t, url, dir, "--permission-mode", "accept_edits", "--tools", manifest, "--allow", "order",
		"--snapshots", filepath.Join(t.TempDir(), "snapshots"))
	stdout, _, _ = run(t, nil, "dispatcher", "submit", "--nats", url, "--json", "--overlay",
		batchFile(t, toolyard.Batch{Calls: []toolyard.Call{{Tool: "order", Input: input(map[string]any{})}}}))
	if r := viewOf(t, stdout).Results; len(r) != 1 || r[0].Code != toolyard.SandboxViolation || r[0].Attempts != 0 ||
		!strings.Contains(r[0].Error, "could change more than the workspace's files") || len(hits) > 0 {
		t.Errorf("a call of a service: %s", stdout)
	}
	sameFiles(t, "nothing ran", dir, before)
	_, stderr, status := run(t, nil, "dispatcher", "run", "--workspace", dir, "../../examples/overlay/batch.json")
	if status != 2 || !strings.Contains(stderr, "for a system that stays") {
		t.Errorf("run: status %d, %s", status, stderr)
	}
}
