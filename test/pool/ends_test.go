package pool

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// fact is a result's fact of one phase.
func fact(r *toolyard.Result, p toolyard.Phase) (toolyard.Fact, bool) {
	for _, f := range r.Phases {
		if f.Phase == p {
			return f, true
		}
	}
	return toolyard.Fact{}, false
}

// TestStoppedCallsSayWhatHappened: reads that ran until they were stopped, for a sibling's sake or by a cancel, say so:
// who ran them, for how long, and what they had so far.
func TestStoppedCallsSayWhatHappened(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	began := make(chan struct{}, 4)
	half := func(ctx context.Context, _ tool.Env) (string, error) {
		began <- struct{}{}
		<-ctx.Done()
		return "half of it", context.Cause(ctx)
	}
	startWorker(t, s, worker.Config{ID: "w", Tools: []tool.Tool{
		make1(t, reader("wait"), half),
		make1(t, reader("fail"), func(context.Context, tool.Env) (string, error) {
			<-began
			return "", errors.New("the disk is on fire")
		}),
	}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	stopped := func(what string, r *toolyard.Result, code toolyard.Code) {
		t.Helper()
		f, executed := fact(r, toolyard.PhaseExecute)
		if r.Code != code || r.Worker != "w" || r.Attempts != 1 || r.ExecuteMS <= 0 || !executed || f.Code != code ||
			r.Output != "half of it" {
			t.Errorf("%s: %s by %q, %d attempts, %g ms, execute %+v, output %q", what, r.Code, r.Worker, r.Attempts,
				r.ExecuteMS, f, r.Output)
		}
	}
	got := results(t, c, toolyard.Batch{Calls: calls("wait", "fail")})
	stopped("a sibling", &got[0], toolyard.SiblingCanceled)
	if !strings.Contains(got[0].Error, "fail, call ") {
		t.Errorf("the culprit is not named: %s", got[0].Error)
	}
	if !got[0].WasConcurrent || !got[1].WasConcurrent {
		t.Error("calls that ran together say that they did not")
	}

	sub := submit(t, c, toolyard.Batch{Calls: calls("wait")})
	testenv.Within(t, "the call runs", began)
	must.OK(t, c.Batch(sub.Key()).Cancel(t.Context(), "changed my mind"))
	got = collect(t, t.Context(), sub)
	stopped("a cancel", &got[0], toolyard.Canceled)
	if !strings.Contains(got[0].Error, "changed my mind") {
		t.Errorf("why it was canceled is not said: %s", got[0].Error)
	}
	if got[0].WasConcurrent {
		t.Error("a call that was alone says that it ran beside others")
	}
}

// TestWasConcurrentIsWhatHappened: a group of two of which one never ran.
func TestWasConcurrentIsWhatHappened(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	b := toolyard.Batch{Calls: calls("read", "read")}
	b.Calls[1].Input = []byte(`{"wrong": 1}`)
	for _, r := range results(t, c, b) {
		if r.WasConcurrent {
			t.Errorf("call %d (%s) says that it ran beside another", r.Index, r.Code)
		}
	}
	b = toolyard.Batch{Calls: calls("read", "read"), Options: toolyard.Options{MaxConcurrency: 1}}
	for _, r := range results(t, c, b) {
		if r.WasConcurrent {
			t.Errorf("call %d says that it ran beside another, of which one runs at a time", r.Index)
		}
	}
}

// TestAnAbortedReadIsNotBesideTheNextWrite: a read fails, and its sibling ignores that it should end. The write of the
// next group waits until it has returned, or until the grace is over; then the results say that it may still act.
func TestAnAbortedReadIsNotBesideTheNextWrite(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ignores time.Duration // how long the sibling goes on
		overlap bool
	}{"one that stops late": {500 * time.Millisecond, false}, "one that does not stop": {time.Hour, true}} {
		t.Run(name, func(t *testing.T) {
			s := testenv.Server(t)
			began, release := make(chan struct{}), make(chan struct{})
			var reading, beside atomic.Bool
			startWorker(t, s, worker.Config{Tools: []tool.Tool{
				make1(t, reader("deaf"), func(ctx context.Context, _ tool.Env) (string, error) {
					reading.Store(true)
					defer reading.Store(false)
					close(began)
					<-ctx.Done()
					select {
					case <-time.After(tt.ignores):
					case <-release:
					}
					return "late", nil
				}),
				make1(t, reader("fail"), func(context.Context, tool.Env) (string, error) {
					<-began
					return "", errors.New("the disk is on fire")
				}),
				make1(t, writer("write"), func(context.Context, tool.Env) (string, error) {
					beside.Store(reading.Load())
					return "written", nil
				}),
			}})
			defer close(release)
			startDispatcher(t, s, dispatcher.Config{})
			got := results(t, startClient(t, s), toolyard.Batch{Calls: calls("deaf", "fail", "write")})
			if beside.Load() != tt.overlap {
				t.Errorf("the write ran beside the aborted read: %v", beside.Load())
			}
			said := strings.Contains(got[0].Error, "may still act") &&
				strings.Contains(got[0].Detail, "did not return within")
			if tt.overlap && (got[0].Code != toolyard.SiblingCanceled || !said) {
				t.Errorf("a read that has not stopped ends as %s: %s (%s)", got[0].Code, got[0].Error, got[0].Detail)
			}
			if !tt.overlap && (got[0].Code != toolyard.OK || got[0].Output != "late") {
				t.Errorf("a read that has come to its end is answered with %s: %s", got[0].Code, got[0].Error)
			}
		})
	}
}

// TestACallThatNoWorkerWasHanded is taken out of the queue when it is canceled, and it is known at once that it did not
// run.
func TestACallThatNoWorkerWasHanded(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	began, release := make(chan struct{}, 1), make(chan struct{})
	startWorker(t, s, worker.Config{Slots: map[toolyard.Class]int{toolyard.ReadOnly: 1}, Tools: []tool.Tool{
		make1(t, reader("hold"), func(context.Context, tool.Env) (string, error) {
			began <- struct{}{}
			<-release
			return "", nil
		}),
		make1(t, reader("read"), says("x")),
	}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	holding := submit(t, c, toolyard.Batch{Calls: calls("hold")})
	testenv.Within(t, "the slot is taken", began)
	many := toolyard.Batch{Options: toolyard.Options{MaxConcurrency: 200}}
	for range 100 {
		many.Calls = append(many.Calls, toolyard.Call{Tool: "read"})
	}
	sub := submit(t, c, many)
	awaitStart(t, testenv.Broker(t, s, "/test"), sub.Key())
	must.OK(t, c.Batch(sub.Key()).Cancel(t.Context(), "enough"))
	got := collect(t, t.Context(), sub)
	ran := 0
	for _, r := range got {
		if r.Code != toolyard.Canceled {
			t.Errorf("call %d ended as %s", r.Index, r.Code)
		}
		if r.Attempts > 0 || strings.Contains(r.Detail, "no worker has answered") {
			ran++
		}
	}
	if ran > 0 {
		t.Errorf("%d of 100 calls that never ran may have, by what their results say", ran)
	}
	close(release)
	collect(t, t.Context(), holding)
}

// TestAttemptsAreWhatWasTaken: a read that was handed to a worker which died counts an attempt more, and one that a
// worker gave back before it began counts none, however often that was.
func TestAttemptsAreWhatWasTaken(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	s := hurried(t)
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	began, release := make(chan struct{}, 2), make(chan struct{})
	read := make1(t, reader("read"), func(context.Context, tool.Env) (string, error) {
		began <- struct{}{}
		<-release
		return "read", nil
	})
	slots := map[toolyard.Class]int{toolyard.ReadOnly: 1}

	// One worker with one slot. Of two agents' reads one waits beside its lane, and is given back.
	busy := startWorker(t, s, worker.Config{Tools: []tool.Tool{read}, Slots: slots})
	var subs []*client.Batch
	for _, agent := range []toolyard.Agent{"a", "b"} {
		sub := submit(t, c, toolyard.Batch{Agent: agent, ID: "read", Calls: calls("read")})
		subs = append(subs, sub)
	}
	testenv.Within(t, "a call runs", began)
	logged := func(sub *client.Batch) (out []string) {
		for e, err := range sub.Events(t.Context()) {
			must.OK(t, err)
			var event struct{ Type string }
			must.OK(t, json.Unmarshal(e, &event))
			out = append(out, event.Type)
		}
		return out
	}
	returned := func(sub *client.Batch) (n int) {
		for _, typ := range logged(sub) {
			if typ == string(events.CallReturned) {
				n++
			}
		}
		return n
	}
	end := time.Now().Add(30 * time.Second)
	for returned(subs[0])+returned(subs[1]) == 0 {
		if time.Now().After(end) {
			t.Fatalf("nothing is given back: %v, %v", logged(subs[0]), logged(subs[1]))
		}
	}
	close(release)
	for _, sub := range subs {
		if got := collect(t, t.Context(), sub); codes(got) != "ok" || got[0].Attempts != 1 || returned(sub) > 1 {
			t.Errorf("%s: %s after %d attempts, and given back %d times", sub.Key().Agent, codes(got), got[0].Attempts,
				returned(sub))
		}
	}
	busy.end(t)

	// Somebody takes the call, and is not heard of again.
	sub := submit(t, c, toolyard.Batch{Agent: "a", ID: "lost", Calls: calls("read")})
	route := batch.Route{Pool: "default", Class: toolyard.ReadOnly}
	lane, err := testenv.Broker(t, s, "/worker/lost").Lane(t.Context(), route, broker.LaneOf("a"), nil)
	must.OK(t, err)
	testenv.Take(t, lane)
	lane.Stop()
	startWorker(t, s, worker.Config{Tools: []tool.Tool{read}})
	if got := collect(t, t.Context(), sub); codes(got) != "ok" || got[0].Attempts != 2 {
		t.Errorf("%s after %d attempts", codes(got), got[0].Attempts)
	}
}

// TestAReadIsQueuedOnce: whoever queues a call again that stands in the queue finds it there, and one whose first
// publish may have been stored marks the second.
func TestAReadIsQueuedOnce(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	route := batch.Route{Pool: "default", Class: toolyard.ReadOnly}
	call := []batch.Queue{{Route: route, Request: events.Requested{Agent: "a", Batch: "b", QueuedAt: time.Now(),
		Calls: []events.RequestedCall{{Input: []byte("{}")}}}}}
	var seqs []uint64
	for range 2 {
		for _, q := range b.QueueAll(t.Context(), 3, call) {
			if q.Err != nil {
				t.Fatal(q.Err)
			}
			seqs = append(seqs, q.Seq)
		}
	}
	if seqs[0] == 0 || seqs[0] != seqs[1] {
		t.Errorf("the message was stored as %d and as %d", seqs[0], seqs[1])
	}
	// Behind another event of the item's chain it is another message.
	call[0].Request.Expected = 7
	again := b.QueueAll(t.Context(), 3, call)[0]
	if again.Err != nil || again.Seq == seqs[0] {
		t.Errorf("%+v", again)
	}
	lane, err := b.Lane(t.Context(), route, 3, nil)
	must.OK(t, err)
	defer lane.Stop()
	d := testenv.Take(t, lane)
	if d.Calls[0].Again || !d.Fresh() {
		t.Errorf("a message that was queued once is again %v, fresh %v", d.Calls[0].Again, d.Fresh())
	}
	never, err := b.Withdraw(t.Context(), route, 3, []uint64{seqs[0], again.Seq})
	if err != nil || len(never) != 1 || never[0] != again.Seq {
		t.Errorf("of the messages %d and %d none was ever handed to a worker but the first: %d, %v", seqs[0], again.Seq,
			never, err)
	}
	must.OK(t, d.Done())
	// A worker that comes later is handed nothing that was withdrawn.
	stream := testenv.Stream(t, testenv.JetStream(t, testenv.Conn(t, s)), "TY_CALL")
	if n := stream.CachedInfo().State.Msgs; n != 0 {
		t.Errorf("%d messages are left in the queue", n)
	}
}

// TestAFailedReadEndsNobodyElse: a read that fails ends nobody else's call where its tool declares so, as all that read
// do which are built in, in a manifest or on an MCP server.
func TestAFailedReadEndsNobodyElse(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	failed := make(chan struct{})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{
		make1(t, reader("read"), func(ctx context.Context, _ tool.Env) (string, error) {
			select {
			case <-failed:
				return "read", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}),
		make1(t, alone(reader("fail")), func(context.Context, tool.Env) (string, error) {
			return "",
				errors.New("no such row")
		}),
	}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	b := submit(t, c, toolyard.Batch{Calls: calls("fail", "read", "read"),
		Options: toolyard.Options{OnError: toolyard.CancelGroup}})
	var got []toolyard.Result
	for r, err := range b.Results(t.Context()) {
		must.OK(t, err)
		if got = append(got, r); len(got) == 1 {
			close(failed) // its owner has decided by now what follows from it
		}
	}
	if codes(got) != "execution_failed ok ok" {
		t.Errorf("the results are %s", codes(got))
	}
}

// TestAToolThatIsLeftWithoutItsClass: a worker that offers a tool but takes no calls of its class is nobody to wait
// for.
func TestAToolThatIsLeftWithoutItsClass(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	free, began := make(chan struct{}), make(chan struct{})
	hold := make1(t, reader("hold"), func(ctx context.Context, _ tool.Env) (string, error) {
		close(began)
		select {
		case <-free:
			return "done", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	write := make1(t, writer("write"), says("wrote"))
	startDispatcher(t, s, dispatcher.Config{QueueWait: time.Minute})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{hold, write}, Classes: []toolyard.Class{toolyard.ReadOnly}})
	writes := startWorker(t, s, worker.Config{Tools: []tool.Tool{hold, write},
		Classes: []toolyard.Class{toolyard.WriteExclusive}})
	c := startClient(t, s)
	sub := submit(t, c, interactive("left", call("hold", `{}`), call("write", `{}`)))
	<-began
	writes.end(t)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, writer("other"), says("other"))},
		Classes: []toolyard.Class{toolyard.WriteExclusive}})
	close(free)
	if got := collect(t, t.Context(), sub); codes(got) != "ok unknown_tool" {
		t.Errorf("they ended as %s: %s", codes(got), got[1].Error)
	}
}
