package natsbroker_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestEachCallOfAnItemReadsObjects: a worker with an account of its own has a message with two calls, each of
// which reads an offloaded result of its agent (as two calls of read_result in one batch do). Another pool's worker
// reads none.
func TestEachCallOfAnItemReadsObjects(t *testing.T) {
	y, s := guardedArchiveYard(t)
	w := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "p"}, "/worker/p.w")
	other := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "q"}, "/worker/q.w")
	ref, err := w.PutResult(t.Context(), "a.b", []byte("a long result"))
	if err != nil {
		t.Fatal(err)
	}
	sub := y.submit("two")
	k := sub.Key()
	out := y.b.QueueAll(t.Context(), 0, []batch.Queue{{Route: batch.Route{Pool: "p", Class: toolyard.ReadOnly},
		Request: events.Requested{Agent: k.Agent, Batch: k.ID, Width: 2, Calls: []events.RequestedCall{
			{Index: 0, Input: json.RawMessage(`{}`)}, {Index: 1, Input: json.RawMessage(`{}`)}}}}})
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	for i := range 2 {
		got, err := w.Result(broker.ForCall(t.Context(), k, i), k.Agent, ref)
		if err != nil || string(got) != "a long result" {
			t.Errorf("call %d of the message reads %q, %v", i, got, err)
		}
		if got, err := other.Result(broker.ForCall(t.Context(), k, i), k.Agent, ref); err == nil {
			t.Errorf("for call %d another pool's worker reads %q", i, got)
		}
	}
}

// TestACallThatIsQueuedAgainReadsItsItemsChain: of an item of three calls the first one is answered, and the others are
// queued again, each alone. The second one has a long answer. The worker of the third one, with an account of its own,
// then reads the item's chain, as it does when its claim conflicts.
func TestACallThatIsQueuedAgainReadsItsItemsChain(t *testing.T) {
	y, s := guardedArchiveYard(t)
	w := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "p"}, "/worker/p.w")
	sub := y.submit("rest")
	k := sub.Key()
	expected := y.append(k, batch.ChainItem, 0, 0, events.Finish(end(0)))
	out := y.b.QueueAll(t.Context(), 0, []batch.Queue{{Route: batch.Route{Pool: "p", Class: toolyard.ReadOnly},
		Request: events.Requested{Agent: k.Agent, Batch: k.ID, Width: 1, Item: 0, Expected: expected,
			Calls: []events.RequestedCall{{Index: 2, Input: json.RawMessage(`{}`)}}}}})
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	r := results(1)[0]
	r.Output = strings.Repeat("x", 2*broker.MaxInlineBytes)
	y.append(k, batch.ChainItem, 0, expected, events.Finish(events.End{Result: r}))
	if records, err := w.Item(t.Context(), k, "p", 0, expected); err != nil || len(records) != 1 {
		t.Errorf("behind %d the chain of the item has %d events, %v", expected, len(records), err)
	}
}
