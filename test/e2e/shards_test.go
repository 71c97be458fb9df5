//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
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

// TestProcessesOfSomeShards: two dispatchers and two workers have a shard each. All batches run, each in its own. When
// the worker of one shard has gone, its calls end, the other's run, and doctor says which is without a worker. When its
// dispatcher has gone too, HTTP refuses its batches.
func TestProcessesOfSomeShards(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := dispatcher(t, "--shards", "2", "--serve-shards", "0", "--worker-wait", "2s")
	nats := d.says["nats"]
	second := start(t, 3, "dispatcher", "serve", "--nats", nats, "--listen", "127.0.0.1:0", "--serve-shards", "1",
		"--worker-wait", "2s")
	workers := []*process{worker(t, nats, dir, "--serve-shards", "0"), worker(t, nats, dir, "--serve-shards", "1")}
	at := func(cmd string, args ...string) []string {
		return append([]string{cmd, "--nats", nats}, args...)
	}
	b := connect(t, nats)
	// submitted is the codes of some batches' only results, by shard.
	submitted := func(name string) (codes [2]map[toolyard.Code]int) {
		t.Helper()
		codes = [2]map[toolyard.Code]int{{}, {}}
		for i := range 8 {
			batch := toolyard.Batch{ID: toolyard.BatchID(fmt.Sprint(name, i)), Calls: []toolyard.Call{
				{ID: "1", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})}}}
			stdout, stderr, _ := run(t, nil, "dispatcher",
				at("submit", "--agent", "a", "--json", batchFile(t, batch))...)
			var view toolyard.BatchView
			if err := json.Unmarshal([]byte(stdout), &view); err != nil || len(view.Results) != 1 {
				t.Fatalf("%v: %s%s", err, stdout, stderr)
			}
			n := b.Settings().ShardOf(toolyard.BatchKey{Agent: "a", ID: batch.ID})
			codes[n][view.Results[0].Code]++
		}
		return codes
	}
	for n, codes := range submitted("both") {
		if codes[""] == 0 || len(codes) != 1 {
			t.Errorf("in shard %d the calls end as %v", n, codes)
		}
	}
	if text := said(t, at("workers")...); !strings.Contains(text, "shards") {
		t.Errorf("the workers: %s", text)
	}
	if text, _, _ := run(t, nil, "dispatcher", at("doctor")...); !strings.Contains(text, "serve 2 shards") {
		t.Errorf("the doctor: %s", text)
	}
	workers[1].stop(syscall.SIGTERM)
	codes := submitted("one")
	if c := codes[0]; c[""] == 0 || len(c) != 1 {
		t.Errorf("in the shard with a worker the calls end as %v", c)
	}
	if c := codes[1]; c[toolyard.DependencyUnavailable] == 0 || len(c) != 1 {
		t.Errorf("in the shard without a worker the calls end as %v", c)
	}
	const gap = "no worker of pool default takes calls of shard 1"
	text, _, status := run(t, nil, "dispatcher", at("doctor")...)
	if status != 1 || !strings.Contains(text, gap) {
		t.Errorf("the doctor, without a worker: %d\n%s", status, text)
	}
	if text := said(t, at("settings")...); !strings.Contains(text, gap) {
		t.Errorf("the settings: %s", text)
	}
	second.stop(syscall.SIGTERM)
	n := 0
	testenv.Until(t, "a batch of the shard without a dispatcher is refused", func() bool {
		k := toolyard.BatchKey{Agent: toolyard.DefaultAgent}
		for k.ID == "" || b.Settings().ShardOf(k) != 1 {
			k.ID = toolyard.BatchID(fmt.Sprint("nobodys", n))
			n++
		}
		resp, err := http.Post(d.says["http"]+"/v1/batches?wait=1", "application/json", strings.NewReader(
			fmt.Sprintf(`{"id": %q, "calls": [{"tool": "glob", "input": {"pattern": "*"}}]}`, k.ID)))
		must.OK(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		must.OK(t, err)
		refused := resp.StatusCode == http.StatusServiceUnavailable
		if refused && !strings.Contains(string(body), "no dispatcher has taken batches of shard 1") {
			t.Fatalf("%s: %s", resp.Status, body)
		}
		return refused
	})
	for _, flag := range []string{"2", "x"} {
		_, stderr, status := run(t, nil, "worker", "serve", "--nats", nats, "--serve-shards", flag)
		if status != 2 || !strings.Contains(stderr, "--serve-shards") {
			t.Errorf("--serve-shards %s: %d, %s", flag, status, stderr)
		}
	}
}
