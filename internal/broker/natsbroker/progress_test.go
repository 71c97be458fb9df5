package natsbroker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestProgressIsBounded: a report reaches the followers of its batch, whatever the names; a report that is too long is
// not sent, and an invalid one is not read.
func TestProgressIsBounded(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	k := toolyard.BatchKey{Agent: "a.b *", ID: "c>d"}
	hub := natsbroker.NewHub(b, false)
	ear, err := hub.Progress(t.Context(), k)
	must.OK(t, err)
	defer ear.Stop()
	read := func() (broker.Progress, bool) {
		select {
		case <-ear.News():
			msgs, lost := ear.Take()
			if len(msgs) != 1 || lost {
				t.Fatalf("%d messages came, lost %t", len(msgs), lost)
			}
			return hub.ReadProgress(msgs[0])
		case <-time.After(30 * time.Second):
			t.Fatal("nothing was told")
			return broker.Progress{}, false
		}
	}
	if err := b.Report(k, broker.Progress{Progress: tool.Progress{Output: strings.Repeat("x",
		broker.MaxProgressBytes)}}); err == nil {
		t.Error("a report that is too long was sent")
	}
	if err := b.Report(toolyard.BatchKey{Agent: "a.b *", ID: "other"}, broker.Progress{}); err != nil {
		t.Error(err)
	}
	sent := broker.Progress{Index: 3, CallID: "c", Tool: "t", Worker: "w", Attempt: 2, Delivery: 5,
		Progress: tool.Progress{Fraction: -1, Status: "s", Output: "o\n"}, LostBytes: 7}
	must.OK(t, b.Report(k, sent))
	if got, ok := read(); !ok || got != sent {
		t.Errorf("read %+v, %t", got, ok)
	}
	for _, junk := range []string{"", "null x", `{"index": -1}`, `{"index": 10000}`, `{"index": "0"}`, `{"output": "` +
		strings.Repeat("x", broker.MaxProgressBytes) + `"}`} {
		if got, ok := hub.ReadProgress(&nats.Msg{Data: []byte(junk)}); ok {
			t.Errorf("%.50s was read as %+v", junk, got)
		}
	}
}

// TestWhatWasReceivedCanBeTaken: after Settle a follower can take every report that the connection has received. Each
// subscription has a goroutine of its own, so an answer on another one may come to its reader first.
func TestWhatWasReceivedCanBeTaken(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	reader, nc := attached(t, s)
	const rounds, reports = 20, natsbroker.MaxHubMessages
	for round := range rounds {
		k := toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(fmt.Sprint("b", round))}
		hub := natsbroker.NewHub(reader, false)
		ear, err := hub.Progress(t.Context(), k)
		must.OK(t, err)
		must.OK(t, nc.Flush())
		for i := range reports {
			must.OK(t, b.Report(k, broker.Progress{Index: i}))
		}
		// Whoever reads what is stored has received what was reported before.
		if _, err := b.Input(t.Context(), k, 0, events.Appended{Calls: []toolyard.Call{{ID: "c", Tool: "t",
			Input: []byte(`{}`)}}}); err != nil {
			t.Fatal(err)
		}
		must.OK(t, nc.Flush())
		must.OK(t, hub.Settle(t.Context()))
		if msgs, lost := ear.Take(); len(msgs) != reports || lost {
			t.Fatalf("round %d: %d of %d reports can be taken, lost: %t", round, len(msgs), reports, lost)
		}
		ear.Stop()
	}
	nc.Close()
	if err := natsbroker.NewHub(reader, false).Settle(t.Context()); err == nil {
		t.Error("a closed connection has settled")
	}
}
