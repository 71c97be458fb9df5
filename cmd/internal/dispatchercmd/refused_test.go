package dispatchercmd

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestASubmissionThatHTTPRefusesIsCounted: what the HTTP API refuses before anything is stored, because a batch would
// be refused anyway, is counted with its status, each once: the alert for refusals goes by that.
func TestASubmissionThatHTTPRefusesIsCounted(t *testing.T) {
	t.Parallel()
	observed := cli.NewObserved()
	n, err := startNode(t.Context(), testenv.Log(t), nodeConfig{url: testenv.Server(t).ClientURL(),
		reach: &cli.Reach{}, observed: observed,
		dispatcher: dispatcher.Config{Planner: planner(policy.Rules{}, 0, nil)}})
	must.OK(t, err)
	t.Cleanup(n.close)
	full, crowded := false, ""
	n.room = func() broker.Room { return broker.Room{Full: full, Reason: "the disk is full"} }
	n.crowded = func(toolyard.Agent) string { return crowded }
	s, err := n.api(t.Context(), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, api.Config{})
	must.OK(t, err)
	t.Cleanup(s.Stop)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	post := func(want int, path, form, body string) {
		t.Helper()
		r, err := http.Post(server.URL+path, form, strings.NewReader(body))
		must.OK(t, err)
		said, err := io.ReadAll(r.Body)
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
		if err != nil || r.StatusCode != want {
			t.Errorf("%d %s, %v; want %d", r.StatusCode, said, err, want)
		}
	}
	const batch = `{"id": "b", "calls": [{"tool": "none"}]}`
	full = true
	post(http.StatusServiceUnavailable, "/v1/batches", "application/json", batch)
	full, crowded = false, "too many wait"
	post(http.StatusTooManyRequests, "/v1/batches", "application/json", batch)
	post(http.StatusTooManyRequests, "/v1/stream/anthropic?id=streamed", "text/event-stream", "")
	crowded = ""
	post(http.StatusAccepted, "/v1/batches", "application/json", batch)
	crowded = "too many wait"
	post(http.StatusAccepted, "/v1/batches", "application/json", batch) // it is stored
	var text bytes.Buffer
	must.OK(t, observed.Metrics.Write(&text))
	for _, line := range []string{
		`toolyard_batches_refused_total{status="503"} 1`, `toolyard_batches_refused_total{status="429"} 2`,
	} {
		if !strings.Contains(text.String(), "\n"+line+"\n") {
			t.Errorf("there is no line %q", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", &text)
	}
}
