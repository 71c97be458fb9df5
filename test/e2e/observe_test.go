//go:build unix

package e2e

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// got reads a page of a process's listener for supervisors.
func got(t *testing.T, metrics, path string) (status int, body string) {
	t.Helper()
	r, err := http.Get(strings.TrimSuffix(metrics, "/metrics") + path)
	must.OK(t, err)
	defer func() { _ = r.Body.Close() }()
	data, err := io.ReadAll(r.Body)
	must.OK(t, err)
	return r.StatusCode, string(data)
}

// value is the sum of a metric's values over its labels that a process has now; -1 if it has none.
func value(t *testing.T, metrics, name string) float64 {
	t.Helper()
	status, body := got(t, metrics, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", metrics, status, body)
	}
	sum, found := 0.0, false
	for s := bufio.NewScanner(strings.NewReader(body)); s.Scan(); {
		rest, ok := strings.CutPrefix(s.Text(), name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return -1
	}
	return sum
}

// TestSupervisorsWatchBothCommands: a worker and a dispatcher answer supervisors and Prometheus at an address of their
// own. A worker whose NATS server is gone lives, and is not ready.
func TestSupervisorsWatchBothCommands(t *testing.T) {
	t.Parallel()
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	d := start(t, 5, "dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
		"--metrics-listen", "127.0.0.1:0", "--data", t.TempDir())
	w := start(t, 4, "worker", "serve", "--nats", d.says["nats"], "--workspace", "default="+dir, "--metrics-listen",
		"127.0.0.1:0", "--permission-mode", "accept_edits")
	for _, p := range []*process{d, w} {
		for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/other": 404} {
			if status, body := got(t, p.says["metrics"], path); status != want {
				t.Errorf("%s of %s: %d %s", path, p.says["metrics"], status, body)
			}
		}
	}
	file := batchFile(t, toolyard.Batch{ID: "b", Calls: []toolyard.Call{
		{ID: "c1", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})},
		{ID: "c2", Tool: "write_file", Input: input(map[string]any{"file_path": "b.txt", "content": "two\n"})},
	}})
	said(t, "submit", "--nats", d.says["nats"], file)
	testenv.Until(t, "the metrics have the batch", func() bool {
		return value(t, d.says["metrics"], "toolyard_batches_completed_total") == 1 &&
			value(t, d.says["metrics"], "toolyard_calls_total") == 2 &&
			value(t, w.says["metrics"], "toolyard_worker_runs_total") == 2 &&
			value(t, d.says["metrics"], "toolyard_queue_calls") == 0 &&
			value(t, d.says["metrics"], "toolyard_stream_fill_ratio") >= 0
	})
	for name, want := range map[string]float64{
		"toolyard_workers": 1, "toolyard_slots": 24, "toolyard_nats_connected": 1,
		"toolyard_ticket_wait_seconds_count": 2, "toolyard_worker_slots": -1,
	} {
		if v := value(t, d.says["metrics"], name); v != want {
			t.Errorf("the dispatcher has %s %v, want %v", name, v, want)
		}
	}
	for name, want := range map[string]float64{"toolyard_worker_slots": 24, "toolyard_worker_registered": 1,
		"toolyard_worker_lease_losses_total": 0, "toolyard_workers": -1} {
		if v := value(t, w.says["metrics"], name); v != want {
			t.Errorf("the worker has %s %v, want %v", name, v, want)
		}
	}
	host, err := os.Hostname()
	must.OK(t, err)
	if text := said(t, "workers", "--nats", d.says["nats"]); !strings.Contains(text, "  host        "+host) ||
		!strings.Contains(text, "24 slots, 0 busy") || !strings.Contains(text, " tools of READ_ONLY") ||
		!strings.Contains(text, "version ") {
		t.Errorf("workers:\n%s", text)
	}
	d.stop(syscall.SIGTERM)
	testenv.Until(t, "the worker says that it is not ready", func() bool {
		status, body := got(t, w.says["metrics"], "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "NATS")
	})
	if status, _ := got(t, w.says["metrics"], "/healthz"); status != http.StatusOK {
		t.Errorf("a worker that waits for NATS lives, and says %d", status)
	}
	if v := value(t, w.says["metrics"], "toolyard_nats_connected"); v != 0 {
		t.Errorf("toolyard_nats_connected is %v", v)
	}
}

// TestAnAddressThatIsTaken is a usage error that names the flag.
func TestAnAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	d := dispatcher(t)
	taken := strings.TrimPrefix(d.says["http"], "http://")
	for name, args := range map[string][]string{
		"worker":     {"serve", "--nats", d.says["nats"], "--metrics-listen", taken},
		"dispatcher": {"serve", "--nats", d.says["nats"], "--listen", "127.0.0.1:0", "--metrics-listen", taken},
	} {
		if stdout, stderr, status := run(t, nil, name, args...); status != 2 ||
			!strings.Contains(stderr, "--metrics-listen "+taken) {
			t.Errorf("%s: status %d\n%s%s", name, status, stdout, stderr)
		}
	}
}
