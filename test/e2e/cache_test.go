//go:build unix

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestExampleOfTheCache: of the example's equal calls the second is answered with the output of the first, and the one
// behind a write runs again. Explain says so before, and where nothing isolates commands, each call says that.
func TestExampleOfTheCache(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Abs("../../examples/cache")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, map[string]string{"README.md": "one\n", "more/other.md": "two\n", "notes.txt": "three\n"})
	tools, batch := filepath.Join(examples, "tools.yaml"), filepath.Join(examples, "batch.json")
	text := p.ok(nil, "explain", "--tools", tools, batch)
	said := "cache: an output answers equal calls of the same agent for 30s; equal calls of the same agent that run at"
	if n := strings.Count(strings.Join(strings.Fields(text), " "), said); n != 3 {
		t.Errorf("explain says it of %d calls, want 3:\n%s", n, text)
	}
	stdout, stderr, status := p.run(nil, nil, "run", "--json", "--tools", tools, "--permission-mode", "accept_edits",
		batch)
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	results := viewOf(t, stdout).Results
	if len(results) != 4 {
		t.Fatalf("%d results: %s", len(results), stdout)
	}
	counts, uses := []string{"2", "2", "", "3"}, []toolyard.CacheUse{toolyard.CacheMiss, toolyard.CacheHit, "",
		toolyard.CacheMiss}
	for n, r := range results {
		switch {
		case n == 2 && !r.IsError:
		case !isolates(t) && r.Code == toolyard.SetupRequired && r.Cache == "":
		case r.IsError || strings.TrimSpace(r.Output) != counts[n] || r.Cache != uses[n]:
			t.Errorf("call %d: %q %q, cache %q, want %q", n, r.Code, r.Text(), r.Cache, uses[n])
		}
	}
}
