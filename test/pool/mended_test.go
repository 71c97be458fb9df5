package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
	public "github.com/toolyard/toolyard/worker"
)

// These tests were written for faults that a review found; each failed before it was mended.

func jetStream(t *testing.T, s *natsd.Server) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(testenv.Conn(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// hurried starts a server whose system has short waits, so that a test of what happens after them does not take long.
func hurried(t *testing.T) *natsd.Server {
	t.Helper()
	return waiting(t, broker.Settings{CallAckWait: 800 * time.Millisecond, WorkerTTL: time.Second,
		BatchAckWait: time.Second})
}

// waiting starts a server whose system has these waits.
func waiting(t *testing.T, waits broker.Settings) *natsd.Server {
	t.Helper()
	s := testenv.Server(t)
	if _, err := natsbroker.Open(t.Context(), testenv.Conn(t, s), waits, "/test"); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAWorkerWhoseToolsCannotBeRead is alive all the same: its claims stand.
func TestAWorkerWhoseToolsCannotBeRead(t *testing.T) {
	t.Parallel()
	// long enough for a slow machine: a worker that is silent for so long has lost its claim
	s := waiting(t, broker.Settings{CallAckWait: 4 * time.Second, WorkerTTL: 4 * time.Second})
	began, release := make(chan struct{}, 2), make(chan struct{})
	write := make1(t, writer("write"), func(context.Context, tool.Env) (string, error) {
		began <- struct{}{}
		<-release
		return "done", nil
	})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{write}})
	js := jetStream(t, s)
	store, err := js.ObjectStore(t.Context(), "ty_blob")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := store.Delete(t.Context(), o.Name); err != nil {
			t.Fatal(err)
		}
	}
	startDispatcher(t, s, dispatcher.Config{Base: []registry.Entry{{Declaration: write.Declaration,
		Origin: registry.Toolset, Pool: "default"}}})
	c := startClient(t, s)
	sub, err := c.Submit(t.Context(), toolyard.Batch{Calls: calls("write")})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the call runs", began)
	b := testenv.Broker(t, s, "/test")
	for end := time.Now().Add(2 * b.Settings().CallAckWait); time.Now().Before(end); {
		st, err := b.Fold(t.Context(), sub.Key())
		if err != nil {
			t.Fatal(err)
		}
		if st.Calls != nil && !st.Open(0) {
			t.Fatalf("it was settled while it ran: %+v", st.Calls[0].Result)
		}
	}
	close(release)
	if got := collect(t, t.Context(), sub); codes(got) != "ok" {
		t.Errorf("the results are %s", codes(got))
	}
}

// TestABatchThatCannotBeFollowed has an event in its log that nobody can read. It is ended, and its workspace is free.
func TestABatchThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	var sub toolyard.Batch
	sub.Calls = calls("read", "write")
	sub.Normalize("broken")
	if err := b.Submit(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	js := jetStream(t, s)
	if _, err := js.Publish(t.Context(), "ty.event.default.broken._.batch", []byte("what is this")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ChangeTickets(t.Context(), broker.TicketQueue{Workspace: "default"}, joined("broken")); err != nil {
		t.Fatal(err)
	}
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x")),
		make1(t, writer("write"), says("y"))}})
	startDispatcher(t, s, dispatcher.Config{MaxDeliveries: 2})
	c := startClient(t, s)
	if got := codes(results(t, c, toolyard.Batch{Calls: calls("write")})); got != "ok" {
		t.Errorf("the next batch in the workspace: %s", got)
	}
	if got := codes(repliesOf(t, b, sub.Key())); got != "internal_error internal_error" {
		t.Errorf("the broken batch: %s", got)
	}
	eventually(t, "both batches are listed as completed", func() bool {
		page, _, err := b.Index().Page(t.Context(), broker.Filter{Status: toolyard.StatusCompleted})
		if err != nil {
			t.Fatal(err)
		}
		return len(page) == 2 && page[1].ID == "broken"
	})
}

// TestACancelBeforeThePlan stands in the log when the batch is taken up.
func TestACancelBeforeThePlan(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	sub := toolyard.Batch{Calls: calls("read", "read")}
	sub.Normalize("late")
	if err := b.Submit(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	if err := b.Cancel(t.Context(), sub.Key(), "changed my mind"); err != nil {
		t.Fatal(err)
	}
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{})
	if got := collect(t, t.Context(), startClient(t, s).Batch(sub.Key())); codes(got) != "canceled canceled" {
		t.Errorf("the results are %s", codes(got))
	}
}

// TestAClosedConnection ends a dispatcher and a worker with an error, instead of leaving them blind.
func TestAClosedConnection(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	for name, start := range map[string]func(*natsbroker.Broker) runs{
		"dispatcher": func(b *natsbroker.Broker) runs {
			return dispatcher.New(b, dispatcher.Config{Log: testenv.Log(t),
				Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}}})
		},
		"worker": func(b *natsbroker.Broker) runs {
			w, err := worker.New(b, worker.Config{Log: testenv.Log(t),
				Tools: []tool.Tool{make1(t, reader("read"), says("x"))}, DrainGrace: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return w
		},
	} {
		nc := testenv.Conn(t, s)
		b, err := natsbroker.Open(t.Context(), nc, broker.Settings{}, "/test")
		if err != nil {
			t.Fatal(err)
		}
		r := start(b)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		<-r.Ready()
		nc.Close()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("the %s ended as if it had been told to", name)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("the %s goes on without a connection", name)
		}
	}
}

// TestADeletedTicketKey is a queue without tickets.
func TestADeletedTicketKey(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	if _, err := b.ChangeTickets(t.Context(), broker.TicketQueue{Workspace: "w"}, joined("one")); err != nil {
		t.Fatal(err)
	}
	kv, err := jetStream(t, s).KeyValue(t.Context(), "ty_ticket")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if q, err := b.ChangeTickets(ctx, broker.TicketQueue{Workspace: "w"}, joined("two")); err != nil ||
		len(q.Tickets) != 1 {
		t.Errorf("after the key was deleted: %+v, %v", q, err)
	}
}

// TestEverybodyReadsTheSystemsSettings from where a dispatcher has written them.
func TestEverybodyReadsTheSystemsSettings(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	if _, err := natsbroker.Attach(t.Context(), testenv.Conn(t, s), "/test"); !errors.Is(err, broker.ErrNoSystem) {
		t.Errorf("before there is a dispatcher: %v, want ErrNoSystem", err)
	}
	made := broker.Settings{Lifetime: time.Hour, CallAckWait: 7 * time.Second}
	if _, err := natsbroker.Open(t.Context(), testenv.Conn(t, s), made, "/test"); err != nil {
		t.Fatal(err)
	}
	b, err := natsbroker.Attach(t.Context(), testenv.Conn(t, s), "/test")
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Settings(); got != made.WithDefaults() {
		t.Errorf("the settings are %+v", got)
	}
	if _, err := natsbroker.Open(t.Context(), testenv.Conn(t, s), broker.Settings{Lifetime: 2 * time.Hour},
		"/test"); err == nil || !strings.Contains(err.Error(), "batch lifetime") {
		t.Errorf("another lifetime: %v", err)
	}
	if _, err := natsbroker.Open(t.Context(), testenv.Conn(t, s), broker.Settings{}, "/test"); err != nil {
		t.Errorf("no wishes: %v", err)
	}
}

// TestAReadThatKillsItsWorker is started as often as an idempotent call may be, and no more.
func TestAReadThatKillsItsWorker(t *testing.T) {
	t.Parallel()
	s := hurried(t)
	b := testenv.Broker(t, s, "/test")
	startDispatcher(t, s, dispatcher.Config{})
	// A worker that dies as soon as it has taken the call, again and again.
	w := broker.Worker{ID: "mortal", Pool: "default", Classes: toolyard.Classes}
	surface, err := surfaceOf(make1(t, reader("read"), says("x")))
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := surface.Encode()
	if err != nil {
		t.Fatal(err)
	}
	w.Toolset = surface.Hash
	if err := errors.Join(b.PutSurface(t.Context(), surface.Hash, encoded), b.Beat(t.Context(), w)); err != nil {
		t.Fatal(err)
	}
	c := startClient(t, s)
	sub, err := c.Submit(t.Context(), toolyard.Batch{Calls: calls("read")})
	if err != nil {
		t.Fatal(err)
	}
	lane, err := b.Lane(t.Context(), batch.Route{Pool: "default", Class: toolyard.ReadOnly},
		broker.LaneOf(toolyard.DefaultAgent), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lane.Stop()
	taken := 0
	for range 3 { // the first time without a claim, then with one, as a real worker does
		d := testenv.Take(t, lane)
		taken++
		call := d.Calls[0]
		if d.Deliveries > 1 || call.Claim || call.Again || call.Attempt > 1 {
			if taken == 2 { // the first time counts
				call.Attempt++
			}
			if _, err := b.Append(t.Context(), sub.Key(), batch.ChainCall, "default", 0, call.Expected,
				events.Claimed{Worker: "dead", Attempt: call.Attempt}); err != nil {
				t.Fatal(err)
			}
			if err := d.Done(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := collect(t, t.Context(), sub)
	if codes(got) != "outcome_unknown" || got[0].Attempts != 3 {
		t.Errorf("after %d deliveries and %d attempts the results are %s", taken, got[0].Attempts, codes(got))
	}
}

// TestAProgramsOwnTools through the public package.
func TestAProgramsOwnTools(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	nc := testenv.Conn(t, s)
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- public.Run(ctx, nc, public.Options{
			Pool: "mine", Tools: []tool.Tool{make1(t, writer("write"), says("mine"))}, Allow: []string{"write"},
			Ready: func(string) { close(ready) },
		})
	}()
	startDispatcher(t, s, dispatcher.Config{}) // the worker has waited for it
	within(t, "the worker is ready", ready)
	c := startClient(t, s)
	for end := time.Now().Add(30 * time.Second); ; { // the dispatcher may not have seen it yet
		got := results(t, c, toolyard.Batch{Calls: calls("write")})
		if codes(got) == "ok" && got[0].Output == "mine" {
			break
		}
		if codes(got) != "unknown_tool" || time.Now().After(end) {
			t.Fatalf("the results are %+v", got)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if err := public.Run(t.Context(), nc, public.Options{Allow: []string{"write("}}); err == nil ||
		!strings.Contains(err.Error(), "allow") {
		t.Errorf("a rule that cannot be read: %v", err)
	}
}

// TestAFloodOfOneAgent does not keep another's calls waiting for all of it: lanes are served in turn.
func TestAFloodOfOneAgent(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	quiet, flood := toolyard.Agent("quiet"), toolyard.Agent("flood")
	for n := 0; broker.LaneOf(flood) == broker.LaneOf(quiet); n++ {
		flood = toolyard.Agent(fmt.Sprint("flood ", n))
	}
	gate := make(chan struct{})
	var order []toolyard.Agent
	record := make(chan toolyard.Agent, 1000)
	startWorker(t, s, worker.Config{Slots: map[toolyard.Class]int{toolyard.ReadOnly: 2}, Tools: []tool.Tool{
		make1(t, reader("read"), func(_ context.Context, env tool.Env) (string, error) {
			<-gate
			record <- env.Agent
			return "", nil
		}),
	}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	many := toolyard.Batch{Agent: flood, Options: toolyard.Options{MaxConcurrency: 200}}
	for range 200 {
		many.Calls = append(many.Calls, toolyard.Call{Tool: "read"})
	}
	flooding, err := c.Submit(t.Context(), many)
	if err != nil {
		t.Fatal(err)
	}
	b := testenv.Broker(t, s, "/test")
	awaitStart(t, b, flooding.Key())
	one, err := c.Submit(t.Context(), toolyard.Batch{Agent: quiet, Calls: calls("read")})
	if err != nil {
		t.Fatal(err)
	}
	go func() { // one call after the other gets through
		for range 201 {
			gate <- struct{}{}
		}
	}()
	collect(t, t.Context(), one)
	collect(t, t.Context(), flooding)
	close(record)
	for a := range record {
		order = append(order, a)
	}
	for n, a := range order {
		if a == quiet {
			t.Logf("the quiet agent's call was number %d of %d", n+1, len(order))
			if n > 100 {
				t.Errorf("the quiet agent's call was number %d of %d", n+1, len(order))
			}
		}
	}
}

func surfaceOf(tools ...tool.Tool) (registry.Surface, error) {
	var entries []registry.Entry
	for _, t := range tools {
		entries = append(entries, registry.Entry{Declaration: t.Declaration, Origin: registry.Toolset, Pool: "default"})
	}
	reg, err := registry.Registry{}.Register(entries...)
	if err != nil {
		return registry.Surface{}, err
	}
	return registry.Assemble(reg, nil)
}

// repliesOf reads a batch's replies from the stream alone.
func repliesOf(t *testing.T, b *natsbroker.Broker, k toolyard.BatchKey) []toolyard.Result {
	t.Helper()
	records, err := b.Replies(t.Context(), k, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []toolyard.Result
	for _, r := range records {
		out = append(out, r.Body.(events.Reply).Results...)
	}
	return out
}

// joined makes the change by which a batch's first group stands in line alone.
func joined(id toolyard.BatchID) func(ticket.Queue) (ticket.Queue, error) {
	return func(q ticket.Queue) (ticket.Queue, error) {
		next, _, err := q.Join(ticket.Holder{Agent: toolyard.DefaultAgent, Batch: id}, ticket.Exclusive)
		return next, err
	}
}
