package http

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/replay"
)

// TestNobodyAppendsToARefusedBatch: an open batch that was refused takes no calls, which would have no result. Who
// appends is told why, whatever is known there of the batch, and the log stays one that can be followed.
func TestNobodyAppendsToARefusedBatch(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	noRoom := events.Refused{Type: "about:blank", Title: "Too Many Requests", Status: http.StatusTooManyRequests,
		Detail: "no room"}
	for _, tt := range []struct {
		id, says string
		open     func(toolyard.BatchKey) *client.Stream
	}{
		{"full", "no room", func(k toolyard.BatchKey) *client.Stream {
			if _, err := p.broker.Append(t.Context(), k, batch.ChainBatch, "", 0, 0, noRoom); err != nil {
				t.Fatal(err)
			}
			s, err := p.client.Open(t.Context(), toolyard.Batch{Agent: k.Agent, ID: k.ID})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}},
		{"wrong", "is not a strategy", func(k toolyard.BatchKey) *client.Stream {
			p.published("ty.batch."+string(k.Agent)+"."+string(k.ID), events.BatchSubmitted,
				`{"open": true, "calls": [], "options": {"partition": "no strategy"}}`)
			return p.client.Reopen(k)
		}},
	} {
		k := toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(tt.id)}
		st := tt.open(k)
		var refused *client.RefusedError
		if err := failure(st.Results(t.Context())); !errors.As(err, &refused) {
			t.Fatalf("%s: its results end with %v", tt.id, err)
		}
		for name, s := range map[string]*client.Stream{"who has opened it": st, "who comes later": p.client.Reopen(k)} {
			err := s.Append(t.Context(), toolyard.Call{ID: "c", Tool: "echo"})
			if !errors.As(err, &refused) || !strings.Contains(refused.Detail, tt.says) {
				t.Errorf("%s: %s appends and is told %v", tt.id, name, err)
			}
		}
		r := p.do(http.MethodPost, batches+"/"+tt.id+"/calls?agent=a", `{"calls": [{"id": "d", "tool": "echo"}]}`)
		if problem := decode[api.Problem](p, string(r.body)); r.status != http.StatusConflict &&
			r.status != http.StatusBadRequest || problem.Type != client.ProblemType(refused) ||
			!strings.Contains(problem.Detail, tt.says) {
			t.Errorf("%s: over HTTP: %s", tt.id, r)
		}
		var log replay.Replay
		for _, raw := range every(t, p.client.Batch(k).Events(t.Context())) {
			for e, err := range replay.Read(strings.NewReader(string(raw) + "\n")) {
				if err == nil {
					err = log.Add(e)
				}
				if err != nil {
					t.Errorf("%s: the log cannot be followed: %v", tt.id, err)
				}
			}
		}
	}
}
