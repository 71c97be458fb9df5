//go:build linux

package e2e

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestExampleOfAShell: the shell of a session goes on from call to call, from batch to batch, on another worker and
// beside another session. Explain says before what runs alone. Where nothing isolates commands, each call says that.
func TestExampleOfAShell(t *testing.T) {
	t.Parallel()
	const example = "../../examples/shell/batch.json"
	dir, store := workspace(t, nil), filepath.Join(t.TempDir(), "shells")
	d := dispatcher(t)
	url := d.says["nats"]
	first := worker(t, url, dir, "--allow", "bash", "--shells", store)
	// a command's line breaks depend on the length of the directory
	text := strings.Join(strings.Fields(said(t, "explain", "--nats", url, example)), " ")
	for _, want := range []string{"[1] bash WRITE_EXCLUSIVE (only reads, and moves the shell: cd)",
		"[3] bash READ_ONLY (only reads: pwd)", "[4] bash READ_ONLY (only reads: cat)",
		"[5] bash UNSAFE (it reads the variable WORDS, which an earlier command may have set)"} {
		if !strings.Contains(text, want) {
			t.Errorf("explain does not say %q:\n%s", want, text)
		}
	}
	submit := func(args ...string) []toolyard.Result {
		t.Helper()
		stdout, stderr, _ := run(t, nil, "dispatcher", append([]string{"submit", "--nats", url, "--json"}, args...)...)
		v := viewOf(t, stdout)
		if len(v.Results) == 0 {
			t.Fatal(stderr)
		}
		return v.Results
	}
	expect := func(results []toolyard.Result, want ...string) {
		t.Helper()
		for i, r := range results {
			switch {
			case !isolates(t) && r.Code == toolyard.SetupRequired:
			case r.IsError || r.Output != want[i]:
				t.Errorf("call %d: %q %q, want %q", i, r.Code, r.Text(), want[i])
			}
		}
	}
	src := filepath.Join(dir, "src")
	expect(submit(example), "", "[shell: its directory is now "+src+"]\n", "", src+"\n", "three words here\n",
		"3 words\n")
	if status := first.stop(syscall.SIGTERM); status != 0 {
		t.Errorf("the worker ended with status %d", status)
	}
	second := worker(t, url, dir, "--allow", "bash", "--shells", store)
	later := batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{Tool: "bash", Input: input(map[string]any{"command": `echo "$WORDS words in $PWD"`})}}})
	expect(submit(later), "3 words in "+src+"\n")
	expect(submit("--session", "another", later), " words in "+dir+"\n")
	if status := second.stop(syscall.SIGTERM); status != 0 {
		t.Errorf("the worker ended with status %d", status)
	}
	worker(t, url, dir, "--shells", store) // nobody allows anything
	moves := batchFile(t, toolyard.Batch{Calls: []toolyard.Call{
		{Tool: "bash", Input: input(map[string]any{"command": "cd .."})},
		{Tool: "bash", Input: input(map[string]any{"command": "pwd"})}}})
	expect(submit(moves), "[shell: its directory is now "+dir+"]\n", dir+"\n")
	if r := submit(later)[0]; r.Code != toolyard.PermissionDenied {
		t.Errorf("%q %q", r.Code, r.Text())
	}
}

// TestAShellNeedsASandbox: the worker does not start with what it cannot do.
func TestAShellNeedsASandbox(t *testing.T) {
	t.Parallel()
	d := dispatcher(t)
	dir := workspace(t, nil)
	for _, args := range [][]string{
		{"--dangerously-run-unsandboxed", "--shells", t.TempDir()},
		{"--shells", filepath.Join(dir, "shells")},
	} {
		_, stderr, status := run(t, nil, "worker", append([]string{"serve", "--nats", d.says["nats"], "--workspace",
			"default=" + dir}, args...)...)
		if status == 0 || !strings.Contains(stderr, "shells") {
			t.Errorf("%q: status %d: %s", args, status, stderr)
		}
	}
}
