package pool

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
)

// These tests are about what an owner may conclude from not hearing of a worker: docs/adr/0020.

// mute is a worker that is alive and answers no question: it keeps its entry in the registry, and claims what it takes.
type mute struct {
	t  *testing.T
	b  *natsbroker.Broker
	id string
}

// startMute registers a worker with one tool, and beats until the returned function is called.
func startMute(t *testing.T, s *natsd.Server) (*mute, func()) {
	t.Helper()
	m := &mute{t: t, b: testenv.Broker(t, s, "/worker/mute"), id: "mute"}
	yes := true
	repeatable := writer("put")
	repeatable.Idempotent = &yes
	surface, err := surfaceOf(make1(t, writer("write"), says("x")), make1(t, repeatable, says("x")))
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := surface.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.b.PutSurface(t.Context(), surface.Hash, encoded); err != nil {
		t.Fatal(err)
	}
	entry := broker.Worker{
		ID: m.id, Pool: "default", Classes: toolyard.Classes, Toolset: surface.Hash,
		Workspaces: []toolyard.Workspace{"default"},
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	if err := m.b.Beat(ctx, entry); err != nil {
		t.Fatal(err)
	}
	go func() {
		for ctx.Err() == nil {
			_ = m.b.Beat(ctx, entry) // it fails while the server is away, and is repeated
			select {
			case <-ctx.Done():
			case <-time.After(broker.Heartbeat(m.b.Settings().WorkerTTL)):
			}
		}
	}()
	return m, stop
}

// claim takes the next call of an agent and claims it. It returns the sequence of the claim.
func (m *mute) claim(sub *client.Batch) uint64 {
	m.t.Helper()
	route := batch.Route{Pool: "default", Class: toolyard.WriteExclusive}
	lane, err := m.b.Lane(m.t.Context(), route, broker.LaneOf(toolyard.DefaultAgent), nil)
	if err != nil {
		m.t.Fatal(err)
	}
	defer lane.Stop()
	d := testenv.Take(m.t, lane)
	rec, err := m.b.Append(m.t.Context(), sub.Key(), batch.ChainCall, "default", 0, d.Calls[0].Expected,
		events.Claimed{Worker: m.id, Attempt: 1, Ticket: d.Ticket})
	if err != nil {
		m.t.Fatal(err)
	}
	if err := d.Done(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	return rec.Seq
}

// finish ends the claimed call.
func (m *mute) finish(sub *client.Batch, claim uint64) error {
	res := toolyard.Result{Index: 0, CallID: "call-0", Tool: "write", Output: "done", Worker: m.id, Attempts: 1,
		Class: toolyard.WriteExclusive}
	_, err := m.b.Append(m.t.Context(), sub.Key(), batch.ChainCall, "default", 0, claim, events.Finished{Result: res})
	return err
}

// settled reports how a batch's first call was settled; nil while it is open.
func settled(t *testing.T, b *natsbroker.Broker, k toolyard.BatchKey) *toolyard.Result {
	t.Helper()
	st, err := b.Fold(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if st.Calls == nil {
		return nil
	}
	return st.Calls[0].Result
}

// deafen takes the consumers away by which a bucket is watched: nobody is told, and the connections stay.
func deafen(t *testing.T, js jetstream.JetStream, bucket string) {
	t.Helper()
	stream, err := js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	names := stream.ConsumerNames(t.Context())
	n := 0
	for name := range names.Name() {
		if err := stream.DeleteConsumer(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if err := names.Err(); err != nil || n == 0 {
		t.Fatalf("%d watches were taken away: %v", n, err)
	}
}

// TestADeadWatchIsNoDeadWorker: the watch of the registry has died, and the worker answers no question. It beats, so
// its claim stands.
func TestADeadWatchIsNoDeadWorker(t *testing.T) {
	t.Parallel()
	s := hurried(t)
	m, _ := startMute(t, s)
	startDispatcher(t, s, dispatcher.Config{})
	sub, err := startClient(t, s).Submit(t.Context(), toolyard.Batch{Calls: calls("write")})
	if err != nil {
		t.Fatal(err)
	}
	claim := m.claim(sub)
	deafen(t, jetStream(t, s), "ty_worker")
	for end := time.Now().Add(6 * m.b.Settings().WorkerTTL); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if r := settled(t, m.b, sub.Key()); r != nil {
			t.Fatalf("the call was settled while its worker was alive: %s, %s", r.Code, r.Error)
		}
	}
	if err := m.finish(sub, claim); err != nil {
		t.Fatal(err)
	}
	if got := codes(collect(t, t.Context(), sub)); got != "ok" {
		t.Errorf("the results are %s", got)
	}
}

// TestAClaimIsASignOfLife: a worker is known to be silent, and claims another call. That claim stands for as long as
// the worker may believe in its lease, and is settled then.
func TestAClaimIsASignOfLife(t *testing.T) {
	t.Parallel()
	s := hurried(t)
	m, still := startMute(t, s)
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	var took [2]time.Duration
	for i := range took {
		sub, err := c.Submit(t.Context(), toolyard.Batch{Calls: calls("write")})
		if err != nil {
			t.Fatal(err)
		}
		m.claim(sub)
		claimed := time.Now()
		still()
		for settled(t, m.b, sub.Key()) == nil {
			if time.Since(claimed) > 60*time.Second {
				t.Fatal("the claim of a dead worker stands for ever")
			}
			time.Sleep(5 * time.Millisecond)
		}
		took[i] = time.Since(claimed)
		if got := codes(collect(t, t.Context(), sub)); got != "outcome_unknown" {
			t.Errorf("the results are %s", got)
		}
	}
	if lease := broker.Lease(m.b.Settings().WorkerTTL); took[0] < lease || took[1] < lease {
		t.Errorf("%s after their claims the calls were settled: a worker may act for %s after it", took, lease)
	}
}

// TestAToolIsKnownWhenItsWorkerIsRegistered: a batch that comes right after a worker's entry was stored finds the
// worker's tools, also when the dispatcher has not been told of it yet.
func TestAToolIsKnownWhenItsWorkerIsRegistered(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	m, _ := startMute(t, s)
	sub, err := c.Submit(t.Context(), toolyard.Batch{Calls: calls("write")})
	if err != nil {
		t.Fatal(err)
	}
	claim := m.claim(sub)
	if err := m.finish(sub, claim); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, t.Context(), sub); codes(got) != "ok" {
		t.Errorf("the result is %s: %s", codes(got), got[0].Error)
	}
}
