//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/replay"
)

// TestAFeedIsReplayed: what watch --json writes of several batches of several agents can be replayed, each batch
// for itself; so can logs that stand in one file. Over NATS and over HTTP.
func TestAFeedIsReplayed(t *testing.T) {
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	said := dispatcher(t, "--with-worker", "--workspace", "default="+dir, "--permission-mode", "accept_edits").says
	logs := t.TempDir()
	submit := func(agent, id string) string {
		file := filepath.Join(logs, agent+"-"+id+".jsonl")
		b := toolyard.Batch{ID: toolyard.BatchID(id), Agent: toolyard.Agent(agent), Calls: []toolyard.Call{
			{Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})},
			{Tool: "write_file", Input: input(map[string]any{"file_path": "b", "content": id})},
			{Tool: "nope", Input: input(map[string]any{})}}}
		if _, errs, status := run(t, nil, "dispatcher", "submit", "--nats", said["nats"], "--json", "--events", file,
			batchFile(t, b)); status != 0 {
			t.Fatalf("submit: %d, %s", status, errs)
		}
		log, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(log)
	}
	replayed := func(what, text string, batches ...string) {
		t.Helper()
		out, errs, status := run(t, strings.NewReader(text), "dispatcher", "replay", "--json", "-")
		var reports []replay.Report
		if err := json.Unmarshal([]byte(out), &reports); err != nil || status != 0 {
			t.Errorf("%s: status %d, %v, %s", what, status, err, errs)
			return
		}
		seen := map[string]bool{}
		for _, r := range reports {
			seen[string(r.Batch.Agent)+"/"+string(r.Batch.ID)] = r.Consistent &&
				r.Batch.Status == toolyard.StatusCompleted
		}
		for _, k := range batches {
			if !seen[k] {
				t.Errorf("%s: of %s it says %t; all: %v", what, k, seen[k], seen)
			}
		}
		out, _, status = run(t, strings.NewReader(text), "dispatcher", "replay", "-")
		if n := strings.Count(out, "replies match results"); status != 0 || n < len(batches) {
			t.Errorf("%s: status %d, %s", what, status, out)
		}
	}
	one, two := submit("a", "one"), submit("b", "one")
	replayed("two logs", one+two, "a/one", "b/one")
	var mixed strings.Builder
	for i := range max(strings.Count(one, "\n"), strings.Count(two, "\n")) {
		for _, log := range []string{one, two} {
			if lines := strings.SplitAfter(log, "\n"); i < len(lines) {
				mixed.WriteString(lines[i])
			}
		}
	}
	replayed("two logs, mixed", mixed.String(), "a/one", "b/one")
	out, errs, status := run(t, strings.NewReader(one+strings.Replace(two, `"output":"`, `"output":"x`, 1)),
		"dispatcher", "replay", "-")
	if status != 1 || !strings.Contains(errs, "batch one of agent b: the log contradicts itself") ||
		!strings.Contains(out, "replies match results") {
		t.Errorf("one that contradicts itself: status %d, %s\n%s", status, errs, out)
	}
	if _, errs, status := run(t, strings.NewReader(one+two), "dispatcher", "replay", "--rerun", "--nats", said["nats"],
		"-"); status != 2 || !strings.Contains(errs, "2 batches") {
		t.Errorf("--rerun of two: status %d, %s", status, errs)
	}
	late := strings.SplitAfter(two, "\n")
	out, errs, status = run(t, strings.NewReader(one+strings.Join(late[2:], "")), "dispatcher", "replay", "-")
	if status != 0 || !strings.Contains(out, "not checked: ") {
		t.Errorf("one without a beginning: status %d, %s\n%s", status, errs, out)
	}

	for i, ref := range [][]string{{"--nats", said["nats"], "--all"}, {"--server", said["http"], "--all"}} {
		w := watch(t, append(ref, "--json")...)
		for n := 0; ; n++ { // until it listens
			submit("c", fmt.Sprint("try-", i, "-", n))
			select {
			case line := <-w.lines:
				w.seen = append(w.seen, line)
			default:
				continue
			}
			break
		}
		names := []string{fmt.Sprint("x-", i), fmt.Sprint("y-", i)}
		for _, name := range names {
			submit("a", name)
			submit("b", name)
		}
		over := func() bool {
			n := 0
			for _, line := range w.seen {
				if strings.Contains(line, `"completed":true`) &&
					slices.ContainsFunc(names, func(name string) bool { return strings.Contains(line, "/"+name+`"`) }) {
					n++
				}
			}
			return n == 4
		}
		for range w.next() {
			if over() {
				break
			}
		}
		w.signal(syscall.SIGINT)
		w.ends()
		replayed(strings.Join(ref, " "), strings.Join(w.seen, "\n")+"\n", "a/"+names[0], "b/"+names[0], "a/"+
			names[1], "b/"+names[1])
	}
}
