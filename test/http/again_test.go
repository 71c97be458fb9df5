package http

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestWhatIsSaidToBeSafeAgainDoublesNothing: something without an id is stored, and NATS goes away before it says so.
// Nobody is told to send it again before they have looked.
func TestWhatIsSaidToBeSafeAgainDoublesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		path, body, subject string
		safe                bool
	}{
		"calls": {"/v1/batches/o/calls?agent=a",
			`{"calls": [{"tool": "bash", "input": {"command": "deploy"}}]}`, " ty.event.", false},
		"calls of Gemini": {"/v1/batches/o/calls?agent=a",
			`{"gemini": {"parts": [{"functionCall": {"name": "bash", "args": {"command": "deploy"}}}]}}`, " ty.event.",
			false},
		"calls with ids": {"/v1/batches/o/calls?agent=a",
			`{"calls": [{"id": "c", "tool": "bash", "input": {"command": "deploy"}}]}`, " ty.event.", true},
		"a batch": {"/v1/batches", `{"agent": "a", "calls": [{"tool": "bash", "input": {"command": "deploy"}}]}`,
			" ty.batch.", false},
		"a batch with an id": {"/v1/batches",
			`{"id": "b", "agent": "a", "calls": [{"tool": "bash", "input": {"command": "deploy"}}]}`, " ty.batch.",
			true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
				other := e.Broker("other")
				nc := e.Conn("api")
				door := doorOf(e, nc)
				post := func(path, body string) *httptest.ResponseRecorder {
					r := httptest.NewRequestWithContext(e.Context(), http.MethodPost, "http://localhost"+path,
						strings.NewReader(body))
					r.Header.Set("Content-Type", "application/json")
					w := httptest.NewRecorder()
					door.ServeHTTP(w, r)
					return w
				}
				if w := post("/v1/batches", `{"id": "o", "agent": "a", "open": true, "calls": []}`); w.Code != 202 {
					e.Fatalf("%d %s", w.Code, w.Body)
				}
				have := func() (n int) { // calls
					ctx := context.WithoutCancel(e.Context())
					list, _, err := other.Newest(ctx, "a", time.Time{}, time.Time{}, 10)
					must.OK(e.T, err)
					for _, kept := range list {
						st, err := other.Look(ctx, kept.Key)
						must.OK(e.T, err)
						n += len(st.Submission.Calls) + len(st.Input)
					}
					return n
				}
				var stored atomic.Bool
				e.Server.Hold(func(s membroker.Step) bool { // no answer comes, once it was sent
					if s.Kind == membroker.Operation && s.Party == "api" && strings.Contains(s.What, tt.subject) {
						stored.Store(true)
					}
					return stored.Load() && s.Kind == membroker.Delivery && s.Party == "api"
				})
				answer := make(chan *httptest.ResponseRecorder)
				go func() { answer <- post(tt.path, tt.body) }()
				e.Eventually("it is stored", func() bool { return have() == 1 })
				e.Server.Cut("api")
				w := <-answer
				var p api.Problem
				if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != http.StatusServiceUnavailable {
					e.Fatalf("%d %s (%v)", w.Code, w.Body, err)
				}
				e.Logf("the answer: %d %s", w.Code, w.Body)
				e.Server.Hold(nil)
				e.Server.Heal("api")
				e.Eventually("the connection is there again", nc.IsConnected)
				if safe := strings.Contains(p.Detail, "is safe"); safe != tt.safe ||
					strings.Contains(p.Detail, "not known whether anything was stored") == safe {
					e.Errorf("the answer said: %s", p.Detail)
				} else if safe {
					if w := post(tt.path, tt.body); w.Code != http.StatusAccepted {
						e.Fatalf("again: %d %s", w.Code, w.Body)
					}
				}
				if n := have(); n != 1 {
					e.Errorf("there are %d calls, after an answer that said: %s", n, p.Detail)
				}
			})
		})
	}
}
