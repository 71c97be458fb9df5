package http

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
)

// slowly is a body that takes a while to arrive.
type slowly struct {
	io.Reader
	after time.Duration
}

func (s *slowly) Read(b []byte) (int, error) {
	time.Sleep(s.after)
	s.after = 0
	return s.Reader.Read(b)
}

// TestASlowBody: a body may take most of a minute to arrive, and the request has all its time for the work then.
func TestASlowBody(t *testing.T) {
	for name, tt := range map[string]struct {
		path, body string
		want       int
	}{
		"a batch":               {"/v1/batches", `{"id": "b", "calls": [{"tool": "echo"}]}`, http.StatusAccepted},
		"calls":                 {"/v1/batches/o/calls", `{"calls": [{"id": "c", "tool": "echo"}]}`, http.StatusAccepted},
		"a close":               {"/v1/batches/o/close", `{}`, http.StatusAccepted},
		"a change of a session": {"/v1/sessions/s", `{"alone": true}`, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
				e.Broker("other") // which sets the system up
				nc := e.Conn("api")
				b, err := natsbroker.Attach(e.Context(), nc, "/api/test")
				if err != nil {
					e.Fatal(err)
				}
				c, err := client.Connect(e.Context(), nc, client.Options{})
				if err != nil {
					e.Fatal(err)
				}
				door, err := api.New(api.Config{Client: c, Reader: follow.New(b, follow.Options{Shared: true}),
					Loopback: true, Log: e.Log(), Ready: func() error { return nil }})
				if err != nil {
					e.Fatal(err)
				}
				e.Cleanup(door.Stop)
				post := func(path, body string, after time.Duration) *httptest.ResponseRecorder {
					r := httptest.NewRequestWithContext(e.Context(), http.MethodPost, "http://localhost"+path,
						&slowly{strings.NewReader(body), after})
					r.Header.Set("Content-Type", "application/json")
					w := httptest.NewRecorder()
					door.ServeHTTP(w, r)
					return w
				}
				if w := post("/v1/batches", `{"id": "o", "open": true}`, 0); w.Code != http.StatusAccepted {
					e.Fatalf("%d %s", w.Code, w.Body)
				}
				if w := post(tt.path, tt.body, 50*time.Second); w.Code != tt.want {
					e.Errorf("%d %s", w.Code, w.Body)
				}
			})
		})
	}
}
