package http

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv"
)

// TestMetrics: a batch that is over is counted by its status, its results by class and code, a refused one by its
// status.
func TestMetrics(t *testing.T) {
	p := startFor(t, "secret-a alice\nsecret-o *\n")
	if r := p.do(http.MethodPost, "/v1/batches?wait=30",
		`{"calls": [{"tool": "echo", "input": {"text": "x"}}, {"tool": "none", "input": {}}]}`, "Authorization",
		"Bearer secret-a"); r.status != http.StatusOK {
		t.Fatal(r)
	}
	for token, want := range map[string]int{"": http.StatusUnauthorized, "secret-a": http.StatusForbidden} {
		if r := p.do(http.MethodGet, "/metrics", "", "Authorization", "Bearer "+token); r.status != want {
			t.Errorf("with the token %q: %s, want %d", token, r, want)
		}
	}
	var r reply
	testenv.Until(p, "the batch is counted", func() bool { // a moment after its last reply
		r = p.do(http.MethodGet, "/metrics", "", "Authorization", "Bearer secret-o")
		return strings.Contains(string(r.body), "\ntoolyard_batches_completed_total{status=\"completed\"} 1\n")
	})
	if r.status != http.StatusOK || !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d %s", r.status, r.header)
	}
	for _, line := range []string{
		`toolyard_calls_total{class="READ_ONLY",code="ok"} 1`,
		`toolyard_calls_total{class="UNSAFE",code="unknown_tool"} 1`,
		`toolyard_call_execute_seconds_count{class="READ_ONLY"} 1`,
		`toolyard_call_attempts_total 1`,
		`toolyard_workers 1`,
		`toolyard_calls_stalled_total 0`,
		`toolyard_nats_connected 1`,
		`toolyard_slots 24`,
		`toolyard_slots_busy 0`,
		`toolyard_ticket_wait_seconds_count{mode="shared"} 1`,
	} {
		if !strings.Contains(string(r.body), "\n"+line+"\n") {
			t.Errorf("there is no line %q", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", r.body)
	}
}
