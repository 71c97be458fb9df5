package http

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// cutter is between a client and a server, and cuts each connection when so many bytes of answers went over it.
type cutter struct {
	url  string
	most atomic.Int64 // bytes a connection; 0: all
	once atomic.Int64 // bytes of the next connection alone; 0: as the others
	cuts atomic.Int64
	// lost is called once, when an answer was cut and its client does not know yet.
	lost atomic.Pointer[func()]
}

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	c := &cutter{url: "http://" + l.Addr().String()}
	var under sync.WaitGroup
	under.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			under.Go(func() { c.pass(in, to) })
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		under.Wait()
	})
	return c
}

// client makes a client that comes through here, with a connection for each request.
func (c *cutter) client(t *testing.T, retries int) *client.Client {
	t.Helper()
	made, err := client.ConnectHTTP(t.Context(), c.url, client.HTTPOptions{
		MaxRetries: retries, Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	})
	must.OK(t, err)
	return made
}

func (c *cutter) pass(in net.Conn, to string) {
	out, err := net.Dial("tcp", to)
	if err != nil {
		_ = in.Close()
		return
	}
	shut := sync.OnceFunc(func() { _, _ = in.Close(), out.Close() })
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(out, in)
		shut()
	})
	both.Go(func() {
		var from io.Reader = out
		most := c.once.Swap(0)
		if most == 0 {
			most = c.most.Load()
		}
		if most > 0 {
			from = io.LimitReader(out, most)
		}
		if n, err := io.Copy(in, from); err == nil && most > 0 && n == most {
			c.cuts.Add(1)
			if lost := c.lost.Swap(nil); lost != nil {
				(*lost)()
			}
		}
		shut()
	})
	both.Wait()
}

// TestCutConnections: the connection is cut in the middle of results and events, many times and anywhere, and the
// client goes on without a gap and without a repeat.
func TestCutConnections(t *testing.T) {
	p := start(t, nil)
	c := newCutter(t, strings.TrimPrefix(p.url, "http://"))
	b := toolyard.Batch{Agent: "a", ID: "many"}
	for range 24 {
		b.Calls = append(b.Calls, toolyard.Call{Tool: "echo"})
	}
	b.Calls = append(b.Calls, toolyard.Call{Tool: "wait"})
	sub, err := c.client(t, 0).Submit(t.Context(), b)
	must.OK(t, err)
	for _, most := range []int64{2_500, 3_001, 4_444} { // a result has about a thousand bytes
		c.most.Store(most)
		before := c.cuts.Load()
		next := 0
		for r, err := range sub.Results(t.Context()) {
			must.OK(t, err)
			if r.Index != next {
				t.Fatalf("result %d where %d is next", r.Index, next)
			}
			if next++; next == len(b.Calls)-1 && most == 2_500 { // the first time, the last is yet to come
				p.gate <- struct{}{}
			}
		}
		if next != len(b.Calls) {
			t.Errorf("%d results, want %d", next, len(b.Calls))
		}
		if cuts := c.cuts.Load() - before; cuts < 5 {
			t.Errorf("the connection was cut %d times only", cuts)
		}
	}
	c.most.Store(0)
	var want []string
	longest := 0
	for _, raw := range every(t, sub.Events(t.Context())) {
		want, longest = append(want, string(raw)), max(longest, len(raw))
	}
	c.most.Store(int64(longest + 1_000)) // with the headers; a piece that never comes whole is never read
	before := c.cuts.Load()
	var got []string
	for e, err := range sub.Watch(t.Context()) {
		must.OK(t, err)
		got = append(got, string(e.JSON))
	}
	if len(got) != len(want) {
		t.Errorf("watched %d events, %d are stored", len(got), len(want))
	}
	once := map[string]bool{}
	for _, e := range got {
		if once[e] {
			t.Errorf("twice: %.200s", e)
		}
		once[e] = true
	}
	for _, e := range want {
		if !once[e] {
			t.Errorf("left out: %.200s", e)
		}
	}
	if c.cuts.Load()-before < 2 {
		t.Error("the events were not cut")
	}
}

// TestAConnectionThatNeverDelivers: a client gives up in the end, and says why.
func TestAConnectionThatNeverDelivers(t *testing.T) {
	p := start(t, nil)
	c := newCutter(t, strings.TrimPrefix(p.url, "http://"))
	sub, err := c.client(t, 2).Submit(t.Context(), toolyard.Batch{Calls: []toolyard.Call{{Tool: "echo"}}})
	must.OK(t, err)
	must.OK(t, failure(sub.Results(t.Context())))
	c.most.Store(300) // the headers, and less than a result
	if err := failure(sub.Results(t.Context())); err == nil || !strings.Contains(err.Error(), "was cut") ||
		c.cuts.Load() != 3 {
		t.Errorf("%v after %d cuts; want an error after 3", err, c.cuts.Load())
	}
}

// TestLostAnswers: what was asked is done, and the answer is lost. The client asks again, and nothing is done twice.
func TestLostAnswers(t *testing.T) {
	p := start(t, nil)
	c := newCutter(t, strings.TrimPrefix(p.url, "http://"))
	over := c.client(t, 0)
	lose := func(what string, do func() error) {
		t.Helper()
		before := c.cuts.Load()
		c.once.Store(10)
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if c.cuts.Load() != before+1 {
			t.Errorf("%s: no answer was lost", what)
		}
	}
	var st *client.Stream
	lose("open", func() (err error) {
		st, err = over.Open(t.Context(), toolyard.Batch{Agent: "a", ID: "b"})
		return err
	})
	lose("append", func() error {
		return st.Append(t.Context(), toolyard.Call{Tool: "echo"},
			toolyard.Call{Tool: "wait"})
	})
	lose("cancel", func() error { return st.Cancel(t.Context(), "enough", 1) })
	lose("close", func() error { return st.Close(t.Context()) })
	lose("results", func() error {
		if got := outcomes(every(t, st.Results(t.Context()))); got != "0: 1:canceled" {
			t.Errorf("results: %s", got)
		}
		return nil
	})
	n := map[events.Type]int{}
	for _, raw := range every(t, st.Events(t.Context())) {
		_, body, err := events.DecodeJSON(raw)
		must.OK(t, err)
		n[body.EventType()]++
	}
	if n[events.BatchSubmitted] != 1 || n[events.CallsAppended] != 1 || n[events.BatchClosed] != 1 ||
		n[events.BatchCanceled] != 1 {
		t.Errorf("stored: %v", n)
	}
	var refused error
	c.once.Store(10)
	if refused = over.Decide(t.Context(), "a.b.0", client.Decision{Verdict: client.Deny, By: "ann"}); refused == nil ||
		errors.Is(refused, client.ErrNoApproval) {
		t.Errorf("a decision is not repeated, for nobody knows what became of it: %v", refused)
	}
}

// TestAnInterruptIsOfItsMoment: where the answer of an interrupt, or of a resolve, is lost, the client says so. It does
// not stop what has begun since.
func TestAnInterruptIsOfItsMoment(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	c := newCutter(t, strings.TrimPrefix(p.url, "http://"))
	over := c.client(t, 0)
	listed := func(n int) {
		testenv.Until(p, "the batches are listed", func() bool {
			page, _, err := p.client.Batches(t.Context(), client.Filter{Agent: "a", Session: "s"})
			return err == nil && len(page) == n
		})
	}
	submit := func(id string, tools ...string) *client.Batch {
		b := toolyard.Batch{Agent: "a", ID: toolyard.BatchID(id), Session: "s", Interactive: true}
		for _, name := range tools {
			b.Calls = append(b.Calls, toolyard.Call{Tool: name})
		}
		sub, err := p.client.Submit(t.Context(), b)
		if err != nil {
			t.Error(err)
		}
		return sub
	}
	waits := func(n int) {
		testenv.Until(p, "the calls wait for a person", func() bool {
			list, err := p.client.Approvals(t.Context(), "a")
			return err == nil && len(list) == n
		})
	}
	first := submit("first", "write")
	listed(1)
	waits(1)
	var later *client.Batch
	c.lost.Store(new(func() {
		later = submit("later", "echo", "write")
		listed(2)
	}))
	c.once.Store(10)
	if n, err := over.Interrupt(t.Context(), "a", "s", "stop"); err == nil {
		t.Errorf("the answer is lost, and %d batches were interrupted", n)
	}
	if got := outcomes(every(t, first.Results(t.Context()))); got != "0:canceled" {
		t.Errorf("the batch that was there: %s", got)
	}
	waits(1)
	var last *client.Batch
	c.lost.Store(new(func() {
		if got := outcomes(every(t, later.Results(t.Context()))); got != "0: 1:approval_expired" {
			t.Errorf("the batch that was not interrupted: %s", got)
		}
		last = submit("last", "write")
		waits(1)
	}))
	c.once.Store(10)
	if done, err := over.Resolve(t.Context(), "a", "s", "", "go on"); err == nil {
		t.Errorf("the answer is lost, and it has ended %+v", done)
	}
	waits(1)
	if v, err := last.View(t.Context()); err != nil || v.Status != toolyard.StatusWaiting {
		t.Errorf("the call that was asked about later: %s, %v", v.Status, err)
	}
}

// TestClientsWithTokens: an agent that is left empty is the token's, and what the token may not do is said.
func TestClientsWithTokens(t *testing.T) {
	p := startFor(t, "secret-a ann\nsecret-b bob\n")
	ann := overHTTP(t, p, client.HTTPOptions{Token: "secret-a"})
	bobs, err := overHTTP(t, p, client.HTTPOptions{Token: "secret-b"}).Watch(t.Context(), "") // before anything happens
	must.OK(t, err)
	sub, err := ann.Submit(t.Context(), toolyard.Batch{ID: "b", Calls: []toolyard.Call{{Tool: "echo"}}})
	must.OK(t, err)
	if sub.Key() != (toolyard.BatchKey{Agent: "ann", ID: "b"}) {
		t.Errorf("the batch is %s", sub.Key())
	}
	unnamed := ann.Batch(toolyard.BatchKey{ID: "b"})
	if got := outcomes(every(t, unnamed.Results(t.Context()))); got != "0:" {
		t.Errorf("results: %s", got)
	}
	if got := len(every(t, unnamed.Watch(t.Context()))); got < 4 {
		t.Errorf("%d events", got)
	}
	if _, err := ann.Session(t.Context(), "", "s"); err != nil {
		t.Error(err)
	}
	if v, err := ann.SetUnattended(t.Context(), "", "s", true); err != nil || !v.Unattended {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := overHTTP(t, p, client.HTTPOptions{Token: "secret-b"}).Submit(t.Context(),
		toolyard.Batch{ID: "bob's", Calls: []toolyard.Call{{Tool: "echo"}}}); err != nil {
		t.Fatal(err)
	}
	for e, err := range bobs { // it was ann's turn first, and bob sees nothing of that
		if err != nil || e.Batch != (toolyard.BatchKey{Agent: "bob", ID: "bob's"}) {
			t.Errorf("bob sees %+v, %v", e, err)
		}
		if e.Type == string(events.Results) {
			break
		}
	}
	forbidden := map[string]func() error{
		"somebody is there": func() error { _, err := ann.SetUnattended(t.Context(), "", "s", false); return err },
		"another's name": func() error {
			_, err := ann.Submit(t.Context(), toolyard.Batch{Agent: "bob", Calls: []toolyard.Call{{Tool: "echo"}}})
			return err
		},
		"dead letters": func() error { _, err := ann.DeadLetters(t.Context(), 1); return err },
	}
	for what, do := range forbidden {
		if e, ok := errors.AsType[*client.HTTPError](do()); !ok || e.Status != 403 {
			t.Errorf("%s: %v", what, e)
		}
	}
	wrong := overHTTP(t, p, client.HTTPOptions{Token: "wrong"})
	_, err = wrong.Submit(t.Context(), toolyard.Batch{Calls: []toolyard.Call{{Tool: "echo"}}})
	if e, ok := errors.AsType[*client.HTTPError](err); !ok || e.Status != 401 {
		t.Errorf("a wrong token: %v", err)
	}
	if _, err := ann.Watch(t.Context(), "bob"); err == nil {
		t.Error("ann watches bob")
	}
}
