//go:build unix

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// webBatches hands in batches of the team web, each of one read. running counts those that run.
func webBatches(t *testing.T, url string, count int) (all []toolyard.BatchKey, running func() int) {
	t.Helper()
	b := connect(t, url)
	for n := range count {
		sub := toolyard.Batch{ID: toolyard.BatchID(fmt.Sprint("b", n)), Agent: toolyard.Agent(fmt.Sprint("web-", n%3)),
			Calls: []toolyard.Call{{Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})}}}
		sub.Normalize("")
		must.OK(t, b.Submit(t.Context(), sub))
		all = append(all, sub.Key())
	}
	return all, func() (n int) {
		for _, k := range all {
			s, err := b.Fold(t.Context(), k)
			must.OK(t, err)
			if s.Plan != nil {
				n++
			}
		}
		return n
	}
}

// TestQuotas: two dispatchers run no more batches of a team than its quota says, with no worker that would end one, and
// all of them when there is one. A quota that cannot be read is said at the start.
func TestQuotas(t *testing.T) {
	quota := []string{"--team-quota", "web-*=batches:3", "--queue-wait", "5m", "--worker-wait", "5m"}
	first := dispatcher(t, quota...)
	url := first.says["nats"]
	start(t, 3, "dispatcher", append([]string{"serve", "--nats", url, "--listen", "127.0.0.1:0"}, quota...)...)
	all, running := webBatches(t, url, 12)
	for end := time.Now().Add(30 * time.Second); running() < 3; {
		if time.Now().After(end) {
			t.Fatalf("%d batches run", running())
		}
	}
	for range 20 {
		if n := running(); n != 3 {
			t.Fatalf("%d batches of a team run, whose quota is 3", n)
		}
	}
	worker(t, url, workspace(t, map[string]string{"a.txt": "line 1\n"}))
	var waiting sync.WaitGroup
	for _, k := range all {
		file := batchFile(t, toolyard.Batch{ID: k.ID, Agent: k.Agent,
			Calls: []toolyard.Call{{Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})}}})
		waiting.Go(func() {
			stdout, stderr, status := run(t, nil, "dispatcher", "submit", "--nats", url, "--json", file)
			if status != 0 || !strings.Contains(stdout, "line 1") {
				t.Errorf("%s: exit status %d: %s%s", k, status, stdout, stderr)
			}
		})
	}
	waiting.Wait()
	_, stderr, status := run(t, nil, "dispatcher", "serve", "--agent-quota", "web-*=batches:none")
	if status != 2 || !strings.Contains(stderr, `--agent-quota "web-*=batches:none": batches is "none"`) {
		t.Errorf("a quota that is none: status %d, %s", status, stderr)
	}
}

// TestSIGHUPReadsQuotasAgain: two dispatchers work by the quotas of a file as it is now. What is wrong with it is
// logged, and what was read before holds.
func TestSIGHUPReadsQuotasAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "quotas")
	write := func(text string) {
		t.Helper()
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("# of the web team\nteam web-*=batches:2\n")
	flags := []string{"--quota-file", file, "--queue-wait", "5m", "--worker-wait", "5m", "--log-level", "info"}
	first := dispatcher(t, flags...)
	url := first.says["nats"]
	second := start(t, 3, "dispatcher",
		append([]string{"serve", "--nats", url, "--listen", "127.0.0.1:0"}, flags...)...)
	_, running := webBatches(t, url, 10)
	runs := func(want int) {
		t.Helper()
		testenv.Until(t, fmt.Sprintf("%d batches run", want), func() bool { return running() == want })
		for range 20 {
			if n := running(); n != want {
				t.Fatalf("%d batches run, and %d may", n, want)
			}
		}
	}
	reload := func(says string, times int) {
		t.Helper()
		for _, p := range []*process{first, second} {
			must.OK(t, p.cmd.Process.Signal(syscall.SIGHUP))
			testenv.Until(t, "a dispatcher has read the file again", func() bool { return p.logged(says) == times })
		}
	}
	const read = `msg="SIGHUP: reloaded" what=quotas`
	runs(2)
	write("team web-*=batches:5\n")
	reload(read, 1)
	runs(5)
	write("team web-*=batches:9\nteem web-*=batches:9\n")
	reload("line 2: \\\"teem\\\": a line begins with agent, team, tool, dependency or budget", 1)
	runs(5)
	write("team web-*=batches:3\n") // fewer than run
	reload(read, 2)
	runs(5)
	write("agent web-1=batches:1\n") // of which one runs, or more
	reload(read, 3)
	testenv.Until(t, "all of the others run", func() bool { return running() >= 8 })
	write("")
	reload(read, 4)
	runs(10)
}
