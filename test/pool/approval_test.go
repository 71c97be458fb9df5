package pool

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/approval"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// asked waits until so many calls of an agent wait for a person.
func asked(t *testing.T, b *natsbroker.Broker, agent toolyard.Agent, n int) []broker.Approval {
	t.Helper()
	var list []broker.Approval
	testenv.Until(t, "calls wait for a person", func() bool {
		var err error
		if list, err = b.Approvals(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		return len(list) == n
	})
	return list
}

// status waits until a batch stands so in the index.
func status(t *testing.T, b *natsbroker.Broker, f broker.Filter, want toolyard.Status) broker.Entry {
	t.Helper()
	var got broker.Entry
	testenv.Until(t, "the batch is "+string(want), func() bool {
		page, _, err := b.Index().Page(t.Context(), f)
		must.OK(t, err)
		if len(page) == 1 {
			got = page[0]
		}
		return len(page) == 1 && page[0].Status == want
	})
	return got
}

func interactive(agent string, calls ...toolyard.Call) toolyard.Batch {
	return toolyard.Batch{Agent: toolyard.Agent(agent), Session: "s", Interactive: true, Calls: calls}
}

func call(name, input string) toolyard.Call {
	return toolyard.Call{Tool: name, Input: json.RawMessage(input)}
}

type text struct {
	Text string `json:"text"`
}

func writes(t *testing.T, runs *atomic.Int64) tool.Tool {
	t.Helper()
	return newTool(t, tool.Typed[text, string]{
		Declaration: writer("write"), Run: func(_ context.Context, _ tool.Env, in text) (string, error) {
			runs.Add(1)
			return "wrote " + in.Text, nil
		},
	})
}

// TestALongReason: a person is asked also where a tool has very much to say about why.
func TestALongReason(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/person/ann")
	chatty := make1(t, writer("chatty"), says("done"))
	chatty.CheckPermission = func(context.Context, tool.Env, json.RawMessage) (tool.Permission, error) {
		return tool.Permission{Behavior: tool.Ask, Reason: strings.Repeat("why ", 1<<19)}, nil
	}
	startDispatcher(t, s, dispatcher.Config{})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{chatty}})
	if _, err := startClient(t, s).Submit(t.Context(), interactive("chatty", call("chatty", `{}`))); err != nil {
		t.Fatal(err)
	}
	if reason := asked(t, b, "chatty", 1)[0].Reason; !strings.Contains(reason, "asks for a person's consent") {
		t.Errorf("a person is asked because of %.200q", reason)
	}
}

// TestAnApprovalOutlivesEverybody parks a batch on a person, stops all dispatchers and workers, and goes on with others
// when the person has decided.
func TestAnApprovalOutlivesEverybody(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/person/ann")
	var runs atomic.Int64
	tools := []tool.Tool{writes(t, &runs), make1(t, reader("read"), says("read"))}
	d := startDispatcher(t, s, dispatcher.Config{})
	w := startWorker(t, s, worker.Config{Tools: tools, Mode: policy.Default})
	c := startClient(t, s)
	sub := submit(t, c, interactive("outlives", call("read", `{}`), call("write", `{"text":"one"}`),
		call("read", `{}`)))
	list := asked(t, b, "outlives", 1)
	if a := list[0]; a.Tool != "write" || a.Index != 1 || string(a.Input) != `{"text":"one"}` || a.Reason == "" ||
		!a.Expires.After(a.AskedAt) {
		t.Errorf("a person is asked %+v", a)
	}
	status(t, b, broker.Filter{Agent: "outlives"}, toolyard.StatusWaiting)
	if tickets, err := b.Tickets(t.Context(), "default"); err != nil || len(tickets.Tickets) != 0 {
		t.Errorf("while the batch waits the queue has %v (%v), want nothing", tickets.Tickets, err)
	}
	d.end(t)
	w.end(t)
	must.OK(t, approval.Decide(t.Context(), b, list[0].Key(), 1, events.Decided{Decision: events.Approve, By: "ann"}))
	startDispatcher(t, s, dispatcher.Config{})
	startWorker(t, s, worker.Config{Tools: tools, Mode: policy.Default})
	results := collect(t, t.Context(), sub)
	if len(results) != 3 || results[1].Output != "wrote one" || results[1].ApprovalWaitMS <= 0 || runs.Load() != 1 {
		t.Errorf("got %+v after %d runs", results, runs.Load())
	}
	status(t, b, broker.Filter{Agent: "outlives"}, toolyard.StatusCompleted)
	asked(t, b, "outlives", 0)
	if err := approval.Decide(t.Context(), b, list[0].Key(), 1,
		events.Decided{Decision: events.Reject, By: "bob"}); !errors.Is(err, broker.ErrNoApproval) {
		t.Errorf("a second decision: %v, want ErrNoApproval", err)
	}
}

func TestAPersonDecides(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/person/ann")
	var runs atomic.Int64
	startDispatcher(t, s, dispatcher.Config{ApprovalWait: 3 * time.Second})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{writes(t, &runs)}, Mode: policy.Default})
	c := startClient(t, s)
	for name, decide := range map[string]struct {
		as     func(t *testing.T, a broker.Approval) error
		code   toolyard.Code
		output string
	}{
		"no": {func(t *testing.T, a broker.Approval) error {
			return approval.Decide(t.Context(), b, a.Key(), a.Index,
				events.Decided{Decision: events.Reject, By: "ann", Reason: "not today"})
		}, toolyard.ApprovalRejected, ""},
		"edited": {func(t *testing.T, a broker.Approval) error {
			return approval.Approve(t.Context(), b, a.Key(), a.Index, events.Decided{By: "ann"},
				json.RawMessage(`{"text":"two"}`))
		}, toolyard.OK, "wrote two"},
		"another-was-shown": {func(t *testing.T, a broker.Approval) error {
			for _, input := range []json.RawMessage{nil, json.RawMessage(`{"text":"two"}`)} {
				err := approval.Approve(t.Context(), b, a.Key(), a.Index,
					events.Decided{By: "ann", InputSHA256: strings.Repeat("0", 64)}, input)
				if bad, ok := errors.AsType[*toolyard.InputError](err); !ok || bad.Field != "input_sha256" {
					t.Errorf("the approval of another input: %v", err)
				}
			}
			return approval.Approve(t.Context(), b, a.Key(), a.Index,
				events.Decided{By: "ann", InputSHA256: a.InputSHA256}, nil)
		}, toolyard.OK, "wrote one"},
		"edited-badly": {func(t *testing.T, a broker.Approval) error {
			err := approval.Approve(t.Context(), b, a.Key(), a.Index, events.Decided{By: "ann"},
				json.RawMessage(`{"text":2}`))
			if bad, ok := errors.AsType[*toolyard.InputError](err); !ok || bad.Field != "input" {
				t.Errorf("an edit that does not fit: %v", err)
			}
			// it waits on
			return approval.Decide(t.Context(), b, a.Key(), a.Index, events.Decided{Decision: events.Reject, By: "ann"})
		}, toolyard.ApprovalRejected, ""},
		"canceled": {func(t *testing.T, a broker.Approval) error {
			return b.Cancel(t.Context(), a.Key(), "never mind")
		}, toolyard.Canceled, ""},
		"interrupted": {func(t *testing.T, a broker.Approval) error {
			n, err := b.Interrupt(t.Context(), a.Agent, a.Session, "the user said something else")
			if n != 1 {
				t.Errorf("%d batches were interrupted, want 1", n)
			}
			return err
		}, toolyard.Canceled, ""},
		"nobody": {func(t *testing.T, a broker.Approval) error { return nil }, toolyard.ApprovalExpired, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			batch := interactive(name, call("write", `{"text":"one"}`))
			batch.Workspace = toolyard.Workspace(name)
			sub := submit(t, c, batch)
			a := asked(t, b, toolyard.Agent(name), 1)[0]
			status(t, b, broker.Filter{Agent: a.Agent}, toolyard.StatusWaiting)
			must.OK(t, decide.as(t, a))
			res := collect(t, t.Context(), sub)
			if len(res) != 1 || res[0].Code != decide.code || decide.output != "" && res[0].Output != decide.output {
				t.Errorf("got %+v, want %q %q", res, decide.code, decide.output)
			}
		})
	}
}

// TestASessionRemembers keeps an approval for a session, for the same call only.
func TestASessionRemembers(t *testing.T) {
	t.Parallel()
	p := startPersonPool(t)
	b, c := p.b, p.c
	run := func(text string) []toolyard.Result {
		sub := submit(t, c, interactive("remembers", call("write", `{"text":"`+text+`"}`)))
		return collect(t, t.Context(), sub)
	}
	done := make(chan []toolyard.Result, 1)
	go func() { done <- run("one") }()
	a := asked(t, b, "remembers", 1)[0]
	must.OK(t, approval.Approve(t.Context(), b, a.Key(), a.Index,
		events.Decided{By: "ann", Remember: approval.RememberSession}, nil))
	<-done
	if res := run("one"); res[0].IsError || res[0].ApprovalWaitMS != 0 {
		t.Errorf("the same call in the same session: %+v, want it to run unasked", res[0])
	}
	session, err := b.Session(t.Context(), "remembers", "s")
	if err != nil || !slices.Equal(session.Remembered, []string{a.Remember}) {
		t.Errorf("the session remembers %v (%v), want %q", session.Remembered, err, a.Remember)
	}
	go func() { done <- run("two") }()
	a = asked(t, b, "remembers", 1)[0]
	must.OK(t, approval.Decide(t.Context(), b, a.Key(), a.Index, events.Decided{Decision: events.Reject, By: "ann"}))
	<-done
	if _, err := b.ChangeSession(t.Context(), "remembers", "s",
		func(s *broker.Session) { s.Unattended = true }); err != nil {
		t.Fatal(err)
	}
	if res := run("three"); res[0].Code != toolyard.PermissionDenied {
		t.Errorf("in a session that has nobody to ask: %q, want permission_denied", res[0].Code)
	}
}

// TestInterrupt stops the running call whose tool says so, waits for the one whose tool does not, and starts no other.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/person/ann")
	began, ended := make(chan struct{}, 2), make(chan error, 2)
	free := make(chan struct{})
	gentle := reader("gentle")
	gentle.Interrupt = tool.Cancel
	tools := []tool.Tool{
		make1(t, gentle, stuck(began, ended)),
		make1(t, reader("steady"), func(ctx context.Context, _ tool.Env) (string, error) {
			began <- struct{}{}
			select {
			case <-free:
				return "done", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}),
		make1(t, writer("write"), says("wrote")),
	}
	startDispatcher(t, s, dispatcher.Config{})
	startWorker(t, s, worker.Config{Tools: tools})
	c := startClient(t, s)
	sub := submit(t, c, interactive("interrupted", call("gentle", `{}`), call("steady", `{}`), call("write", `{}`)))
	<-began
	<-began
	status(t, b, broker.Filter{Agent: "interrupted"}, toolyard.StatusRunning)
	if n, err := b.Interrupt(t.Context(), "interrupted", "s", "the user said stop"); err != nil || n != 1 {
		t.Fatalf("%d batches were interrupted (%v), want 1", n, err)
	}
	<-ended
	close(free)
	res := collect(t, t.Context(), sub)
	if res[0].Code != toolyard.Canceled || res[1].Output != "done" || res[2].Code != toolyard.Canceled ||
		res[2].Attempts != 0 {
		t.Errorf("got %+v, want a stop, a result and a call that never began", res)
	}
	if n, err := b.Interrupt(t.Context(), "interrupted", "s", "again"); err != nil || n != 0 {
		t.Errorf("%d batches were interrupted afterwards (%v), want none", n, err)
	}
}

// TestTheSessionsContext hands what an exclusive call sets to the calls behind it, and to the next batch.
func TestTheSessionsContext(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	set := newTool(t, tool.Typed[text, tool.Output]{Declaration: writer("set"),
		Run: func(_ context.Context, _ tool.Env, in text) (tool.Output, error) {
			return tool.Output{Text: "set", Session: &tool.SessionChange{Loads: []string{"later"},
				Context: map[string]string{"dir": in.Text}}}, nil
		}})
	later := reader("later")
	later.ShouldDefer = true
	tools := []tool.Tool{set, make1(t, reader("get"), func(_ context.Context, env tool.Env) (string,
		error) {
		return "in " + env.Context["dir"], nil
	}),
		make1(t, later, says("loaded"))}
	startDispatcher(t, s, dispatcher.Config{})
	startWorker(t, s, worker.Config{Tools: tools})
	c := startClient(t, s)
	run := func(calls ...toolyard.Call) []toolyard.Result {
		sub := submit(t, c, toolyard.Batch{Agent: "context", Calls: calls})
		return collect(t, t.Context(), sub)
	}
	first := run(call("get", `{}`), call("set", `{"text":"a"}`), call("get", `{}`), call("set", `{"text":"b"}`),
		call("get", `{}`), call("later", `{}`))
	for i, want := range map[int]string{0: "in ", 2: "in a", 4: "in b"} {
		if first[i].Output != want {
			t.Errorf("call %d: %q, want %q", i, first[i].Output, want)
		}
	}
	if first[5].Code != toolyard.SchemaNotLoaded {
		t.Errorf("a deferred tool in the batch that loads it: %q, want schema_not_loaded: a surface does not change "+
			"within a batch", first[5].Code)
	}
	if next := run(call("get", `{}`), call("later", `{}`)); next[0].Output != "in b" || next[1].Output != "loaded" {
		t.Errorf("the next batch: %+v", next)
	}
}

// TestAChangeOfTheSessionThatDoesNotFit: one call's settings that there is no room for are refused at that call; what
// the batch's other calls set and load is kept, and so is what another batch has set meanwhile.
func TestAChangeOfTheSessionThatDoesNotFit(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	holding, free := make(chan struct{}), make(chan struct{})
	set := newTool(t, tool.Typed[text, tool.Output]{Declaration: writer("set"), Run: func(_ context.Context,
		_ tool.Env, in text) (tool.Output, error) {
		key, value, _ := strings.Cut(in.Text, "=")
		if value == "huge" {
			value = strings.Repeat("x", 70_000)
		}
		return tool.Output{Text: "set", Session: &tool.SessionChange{Loads: []string{"later"},
			Context: map[string]string{key: value}}}, nil
	}})
	later := reader("later")
	later.ShouldDefer = true
	tools := []tool.Tool{set, make1(t, later, says("loaded")),
		make1(t, writer("hold"), func(context.Context, tool.Env) (string, error) {
			close(holding)
			<-free
			return "",
				nil
		})}
	startDispatcher(t, s, dispatcher.Config{})
	startWorker(t, s, worker.Config{Tools: tools})
	c := startClient(t, s)
	submit := func(workspace toolyard.Workspace, calls ...toolyard.Call) *client.Batch {
		return submit(t, c, toolyard.Batch{Agent: "a", Session: "s", Workspace: workspace, Calls: calls})
	}
	collect(t, t.Context(), submit("one", call("set", `{"text":"shared=old"}`)))
	first := submit("one", call("set", `{"text":"a=1"}`), call("hold", `{}`), call("set", `{"text":"b=huge"}`),
		call("set", `{"text":"c=3"}`))
	testenv.Within(t, "the first batch holds", holding)
	collect(t, t.Context(), submit("two", call("set", `{"text":"shared=new"}`)))
	close(free)
	res := collect(t, t.Context(), first)
	if codes(res) != "ok ok ok ok" || !strings.Contains(res[2].Output, "not kept") || res[3].Output != "set" {
		t.Errorf("the results are %s, the refused one %q, the one behind it %q", codes(res), res[2].Output,
			res[3].Output)
	}
	v, err := c.Session(t.Context(), "a", "s")
	if want := map[string]string{"shared": "new", "a": "1", "c": "3"}; err != nil || !maps.Equal(v.Context, want) ||
		!slices.Equal(v.Loaded, []string{"later"}) {
		t.Errorf("the session has loaded %q and has %d settings (shared=%q), want %d (%v)", v.Loaded, len(v.Context),
			v.Context["shared"], len(want), err)
	}
}
