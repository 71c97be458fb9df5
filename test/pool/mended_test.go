package pool

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
	public "github.com/toolyard/toolyard/worker"
)

// These tests were written for faults that a review found; each failed before it was mended.

// hurried starts a server whose system has short waits, so that a test of what happens after them does not take long.
func hurried(t *testing.T) *natsd.Server {
	t.Helper()
	return waiting(t, broker.Settings{Shards: testenv.Shards(t), CallAckWait: 800 * time.Millisecond,
		WorkerTTL: time.Second, BatchAckWait: time.Second})
}

// waiting starts a server whose system has these waits.
func waiting(t *testing.T, waits broker.Settings) *natsd.Server {
	t.Helper()
	s := testenv.Server(t)
	testenv.Open(t, testenv.Conn(t, s), waits, "/test")
	return s
}

// TestAWorkerWhoseToolsCannotBeRead is alive all the same: its claims stand.
func TestAWorkerWhoseToolsCannotBeRead(t *testing.T) {
	t.Parallel()
	// long enough for a slow machine: a worker that is silent for so long has lost its claim
	s := waiting(t, broker.Settings{Shards: testenv.Shards(t), CallAckWait: 4 * time.Second,
		WorkerTTL: 4 * time.Second})
	began, release := make(chan struct{}, 2), make(chan struct{})
	write := make1(t, writer("write"), func(context.Context, tool.Env) (string, error) {
		began <- struct{}{}
		<-release
		return "done", nil
	})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{write}})
	js := testenv.JetStream(t, testenv.Conn(t, s))
	store, err := js.ObjectStore(t.Context(), "ty_blob")
	must.OK(t, err)
	objects, err := store.List(t.Context())
	must.OK(t, err)
	for _, o := range objects {
		must.OK(t, store.Delete(t.Context(), o.Name))
	}
	startDispatcher(t, s, dispatcher.Config{Base: []registry.Entry{{Declaration: write.Declaration,
		Origin: registry.Toolset, Pool: "default"}}})
	c := startClient(t, s)
	sub := submit(t, c, toolyard.Batch{Calls: calls("write")})
	testenv.Within(t, "the call runs", began)
	b := testenv.Broker(t, s, "/test")
	for end := time.Now().Add(2 * b.Settings().CallAckWait); time.Now().Before(end); {
		st, err := b.Fold(t.Context(), sub.Key())
		must.OK(t, err)
		if st.Calls != nil && !st.Open(0) {
			t.Fatalf("it was settled while it ran: %+v", st.Calls[0].Result)
		}
	}
	close(release)
	if got := collect(t, t.Context(), sub); codes(got) != "ok" {
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
			must.OK(t, err)
			return w
		},
	} {
		nc := testenv.Conn(t, s)
		b := testenv.Open(t, nc, broker.Settings{}, "/test")
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
	kv, err := testenv.JetStream(t, testenv.Conn(t, s)).KeyValue(t.Context(), "ty_ticket")
	must.OK(t, err)
	must.OK(t, kv.Delete(t.Context(), "w"))
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
	made := broker.Settings{Shards: testenv.Shards(t), Lifetime: time.Hour, CallAckWait: 7 * time.Second}
	testenv.Open(t, testenv.Conn(t, s), made, "/test")
	b, err := natsbroker.Attach(t.Context(), testenv.Conn(t, s), "/test")
	must.OK(t, err)
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

// TestAProgramsOwnTools through the public package.
func TestAProgramsOwnTools(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	nc := testenv.Conn(t, s)
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	mine := []tool.Tool{make1(t, writer("write"), says("mine"))}
	go func() {
		ended <- public.Run(ctx, nc, public.Options{
			Pool: "mine", Tools: mine, Allow: []string{"write"},
			Ready: func(string) { close(ready) },
		})
	}()
	startDispatcher(t, s, dispatcher.Config{}) // the worker has waited for it
	testenv.Within(t, "the worker is ready", ready)
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
	if err := public.Run(t.Context(), nc, public.Options{Tools: mine, Allow: []string{"write("}}); err == nil ||
		!strings.Contains(err.Error(), "allow") {
		t.Errorf("a rule that cannot be read: %v", err)
	}
}

// joined makes the change by which a batch's first group stands in line alone.
func joined(id toolyard.BatchID) func(ticket.Queue) (ticket.Queue, error) {
	return func(q ticket.Queue) (ticket.Queue, error) {
		next, _, err := q.Join(ticket.Holder{Agent: toolyard.DefaultAgent, Batch: id}, ticket.Exclusive)
		return next, err
	}
}
