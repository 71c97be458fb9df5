package dispatcher

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestBackgroundState: how a background call stands follows from its log. Nobody waits for one that was given up.
func TestBackgroundState(t *testing.T) {
	planned := func(c batch.Call) *batch.State {
		return &batch.State{Plan: &events.Planned{}, Calls: []batch.Call{c}}
	}
	over := planned(batch.Call{Result: &toolyard.Result{}})
	over.Completed = true
	parked := planned(batch.Call{})
	parked.Parked = true
	givenUp := planned(batch.Call{})
	givenUp.Completed = true
	for name, c := range map[string]struct {
		s    *batch.State
		want broker.BackgroundState
	}{
		"not planned":           {&batch.State{}, broker.BackgroundQueued},
		"planned":               {planned(batch.Call{}), broker.BackgroundQueued},
		"claimed":               {planned(batch.Call{Status: batch.Claimed}), broker.BackgroundRunning},
		"waits for a person":    {planned(batch.Call{Status: batch.Waiting}), broker.BackgroundWaiting},
		"parked":                {parked, broker.BackgroundWaiting},
		"refused":               {&batch.State{Refused: &events.Refused{Detail: "x"}}, broker.BackgroundRefused},
		"over":                  {over, broker.BackgroundOver},
		"given up":              {givenUp, broker.BackgroundRefused},
		"given up, not planned": {&batch.State{Completed: true}, broker.BackgroundRefused},
	} {
		a := backgroundState(c.s)
		if a.State != c.want || (a.Problem != "") != (c.want == broker.BackgroundRefused) ||
			(a.Result != nil) != (c.want == broker.BackgroundOver) {
			t.Errorf("%s: %+v, want %s", name, a, c.want)
		}
	}
}

// TestWhatIsHandedOver: a result keeps its data and when the call may be repeated. What is too long leaves its data
// out, like its parts.
func TestWhatIsHandedOver(t *testing.T) {
	inYard(t, func(y *yard) {
		d := New(y.Broker("d1"), Config{ID: "d1", Base: y.entries(), Log: y.Log(), Planner: planner()})
		r := toolyard.Result{Tool: "x", IsError: true, Code: toolyard.DependencyUnavailable, Error: "busy",
			Retryable: true, RetryAfterMS: 7_000, Structured: json.RawMessage(`{"queue":3}`)}
		a, err := d.handOver(y.Context(), "a", &r)
		if err != nil || string(a.Structured) != string(r.Structured) || a.RetryAfterMS != r.RetryAfterMS {
			y.Errorf("%+v, %v", a, err)
		}
		r.Structured = json.RawMessage(`"` + strings.Repeat("x", maxBackgroundAnswer) + `"`)
		a, err = d.handOver(y.Context(), "a", &r)
		if err != nil || a.Structured != nil || !a.Truncated || a.RetryAfterMS != r.RetryAfterMS {
			y.Errorf("a long one: %d bytes of data, %+v", len(a.Structured), err)
		}
	})
}

// goesOn is a batch of so many calls that go on, in the place of starts of background calls. Those have a workspace
// that the calls do not hold.
func (y *yard) goesOn(calls int) batch.State {
	y.Helper()
	k := y.submit(slices.Repeat([]string{"write"}, calls)...)
	y.Eventually("the batch is planned", func() bool { return y.fold(k).Plan != nil })
	s := y.fold(k)
	s.Plan.Workspace = "another"
	return s
}

// TestAStartThatIsRepeated: a start that is run again finds the call that it has started, also at a dispatcher with
// other settings, as in the middle of a rolling restart. Another call under the same handle is refused.
func TestAStartThatIsRepeated(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		s := y.goesOn(1)
		start := func(id string, longest time.Duration, tool, input string) broker.BackgroundAnswer {
			d := New(y.Broker(id), Config{ID: id, Base: y.entries(), Log: y.Log(), Planner: planner(),
				BackgroundTime: longest})
			a, err := d.startBackground(y.Context(), &s, 0, toolyard.BackgroundStartInput{Tool: tool,
				Input: json.RawMessage(input), Workspace: true})
			must.OK(y.T, err)
			return a
		}
		first := start("d1", time.Hour, "write", `{}`)
		if first.Problem != "" || first.Handle != toolyard.BackgroundID(s.Key, 0, true) {
			y.Fatalf("the first start: %+v", first)
		}
		if again := start("d2", 2*time.Hour, "write", ` { } `); again.Handle != first.Handle || again.Problem != "" {
			y.Errorf("the same start again: %+v", again)
		}
		if other := start("d3", time.Hour, "read", `{}`); other.Code != toolyard.InvalidArguments {
			y.Errorf("another call: %+v", other)
		}
	})
}

// TestAScriptStartsNoScriptInTheBackground: a script that could would run others without end, each with calls of its
// own. It may start other tools, and a model may start a script.
func TestAScriptStartsNoScriptInTheBackground(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d1")
		base := y.entries()
		for i := range base {
			if base[i].Name == "put" {
				base[i].Name, base[i].UsesWorkspace = toolyard.RunCodeTool, new(false)
			}
		}
		d := New(y.Broker("d2"), Config{ID: "d2", Base: base, Log: y.Log(), Planner: planner(), RunCode: true})
		script := toolyard.Parent{Batch: "p", Attempt: 1, N: 1}
		for name, c := range map[string]struct {
			parent *toolyard.Parent
			tool   string
			says   string // "": it is started
		}{
			"a script by a script":       {&script, toolyard.RunCodeTool, "script"},
			"another tool by a script":   {&script, "write", ""},
			"a script by a model's call": {nil, toolyard.RunCodeTool, ""},
		} {
			s := y.goesOn(1)
			sub := *s.Submission
			sub.Options.Parent, s.Submission = c.parent, &sub
			a, err := d.startBackground(y.Context(), &s, 0, toolyard.BackgroundStartInput{Tool: c.tool,
				Input: json.RawMessage(`{}`), Workspace: true})
			if err != nil || (a.Problem == "") != (c.says == "") || !strings.Contains(a.Problem, c.says) ||
				c.says != "" && a.Code != toolyard.InvalidArguments {
				y.Errorf("%s: %+v, %v", name, a, err)
			}
		}
	})
}

// TestABackgroundCallThatWasGivenUp: it does not keep its place in the session, though its log cannot be followed, and
// who asks is told.
func TestABackgroundCallThatWasGivenUp(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d1")
		d := New(y.Broker("d2"), Config{ID: "d2", Base: y.entries(), Log: y.Log(), Planner: planner(),
			BackgroundCalls: 1})
		s := y.goesOn(2)
		start := func(i int) broker.BackgroundAnswer {
			a, err := d.startBackground(y.Context(), &s, i, toolyard.BackgroundStartInput{Tool: "write",
				Input: json.RawMessage(`{}`), Workspace: true})
			must.OK(y.T, err)
			return a
		}
		first := start(0)
		y.settle()
		if full := start(1); full.Code != toolyard.ExecutionFailed {
			y.Errorf("beside the first: %+v", full)
		}
		// nobody was asked, so the log contradicts itself
		if _, err := y.b.Append(y.Context(), toolyard.BatchKey{Agent: s.Key.Agent, ID: first.Handle}, batch.ChainItem,
			toolyard.DefaultPool, 0, 0, events.Decided{Decision: events.Reject, By: "nobody"}); err != nil {
			y.Fatal(err)
		}
		y.Eventually("the batch is given up", func() bool {
			letters, err := y.b.DeadLetters(y.Context(), 1)
			return err == nil && len(letters) > 0
		})
		if a, err := d.lookBackground(y.Context(), &s, first.Handle, true); err != nil ||
			a.State != broker.BackgroundRefused && a.State != broker.BackgroundOver {
			y.Errorf("what is said of it: %+v, %v", a, err)
		}
		if next := start(1); next.Problem != "" {
			y.Errorf("the next one: %+v", next)
		}
	})
}

// TestTheStartsOfABatchThatWasGivenUp: the agent reads that they have failed, and not what they have started. That is
// stopped.
func TestTheStartsOfABatchThatWasGivenUp(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d1")
		d := New(y.Broker("d2"), Config{ID: "d2", Base: y.entries(), Log: y.Log(), Planner: planner()})
		y.Start(d)
		s := y.goesOn(1)
		a, err := d.startBackground(y.Context(), &s, 0, toolyard.BackgroundStartInput{Tool: "write",
			Input: json.RawMessage(`{}`), Workspace: true})
		if err != nil || a.Problem != "" {
			y.Fatalf("%+v, %v", a, err)
		}
		d.endLost(y.Context(), map[toolyard.BatchKey]error{s.Key: errSubmissionLost})
		background := toolyard.BatchKey{Agent: s.Key.Agent, ID: a.Handle}
		y.Eventually("the background call is stopped", func() bool { return y.fold(background).Completed })
		if got := y.codes(background); got != "canceled" {
			y.Errorf("it is answered %s", got)
		}
	})
}

// TestTheStartsOfABatchWhoseRepliesAreLost: nobody can say which of its starts were answered with a handle. What they
// have started goes on until its time is over, and that the batch is given up does not wait for it.
func TestTheStartsOfABatchWhoseRepliesAreLost(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d1")
		d := New(y.Broker("d2"), Config{ID: "d2", Base: y.entries(), Log: y.Log(), Planner: planner()})
		y.Start(d)
		s := y.goesOn(3)
		a, err := d.startBackground(y.Context(), &s, 0, toolyard.BackgroundStartInput{Tool: "write",
			Input: json.RawMessage(`{}`), Workspace: true})
		if err != nil || a.Problem != "" {
			y.Fatalf("%+v, %v", a, err)
		}
		var first, end uint64
		for i := range 2 {
			r, err := y.b.Append(y.Context(), s.Key, batch.ChainReply, "", i, end, events.Reply{
				Results: []toolyard.Result{{Index: i, CallID: s.Submission.Calls[i].ID, Tool: "write"}}})
			must.OK(y.T, err)
			first, end = cmp.Or(first, r.Seq), r.Seq
		}
		y.lose("TY_REPLY", first)
		if err := d.answerAll(y.Context(), s.Key, s.Submission, errSubmissionLost); err != nil {
			y.Errorf("the batch is not given up: %v", err)
		}
		if y.fold(toolyard.BatchKey{Agent: s.Key.Agent, ID: a.Handle}).Completed {
			y.Error("what it has started was stopped")
		}
	})
}

// lose has a stream lose a message.
func (y *yard) lose(stream string, seq uint64) {
	y.Helper()
	js, err := jetstream.New(y.Conn("loses"))
	must.OK(y.T, err)
	s, err := js.Stream(y.Context(), stream)
	if err == nil {
		err = s.DeleteMsg(y.Context(), seq)
	}
	must.OK(y.T, err)
}

// TestALateStart: a start that has ended before its background call was listed starts nothing, and leaves nothing on
// the list. A background call that comes later, from a dispatcher that died behind it, is not planned.
func TestALateStart(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d1")
		d := New(y.Broker("d2"), Config{ID: "d2", Base: y.entries(), Log: y.Log(), Planner: planner(),
			BackgroundCalls: 2, BackgroundTime: time.Hour})
		s := y.goesOn(1)
		must.OK(y.T, y.b.Cancel(y.Context(), s.Key, "not wanted"))
		y.Eventually("the call has ended", func() bool { now := y.fold(s.Key); return !now.Open(0) })
		in := toolyard.BackgroundStartInput{Tool: "write", Input: json.RawMessage(`{}`), Workspace: true}
		if a, err := d.startBackground(y.Context(), &s, 0, in); err != nil || a.Problem == "" {
			y.Errorf("a start that is over: %+v, %v", a, err)
		}
		over := y.fold(s.Key)
		over.Plan.Calls[0].Tool = toolyard.BackgroundStart
		child := d.backgroundBatch(&s, 0, in)
		if _, err := y.b.ChangeSession(y.Context(), child.Agent, child.Session, func(v *broker.Session) {
			v.AddBackground(broker.BackgroundCall{ID: child.ID, At: time.Now()}, 2)
		}); err != nil {
			y.Fatal(err)
		}
		must.OK(y.T, d.stopIfLeft(y.Context(), &over, 0))
		must.OK(y.T, y.b.Submit(y.Context(), child))
		y.Eventually("the background call is refused", func() bool { return y.fold(child.Key()).Refused != nil })
	})
}

// TestAQuestionWhileDispatchersStart: a worker that asks about a background call while no dispatcher is there, as
// between two of a rolling restart, is answered by the next one.
func TestAQuestionWhileDispatchersStart(t *testing.T) {
	inYard(t, func(y *yard) {
		first := y.dispatcher("d1")
		k := y.submit("write")
		y.Eventually("the batch is planned", func() bool { return y.fold(k).Plan != nil })
		first.End()
		answered := make(chan broker.BackgroundAnswer, 1)
		go func() {
			a, err := y.Broker("worker").Background(y.Context(), toolyard.DefaultPool,
				broker.BackgroundAsk{Call: broker.AskedCall{Agent: k.Agent, Batch: k.ID}})
			if err != nil {
				y.Error(err)
			}
			answered <- a
		}()
		time.Sleep(3 * time.Second)
		y.dispatcher("d2")
		if a := <-answered; a.Problem == "" {
			y.Errorf("the answer is %+v", a)
		}
	})
}
