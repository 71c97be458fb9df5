package http

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestResultsAreResumed: a stream of results that is cut in the middle goes on behind the last id, live and when all is
// over.
func TestResultsAreResumed(t *testing.T) {
	p := start(t, nil)
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
		`{"id": "b", "calls": [{"tool": "echo", "input": {"text": "0"}}, {"tool": "wait"}, {"tool": "echo", "input": {"text": "2"}}, {"tool": "wait"}, {"tool": "echo", "input": {"text": "4"}}]}`)
	next, cut := p.stream(batches + "/b/results")
	first, ok := next()
	if !ok || first.id != "0" || first.name != "result" || decode[toolyard.Result](p, first.data).Output != "0" {
		t.Fatalf("the first event is %+v", first)
	}
	cut()
	p.gate <- struct{}{}
	next, cut = p.stream(batches+"/b/results", "Last-Event-ID", first.id)
	seen := []event{first}
	for range 2 {
		e, ok := next()
		if !ok {
			t.Fatal("the stream ended")
		}
		seen = append(seen, e)
	}
	cut()
	p.gate <- struct{}{}
	next, _ = p.stream(batches+"/b/results", "Last-Event-ID", seen[2].id)
	seen = append(seen, all(next)...)
	if len(seen) != 6 {
		t.Fatalf("%d events: %+v", len(seen), seen)
	}
	for i, e := range seen[:5] {
		if r := decode[toolyard.Result](p, e.data); e.id != strconv.Itoa(i) || r.Index != i || r.IsError {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	last := seen[5]
	if done := decode[api.Completed](p, last.data); last.name != "completed" || last.id != "5" || done.Results != 5 ||
		done.Status != toolyard.StatusCompleted {
		t.Errorf("the last event is %+v", last)
	}
	for after := range 5 {
		next, _ := p.stream(batches+"/b/results", "Last-Event-ID", strconv.Itoa(after))
		rest := all(next)
		if len(rest) != 5-after {
			t.Errorf("behind %d there are %+v", after, rest)
			continue
		}
		for i, e := range rest {
			if e != seen[after+1+i] {
				t.Errorf("behind %d, event %d is %+v; it was %+v", after, i, e, seen[after+1+i])
			}
		}
	}
	if r := p.do(http.MethodGet, batches+"/b/results", "", "Last-Event-ID", "5"); r.status != http.StatusNoContent {
		t.Errorf("behind the end: %s", r)
	}
	for _, id := range []string{"6", "-1", "x", "1.0", "99999999999999999999"} {
		if r := p.do(http.MethodGet, batches+"/b/results", "", "Last-Event-ID",
			id); r.status != http.StatusBadRequest || !strings.Contains(string(r.body), `"field":"Last-Event-ID"`) {
			t.Errorf("behind %s: %s", id, r)
		}
	}
	if r := p.do(http.MethodGet, batches+"/none/results", ""); r.status != http.StatusNotFound {
		t.Errorf("no batch: %s", r)
	}
}

// TestEventsAreResumed: the events of a batch, in both forms, live and stored; behind each id come exactly the others.
func TestEventsAreResumed(t *testing.T) {
	p := start(t, nil)
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
		`{"id": "b", "calls": [{"tool": "wait"}, {"tool": "echo"}]}`)
	now := want2lines(p, p.do(http.MethodGet, batches+"/b/events?follow=false", "", "Accept", "application/x-ndjson"))
	if len(now) == 0 || now[0] != events.BatchSubmitted {
		t.Fatalf("so far there are %v", now)
	}
	next, _ := p.stream(batches + "/b/events")
	first, ok := next()
	if !ok || first.name != "cloudevent" || first.id != "0.0" {
		t.Fatalf("the first event is %+v", first)
	}
	p.gate <- struct{}{}
	live := append([]event{first}, all(next)...)
	ids := map[string]bool{}
	for _, e := range live {
		if _, _, err := events.DecodeJSON([]byte(e.data)); err != nil || ids[e.data] {
			t.Errorf("%+v: %v", e, err)
		}
		ids[e.data] = true
	}
	if stored := want2lines(p, p.do(http.MethodGet, batches+"/b/events", "")); len(stored) != len(live) {
		t.Errorf("%d events came live, %d are stored", len(live), len(stored))
	}
	for i, e := range live[:len(live)-1] {
		next, _ := p.stream(batches+"/b/events?follow=false", "Last-Event-ID", e.id)
		rest := map[string]bool{}
		for _, e := range all(next) {
			rest[e.data] = true
		}
		if len(rest) != len(live)-1-i {
			t.Errorf("behind event %d (%s) there are %d, want %d", i, e.id, len(rest), len(live)-1-i)
		}
		for _, e := range live[i+1:] {
			if !rest[e.data] {
				t.Errorf("behind event %d, %s is missing", i, e.data)
			}
		}
	}
	for path, c := range map[string]struct {
		header, value string
		status        int
	}{
		batches + "/none/events":           {"Accept", "*/*", 404},
		batches + "/b/events":              {"Accept", "text/html", 406},
		batches + "/b/events?follow=maybe": {"Accept", "*/*", 400},
		batches + "/b/events?follow=false": {"Last-Event-ID", "1", 400},
	} {
		if r := p.do(http.MethodGet, path, "", c.header, c.value); r.status != c.status {
			t.Errorf("%s, %s %s: %s", path, c.header, c.value, r)
		}
	}
}

// want2lines reads lines of CloudEvents and returns their types.
func want2lines(p *pool, r reply) (types []events.Type) {
	p.Helper()
	if r.status != http.StatusOK || r.header.Get("Content-Type") != "application/x-ndjson" {
		p.Fatalf("%s (%s)", r, r.header.Get("Content-Type"))
	}
	for line := range strings.Lines(string(r.body)) {
		_, body, err := events.DecodeJSON([]byte(line))
		must.OK(p, err)
		types = append(types, body.EventType())
	}
	return types
}

// TestStreamsEndWithTheServer: a server that stops ends its streams and its waits, and answers these.
func TestStreamsEndWithTheServer(t *testing.T) {
	p := start(t, nil)
	body := `{"id": "b", "calls": [{"tool": "echo"}, {"tool": "wait"}]}`
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, body)
	results, _ := p.stream(batches + "/b/results")
	if e, ok := results(); !ok || e.id != "0" {
		t.Fatalf("the first event is %+v", e)
	}
	happened, _ := p.stream(batches + "/b/events")
	if _, ok := happened(); !ok {
		t.Fatal("there is no event")
	}
	answered := make(chan reply, 1)
	go func() { answered <- p.do(http.MethodPost, batches+"?wait=600", body) }()
	p.api.Stop()
	if rest := all(results); len(rest) != 0 {
		t.Errorf("the stream went on with %+v", rest)
	}
	all(happened)
	if r := <-answered; r.status != http.StatusAccepted {
		t.Errorf("the wait ended with %s", r)
	}
}

// TestTooManyStreams: past the limit a client is told when to come again, and one that leaves makes room.
func TestTooManyStreams(t *testing.T) {
	p := start(t, func(c *api.Config) { c.MaxStreams = 2 })
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
		`{"id": "b", "calls": [{"tool": "echo"}, {"tool": "wait"}]}`)
	_, leave := p.stream(batches + "/b/results")
	p.stream(batches + "/b/events")
	for _, path := range []string{"/b/results", "/b/events", "/b?wait=1"} {
		if r := p.do(http.MethodGet, batches+path, ""); r.status != http.StatusTooManyRequests ||
			r.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %s, again after %q", path, r, r.header.Get("Retry-After"))
		}
	}
	if r := p.do(http.MethodPost, batches+"?wait=1", `{"id": "w", "calls": [{"tool": "echo"}]}`); r.status !=
		http.StatusTooManyRequests {
		t.Errorf("a batch that is waited for: %s", r)
	}
	if r := p.do(http.MethodGet, batches+"/w", ""); r.status != http.StatusNotFound {
		t.Errorf("the batch was refused, and is stored: %s", r)
	}
	leave()
	testenv.Until(p, "there is room again", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		res, err := http.DefaultClient.Do(p.request(http.MethodGet, batches+"/b/results", "").WithContext(ctx))
		must.OK(t, err)
		must.OK(t, res.Body.Close())
		return res.StatusCode == http.StatusOK
	})
}

// TestManyReaders: a batch with many results is read by several at a time, all of them whole.
func TestManyReaders(t *testing.T) {
	p := start(t, nil)
	const calls, readers = 60, 4
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, echoes("many", calls))
	type read struct {
		next func() (event, bool)
		out  chan []event
	}
	var all4 []read
	for range readers {
		next, _ := p.stream(batches + "/many/results")
		r := read{next, make(chan []event, 1)}
		go func() { r.out <- all(r.next) }()
		all4 = append(all4, r)
	}
	for n, r := range all4 {
		got := <-r.out
		if len(got) != calls+1 {
			t.Fatalf("reader %d got %d events", n, len(got))
		}
		for i, e := range got[:calls] {
			if decode[toolyard.Result](p, e.data).Output != fmt.Sprint("t", i) {
				t.Errorf("reader %d, event %d: %+v", n, i, e)
			}
		}
	}
}
