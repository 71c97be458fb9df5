//go:build unix

package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestExampleOfLocks: explain says which names each group of the example holds.
func TestExampleOfLocks(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Abs("../../examples/locks")
	must.OK(t, err)
	p := newPlace(t, map[string]string{"notes.md": "one\n"})
	tools, batch := filepath.Join(examples, "tools.yaml"), filepath.Join(examples, "batch.json")
	text := strings.Join(strings.Fields(p.ok(nil, "explain", "--tools", tools, batch)), " ")
	for _, held := range []string{
		"holds file:notes.md (shared) in workspace default", "holds file:notes.md in workspace default",
		"holds schema (shared), table:users in workspace default", "holds workspace default",
	} {
		if !strings.Contains(text, held) {
			t.Errorf("explain does not say %q:\n%s", held, text)
		}
	}
}

// TestExplainKnowsLocksOfServers: explain starts the MCP servers of a file, and says which names their calls hold. A
// check of the worker says which tool is left out for a lock that does not fit its schema.
func TestExplainKnowsLocksOfServers(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nil)
	manifest := filepath.Join(t.TempDir(), "tools.yaml")
	text := `{servers: [{name: other, only: [write_file, edit_file], command: ["` + filepath.Join(bin, "dispatcher") +
		`", mcp, --workspace, "` + p.dir + `"], env: {TMPDIR: "` + t.TempDir() + `"},
		defaults: {concurrency_class: WRITE_EXCLUSIVE}, tools: {
		write_file: {locks: ["file:{file_path}"]}, edit_file: {locks: ["file:{replace_all}"]}}}]}`
	must.OK(t, os.WriteFile(manifest, []byte(text), 0o600))
	batch := batchFile(t, toolyard.Batch{Options: toolyard.Options{NamedLocks: true}, Calls: []toolyard.Call{{ID: "c",
		Tool: "mcp__other__write_file", Input: input(map[string]any{"file_path": "a.txt", "content": "x"})}}})
	said, stderr, status := p.run(nil, nil, "explain", "--tools", manifest, batch)
	if want := "holds file:a.txt in workspace default"; status != 0 || !strings.Contains(said, want) {
		t.Errorf("status %d: explain does not say %q:\n%s%s", status, want, said, stderr)
	}
	said, stderr, _ = run(t, nil, "worker", "check", "--tools", manifest)
	if want := "locks[0]: {replace_all} is not a property that the input schema requires"; !strings.Contains(said,
		want) {
		t.Errorf("the check does not say %q:\n%s%s", want, said, stderr)
	}
}

// TestCallsOfTwoNamesMeet: two batches of one workspace call the example's tool on two tables, and a service answers
// neither before both have come: they end only because they run beside each other. A third one on a table of theirs
// comes when that call is over.
func TestCallsOfTwoNamesMeet(t *testing.T) {
	t.Parallel()
	met, here := make(chan struct{}), make(chan string, 3)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here <- r.URL.Path
		select {
		case <-met:
		case <-r.Context().Done():
		}
	}))
	defer service.Close()
	raw := must.Read(t, "../../examples/locks/tools.yaml")
	tools := filepath.Join(t.TempDir(), "tools.yaml")
	text := strings.Replace(string(raw), "http://127.0.0.1:8099", service.URL, 1)
	if err := os.WriteFile(tools, []byte(text), 0o600); err != nil || text == string(raw) {
		t.Fatal(text, err)
	}
	d := dispatcher(t)
	worker(t, d.says["nats"], workspace(t, nil), "--tools", tools)
	var all sync.WaitGroup
	submit := func(id, table string) {
		batch := filepath.Join(t.TempDir(), id+".json")
		text := `{"calls": [{"id": "call_1", "tool": "add_row", "input": {"table": "` + table + `", "row": "x"}}]}`
		must.OK(t, os.WriteFile(batch, []byte(text), 0o600))
		all.Go(func() {
			stdout, stderr, status := run(t, nil, "dispatcher", "submit", "--nats", d.says["nats"], "--id", id,
				"--named-locks", "--json", batch)
			if status != 0 {
				t.Errorf("%s: exit status %d: %s%s", id, status, stdout, stderr)
			}
		})
	}
	submit("one", "users")
	first := <-here
	submit("again", "users")
	submit("two", "orders")
	if second := <-here; first != "/tables/users/rows" || second != "/tables/orders/rows" {
		t.Errorf("%s and %s run beside each other", first, second)
	}
	close(met)
	all.Wait()
	if third := <-here; third != first {
		t.Errorf("behind them runs %s", third)
	}
}
