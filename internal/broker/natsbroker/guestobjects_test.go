package natsbroker_test

import (
	"bytes"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestEachCallOfAnItemReadsObjects: a worker with an account of its own has a message with two calls, each of
// which reads an offloaded result of its agent (as two calls of read_result in one batch do). Another pool's worker
// reads none.
func TestEachCallOfAnItemReadsObjects(t *testing.T) {
	y, s := guardedArchiveYard(t)
	w := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "p"}, "/worker/p.w")
	other := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "q"}, "/worker/q.w")
	ref, err := w.PutResult(t.Context(), "a.b", []byte("a long result"))
	must.OK(t, err)
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

// leaky is a connection that loses one message: the next one with the armed bytes goes to a subject of the same length
// on which nobody listens.
type leaky struct {
	net.Conn
	armed *atomic.Pointer[string]
}

func (c *leaky) Write(p []byte) (int, error) {
	n := len(p)
	if marks := c.armed.Load(); marks != nil {
		const publish = "PUB "
		begin := bytes.LastIndex(p[:max(0, bytes.Index(p, []byte(*marks)))], []byte(publish))
		if begin >= 0 && c.armed.CompareAndSwap(marks, nil) {
			p = bytes.Clone(p)
			p[begin+len(publish)] = 'x'
		}
	}
	if _, err := c.Conn.Write(p); err != nil {
		return 0, err
	}
	return n, nil
}

// TestAnObjectHasNoHole: of an object that a dispatcher sends a worker one piece is lost, as when the dispatcher's
// connection breaks. The worker asks again. A surface is named by something else than the hash of what is stored.
func TestAnObjectHasNoHole(t *testing.T) {
	s, platform := testenv.Guarded(t), access.Principal{Role: access.Dispatcher}
	testenv.BrokerAs(t, s, platform, "/first")
	dir, _ := s.Creds()
	creds, err := natsd.FindCreds(dir, platform)
	must.OK(t, err)
	var armed atomic.Pointer[string]
	nc, err := nats.Connect(s.ClientURL(), append(natsbroker.ConnectOptions("d", testenv.Log(t)),
		nats.UserCredentials(creds), nats.SetCustomDialer(dialer(func(network, address string) (net.Conn, error) {
			c, err := net.Dial(network, address)
			return &leaky{c, &armed}, err
		})))...)
	must.OK(t, err)
	t.Cleanup(nc.Close)
	d, err := natsbroker.Attach(t.Context(), nc, "/d")
	must.OK(t, err)
	end := answers(t, d)
	w := testenv.BrokerAs(t, s, access.Principal{Role: access.Worker, Name: "p"}, "/worker/p.w")
	sub := submission("b")
	k := sub.Key()
	if out := d.QueueAll(t.Context(), 0, []batch.Queue{{Route: batch.Route{Pool: "p", Class: toolyard.ReadOnly},
		Request: events.Requested{Agent: k.Agent, Batch: k.ID,
			Calls: []events.RequestedCall{{Input: json.RawMessage(`{}`)}}}}}); out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	const pieces, lost = 4, 2
	parts := make([]string, pieces)
	for i := range parts {
		parts[i] = strings.Repeat(string(rune('a'+i)), broker.MaxInlineBytes)
	}
	content := strings.Join(parts, "")
	ref, err := d.PutResult(t.Context(), k.Agent, []byte(content))
	must.OK(t, err)
	const hash = "the hash of a surface"
	must.OK(t, d.PutSurface(t.Context(), hash, []byte(content)))
	result := func() ([]byte, error) { return w.Result(broker.ForCall(t.Context(), k, 0), k.Agent, ref) }
	for name, read := range map[string]func() ([]byte, error){
		"result": result, "surface": func() ([]byte, error) { return w.Surface(t.Context(), hash) },
	} {
		marks := parts[lost][:1000]
		armed.Store(&marks)
		got, err := read()
		if err != nil || string(got) != content || armed.Load() != nil {
			t.Errorf("%s: the worker reads %d bytes of %d, %v; was a piece lost: %v", name, len(got), len(content), err,
				armed.Load() == nil)
		}
	}
	end()

	// An older dispatcher does not say how long the content is.
	older, asked := testenv.ConnAs(t, s, platform), 0
	if _, err := older.Subscribe("ty.ask.*.*.get", func(m *nats.Msg) {
		asked++
		for i, part := range append(slices.Clone(parts), "") {
			if asked == 1 && i == lost {
				continue
			}
			if err := older.Publish(m.Reply, []byte(part)); err != nil {
				t.Error(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	must.OK(t, older.Flush())
	if got, err := result(); err != nil || string(got) != content {
		t.Errorf("from an older dispatcher the worker reads %d bytes of %d, %v", len(got), len(content), err)
	}
}
