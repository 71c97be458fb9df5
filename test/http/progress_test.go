package http

import (
	"net/http"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
)

// TestProgressInStreams: reports go out beside results and events to those who ask for them, and who comes again with
// the last id goes on as if there had been none.
func TestProgressInStreams(t *testing.T) {
	p := start(t, nil)
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
		`{"id": "b", "calls": [{"tool": "echo"}, {"tool": "talk", "input": {"text": "it"}}, {"tool": "wait"}]}`)
	streams := map[string]func() (event, bool){}
	for name, path := range map[string]string{
		"results": batches + "/b/results?progress=true", "events": batches +
			"/b/events?progress=true", "only": batches + "/b/results?progress=only",
		"plain results": batches + "/b/results", "plain events": batches + "/b/events",
	} {
		streams[name], _ = p.stream(path)
	}
	for _, name := range []string{"results", "events", "only"} { // each hears the call before it ends
		for {
			e, ok := streams[name]()
			if !ok {
				t.Fatalf("%s end without a report", name)
			}
			if e.name != "progress" {
				continue
			}
			if r := decode[client.Progress](p, e.data); r.Tool == "talk" && r.Status == "half" {
				if e.id != "" || r.Fraction != 0.5 || r.Index != 1 || r.CallID != "call_2" {
					t.Errorf("%s: %+v", name, e)
				}
				break
			}
		}
	}
	// Both calls may wait at the gate, whichever comes first.
	p.gate <- struct{}{}
	p.gate <- struct{}{}
	n := map[string]map[string]int{}
	for name, next := range streams {
		n[name] = map[string]int{}
		last := ""
		for _, e := range all(next) {
			if n[name][e.name]++; e.name == "progress" {
				if e.id != "" {
					t.Errorf("%s: a report has the id %s", name, e.id)
				}
				last = e.data
			}
		}
		if last != "" && decode[client.Progress](p, last).Fraction != 1 {
			t.Errorf("%s: the last report is %s", name, last)
		}
	}
	if n["plain results"]["progress"]+n["plain events"]["progress"] != 0 {
		t.Error("who did not ask for progress got it")
	}
	if n["plain results"]["result"] != 3 || n["plain results"]["completed"] != 1 || n["results"]["completed"] != 1 ||
		n["only"]["result"] != 0 || n["only"]["completed"] != 1 ||
		n["plain events"]["cloudevent"] < 6 {
		t.Errorf("%v", n)
	}
	next, _ := p.stream(batches+"/b/results?progress=true", "Last-Event-ID", "1")
	if got := all(next); len(got) != 2 || got[0].id != "2" || got[1].name != "completed" {
		t.Errorf("behind the second result: %+v", got)
	}
	next, _ = p.stream(batches + "/b/events?follow=false&end=true&progress=true")
	if got := all(next); got[len(got)-1].name != "end" || len(got) < 6 {
		t.Errorf("what is stored: %+v", got)
	}
}

// TestSmallBodies: what may stand in the bodies that stop a batch and change a session, and what may not.
func TestSmallBodies(t *testing.T) {
	p := start(t, nil)
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
		`{"id": "b", "calls": [{"tool": "wait"}, {"tool": "wait"}]}`)
	for _, c := range []struct {
		path, body, field string
		status            int
	}{
		{batches + "/b/cancel", `{"calls": []}`, "calls", 400},
		{batches + "/b/cancel", `{"calls": [-1]}`, "calls[0]", 400},
		{batches + "/b/cancel", `{"calls": [0, "1"]}`, "calls[1]", 400},
		{batches + "/b/cancel", `{"calls": [0.5]}`, "calls[0]", 400},
		{batches + "/b/cancel", `{"calls": 0}`, "calls", 400},
		{batches + "/b/cancel", `{"call": 0}`, "call", 400},
		{batches + "/b/cancel", `{"calls": [0, 7]}`, "calls", 404},
		{batches + "/b/calls/0/cancel", `{"calls": [0]}`, "calls", 400},
		{"/v1/sessions/s", `{"alone": "yes"}`, "alone", 400},
		{"/v1/sessions/s", `{"forget": 1}`, "forget", 400},
		{"/v1/sessions/s", `{"load": "x"}`, "load", 400},
		{"/v1/sessions/s", `{"alone": true, "load": ["x", ""]}`, "load[1]", 400},
		{"/v1/sessions/s", `{"remember": true}`, "remember", 400},
		{"/v1/sessions/s", ``, "Content-Type", 415},
	} {
		if r := p.do(http.MethodPost, c.path, c.body); r.status != c.status ||
			decode[struct{ Field string }](p, string(r.body)).Field != c.field {
			t.Errorf("%s %s: %s; want %d, field %q", c.path, c.body, r, c.status, c.field)
		}
	}
	if v := want[client.Session](p, http.StatusOK, http.MethodGet, "/v1/sessions/s", ""); v.Unattended {
		t.Errorf("a body with a mistake has changed the session: %+v", v)
	}
	if v := want[client.Session](p, http.StatusOK, http.MethodPost, "/v1/sessions/s",
		`{"alone": true, "forget": true}`); !v.Unattended || v.Loaded == nil || v.Remembered == nil || v.Context == nil {
		t.Errorf("%+v", v)
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+
		"/b/cancel", `{"reason": "enough", "calls": [1, 0]}`)
	next, _ := p.stream(batches + "/b/results")
	for i, e := range all(next)[:2] {
		if r := decode[toolyard.Result](p, e.data); r.Index != i || r.Code != toolyard.Canceled {
			t.Errorf("%+v", r)
		}
	}
	if r := p.do(http.MethodGet, batches+"/b/events?progress=true", "", "Accept",
		"application/x-ndjson"); r.status != 400 {
		t.Errorf("progress in lines: %s", r)
	}
}

// TestNamesWithSlashes: the batches of two agents whose names and ids read the same when a slash joins them are two:
// who follows one sees nothing of the other.
func TestNamesWithSlashes(t *testing.T) {
	p := startFor(t, "secret-a a\nsecret-b a/b\n")
	a, b := []string{"Authorization", "Bearer secret-a"}, []string{"Authorization", "Bearer secret-b"}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
		`{"id": "c", "calls": [{"tool": "talk", "input": {"text": "b's"}}]}`, b...)
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, `{"id": "b/c", "open": true}`, a...)
	ofB, _ := p.stream(batches+"/c/results?progress=true", b...)
	if e, ok := ofB(); !ok || e.name != "progress" {
		t.Fatalf("b's stream begins with %+v", e)
	}
	ofA, _ := p.stream(batches+"/b%2Fc/results?progress=true", a...)
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches+"/b%2Fc/close", "", a...)
	for e, ok := ofA(); ok; e, ok = ofA() {
		if e.name != "completed" && e.name != "waiting" {
			t.Fatalf("a, whose batch has no calls, is sent %+v", e)
		}
	}
	p.gate <- struct{}{}
	results := 0
	for _, e := range all(ofB) {
		if e.name == "result" {
			results++
		}
	}
	if results != 1 {
		t.Errorf("b is sent %d results", results)
	}
}
