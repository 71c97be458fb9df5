package natsbroker_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestStock: whoever watches the store sees what waits in each queue, what workers have of it, since when the oldest
// waits, and how full each stream is.
func TestStock(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	reads := batch.Route{Pool: "default", Class: toolyard.ReadOnly}
	writes := batch.Route{Pool: "other", Class: toolyard.WriteExclusive}
	queue := func(r batch.Route, agent toolyard.Agent, calls int) {
		t.Helper()
		var all []batch.Queue
		for i := range calls {
			all = append(all, batch.Queue{Route: r, Request: events.Requested{Agent: agent, Batch: "b",
				Calls: []events.RequestedCall{{Index: i, Input: json.RawMessage(`{}`)}}}})
		}
		for _, q := range b.QueueAll(t.Context(), broker.LaneOf(agent), all) {
			if q.Err != nil {
				t.Fatal(q.Err)
			}
		}
	}
	stock := func() broker.Stock {
		t.Helper()
		s, err := b.Stock(t.Context())
		must.OK(t, err)
		return s
	}
	if s := stock(); len(s.Queues) != 0 {
		t.Errorf("no worker was ever there, and the queues are %+v", s.Queues)
	}
	for _, r := range []batch.Route{reads, writes} {
		for n := range broker.Lanes {
			l, err := b.Lane(t.Context(), r, n, nil)
			must.OK(t, err)
			t.Cleanup(l.Stop)
		}
	}
	if s := stock(); len(s.Queues) != 2 ||
		s.Queues[0] != (broker.WorkQueue{Pool: "default", Class: toolyard.ReadOnly}) ||
		s.Queues[1] != (broker.WorkQueue{Pool: "other", Class: toolyard.WriteExclusive}) {
		t.Errorf("nothing is queued, and the queues are %+v", s.Queues)
	}
	queue(reads, "a", 3)
	other := toolyard.Agent("b")
	for broker.LaneOf(other) == broker.LaneOf("a") {
		other += "b"
	}
	queue(reads, other, 2)
	took := testenv.Take(t, lane(t, b))
	var s broker.Stock
	testenv.Until(t, "the server has counted all", func() bool {
		s = stock()
		return s.Queues[0].Waiting+s.Queues[0].Taken == 5
	})
	if q := s.Queues[0]; q.Waiting != 4 || q.Taken != 1 || q.Oldest.Before(took.Stored) ||
		time.Since(q.Oldest) > time.Minute {
		t.Errorf("4 calls wait and 1 was taken at %s: %+v", took.Stored, q)
	}
	if q := s.Queues[1]; q.Waiting != 0 || q.Taken != 0 || !q.Oldest.IsZero() {
		t.Errorf("nothing is queued for the other pool: %+v", q)
	}
	for _, name := range []string{"TY_BATCH", "TY_EVENT", "TY_CALL", "TY_REPLY", "TY_DEAD", "KV_ty_ticket",
		"OBJ_ty_blob"} {
		if percent, ok := s.Streams[name]; !ok || percent > 1 {
			t.Errorf("stream %s is %d%% full, %t", name, percent, ok)
		}
	}
	if len(s.Streams) != 11 {
		t.Errorf("the streams are %v", s.Streams)
	}
	if s.DeadLetters != 0 {
		t.Errorf("there are %d dead letters", s.DeadLetters)
	}
	must.OK(t, b.Bury(t.Context(), broker.DeadLetter{Kind: broker.DeadBatch, Agent: "a", Batch: "b",
		Cause: "of a test"}, nil))
	if s := stock(); s.DeadLetters != 1 {
		t.Errorf("there are %d dead letters, with one stored", s.DeadLetters)
	}
}
