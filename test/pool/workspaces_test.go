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
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// places are tools that say where they ran: one that acts on the workspace, and one that does not.
func places(t *testing.T, where string) []tool.Tool {
	no := false
	anywhere := reader("anywhere")
	anywhere.UsesWorkspace = &no
	return []tool.Tool{make1(t, reader("read"), says(where)), make1(t, anywhere, says(where))}
}

func dirs(t *testing.T, names ...toolyard.Workspace) map[toolyard.Workspace]string {
	out := map[toolyard.Workspace]string{}
	for _, w := range names {
		out[w] = t.TempDir()
	}
	return out
}

// TestAWorkspaceThatNobodyServes: its calls are answered with what is served, and take no ticket; those that need no
// workspace run.
func TestAWorkspaceThatNobodyServes(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startWorker(t, s, worker.Config{Tools: places(t, "x"), Workspaces: dirs(t, "default", "docs")})
	startDispatcher(t, s, dispatcher.Config{WorkerWait: time.Millisecond})
	c := startClient(t, s)
	if got := codes(results(t, c, toolyard.Batch{Workspace: "docs",
		Calls: calls("read", "anywhere")})); got != "ok ok" {
		t.Fatalf("a workspace that is served: %s", got)
	}
	got := results(t, c, toolyard.Batch{Workspace: "defualt", Calls: calls("read", "anywhere", "read")})
	if codes(got) != "setup_required ok setup_required" {
		t.Fatalf("got %s: %+v", codes(got), got)
	}
	for _, want := range []string{`"defualt"`, `"default", "docs"`} {
		if !strings.Contains(got[0].Error, want) {
			t.Errorf("%q does not name %s", got[0].Error, want)
		}
	}
	if got[0].Worker != "" || got[0].Attempts != 0 {
		t.Errorf("worker %q has run it %d times", got[0].Worker, got[0].Attempts)
	}
	kv, err := testenv.JetStream(t, testenv.Conn(t, s)).KeyValue(t.Context(), "ty_ticket")
	must.OK(t, err)
	if _, err := kv.Get(t.Context(), "defualt"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the queue of the workspace: %v, want no key", err)
	}

	open, err := c.Open(t.Context(), toolyard.Batch{Workspace: "defualt"})
	must.OK(t, err)
	must.OK(t, errors.Join(open.Append(t.Context(), calls("read", "anywhere")...), open.Close(t.Context())))
	if got := codes(collect(t, t.Context(), open.Batch)); got != "setup_required ok" {
		t.Errorf("in an open batch: %s", got)
	}
}

// TestAWorkerThatComesAfterTheDispatcher serves a workspace that nobody else does: the batch waits for it.
func TestAWorkerThatComesAfterTheDispatcher(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startWorker(t, s, worker.Config{Pool: "a", Tools: places(t, "a"), Workspaces: dirs(t, "one")})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	if got := results(t, c, toolyard.Batch{Workspace: "one", Calls: calls("read")}); codes(got) != "ok" {
		t.Fatalf("got %+v", got)
	}
	waits := submit(t, c, toolyard.Batch{Workspace: "two", Calls: calls("read")})
	// This batch needs no workspace, and waits for nobody.
	if got := results(t, c, toolyard.Batch{Workspace: "two", Calls: calls("anywhere")}); got[0].Output != "a" {
		t.Errorf("got %+v", got)
	}
	startWorker(t, s, worker.Config{Pool: "b", Tools: places(t, "b"), Workspaces: dirs(t, "two")})
	if got := collect(t, t.Context(), waits); got[0].Output != "b" {
		t.Errorf("the call ran in %q: %s", got[0].Output, got[0].Error)
	}
}

// TestAPoolThatIsStartedAgain: a batch for its workspace waits for its workers, and does not go to those of other
// workspaces.
func TestAPoolThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startWorker(t, s, worker.Config{Pool: "a", Tools: places(t, "a"), Workspaces: dirs(t, "one")})
	b := worker.Config{Pool: "b", Tools: places(t, "b"), Workspaces: dirs(t, "two")}
	first := startWorker(t, s, b)
	d := dispatcher.New(testenv.Broker(t, s, "/dispatcher/test"), dispatcher.Config{
		Log: testenv.Log(t), Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}},
	})
	begin(t, d)
	c := startClient(t, s)
	if got := results(t, c, toolyard.Batch{Workspace: "two", Calls: calls("read")}); got[0].Output != "b" {
		t.Fatalf("got %+v", got)
	}
	first.end(t)
	testenv.Until(t, "the dispatcher sees that the worker has left", func() bool { return d.Load().Workers == 1 })
	waits := submit(t, c, toolyard.Batch{Workspace: "two", Calls: calls("read")})
	awaitStart(t, testenv.Broker(t, s, "/test"), waits.Key())
	startWorker(t, s, b)
	if got := collect(t, t.Context(), waits); got[0].Output != "b" {
		t.Errorf("the call ran in %q: %s", got[0].Output, got[0].Error)
	}
}

// TestAFullBucketOfTicketsIsAWarning: new batches are refused before the bucket of tickets is full, with the reason;
// those under way go on, and when keys that nobody uses are gone, new ones are taken again.
func TestAFullBucketOfTicketsIsAWarning(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Open(t, testenv.Conn(t, s), broker.Settings{MaxStoreBytes: 64 << 20}, "/test")
	gate := make(chan struct{})
	hold := make1(t, writer("hold"), func(ctx context.Context, _ tool.Env) (string, error) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return "held", nil
	})
	startWorker(t, s, worker.Config{Tools: append(places(t, "x"), hold)})
	startDispatcher(t, s, dispatcher.Config{TicketIdle: time.Hour})
	c := startClient(t, s)
	underWay := submit(t, c, toolyard.Batch{Workspace: "held", Calls: calls("hold", "read")})
	awaitStart(t, b, underWay.Key())
	js := testenv.JetStream(t, testenv.Conn(t, s))
	for n := 0; ; n++ {
		fill, err := b.Fill(t.Context())
		must.OK(t, err)
		if fill.Percent >= dispatcher.SilentPercent {
			break
		}
		value := `{"last":7,"queue":[]}` + strings.Repeat(" ", 8<<10)
		if _, err := js.Publish(t.Context(), fmt.Sprintf("$KV.ty_ticket.filler-%d", n), []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	outcome := func() string {
		for _, err := range submit(t, c, toolyard.Batch{Workspace: "new", Calls: calls("read")}).Results(t.Context()) {
			if e, ok := errors.AsType[*client.RefusedError](err); ok && e.Status == 503 {
				return e.Detail
			}
			must.OK(t, err)
		}
		return ""
	}
	await := func(what string, ok func(detail string) bool) {
		t.Helper()
		testenv.Until(t, what, func() bool { return ok(outcome()) })
	}
	named := func(detail string) bool { return strings.Contains(detail, "ty_ticket") }
	await("a new batch is refused, with the bucket's name", named)
	close(gate)
	if got := codes(collect(t, t.Context(), underWay)); got != "ok ok" {
		t.Errorf("the batch that was under way: %s", got)
	}
	startDispatcher(t, s, dispatcher.Config{TicketIdle: time.Millisecond})
	await("new batches are taken again", func(detail string) bool { return detail == "" })
}
