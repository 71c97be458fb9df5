package natsbroker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAcknowledgedMessagesThatTheServerKept: a server loses power when it has stored that a worker acknowledged two
// calls of three, and not that it removed them. These two are deleted, and what else is in the queue is delivered.
func TestAcknowledgedMessagesThatTheServerKept(t *testing.T) {
	testenv.OneShard(t)
	s := testenv.Restartable(t)
	b := testenv.Broker(t, s.Server, "/dispatcher/d")
	queue(t, b, 0, 3)
	messages := filepath.Join(s.Options.StoreDir, "jetstream", "$G", "streams", "TY_CALL", "msgs")
	before := filepath.Join(t.TempDir(), "msgs")
	s.Shutdown()
	must.OK(t, os.CopyFS(before, os.DirFS(messages)))
	s.Start()
	stored := func() uint64 {
		t.Helper()
		js := testenv.JetStream(t, testenv.Conn(t, s.Server))
		stream := testenv.Stream(t, js, "TY_CALL")
		return stream.CachedInfo().State.Msgs
	}
	l := lane(t, b)
	from := deliveries(t, l, 3)
	for range 3 {
		if d := comes(t, from); d.Requested.Calls[0].Index < 2 {
			must.OK(t, d.Done())
		}
	}
	l.Stop()
	testenv.Until(t, "two calls are acknowledged", func() bool { return stored() == 1 })
	s.Shutdown()
	must.OK(t, os.RemoveAll(messages))
	must.OK(t, os.CopyFS(messages, os.DirFS(before)))
	s.Start()

	queue(t, b, 3, 1)
	if n := stored(); n != 4 {
		t.Fatalf("%d messages are stored, want those of 4 calls", n)
	}
	if n, err := b.DeleteAcknowledged(t.Context()); n != 2 || err != nil {
		t.Errorf("%d messages deleted, %v; want 2", n, err)
	}
	from = deliveries(t, lane(t, b), 2)
	for range 2 {
		d := comes(t, from)
		if d.Requested.Calls[0].Index < 2 {
			t.Errorf("call %d is delivered again", d.Requested.Calls[0].Index)
		}
		must.OK(t, d.Done())
	}
	testenv.Until(t, "nothing is stored", func() bool { return stored() == 0 })
	if n, err := b.DeleteAcknowledged(t.Context()); n != 0 || err != nil {
		t.Errorf("%d messages deleted, %v; want none", n, err)
	}
}

// TestALongCallCostsNoRequests: a call that was delivered before a dispatcher came runs on, and those behind it, on
// other lanes, are acknowledged. Each lane is looked at once, and not with every sweep until that call has ended.
func TestALongCallCostsNoRequests(t *testing.T) {
	testenv.OneShard(t)
	s := testenv.Restartable(t)
	before := testenv.Broker(t, s.Server, "/dispatcher/before")
	queue(t, before, 0, 1)
	comes(t, deliveries(t, lane(t, before), 1)) // it runs
	other := batch.Route{Pool: "default", Class: toolyard.WriteExclusive}
	for _, q := range before.QueueAll(t.Context(), broker.LaneOf("a"), []batch.Queue{{Route: other,
		Request: events.Requested{Agent: "a", Batch: "b", Calls: []events.RequestedCall{{Input: []byte(`{}`)}}}}}) {
		if q.Err != nil {
			t.Fatal(q.Err)
		}
	}
	l, err := before.Lane(t.Context(), other, broker.LaneOf("a"), nil)
	must.OK(t, err)
	t.Cleanup(l.Stop)
	must.OK(t, comes(t, deliveries(t, l, 1)).Done())
	nc := testenv.Conn(t, s.Server)
	js := testenv.JetStream(t, nc)
	testenv.Until(t, "one call is acknowledged", func() bool {
		stream, err := js.Stream(t.Context(), "TY_CALL")
		return err == nil && stream.CachedInfo().State.Msgs == 1
	})

	b := testenv.Broker(t, s.Server, "/dispatcher/after")
	reads, err := nc.SubscribeSync("$JS.API.DIRECT.GET.TY_CALL")
	must.OK(t, err)
	asked, err := nc.SubscribeSync("$JS.API.STREAM.MSG.GET.TY_CALL")
	must.OK(t, err)
	must.OK(t, nc.Flush())
	for range 5 {
		if _, err := b.DeleteAcknowledged(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	must.OK(t, nc.Flush())
	n1, _, err1 := reads.Pending()
	n2, _, err2 := asked.Pending()
	if n1+n2 > 2 || err1 != nil || err2 != nil {
		t.Errorf("%d+%d messages were asked for in five sweeps (%v, %v)", n1, n2, err1, err2)
	}
}
