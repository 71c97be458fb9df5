//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestADryRunShowsWhatWouldHappen: the example, in one process, over NATS and over HTTP. Nothing is changed.
func TestADryRunShowsWhatWouldHappen(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"note.txt": "one\n", "build/x": "y"})
	d := dispatcher(t)
	worker(t, d.says["nats"], dir)
	example := "../../examples/dry-run/batch.json"
	raw := must.Read(t, example)
	without := filepath.Join(t.TempDir(), "batch.json") // the flag says it instead
	text := strings.Replace(string(raw), `"options": {"dry_run": true}`, `"options": {}`, 1)
	if err := os.WriteFile(without, []byte(text), 0o600); err != nil || text == string(raw) {
		t.Fatal(text, err)
	}
	for name, args := range map[string][]string{
		"one process": {"run", "--workspace", dir, example},
		"a flag":      {"run", "--workspace", dir, "--dry-run", without},
		"NATS":        {"submit", "--nats", d.says["nats"], example},
		"HTTP":        {"submit", "--server", d.says["http"], "--dry-run", without},
	} {
		decision := "ask"
		if args[0] == "run" { // nobody is at a terminal
			decision = "deny"
		}
		stdout, stderr, status := run(t, nil, "dispatcher", append([]string{args[0], "--json"}, args[1:]...)...)
		results := viewOf(t, stdout).Results
		if len(results) != 4 {
			t.Fatalf("%s: status %d, %s%s", name, status, stdout, stderr)
		}
		var out [4]pipeline.DryRunOutput
		for i, r := range results {
			if len(r.Structured) > 0 {
				must.OK(t, json.Unmarshal(r.Structured, &out[i]))
			}
		}
		if out[0].Would != "run" || out[0].Class != toolyard.ReadOnly {
			t.Errorf("%s: the read: %+v", name, out[0])
		}
		if out[1].Would != decision || !strings.Contains(out[1].Diff, "-one\n+two") {
			t.Errorf("%s: the edit: %+v", name, out[1])
		}
		if isolates(t) && (out[2].Would != decision || out[2].Command != "rm -rf build" || !out[2].Destructive) {
			t.Errorf("%s: the command: %+v, %s", name, out[2], results[2].Error)
		}
		if results[3].Code != toolyard.SandboxViolation {
			t.Errorf("%s: what leaves the workspace: %q", name, results[3].Code)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "note.txt")); err != nil || string(b) != "one\n" {
		t.Errorf("the file is %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "build", "x")); err != nil {
		t.Error(err)
	}
	_, stderr, status := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], "--supersede", example)
	if status != 2 || !strings.Contains(stderr, "dry_run changes nothing") {
		t.Errorf("with supersede: status %d, %s", status, stderr)
	}
}
