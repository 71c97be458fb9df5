package pool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
	public "github.com/toolyard/toolyard/worker"
)

// startProgram starts a program's own tools on a connection of its own making.
func startProgram(t *testing.T, nc *nats.Conn, tools ...tool.Tool) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- public.Run(ctx, nc, public.Options{
			Tools: tools, Mode: "bypass", Ready: func(string) { close(ready) }, DrainGrace: time.Second,
			Log: testenv.Log(t),
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the worker ended with %v", err)
		}
	})
	testenv.Within(t, "the worker is ready", ready)
}

// TestAShortRestartCostsNoCall: the server restarts in the middle of an exclusive call that may not run twice. The
// worker is connected again before its lease is over, and the call ends as if nothing had been.
func TestAShortRestartCostsNoCall(t *testing.T) {
	t.Parallel()
	s := testenv.Restartable(t)
	testenv.Open(t, testenv.Conn(t, s.Server), broker.Settings{Shards: testenv.Shards(t)}, "/test")
	nc, err := public.Connect(t.Context(), s.ClientURL(), testenv.Log(t))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	began, goOn := make(chan struct{}), make(chan struct{})
	startProgram(t, nc, make1(t, writer("write"), func(ctx context.Context, env tool.Env) (string, error) {
		close(began)
		select {
		case <-goOn:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		return "written", env.CommitPoint()
	}))
	startDispatcher(t, s.Server, dispatcher.Config{})
	c := startClient(t, s.Server)
	sub := submit(t, c, toolyard.Batch{Calls: calls("write")})
	testenv.Within(t, "the call runs", began)
	s.Shutdown()
	s.Start()
	testenv.Until(t, "the worker connects again", nc.IsConnected)
	close(goOn)
	if got := collect(t, t.Context(), sub); codes(got) != "ok" {
		t.Errorf("the results are %s: %s", codes(got), got[0].Error)
	}
}

// TestALongOutageIsNoFailure: the server is away for longer than a lease lasts, while a tool asks whether it may
// commit. It may not, and says so. That is no failure of the tool: its outcome is unknown, or it runs once more.
func TestALongOutageIsNoFailure(t *testing.T) {
	t.Parallel()
	s := testenv.Restartable(t)
	short := broker.Settings{Shards: testenv.Shards(t), CallAckWait: time.Second, WorkerTTL: time.Second,
		BatchAckWait: time.Second}
	testenv.Open(t, testenv.Conn(t, s.Server), short, "/test")
	nc, err := public.Connect(t.Context(), s.ClientURL(), testenv.Log(t))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	began := make(chan struct{}, 2)
	yes := true
	repeatable := writer("put")
	repeatable.Idempotent = &yes
	var tools []tool.Tool
	for _, d := range []tool.Declaration{writer("write"), repeatable} {
		tools = append(tools, make1(t, d, func(ctx context.Context, env tool.Env) (string, error) {
			if env.Attempt == 1 {
				began <- struct{}{}
				<-ctx.Done() // until the right to act is lost; then a careless tool tries all the same
			}
			if err := env.CommitPoint(); err != nil {
				return "", fmt.Errorf("write the file: %w", err)
			}
			return "written", nil
		}))
	}
	startProgram(t, nc, tools...)
	startDispatcher(t, s.Server, dispatcher.Config{})
	c := startClient(t, s.Server)
	var subs []interface {
		Key() toolyard.BatchKey
	}
	for _, name := range []string{"write", "put"} {
		sub := submit(t, c, toolyard.Batch{ID: toolyard.BatchID(name),
			Workspace: toolyard.Workspace(name), Calls: calls(name)})
		subs = append(subs, sub)
	}
	testenv.Within(t, "the first call runs", began)
	testenv.Within(t, "the second call runs", began)
	s.Shutdown()
	away := time.NewTimer(2 * time.Second) // the fault itself: longer than anybody may believe in a lease
	<-away.C
	s.Start()
	for i, want := range []string{"outcome_unknown", "ok"} {
		got := collect(t, t.Context(), c.Batch(subs[i].Key()))
		if codes(got) != want {
			t.Errorf("%s: the results are %s: %s", subs[i].Key().ID, codes(got), got[0].Error)
		}
	}
}

// TestAFinishedCallSurvivesAnOutage: the tool has returned, and the server is away before the result is stored, for
// longer than the lease lasts. The result is there when it is back.
func TestAFinishedCallSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	s := testenv.Restartable(t)
	short := broker.Settings{Shards: testenv.Shards(t), CallAckWait: time.Second, WorkerTTL: time.Second,
		BatchAckWait: time.Second}
	testenv.Open(t, testenv.Conn(t, s.Server), short, "/test")
	nc, err := public.Connect(t.Context(), s.ClientURL(), testenv.Log(t))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	began, goOn, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	startProgram(t, nc, make1(t, writer("write"), func(context.Context, tool.Env) (string, error) {
		close(began)
		<-goOn
		defer close(returned)
		return "written", nil
	}))
	startDispatcher(t, s.Server, dispatcher.Config{})
	c := startClient(t, s.Server)
	sub := submit(t, c, toolyard.Batch{Calls: calls("write")})
	testenv.Within(t, "the call runs", began)
	s.Shutdown()
	close(goOn)
	testenv.Within(t, "the tool has returned", returned)
	away := time.NewTimer(2 * time.Second) // the fault itself: longer than anybody may believe in a lease
	<-away.C
	s.Start()
	got := collect(t, t.Context(), sub)
	if codes(got) != "ok" || got[0].Output != "written" {
		t.Errorf("the results are %s: %s", codes(got), got[0].Error)
	}
}
