//go:build linux

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestBackground: the example runs a command in the background, without a directory of the workspace, in one process
// and in a system. Without the flag there are no such tools.
func TestBackground(t *testing.T) {
	t.Parallel()
	const example = "../../examples/background/batch.json"
	dir := workspace(t, map[string]string{"note.md": "one\n"})
	check := func(what, stdout, stderr string, status int) {
		t.Helper()
		var v toolyard.BatchView
		if err := json.Unmarshal([]byte(stdout), &v); err != nil || status != 0 || len(v.Results) != 4 {
			t.Fatalf("%s: %d, %v: %s\n%s", what, status, err, stdout, stderr)
		}
		for i, want := range []string{"[background call bg-", "note.md", "[background call bg-", "building\nbuilt\n"} {
			if r := v.Results[i]; r.IsError || !strings.Contains(r.Output, want) {
				t.Errorf("%s: call %d: %+v", what, i, r)
			}
		}
	}
	allow := []string{"--background", "--allow", "bash"}
	stdout, stderr, status := run(t, nil, "dispatcher", append([]string{"run", "--json", "--workspace", dir, example},
		allow...)...)
	check("run", stdout, stderr, status)
	d := dispatcher(t)
	worker(t, d.says["nats"], dir, allow...)
	submit := []string{"submit", "--nats", d.says["nats"], "--json", example}
	stdout, stderr, status = run(t, nil, "dispatcher", submit...)
	check("submit", stdout, stderr, status)
	// the background call is a batch like others
	stdout, stderr, status = run(t, nil, "dispatcher", "batches", "--nats", d.says["nats"])
	if status != 0 || !strings.Contains(stdout, "bg-") {
		t.Errorf("batches: %d %s%s", status, stdout, stderr)
	}
	stdout, stderr, status = run(t, nil, "dispatcher", "run", "--json", "--workspace", dir, "--allow", "bash", example)
	var v toolyard.BatchView
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || status != 0 ||
		v.Results[0].Code != toolyard.UnknownTool {
		t.Errorf("without the flag: %d, %v: %s\n%s", status, err, stdout, stderr)
	}
}

// TestBackgroundAfter: in the example a command goes on in the background, and its result is there in the end. How long
// a busy machine takes to look at it decides whether the call of the command has its handle or its result.
func TestBackgroundAfter(t *testing.T) {
	t.Parallel()
	stdout, stderr, status := run(t, nil, "dispatcher", "run", "--json", "--workspace", workspace(t, nil),
		"--background", "--background-after", "1s", "--allow", "bash", "../../examples/background/after.json")
	var v toolyard.BatchView
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || status != 0 || len(v.Results) != 3 {
		t.Fatalf("%d, %v: %s\n%s", status, err, stdout, stderr)
	}
	for i, r := range v.Results {
		if r.IsError || i < 2 && r.Tool != toolyard.BackgroundStart {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	if r := v.Results[2]; !strings.Contains(r.Output, "built") {
		t.Errorf("in the end: %+v", r)
	}
}
