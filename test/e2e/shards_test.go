//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestCommandsOfFourShards: each command finds the batches of a system of four shards, in whichever they are.
func TestCommandsOfFourShards(t *testing.T) {
	t.Parallel()
	const n = 9
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t, "--shards", "4")
	worker(t, d.says["nats"], dir, "--allow", "write_file")
	at := func(cmd string, args ...string) []string {
		return append([]string{cmd, "--nats", d.says["nats"]}, args...)
	}
	for i := range n {
		b := toolyard.Batch{ID: toolyard.BatchID(fmt.Sprint("b", i)), Session: "s", Calls: []toolyard.Call{
			{ID: "1", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})},
			{ID: "2", Tool: "write_file", Input: input(map[string]any{"file_path": fmt.Sprint(i), "content": "x"})}}}
		said(t, at("submit", "--json", batchFile(t, b))...)
	}
	var list struct{ Batches []json.RawMessage }
	text := said(t, at("batches", "--json", "--limit", "4")...)
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Batches) != 4 {
		t.Errorf("%v: a page of four is %s", err, text)
	}
	for i := range n {
		id := fmt.Sprint("b", i)
		if all := said(t, at("batches")...); !strings.Contains(all, id) {
			t.Errorf("%s is not listed: %s", id, all)
		}
		for _, cmd := range []string{"watch", "replay"} {
			if text := said(t, at(cmd, id)...); !strings.Contains(text, "write_file") {
				t.Errorf("%s of %s: %s", cmd, id, text)
			}
		}
	}
	out := filepath.Join(t.TempDir(), "history")
	if text := said(t, at("export", "--json", "--out", out)...); !strings.Contains(text, fmt.Sprint(n)) {
		t.Errorf("the export: %s", text)
	}
	if text := said(t, at("report")...); !strings.Contains(text, fmt.Sprint(n)) {
		t.Errorf("the report: %s", text)
	}
	if text := said(t, at("settings")...); !strings.Contains(text, "shards: 4\n") {
		t.Errorf("the settings: %s", text)
	}
	stdout, stderr, status := run(t, nil, "dispatcher", at("settings", "shards=2")...)
	if status != 1 || !strings.Contains(stderr, "only grows") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("fewer shards: status %d\n%s%s", status, stdout, stderr)
	}
	if text, _, _ := run(t, nil, "dispatcher", at("doctor")...); !strings.Contains(text, "in 4 shards") {
		t.Errorf("the doctor: %s", text)
	}
}
