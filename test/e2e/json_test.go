//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestJSONEverywhere: a command that says what it has done says it as one JSON document too, and nothing else on
// standard output.
func TestJSONEverywhere(t *testing.T) {
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	says := dispatcher(t, "--with-worker", "--workspace", "default="+dir).says
	url, server := says["nats"], says["http"]
	write := func(id, name string) string {
		return batchFile(t, toolyard.Batch{ID: toolyard.BatchID(id), Session: "s", Calls: []toolyard.Call{
			{Tool: "write_file", Input: input(map[string]any{"file_path": name, "content": "x"})}}})
	}
	for _, id := range []string{"one", "two", "three", "four"} { // each waits for a person
		submit := start(t, 0, "dispatcher", "submit", "--nats", url, "--interactive", write(id, id+".txt"))
		t.Cleanup(func() { submit.stop(9) })
	}
	list := waiting(t, url, 4)
	ids := map[toolyard.BatchID]string{}
	for _, a := range list {
		ids[a.Batch] = a.ID
	}
	for _, c := range []struct {
		args []string
		want map[string]any
	}{
		{[]string{"approve", "--by", "me", "--reason", "yes", ids["one"]},
			map[string]any{"id": ids["one"], "decision": "allow", "by": "me", "reason": "yes"}},
		{[]string{"deny", "--by", "me", ids["two"]}, map[string]any{"id": ids["two"], "decision": "deny", "by": "me",
			"reason": ""}},
		// who is recorded is for the server to say
		{[]string{"deny", "--server", server, ids["four"]}, map[string]any{"id": ids["four"], "decision": "deny",
			"by": nil}},
		{[]string{"cancel", "--call", "0", "--reason", "no", "three"},
			map[string]any{"agent": "default", "batch": "three", "reason": "no", "calls": []any{0.0}}},
		{[]string{"interrupt", "--reason", "no", "s"}, map[string]any{"agent": "default", "session": "s",
			"reason": "no"}},
	} {
		args := append(slices.Clone(c.args), "--json")
		if c.args[1] != "--server" {
			args = append(args, "--nats", url)
		}
		out, errs, status := run(t, nil, "dispatcher", args...)
		var got map[string]any
		if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 {
			t.Errorf("%v: status %d, %v: %s%s", c.args, status, err, out, errs)
			continue
		}
		for k, v := range c.want {
			if a, b := string(input(got[k])), string(input(v)); a != b {
				t.Errorf("%v: %s is %s, want %s", c.args, k, a, b)
			}
		}
	}
}

// TestExplainASystem: explain says the same of a running system, over NATS and over HTTP, as of this process; it
// knows the tools that the system's workers have, also those of MCP servers, and what an MCP server declared
// here has.
func TestExplainASystem(t *testing.T) {
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	manifest := filepath.Join(t.TempDir(), "tools.yaml")
	server := `servers: [{name: s, trusted: true, only: [glob], command: ["` + filepath.Join(bin, "dispatcher") +
		`", mcp, --workspace, "` + dir + `"]}]`
	if err := os.WriteFile(manifest, []byte(server), 0o600); err != nil {
		t.Fatal(err)
	}
	said := dispatcher(t, "--with-worker", "--workspace", "default="+dir, "--tools", manifest).says
	file := batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})},
		{Tool: "mcp__s__glob", Input: input(map[string]any{"pattern": "*"})},
		{Tool: "bash", Input: input(map[string]any{"command": "ls"})}, {Tool: "nope", Input: input(map[string]any{})}}})
	type explained struct {
		Tools  []string
		Groups [][]int
		Calls  []struct {
			Tool, Code, Permission string
			Class                  string `json:"concurrency_class"`
		}
	}
	var first explained
	for i, args := range [][]string{{"--tools", manifest}, {"--nats", said["nats"]}, {"--server", said["http"]}} {
		var e explained
		testenv.Until(t, "the tools of the MCP server are there", func() bool {
			out, errs, status := run(t, nil, "dispatcher",
				append(append([]string{"explain", "--json", "--workspace", dir}, args...), file)...)
			if err := json.Unmarshal([]byte(out), &e); err != nil || status != 0 {
				t.Fatalf("%v: status %d, %v: %s%s", args, status, err, out, errs)
			}
			return strings.Contains(strings.Join(e.Tools, " "), "mcp__s__glob")
		})
		if i == 0 {
			first = e
		}
		if a, b := string(input(first)), string(input(e)); a != b {
			t.Errorf("%v: it says\n%s\nand here\n%s", args, b, a)
		}
	}
	if first.Calls[1].Class != "READ_ONLY" || first.Calls[1].Code != "" || first.Calls[3].Code != "unknown_tool" ||
		first.Calls[0].Permission != "allow" {
		t.Errorf("it says %+v", first)
	}
	if _, errs, status := run(t, nil, "dispatcher", "explain", "--nats", said["nats"], "--server", said["http"],
		file); status != 2 || !strings.Contains(errs, "exclude each other") {
		t.Errorf("both: status %d, %s", status, errs)
	}
}
