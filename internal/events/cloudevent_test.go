package events

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestEveryBodyComesBackAsItWent(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	m := Meta{
		ID: "e-1", Source: "/dispatcher/d-1", Subject: "a/b/0", Time: at, Sequence: Sequence(7), PartitionKey: "a/b",
		Version:     1,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		TraceState:  "vendor=a b", Baggage: "user=ann",
	}
	want := []Body{
		Submitted{toolyard.Batch{ID: "b", Agent: "a", Calls: []toolyard.Call{{ID: "c", Tool: "t",
			Input: json.RawMessage(`{"x":1}`)}}}},
		Refused{Title: "Bad Request", Status: 400, Detail: "calls: has no calls", Field: "calls"},
		Planned{SubmissionSeq: 3, Owner: "d-1", Deadline: at,
			Groups: []Group{{Safe: true, Calls: []int{0, 1}, Ticket: true}}},
		Adopted{Owner: "d-2", Takeover: 1},
		Canceled{By: "operator", Calls: []int{2}},
		Started{Group: 1, Ticket: 9, Items: []Item{{1, 2}}},
		Settled{Results: []toolyard.Result{{Index: 4, Code: toolyard.Skipped, IsError: true}}},
		Requested{Agent: "a", Batch: "b", Calls: []RequestedCall{{Index: 1, Input: json.RawMessage(`{}`), Attempt: 1}},
			QueuedAt: at, RemainingMS: 5},
		Claimed{Call: 3, Worker: "w-1", Attempt: 2, Ticket: 9},
		Returned{Worker: "w-1", Calls: []int{1, 2}},
		AttemptFailed{Worker: "w-1", Attempt: 1, Code: toolyard.Timeout, Reason: "slow"},
		Finish(End{Result: toolyard.Result{Index: 1, Output: "ok"}}, End{Result: toolyard.Result{Index: 2}}),
		Reply{Results: []toolyard.Result{{Index: 0}}, Completed: true},
		Appended{Calls: []toolyard.Call{{ID: "c", Tool: "t", Input: json.RawMessage(`{}`)}}},
		Closed{By: "agent", Reason: "done"},
		Parked{RemainingMS: 5_000},
		Woken{Parked: 7},
		Interrupted{By: "person", Reason: "something else"},
		Waiting{Worker: "w-1", Reason: "a rule asks", Class: toolyard.Unsafe,
			Input: json.RawMessage(`{"command":"ls"}`), InputSHA256: "00", Context: []string{"more"}},
		Decided{Decision: Approve, By: "ann", InputSHA256: "00", Remember: "session"},
		Extended{InputSeq: 4, Closed: true, Calls: []PlannedCall{{ID: "c"}}, FirstGroup: 1,
			Groups: []Group{{Safe: true, Calls: []int{1, 2}}}},
		Ended{},
		Archived{Object: "00", Sum: "01", Before: 7, Content: "02", Place: 3, Submitted: at},
		Moved{},
	}
	if len(want) != len(bodies) {
		t.Fatalf("the table has %d bodies, the package %d", len(want), len(bodies))
	}
	for _, b := range want {
		e, err := Encode(m, b)
		if err != nil {
			t.Fatalf("%s: %v", b.EventType(), err)
		}
		gm, gb, err := Decode(e)
		if err != nil {
			t.Fatalf("%s: %v", b.EventType(), err)
		}
		if d := cmp.Diff(m, gm); d != "" {
			t.Errorf("%s: attributes differ (-want +got):\n%s", b.EventType(), d)
		}
		if d := cmp.Diff(b, gb); d != "" {
			t.Errorf("%s: data differs (-want +got):\n%s", b.EventType(), d)
		}
		stored, err := Store(b)
		if err != nil {
			t.Fatalf("%s: %v", b.EventType(), err)
		}
		_, gb, err = (&Envelope{Meta: m, Type: b.EventType()}).Body(stored.Data)
		if d := cmp.Diff(b, gb); err != nil || d != "" {
			t.Errorf("%s: %v, and what was stored differs (-want +got):\n%s", b.EventType(), err, d)
		}
	}
}

func TestUnreadableEventsAreRefused(t *testing.T) {
	good := func() event.Event {
		e, err := Encode(Meta{ID: "e", Source: "/x", Subject: "a/b", Time: time.Unix(0, 0)}, Started{Group: 1})
		must.OK(t, err)
		return e
	}
	for name, c := range map[string]struct {
		spoil func(*event.Event)
		want  string
	}{
		"unknown type": {func(e *event.Event) { e.SetType("dev.toolyard.group.started.v2") }, "names no newer version"},
		"no version":   {func(e *event.Event) { e.SetExtension(extVersion, "v2") }, "is no wire version"},
		"no reader":    {func(e *event.Event) { e.SetExtension(extMinReader, "-1") }, "is no wire version"},
		"no source":    {func(e *event.Event) { e.SetSource("") }, "source"},
		"other data": {func(e *event.Event) {
			_ = e.SetData(event.ApplicationJSON,
				json.RawMessage(`{"group":"one"}`))
		}, "not of its type"},
		"no data": {func(e *event.Event) { e.DataEncoded = nil }, "not of its type"},
	} {
		e := good()
		c.spoil(&e)
		_, b, err := Decode(e)
		if _, ok := errors.AsType[*UnreadableError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v and %v, want an UnreadableError about %q", name, b, err, c.want)
		}
	}
}

// BenchmarkEncodeDecode is what each stored event costs here: written once, read once.
func BenchmarkEncodeDecode(b *testing.B) {
	m := Meta{ID: "01a20290-10be-7dba-a59a-0361ead09e02", Source: "/dispatcher/d-1", Subject: "a/b",
		Time: time.Unix(1, 0).UTC(), PartitionKey: "a/b", Version: 1}
	for b.Loop() {
		e, err := Encode(m, Started{Group: 1, Ticket: 7})
		if err == nil {
			_, _, err = Decode(e)
		}
		must.OK(b, err)
	}
}
