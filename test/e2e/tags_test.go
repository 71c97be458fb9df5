//go:build unix

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestTags: of three workers each batch goes to one that has the tags that it asks for, by a flag, the environment or
// its own options, and one that nobody can serve says what is missing.
func TestTags(t *testing.T) {
	url := dispatcher(t, "--worker-wait", "1ms").says["nats"]
	worker(t, url, workspace(t, map[string]string{"where.txt": "plain"}))
	worker(t, url, workspace(t, map[string]string{"where.txt": "gpu"}), "--tag", "gpu")
	both := startIn(t, 3, append(reach([]string{"--nats", url}), "TOOLYARD_TAG=gpu\nregion=eu"), "worker", "serve",
		"--nats", url, "--workspace", "default="+workspace(t, map[string]string{"where.txt": "both"}))
	if !strings.HasPrefix(both.says["pool"], "gpu_region-eu-") {
		t.Errorf("a worker with two tags is of pool %q", both.says["pool"])
	}
	asked := toolyard.Batch{Calls: []toolyard.Call{{Tool: "read_file", Input: input(map[string]any{
		"file_path": "where.txt"})}}}
	for _, want := range []struct {
		own   []toolyard.Tag
		flags []string
		where string // or what the error says
	}{
		{nil, nil, "plain"},
		{nil, []string{"--tag", "gpu"}, "gpu"},
		{[]toolyard.Tag{"region=eu"}, nil, "both"},
		{[]toolyard.Tag{"region=eu"}, []string{"--tag", "gpu"}, "both"},
		{nil, []string{"--tag", "gpu", "--tag", "region=us"}, `the tag "region=us"`},
	} {
		asked.Options.Tags = want.own
		args := append([]string{"submit", "--nats", url, "--json"}, want.flags...)
		stdout, stderr, status := run(t, nil, "dispatcher", append(args, batchFile(t, asked))...)
		if status != 0 {
			t.Fatalf("%q %q: exit status %d: %s", want.own, want.flags, status, stderr)
		}
		r := viewOf(t, stdout).Results[0]
		if refused := r.Code == toolyard.SetupRequired; refused != strings.Contains(want.where, `"`) ||
			!strings.Contains(r.Output+r.Error, want.where) {
			t.Errorf("%q %q: %s %q%q; want %q", want.own, want.flags, r.Code, r.Output, r.Error, want.where)
		}
	}
	stdout, _, _ := run(t, nil, "dispatcher", "workers", "--nats", url, "--json")
	var workers []struct{ Tags []string }
	if err := json.Unmarshal([]byte(stdout), &workers); err != nil {
		t.Fatal(err)
	}
	tags := map[string]int{}
	for _, w := range workers {
		tags[strings.Join(w.Tags, " ")]++
	}
	if len(tags) != 3 || tags[""] != 1 || tags["gpu"] != 1 || tags["gpu region=eu"] != 1 {
		t.Errorf("the workers show the tags %v", tags)
	}
	stdout, _, _ = run(t, nil, "dispatcher", "workers", "--nats", url)
	if !strings.Contains(stdout, "\n  tags        gpu, region=eu\n") {
		t.Errorf("the list of workers: %s", stdout)
	}
	_, stderr, status := run(t, nil, "worker", "serve", "--nats", url, "--tag", "no tag")
	if status != 2 || !strings.Contains(stderr, "--tag[0]") {
		t.Errorf("a worker with a tag that is none: status %d, %s", status, stderr)
	}
}
