package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/background"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// slow is a tool that says something, and runs until its gate is closed or it is stopped. Each run takes from begun.
type slow struct {
	gate  chan struct{}
	begun chan tool.Env
}

func newSlow() *slow { return &slow{gate: make(chan struct{}), begun: make(chan tool.Env, 10)} }

// tools are those of background calls, and slow tools: one that acts on the workspace, and two that do not.
func (s *slow) tools(t testing.TB) []tool.Tool {
	run := func(ctx context.Context, env tool.Env) (string, error) {
		s.begun <- env
		env.Progress(tool.Progress{Fraction: -1, Output: "half\n"})
		select {
		case <-s.gate:
			return "whole", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	free := writer("serve")
	free.UsesWorkspace, free.TimeoutMS = new(bool), 1 // a background call has another limit
	reads := reader("watch")
	reads.UsesWorkspace = new(bool)
	return append(background.Tools(), make1(t, free, run), make1(t, reads, run), make1(t, writer("build"), run),
		make1(t, writer("quick"), says("done")))
}

// talk is a session in which one call after the other is made.
type talk struct {
	testing.TB
	c     *client.Client
	agent toolyard.Agent
	n     int
}

func (k *talk) submit(name string, input any) *client.Batch {
	k.Helper()
	raw := must.JSON(k, input)
	return k.turn(toolyard.Call{Tool: name, Input: raw}, toolyard.Options{})
}

// command makes a call of a shell that may go on after a time.
func (k *talk) command(name, command string, after time.Duration) *client.Batch {
	k.Helper()
	return k.turn(toolyard.Call{Tool: name, Input: fmt.Appendf(nil, `{"command":%q}`, command)},
		toolyard.Options{BackgroundAfterMS: after.Milliseconds()})
}

func (k *talk) turn(call toolyard.Call, o toolyard.Options) *client.Batch {
	k.Helper()
	k.n++
	b := submit(k, k.c, toolyard.Batch{Agent: k.agent, ID: toolyard.BatchID(fmt.Sprint("turn-", k.n)),
		Calls: []toolyard.Call{call}, Options: o})
	return b
}

// call makes one call in a batch of its own, and returns its result.
func (k *talk) call(name string, input any) toolyard.Result {
	k.Helper()
	return resultsOf(k, k.submit(name, input))[0]
}

// known is the structured output of the tools.
type known struct {
	Handle toolyard.BatchID
	State  broker.BackgroundState
	Code   toolyard.Code
}

func (k *talk) know(r toolyard.Result) (out known) {
	k.Helper()
	if r.IsError {
		k.Fatalf("%s ended as %s: %s %s", r.Tool, r.Code, r.Error, r.Detail)
	}
	if err := json.Unmarshal(r.Structured, &out); err != nil {
		k.Fatalf("%s: %v", r.Structured, err)
	}
	return out
}

type input map[string]any

func (k *talk) start(name string, more input) known {
	k.Helper()
	in := input{"tool": name, "input": input{}}
	for key, v := range more {
		in[key] = v
	}
	return k.know(k.call(toolyard.BackgroundStart, in))
}

func (k *talk) wait(h toolyard.BatchID) toolyard.Result {
	k.Helper()
	return k.call(toolyard.BackgroundWait, input{"handle": h, "wait_ms": 60_000})
}

// TestBackgroundCalls: a background call outlives its batch, tells what it has said so far, ends with its result or
// when it is stopped, and holds its workspace only if it asked for it. With accounts it is the same.
func TestBackgroundCalls(t *testing.T) {
	t.Parallel()
	for _, accounts := range []bool{false, true} {
		t.Run(fmt.Sprintf("accounts=%t", accounts), func(t *testing.T) {
			t.Parallel()
			at := newSlow()
			k := &talk{TB: t, agent: "a"}
			cfg := worker.Config{Tools: at.tools(t)}
			if accounts {
				s := guardedPool(t)
				guestWorker(t, s, cfg)
				k.c = guestClient(t, s, "a")
			} else {
				s := testenv.Server(t)
				startWorker(t, s, cfg)
				startDispatcher(t, s, dispatcher.Config{})
				k.c = startClient(t, s)
			}
			talkInBackground(k, at)
		})
	}
}

func talkInBackground(k *talk, at *slow) {
	one := k.start("serve", nil)
	if env := <-at.begun; env.Batch != one.Handle || env.Background != toolyard.DefaultBackgroundTime {
		k.Errorf("it runs as %+v", env)
	}
	// the batch of the start is over, and its workspace is free
	if r := k.call("quick", input{}); r.IsError {
		k.Errorf("beside it: %+v", r)
	}
	for text := ""; !strings.Contains(text, "half\n"); {
		r := k.call(toolyard.BackgroundCheck, input{"handle": one.Handle})
		if s := k.know(r); s.State != broker.BackgroundRunning {
			k.Fatalf("%+v", s)
		}
		text = r.Output
	}
	two := k.start("watch", nil)
	<-at.begun
	if a := k.know(k.call(toolyard.BackgroundStop, input{"handle": two.Handle})); a.Handle != two.Handle {
		k.Errorf("%+v", a)
	}
	if r := k.wait(two.Handle); k.know(r).Code != toolyard.Canceled {
		k.Errorf("stopped: %+v", r)
	}
	// a call that acts on the workspace runs only when it is given it, and then has it alone
	if r := k.call(toolyard.BackgroundStart, input{"tool": "build", "input": input{}}); r.Code !=
		toolyard.InvalidArguments || !strings.Contains(r.Error, `"workspace": true`) {
		k.Errorf("without its workspace: %+v", r)
	}
	three := k.start("build", input{"workspace": true})
	if env := <-at.begun; env.FencingToken == 0 {
		k.Error("it has no ticket")
	}
	blocked := k.submit("quick", input{})
	if a := k.know(k.call(toolyard.BackgroundWait, input{"handle": three.Handle, "wait_ms": 10})); a.State !=
		broker.BackgroundRunning {
		k.Errorf("%+v", a)
	}
	if v, err := blocked.View(k.Context()); err != nil || len(v.Results) > 0 {
		k.Errorf("a call ran beside a background call that has the workspace: %+v, %v", v, err)
	}
	close(at.gate)
	for _, h := range []toolyard.BatchID{one.Handle, three.Handle} {
		r := k.wait(h)
		if a := k.know(r); a.State != broker.BackgroundOver || a.Code != "" || !strings.Contains(r.Output, "whole") {
			k.Errorf("%s: %+v", h, r)
		}
	}
	if r := resultsOf(k, blocked); r[0].IsError {
		k.Errorf("behind it: %+v", r)
	}
	// what is over in time gives its result at once
	r := k.call(toolyard.BackgroundStart, input{"tool": "serve", "input": input{}, "wait_ms": 60_000})
	if a := k.know(r); a.State != broker.BackgroundOver || !strings.Contains(r.Output, "whole") {
		k.Errorf("waited for: %+v", r)
	}
	for what, c := range map[string]struct {
		tool string
		in   input
	}{
		"an unknown tool":   {toolyard.BackgroundStart, input{"tool": "nobody", "input": input{}}},
		"a wrong input":     {toolyard.BackgroundStart, input{"tool": "serve", "input": input{"x": 1}}},
		"itself":            {toolyard.BackgroundStart, input{"tool": "background_wait", "input": input{}}},
		"an unknown handle": {toolyard.BackgroundCheck, input{"handle": "bg-1"}},
		"another batch":     {toolyard.BackgroundStop, input{"handle": "turn-1"}},
	} {
		if r := k.call(c.tool, c.in); r.Code != toolyard.InvalidArguments {
			k.Errorf("%s: %+v", what, r)
		}
	}
}

// TestAStartThatFailsFreesItsWorkspace: a start is canceled while it waits for its background call, which has the
// workspace. The next call of the batch gets it, and need not wait for the end of what nobody knows of.
func TestAStartThatFailsFreesItsWorkspace(t *testing.T) {
	t.Parallel()
	at := newSlow()
	s := testenv.Server(t)
	startWorker(t, s, worker.Config{Tools: at.tools(t)})
	startDispatcher(t, s, dispatcher.Config{})
	b, err := startClient(t, s).Submit(t.Context(), toolyard.Batch{
		Calls: []toolyard.Call{
			{Tool: toolyard.BackgroundStart,
				Input: json.RawMessage(`{"tool": "build", "input": {}, "workspace": true, "wait_ms": 60000}`)},
			{Tool: "quick", Input: json.RawMessage(`{}`)},
		},
		Options: toolyard.Options{OnError: toolyard.Continue},
	})
	must.OK(t, err)
	<-at.begun
	must.OK(t, b.Cancel(t.Context(), "not wanted", 0))
	if r := resultsOf(t, b); r[0].Code != toolyard.Canceled || r[1].IsError {
		t.Errorf("%+v, %+v", r[0], r[1])
	}
}

// TestOnlyTheSessionMakesBackgroundCalls: a session has as many background calls as it may, what is over makes room,
// and a batch that only bears the name of one is refused. Another session knows no handles of this one.
func TestOnlyTheSessionMakesBackgroundCalls(t *testing.T) {
	t.Parallel()
	s, at := testenv.Server(t), newSlow()
	startWorker(t, s, worker.Config{Tools: at.tools(t)})
	startDispatcher(t, s, dispatcher.Config{BackgroundCalls: 2})
	k := &talk{TB: t, agent: "a", c: startClient(t, s)}
	one := k.start("serve", nil)
	k.start("serve", nil)
	if r := k.call(toolyard.BackgroundStart, input{"tool": "serve", "input": input{}}); r.Code !=
		toolyard.ExecutionFailed || !strings.Contains(r.Error, "2 background calls") || r.Attempts != 1 {
		t.Errorf("past the limit: %+v", r)
	}
	k.call(toolyard.BackgroundStop, input{"handle": one.Handle})
	k.wait(one.Handle)
	k.start("serve", nil)
	b, err := k.c.Submit(t.Context(), toolyard.Batch{Agent: "a", ID: "bg-forged", Calls: calls("serve")})
	if err == nil {
		for _, err = range b.Results(t.Context()) {
		}
	}
	if err == nil || !strings.Contains(err.Error(), "kept for background calls") {
		t.Errorf("a forged one: %v", err)
	}
	stop := toolyard.Call{Tool: toolyard.BackgroundStop, Input: fmt.Appendf(nil, `{"handle":%q}`, one.Handle)}
	other := submit(t, k.c, toolyard.Batch{Agent: "a", ID: "other", Session: "other", Calls: []toolyard.Call{stop}})
	if r := resultsOf(t, other); r[0].Code != toolyard.InvalidArguments {
		t.Errorf("another session: %+v", r)
	}
}

// TestAWorkerStartsOnlyWhatTheLogSays: a dispatcher does nothing for a worker that asks for a call that is not open,
// not of its pool, not about background calls, or with another input than the log has. What it does is safe to repeat.
func TestAWorkerStartsOnlyWhatTheLogSays(t *testing.T) {
	t.Parallel()
	s, at := testenv.Server(t), newSlow()
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	held := background.Tools()
	for i := range held {
		run := held[i].Run
		held[i].Run = func(ctx context.Context, env tool.Env, raw json.RawMessage) (tool.Output, error) {
			out, err := run(ctx, env, raw)
			began <- struct{}{}
			<-ended
			return out, err
		}
	}
	startWorker(t, s, worker.Config{Tools: append(at.tools(t)[len(held):], held...)})
	startDispatcher(t, s, dispatcher.Config{})
	k := &talk{TB: t, agent: "a", c: startClient(t, s)}
	open := k.submit(toolyard.BackgroundStart, input{"tool": "serve", "input": input{}})
	<-began
	<-at.begun
	b := testenv.Broker(t, s, "/worker/forger")
	state, err := b.Look(t.Context(), toolyard.BatchKey{Agent: "a", ID: "turn-1"})
	must.OK(t, err)
	hash := state.Plan.Calls[0].InputSHA256
	ask := func(pool toolyard.Pool, q broker.BackgroundAsk) broker.BackgroundAnswer {
		t.Helper()
		a, err := b.Background(t.Context(), pool, q)
		must.OK(t, err)
		return a
	}
	call := broker.AskedCall{Agent: "a", Batch: "turn-1"}
	again := ask("default", broker.BackgroundAsk{Call: call, InputSHA256: hash})
	if again.Handle != toolyard.BackgroundID(state.Key, 0, false) || again.State != broker.BackgroundRunning {
		t.Errorf("again: %+v", again)
	}
	for what, a := range map[string]broker.BackgroundAnswer{
		"an open call of another pool":     ask("other", broker.BackgroundAsk{Call: call, InputSHA256: hash}),
		"an open call and another input":   ask("default", broker.BackgroundAsk{Call: call, InputSHA256: "0"}),
		"an open call of an unrelated one": ask("default", broker.BackgroundAsk{Call: callOf(again)}),
	} {
		if a.Handle != "" || a.Code != toolyard.InvalidArguments {
			t.Errorf("%s: %+v", what, a)
		}
	}
	ended <- nil
	resultsOf(t, open)
	of := func(agent toolyard.Agent, id toolyard.BatchID, index int) broker.BackgroundAsk {
		return broker.BackgroundAsk{Call: broker.AskedCall{Agent: agent, Batch: id, Index: index}, InputSHA256: hash}
	}
	for what, a := range map[string]broker.BackgroundAnswer{
		"the call is over":  ask("default", of("a", "turn-1", 0)),
		"another pool":      ask("other", of("a", "turn-1", 0)),
		"another input":     ask("default", broker.BackgroundAsk{Call: call, InputSHA256: "0"}),
		"no such call":      ask("default", of("a", "turn-1", 1)),
		"a negative call":   ask("default", of("a", "turn-1", -1)),
		"no such batch":     ask("default", of("a", "none", 0)),
		"no such agent":     ask("default", of("b", "turn-1", 0)),
		"an unrelated tool": ask("default", of("a", again.Handle, 0)),
	} {
		if a.Handle != "" || a.Code != toolyard.InvalidArguments || a.Problem == "" {
			t.Errorf("%s: %+v", what, a)
		}
	}
	if len(at.begun) > 0 {
		t.Error("a call has begun that nobody asked for")
	}
}

// TestBackgroundSurvivesItsDispatcher: a background call goes on without its dispatcher, and the next one ends it.
func TestBackgroundSurvivesItsDispatcher(t *testing.T) {
	t.Parallel()
	s, at := testenv.Server(t), newSlow()
	startWorker(t, s, worker.Config{Tools: at.tools(t)})
	first := startDispatcher(t, s, dispatcher.Config{})
	k := &talk{TB: t, agent: "a", c: startClient(t, s)}
	one := k.start("serve", nil)
	<-at.begun
	first.end(t)
	startDispatcher(t, s, dispatcher.Config{})
	close(at.gate)
	if r := k.wait(one.Handle); k.know(r).State != broker.BackgroundOver || !strings.Contains(r.Output, "whole") {
		t.Errorf("%+v", r)
	}
	if len(at.begun) > 0 {
		t.Error("it ran twice")
	}
}

// TestBackgroundEndsWithItsWorker: a background call whose worker goes ends as outcome_unknown, and runs nowhere else.
func TestBackgroundEndsWithItsWorker(t *testing.T) {
	t.Parallel()
	s, at := testenv.Server(t), newSlow()
	first := startWorker(t, s, worker.Config{Tools: at.tools(t), DrainGrace: time.Millisecond})
	startDispatcher(t, s, dispatcher.Config{})
	k := &talk{TB: t, agent: "a", c: startClient(t, s)}
	one := k.start("serve", nil)
	<-at.begun
	first.end(t)
	startWorker(t, s, worker.Config{Tools: at.tools(t)})
	if r := k.wait(one.Handle); k.know(r).Code != toolyard.OutcomeUnknown {
		t.Errorf("%+v", r)
	}
	if len(at.begun) > 0 {
		t.Error("it ran twice")
	}
}

// callOf is the call of a background call.
func callOf(a broker.BackgroundAnswer) broker.AskedCall {
	return broker.AskedCall{Agent: "a", Batch: a.Handle}
}

// TestABackgroundCallIsInItsTrace: it is part of the trace of the batch that has started it.
func TestABackgroundCallIsInItsTrace(t *testing.T) {
	t.Parallel()
	s, at := testenv.Server(t), newSlow()
	startWorker(t, s, worker.Config{Tools: at.tools(t)})
	startDispatcher(t, s, dispatcher.Config{})
	const trace = "0af7651916cd43dd8448eb211c80319c"
	ctx := client.WithTraceParent(t.Context(), "00-"+trace+"-b7ad6b7169203331-01")
	b, err := startClient(t, s).Submit(ctx, toolyard.Batch{Calls: []toolyard.Call{{Tool: toolyard.BackgroundStart,
		Input: json.RawMessage(`{"tool": "serve", "input": {}}`)}}})
	must.OK(t, err)
	if r := resultsOf(t, b)[0]; r.IsError {
		t.Fatalf("%+v", r)
	}
	if env := <-at.begun; !strings.Contains(env.TraceParent, trace) {
		t.Errorf("the call's trace is %q", env.TraceParent)
	}
	close(at.gate)
}
