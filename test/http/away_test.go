package http

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAPostWhileNATSIsAway: it, and every other request that needs NATS, is told within a second, and the same batch
// again is taken when NATS is back. Nothing is logged of what the connection's own lines say.
func TestAPostWhileNATSIsAway(t *testing.T) {
	s := testenv.Restartable(t)
	nc := testenv.Conn(t, s.Server)
	b := testenv.Broker(t, s.Server, "/api/test")
	c, err := client.Connect(t.Context(), nc, client.Options{})
	must.OK(t, err)
	var log bytes.Buffer
	door, err := api.New(api.Config{Client: c, Reader: follow.New(b, follow.Options{Shared: true}),
		Loopback: true, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Ready: func() error {
			if !nc.IsConnected() {
				return errors.New("not connected to NATS")
			}
			return nil
		}})
	must.OK(t, err)
	server := httptest.NewServer(door)
	t.Cleanup(server.Close)
	p := &pool{TB: t, url: server.URL}
	s.Shutdown()
	testenv.Until(t, "the connection is lost", func() bool { return !nc.IsConnected() })
	const batch = `{"id": "b", "calls": [{"tool": "wait"}]}`
	for _, q := range []struct{ method, path, body string }{
		{http.MethodPost, batches, batch}, {http.MethodPost, batches + "?open=true", `{"id": "o"}`},
		{http.MethodPost, batches + "/b/cancel", `{}`},
		{http.MethodPost, "/v1/sessions/s/interrupt", `{}`}, {http.MethodGet, batches + "/b", ""},
		{http.MethodGet, batches, ""},
		{http.MethodGet, batches + "/b/results", ""}, {http.MethodGet, "/v1/approvals", ""},
		{http.MethodGet, "/v1/workers", ""},
	} {
		began := time.Now()
		r := p.do(q.method, q.path, q.body)
		if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" ||
			!strings.Contains(string(r.body), "urn:toolyard:problem:no-answer") {
			t.Errorf("%s %s: %s", q.method, q.path, r)
		}
		if took := time.Since(began); took > 2500*time.Millisecond { // it is 0.7 s, and was 3 s or half a minute
			t.Errorf("%s %s took %s", q.method, q.path, took)
		}
	}
	if log.Len() > 0 {
		t.Errorf("the log says\n%s", &log)
	}
	s.Start()
	for end := time.Now().Add(patience); ; { // until the connection is restored
		r := p.do(http.MethodPost, batches, batch)
		if r.status == http.StatusAccepted {
			break
		}
		if r.status != http.StatusServiceUnavailable || time.Now().After(end) {
			t.Fatalf("when NATS is back: %s", r)
		}
	}
}
