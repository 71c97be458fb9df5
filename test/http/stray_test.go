package http

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/replay"
	"github.com/toolyard/toolyard/internal/testenv"
)

// published puts an event where an agent may put it with nothing but a NATS connection. attributes are names and values
// of those that CloudEvents leaves to the writer.
func (p *pool) published(subject string, typ events.Type, data string, attributes ...string) {
	p.Helper()
	m := nats.NewMsg(subject)
	for i := 0; i < len(attributes); i += 2 {
		m.Header.Set("ce-"+attributes[i], attributes[i+1])
	}
	for name, value := range map[string]string{"ce-specversion": "1.0", "ce-id": subject + " " + string(typ),
		"ce-source": "/agent", "ce-type": string(typ), "content-type": "application/json"} {
		m.Header.Set(name, value)
	}
	m.Data = []byte(data)
	if r, err := p.nc.RequestMsg(m, patience); err != nil || strings.Contains(string(r.Data), "error") {
		p.Fatalf("publish to %s: %v, %v", subject, r, err)
	}
}

// TestStrayEventsOfAnAgentStopNothing: what an agent publishes to the chains of its batch by mistake, be it no JSON, of
// an unknown type, or an event that belongs to another chain, means nothing. The batch completes, and its log is shown.
func TestStrayEventsOfAnAgentStopNothing(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	for i, c := range []struct {
		chain string
		typ   events.Type
		data  string
	}{
		{"control", events.CallsAppended, `garbage`},
		{"control", "dev.toolyard.batch.nothing.v1", `{}`},
		{"control", events.BatchClosed, `{}`},
		{"control", events.CallsAppended, `{"calls": [{"tool": "echo"}]}`},
		{"control", events.BatchPlanned, `{}`},
		{"control", events.CallFinished, `{}`},
		{"control", events.EventUnreadable, `{}`},
		{"input", events.BatchCanceled, `{}`},
		{"input", events.BatchSubmitted, `{"calls": []}`},
	} {
		id := fmt.Sprint("b", i)
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
			`{"id": "`+id+`", "calls": [{"tool": "wait"}, {"tool": "echo", "input": {"text": "2"}}]}`)
		subject := "ty.event.default." + id + "._." + c.chain
		p.published(subject, c.typ, c.data)
		p.published(subject, c.typ, c.data) // also with the id of another one
		p.gate <- struct{}{}
		v := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/"+id+"?wait=60", "")
		for _, r := range v.Results {
			if r.Code != "" {
				t.Errorf("%s on %s: call %d ended as %s: %s", c.typ, c.chain, r.Index, r.Code, r.Error)
			}
		}
		if len(v.Results) != 2 {
			t.Errorf("%s on %s: there are %d results", c.typ, c.chain, len(v.Results))
		}
		log := p.do(http.MethodGet, batches+"/"+id+"/events?follow=false", "").body
		var shown replay.Replay
		stray := 0
		for e, err := range replay.Read(strings.NewReader(string(log))) {
			if err == nil {
				err = shown.Add(e)
			}
			if err != nil {
				t.Fatalf("%s on %s: the log cannot be followed: %v\n%s", c.typ, c.chain, err, log)
			}
			if _, ok := e.Body.(events.Unreadable); ok {
				stray++
			}
		}
		if stray != 2 {
			t.Errorf("%s on %s: the log has %d events that cannot be read, want 2", c.typ, c.chain, stray)
		}
	}
}

// TestAStrayEventEndsAnOpenBatch: what cannot be read among the calls that are appended to an open batch closes it.
// Whoever appends behind it, and whoever follows the batch, is told that it did, and why.
func TestAStrayEventEndsAnOpenBatch(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	p.published("ty.batch.default.b", events.BatchSubmitted, `{"open": true}`)
	p.published("ty.event.default.b._.input", events.CallsAppended, `{"calls": 3}`)
	p.published("ty.event.default.b._.input", events.CallsAppended, `garbage`)
	const why = "an event that was appended cannot be read: event "
	r := p.do(http.MethodPost, batches+"/b/calls", `{"calls": [{"id": "c", "tool": "echo", "input": {"text": "1"}}]}`)
	if r.status != http.StatusConflict || !strings.Contains(r.String(), why) ||
		strings.Contains(r.String(), "Go struct") {
		t.Errorf("who appends behind it gets %s", r)
	}
	want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/b?wait=60", "")
	var all replay.All
	for e, err := range replay.Read(bytes.NewReader(p.do(http.MethodGet, batches+"/b/events?follow=false", "").body)) {
		if err != nil {
			t.Fatal(err)
		}
		all.Add(e)
	}
	reports := all.Reports()
	if len(reports) != 1 || !reports[0].Consistent {
		t.Fatalf("the log is read as %+v", reports)
	}
	text := reports[0].Text()
	if strings.Count(text, "closed by something that cannot be read") != 1 ||
		strings.Count(text, "cannot be read, and changes nothing") != 1 {
		t.Errorf("who follows it reads\n%s", text)
	}
}

// TestAnAgentLeavesAttributesOut: an event needs neither subject nor time, and a wrong subject means nothing: the place
// says whose the event is. Everybody can follow the log of such a batch.
func TestAnAgentLeavesAttributesOut(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	for id, attributes := range map[string][]string{
		"bare": nil, "no name": {"subject", "x"}, "of another": {"subject", "default/other"},
	} {
		tokens := "default." + broker.Escape(id)
		p.published("ty.batch."+tokens, events.BatchSubmitted, `{"open": true}`, attributes...)
		p.published("ty.event."+tokens+"._.input", events.CallsAppended,
			`{"calls": [{"tool": "echo", "input": {"text": "1"}}]}`, attributes...)
		p.published("ty.event."+tokens+"._.control", events.BatchInterrupted, `{"reason": "enough"}`, attributes...)
		p.published("ty.event."+tokens+"._.input", events.BatchClosed, `{}`, attributes...)
		at := batches + "/" + url.PathEscape(id)
		want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, at+"?wait=60", "")

		log := p.do(http.MethodGet, at+"/events?follow=false", "").body
		var all replay.All
		for e, err := range replay.Read(bytes.NewReader(log)) {
			if err != nil {
				t.Fatalf("%s: %v\n%s", id, err, log)
			}
			if e.Meta.Time.IsZero() {
				t.Errorf("%s: event %d, a %T, has no time", id, e.Seq, e.Body)
			}
			all.Add(e)
		}
		if reports := all.Reports(); len(reports) != 1 || reports[0].Contradiction != nil ||
			string(reports[0].Batch.ID) != id {
			t.Errorf("%s: the log is that of %d batches, the first is %+v", id, len(reports), reports[0])
		}
		line := want[api.Timeline](p, http.StatusOK, http.MethodGet, at+"/timeline", "")
		if line.Batch.Status != toolyard.StatusCompleted || len(line.Rows) != 1 {
			t.Errorf("%s: the timeline has %+v and %d rows", id, line.Batch, len(line.Rows))
		}
	}
}

// TestTheFirstSubmissionCounts: what an agent publishes again under the id of its batch, without the header that has
// the server refuse it, changes neither the batch nor what anybody reads of it.
func TestTheFirstSubmissionCounts(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	const first = `{"id": "b", "calls": [{"id": "c", "tool": "wait"},
		{"id": "d", "tool": "echo", "input": {"text": "1"}}]}`
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, first)
	testenv.Until(p, "the batch is planned", func() bool {
		return strings.Contains(p.do(http.MethodGet, batches+"/b", "").String(), `"groups":[[0],[1]]`)
	})
	for _, again := range []string{
		`{"calls": [{"id": "c", "tool": "wait"}, {"id": "d", "tool": "echo", "input": {"text": "another one"}}]}`,
		`{"calls": [{"id": "e", "tool": "echo"}]}`,
		`garbage`,
	} {
		p.published("ty.batch.default.b", events.BatchSubmitted, again)
	}
	// the dispatcher has seen what came before this one
	want[toolyard.BatchView](p, http.StatusOK, http.MethodPost, batches+"?wait=60",
		`{"workspace": "elsewhere", "calls": [{"tool": "echo"}]}`)
	p.gate <- struct{}{}
	v := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/b?wait=60", "")
	if len(v.Results) != 2 || v.Results[0].Output != "waited" || v.Results[1].Output != "1" {
		t.Errorf("it has %+v", v.Results)
	}
	want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches, first)
	if r := p.do(http.MethodGet, batches+"/b?format=anthropic", ""); r.status != http.StatusOK {
		t.Errorf("it goes back to the provider as %s", r)
	}
	log := p.do(http.MethodGet, batches+"/b/events?follow=false", "").body
	var shown replay.Replay
	for e, err := range replay.Read(strings.NewReader(string(log))) {
		if err == nil {
			err = shown.Add(e)
		}
		if err != nil {
			t.Fatalf("the log cannot be followed: %v\n%s", err, log)
		}
	}
	if !strings.Contains(string(log), `"input":{"text":"1"}`) {
		t.Errorf("the log does not have what ran:\n%s", log)
	}
}

// TestARefusedSubmissionIsToldAsOne: a submission on NATS that cannot be read at all is refused, and whoever asks for
// the batch over HTTP is told why, as its agent was. It is no failure of the server.
func TestARefusedSubmissionIsToldAsOne(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	p.published("ty.batch.default.b", events.BatchSubmitted, `garbage`)
	var refused *client.RefusedError
	for _, err := range p.client.Batch(toolyard.BatchKey{Agent: "default", ID: "b"}).Results(t.Context()) {
		if !errors.As(err, &refused) {
			t.Fatalf("the agent is told %v", err)
		}
	}
	for _, c := range [][2]string{
		{http.MethodGet, "/b"}, {http.MethodGet, "/b?wait=1"}, {http.MethodGet, "/b/results"},
		{http.MethodGet, "/b/events?follow=false"}, {http.MethodGet, "/b/timeline"}, {http.MethodGet, "/b/calls/0"},
		{http.MethodPost, "/b/rerun"},
	} {
		r := p.do(c[0], batches+c[1], "")
		problem := decode[api.Problem](p, string(r.body))
		if problem.Status != http.StatusBadRequest || !strings.Contains(problem.Detail, "the batch was refused: ") {
			t.Errorf("%s %s: %s", c[0], c[1], r)
		}
	}
	for _, path := range []string{"/b/cancel", "/b/calls/0/cancel"} { // as of any batch that was refused
		if r := p.do(http.MethodPost, batches+path, ""); r.status != http.StatusConflict {
			t.Errorf("%s: %s", path, r)
		}
	}
}

// TestAReasonOfAnAgentIsCut: whoever asks for an end over NATS may give a reason of any length. Models are told as much
// of it as our clients accept, or one message would be stored again in each result of a batch.
func TestAReasonOfAnAgentIsCut(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	long := strings.Repeat("ä", 50_000)
	for i, typ := range []events.Type{events.BatchCanceled, events.BatchInterrupted} {
		id := fmt.Sprint("b", i)
		want[toolyard.BatchView](p, http.StatusAccepted, http.MethodPost, batches,
			`{"id": "`+id+`", "calls": [{"tool": "wait"}, {"tool": "write"}]}`)
		p.published("ty.event.default."+id+"._.control", typ, `{"by": "`+long+`", "reason": "`+long+`"}`)
		if typ == events.BatchInterrupted { // it waits for what runs, if that has begun
			testenv.Until(p, "the batch ends", func() bool {
				select {
				case p.gate <- struct{}{}:
				default:
				}
				return want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/"+id, "").Status ==
					toolyard.StatusCompleted
			})
		}
		v := want[toolyard.BatchView](p, http.StatusOK, http.MethodGet, batches+"/"+id+"?wait=60", "")
		for _, r := range v.Results {
			if ends := r.Index == 1 || typ == events.BatchCanceled; ends && !strings.Contains(r.Error, "ää") ||
				len(r.Error)+len(r.Detail) > 4*client.MaxReasonBytes {
				t.Errorf("%s: call %d ends as %q with %d bytes for the model, and %d for people", typ, r.Index, r.Code,
					len(r.Error), len(r.Detail))
			}
		}
	}
}
