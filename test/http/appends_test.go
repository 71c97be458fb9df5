package http

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/follow"
)

// meeting is a store in which the first readers of logs wait a moment for each other.
type meeting struct {
	*natsbroker.Broker
	mu  sync.Mutex
	due int
	met chan struct{}
}

func (m *meeting) Tail(k toolyard.BatchKey) broker.Tail {
	m.mu.Lock()
	meets := m.due > 0
	if meets {
		if m.due--; m.due == 0 {
			close(m.met)
		}
	}
	m.mu.Unlock()
	if meets {
		select {
		case <-m.met:
		case <-time.After(time.Second):
		}
	}
	return m.Broker.Tail(k)
}

// TestAppendsWithoutIDsDoNotHoldEachOtherUp: as many appends of Gemini's calls come at a time as an agent has turns at
// reading. All are stored, each behind the others.
func TestAppendsWithoutIDsDoNotHoldEachOtherUp(t *testing.T) {
	var m *meeting
	p := start(t, func(cfg *api.Config) {
		m = &meeting{Broker: cfg.Reader.Store.(*natsbroker.Broker)}
		cfg.Tokens = tokensOf(t, "token-of-a agent-a workspaces=default\n")
		cfg.Reader = follow.New(m, follow.Options{Shared: true})
	})
	const token = "Bearer token-of-a"
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, `{"id": "g", "open": true, "calls": []}`,
		"Authorization", token)
	m.mu.Lock()
	m.due, m.met = follow.MaxAgentReads, make(chan struct{})
	m.mu.Unlock()
	began := time.Now()
	answers := make(chan reply, follow.MaxAgentReads)
	for range follow.MaxAgentReads {
		go func() {
			var r reply
			defer func() { answers <- r }()
			r = p.do(http.MethodPost, batches+"/g/calls",
				`{"gemini": {"parts": [{"functionCall": {"name": "echo", "args": {"text": "x"}}}]}}`,
				"Authorization", token)
		}()
	}
	at := map[int]bool{}
	for range follow.MaxAgentReads {
		r := <-answers
		if r.status != http.StatusAccepted {
			t.Errorf("after %s: %s", time.Since(began).Round(time.Second), r)
			continue
		}
		at[decode[api.Appended](p, string(r.body)).First] = true
	}
	if !t.Failed() && len(at) != follow.MaxAgentReads {
		t.Errorf("the calls were stored at %v", at)
	}
}

// TestTwoServersAppendEachCallWithoutAnID: equal calls of Gemini that come at two servers of a system at the same time
// are each a call of the batch.
func TestTwoServersAppendEachCallWithoutAnID(t *testing.T) {
	t.Parallel()
	var cfg api.Config
	p := start(t, func(c *api.Config) { cfg = *c })
	cfg.Reader = follow.New(p.broker, follow.Options{Shared: true})
	second, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(second)
	t.Cleanup(func() {
		second.Stop()
		server.Close()
	})
	other := *p
	other.url = server.URL
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, `{"id": "g", "open": true, "calls": []}`)
	const rounds = 30
	at := map[int]bool{}
	for range rounds {
		answers := make(chan reply, 2)
		for _, p := range []*pool{p, &other} {
			go func() {
				var r reply
				defer func() { answers <- r }()
				r = p.do(http.MethodPost, batches+"/g/calls",
					`{"gemini": {"parts": [{"functionCall": {"name": "echo", "args": {"text": "x"}}}]}}`)
			}()
		}
		for range 2 {
			r := <-answers
			if r.status != http.StatusAccepted {
				t.Fatalf("an append: %s", r)
			}
			at[decode[api.Appended](p, string(r.body)).First] = true
		}
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"/g/close", "")
	v := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/g?wait=60", "")
	if len(at) != 2*rounds || len(v.Results) != 2*rounds {
		t.Errorf("%d appends were answered with %d places, and have %d results", 2*rounds, len(at), len(v.Results))
	}
}
