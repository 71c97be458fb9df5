package http

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestNoRoom: a new batch is refused before anything of it is stored, with the reason. One that is there is answered as
// ever, also when it is handed in again, and what is under way goes on until nothing can be stored at all.
func TestNoRoom(t *testing.T) {
	var mu sync.Mutex
	var room broker.Room
	set := func(r broker.Room) {
		mu.Lock()
		defer mu.Unlock()
		room = r
	}
	p := start(t, func(c *api.Config) {
		c.Room = func() broker.Room {
			mu.Lock()
			defer mu.Unlock()
			return room
		}
	})
	const reason = "the disk under /data has 12 MiB free, and 64 MiB are kept for what is under way; free 68 MiB"
	const there, fresh = `{"id": "there", "calls": [{"tool": "wait"}]}`, `{"id": "new", "calls": [{"tool": "wait"}]}`
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, there)
	refused := func(when, method, path, body string) {
		t.Helper()
		began := time.Now()
		r := p.do(method, path, body)
		if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" ||
			!strings.Contains(string(r.body), reason) ||
			!strings.Contains(string(r.body), "urn:toolyard:problem:full") || time.Since(began) > 20*time.Second {
			t.Errorf("%s: %s %s: %s", when, method, path, r)
		}
	}
	for _, now := range []broker.Room{{Full: true, Reason: reason}, {Full: true, Stalled: true, Reason: reason}} {
		set(now)
		refused("full", http.MethodPost, batches, fresh)
		refused("full", http.MethodPost, batches, `{"calls": [{"tool": "wait"}]}`)
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, there)
		want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/there", "")
		if r := p.do(http.MethodGet, batches+"/new", ""); r.status != http.StatusNotFound {
			t.Errorf("a batch was refused, and is there: %s", r)
		}
	}
	refused("stalled", http.MethodPost, batches+"/there/cancel", `{"reason": "x"}`)
	set(broker.Room{Full: true, Reason: reason})
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"/there/cancel", `{"reason": "x"}`)
	over, err := client.ConnectHTTP(t.Context(), p.url, client.HTTPOptions{})
	must.OK(t, err)
	if _, err := over.Submit(t.Context(), toolyard.Batch{ID: "new",
		Calls: []toolyard.Call{{Tool: "wait"}}}); !errors.Is(err, client.ErrFull) ||
		!strings.Contains(err.Error(), reason) {
		t.Errorf("the Go client is told %v; want ErrFull with the reason", err)
	}
	set(broker.Room{})
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, fresh)
}

// TestABatchThatNobodyServes: a new batch whose shard has no dispatcher is refused with the reason, and the Go client
// says so. One without an id gets an id of another shard, and one that is stored is answered as ever.
func TestABatchThatNobodyServes(t *testing.T) {
	const reason = "no dispatcher has taken batches of shard 1"
	var mu sync.Mutex
	served := func(toolyard.BatchKey) bool { return true }
	serve := func(f func(toolyard.BatchKey) bool) {
		mu.Lock()
		defer mu.Unlock()
		served = f
	}
	p := start(t, func(c *api.Config) {
		c.Unserved = func(k toolyard.BatchKey) string {
			mu.Lock()
			defer mu.Unlock()
			if served(k) {
				return ""
			}
			return reason
		}
	})
	const there, fresh = `{"id": "there", "calls": [{"tool": "wait"}]}`, `{"id": "new", "calls": [{"tool": "wait"}]}`
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, there)
	// Half of all ids are unserved, and so are the two of this test.
	serve(func(k toolyard.BatchKey) bool {
		if k.Agent != toolyard.DefaultAgent {
			t.Errorf("the agent of %v is not the batch's", k)
		}
		return k.ID != "there" && k.ID != "new" && k.ID[len(k.ID)-1]%2 == 0
	})
	r := p.do(http.MethodPost, batches, fresh)
	if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" ||
		!strings.Contains(string(r.body), reason) ||
		!strings.Contains(string(r.body), "urn:toolyard:problem:no-answer") {
		t.Errorf("%s", r)
	}
	if r := p.do(http.MethodGet, batches+"/new", ""); r.status != http.StatusNotFound {
		t.Errorf("a batch was refused, and is there: %s", r)
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, there)
	for range 8 {
		v := want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, `{"calls": [{"tool": "wait"}]}`)
		if v.ID[len(v.ID)-1]%2 != 0 {
			t.Errorf("a batch without an id got %s, which nobody serves", v.ID)
		}
	}
	serve(func(toolyard.BatchKey) bool { return true })
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, fresh)
}

// TestACrowdOfBatches: an agent that has as many batches waiting as it may is told 429 before anything is stored, and
// the same id is taken later. What was stored and turned away all the same, as where another dispatcher decides, is 409
// from then on, which asks for a new id: 429 never follows 202.
func TestACrowdOfBatches(t *testing.T) {
	limits := dispatcher.Config{MaxAgentBatches: 1, MaxAgentWaiting: 1}
	batch := func(id string) string { return `{"id": "` + id + `", "calls": [{"tool": "wait"}]}` }
	for _, asks := range []bool{true, false} {
		var crowded func(toolyard.Agent) string
		p := startWith(t, limits, func(cfg *api.Config, d *dispatcher.Dispatcher) {
			if crowded = d.Crowded; asks {
				cfg.Crowded = crowded
			}
		})
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, batch("a"))
		testenv.Until(p, "a runs", func() bool {
			return len(want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/a", "").Groups) == 1
		})
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, batch("b"))
		testenv.Until(p, "b waits", func() bool { return crowded(toolyard.DefaultAgent) != "" })
		if asks {
			r := p.do(http.MethodPost, batches, batch("c"))
			if r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" ||
				!strings.Contains(string(r.body), "problem:full") {
				t.Errorf("c is not turned away, and there is no room: %s", r)
			}
			if r := p.do(http.MethodGet, batches+"/c", ""); r.status != http.StatusNotFound {
				t.Errorf("a batch was refused, and is there: %s", r)
			}
			want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, batch("b")) // it is there
			p.gate <- struct{}{}
			testenv.Until(p, "c is taken under its id", func() bool {
				return p.do(http.MethodPost, batches,
					batch("c")).status == http.StatusAccepted
			})
			p.gate <- struct{}{}
			p.gate <- struct{}{}
			if v := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+
				"/c?wait=60", ""); len(v.Results) != 1 || v.Results[0].IsError {
				t.Errorf("%+v", v)
			}
			continue
		}
		testenv.Until(p, "one is turned away", func() bool {
			r := p.do(http.MethodPost, batches, batch("c"))
			if r.status == http.StatusTooManyRequests {
				t.Fatalf("behind 202 there is %s", r)
			}
			return r.status == http.StatusConflict
		})
		for _, r := range []reply{p.do(http.MethodPost, batches, batch("c")), p.do(http.MethodGet, batches+"/c", "")} {
			if r.status != http.StatusConflict || r.header.Get("Retry-After") != "" ||
				!strings.Contains(string(r.body), "under a new id") ||
				!strings.Contains(string(r.body), "problem:refused") {
				t.Errorf("%s", r)
			}
		}
		over, err := client.ConnectHTTP(t.Context(), p.url, client.HTTPOptions{})
		must.OK(t, err)
		_, err = over.Batch(toolyard.BatchKey{Agent: "default", ID: "c"}).View(t.Context())
		if refused := new(client.RefusedError); !errors.As(err, &refused) || !errors.Is(err, client.ErrFull) {
			t.Errorf("the Go client is told %v", err)
		}
		p.gate <- struct{}{}
		p.gate <- struct{}{}
	}
}
