package natsbroker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	cejs "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/tool"
)

func submission(id string) toolyard.Batch {
	b := toolyard.Batch{Calls: []toolyard.Call{{Tool: "read_file",
		Input: json.RawMessage(`{"file_path": "README.md"}`)}}}
	b.Normalize(toolyard.BatchID(id))
	return b
}

func planned(n int) events.Planned {
	p := events.Planned{Owner: "d", Deadline: time.Now().Add(time.Hour), MaxConcurrency: 10}
	for i := range n {
		p.Calls = append(p.Calls, events.PlannedCall{ID: fmt.Sprint(i), Tool: "t", Pool: "default"})
		p.Groups = append(p.Groups, events.Group{Calls: []int{i}})
	}
	return p
}

func TestSubmittingAgain(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	ctx := t.Context()
	must.OK(t, b.Submit(ctx, submission("b1")))
	same := submission("b1")
	same.Calls[0].Input = json.RawMessage("{\n \"file_path\":\"README.md\" }")
	if err := b.Submit(ctx, same); err != nil {
		t.Errorf("the same batch again: %v", err)
	}
	other := submission("b1")
	other.Calls[0].Input = json.RawMessage(`{"file_path": "other"}`)
	if err := b.Submit(ctx, other); !errors.Is(err, broker.ErrOtherContent) {
		t.Errorf("other content under the same id: %v, want ErrOtherContent", err)
	}
	if err := b.Submit(ctx, submission("b2")); err != nil {
		t.Errorf("another id: %v", err)
	}
}

// TestOneOfManyAppends lets many writers append after the same event, many times: each time exactly one succeeds, and
// its event is the stored one.
func TestOneOfManyAppends(t *testing.T) {
	s := testenv.Server(t)
	const writers, rounds = 6, 40
	var brokers []*natsbroker.Broker
	for w := range writers {
		brokers = append(brokers, testenv.Broker(t, s, fmt.Sprintf("/writer/%d", w)))
	}
	k := toolyard.BatchKey{Agent: "a.b > *", ID: "x y"}
	last := uint64(0)
	for round := range rounds {
		var mu sync.Mutex
		var wg sync.WaitGroup
		var won []batch.Record
		for w, b := range brokers {
			wg.Go(func() {
				r, err := b.Append(t.Context(), k, batch.ChainItem, "default", 3, last,
					events.Claimed{Worker: fmt.Sprint(w), Attempt: round})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, r)
				} else if !errors.Is(err, broker.ErrConflict) {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d writers were told that they won", round, len(won))
		}
		last = won[0].Seq
	}
}

// TestAnAppendWhoseAnswerIsLost sends the append a second time with the same event, as after a lost answer, also when
// others have appended after it.
func TestAnAppendWhoseAnswerIsLost(t *testing.T) {
	s := testenv.Server(t)
	nc := testenv.Conn(t, s)
	b := testenv.Broker(t, s, "/test")
	js := testenv.JetStream(t, nc)
	k := toolyard.BatchKey{Agent: "a", ID: "b"}
	first, err := b.Append(t.Context(), k, batch.ChainBatch, "", 0, 0, planned(1))
	must.OK(t, err)
	second, err := b.Append(t.Context(), k, batch.ChainBatch, "", 0, first.Seq, events.Started{Group: 0})
	must.OK(t, err)
	if _, err := b.Append(t.Context(), k, batch.ChainBatch, "", 0, second.Seq, events.Adopted{Owner: "e"}); err != nil {
		t.Fatal(err)
	}
	stream := testenv.Stream(t, js, "TY_EVENT")
	m, err := stream.GetMsg(t.Context(), second.Seq)
	must.OK(t, err)
	again := nats.NewMsg(m.Subject)
	again.Header, again.Data = m.Header, m.Data
	seq, err := b.AppendMessage(t.Context(), "TY_EVENT", first.Seq, again)
	if err != nil || seq != second.Seq {
		t.Errorf("the same event again: sequence %d, %v; want %d", seq, err, second.Seq)
	}
	again.Header.Set("ce-id", "somebody-else")
	if _, err := b.AppendMessage(t.Context(), "TY_EVENT", first.Seq, again); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("another event in the same place: %v, want ErrConflict", err)
	}
}

func TestFoldReadsABatchFromTheLog(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	ctx := t.Context()
	sub := submission("b")
	sub.Calls = append(sub.Calls, toolyard.Call{ID: "2", Tool: "t", Input: json.RawMessage(`{}`)})
	must.OK(t, b.Submit(ctx, sub))
	k := sub.Key()
	put := func(c batch.Chain, index int, expected uint64, body events.Body) uint64 {
		t.Helper()
		r, err := b.Append(ctx, k, c, "default", index, expected, body)
		must.OK(t, err)
		return r.Seq
	}
	seq := put(batch.ChainBatch, 0, 0, planned(2))
	seq = put(batch.ChainBatch, 0, seq, events.Started{Group: 0, Ticket: 7})
	claim := put(batch.ChainItem, 0, 0, events.Claimed{Worker: "w", Attempt: 1})
	put(batch.ChainItem, 0, claim, events.Finish(events.End{Result: toolyard.Result{Index: 0, Output: "zero"}}))
	put(batch.ChainReply, 0, 0, events.Reply{Results: []toolyard.Result{{Index: 0, Output: "zero"}}})
	seq = put(batch.ChainBatch, 0, seq, events.Adopted{Owner: "e", Takeover: 1})
	put(batch.ChainBatch, 0, seq, events.Started{Group: 1, Ticket: 8})
	put(batch.ChainItem, 1, 0, events.Claimed{Worker: "w2", Attempt: 1})
	put(batch.ChainControl, 0, 0, events.Canceled{By: "me"})

	s, err := b.Fold(ctx, k)
	must.OK(t, err)
	if s.Owner != "e" || s.Takeovers != 1 || s.Replied != 1 || s.Completed || len(s.Cancels) != 1 ||
		s.Started[1] != 8 ||
		s.Calls[0].Result == nil || s.Calls[0].Result.Output != "zero" || s.Calls[1].Status != batch.Claimed ||
		s.Calls[1].Worker != "w2" {
		t.Errorf("the fold is %+v", s)
	}
	log, err := b.Log(ctx, k)
	must.OK(t, err)
	var types []string
	for _, l := range log {
		types = append(types, strings.TrimPrefix(string(l.Body.EventType()), "dev.toolyard."))
	}
	want := "batch.submitted.v1 batch.planned.v1 group.started.v1 call.claimed.v1 call.finished.v1 results.v1 " +
		"batch.adopted.v1 group.started.v1 call.claimed.v1 batch.canceled.v1"
	if got := strings.Join(types, " "); got != want {
		t.Errorf("the log is\n%s\nwant\n%s", got, want)
	}
	if _, err := b.Fold(ctx, toolyard.BatchKey{Agent: "a", ID: "none"}); !errors.Is(err, broker.ErrNoBatch) {
		t.Errorf("a batch that is not there: %v", err)
	}
}

// TestStoredEventsAreCloudEvents reads what we store with the CloudEvents SDK alone.
func TestStoredEventsAreCloudEvents(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test/1")
	k := toolyard.BatchKey{Agent: "agent.1", ID: "b 1"}
	r, err := b.Append(t.Context(), k, batch.ChainReply, "", 4, 0,
		events.Reply{Results: []toolyard.Result{{Index: 4, Output: "ü"}}})
	must.OK(t, err)
	js := testenv.JetStream(t, testenv.Conn(t, s))
	stream := testenv.Stream(t, js, "TY_REPLY")
	m, err := stream.GetMsg(t.Context(), r.Seq)
	must.OK(t, err)
	if m.Subject != "ty.reply.agent=2e1.b=201" {
		t.Errorf("subject %q", m.Subject)
	}
	e, err := binding.ToEvent(t.Context(), cejs.NewMessage(&nats.Msg{Header: m.Header, Data: m.Data}))
	must.OK(t, err)
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
	ext := e.Extensions()
	if e.Type() != "dev.toolyard.results.v1" || e.Source() != "/test/1" || e.Subject() != "agent=2e1/b=201" ||
		ext["sequence"] != "00000004" || ext["partitionkey"] != "agent=2e1/b=201" {
		t.Errorf("the event is %v", e)
	}
}

func TestDataThatIsTooLongForAMessage(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	sub := submission("big")
	big := must.JSON(t, map[string]string{"file_path": strings.Repeat("x", 3<<20)})
	sub.Calls[0].Input = big
	must.OK(t, b.Submit(t.Context(), sub))
	s, err := b.Fold(t.Context(), sub.Key())
	must.OK(t, err)
	if !bytes.Equal(s.Submission.Calls[0].Input, big) {
		t.Errorf("an input of %d bytes came back with %d", len(big), len(s.Submission.Calls[0].Input))
	}
}

func TestOffloadedResultsAreTheAgentsOwn(t *testing.T) {
	b := testenv.Broker(t, testenv.Server(t), "/test")
	content := bytes.Repeat([]byte("result "), 100_000)
	ref, err := b.PutResult(t.Context(), "a", content)
	must.OK(t, err)
	if again, err := b.PutResult(t.Context(), "a", content); err != nil || again != ref {
		t.Errorf("the same content again: %q, %v", again, err)
	}
	if got, err := b.Result(t.Context(), "a", ref); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	for agent, ref := range map[toolyard.Agent]string{"other": ref,
		"a": strings.Replace(ref, ref[len(ref)-4:], "0000", 1), "a ": "result-../x"} {
		if _, err := b.Result(t.Context(), agent, ref); !errors.Is(err, tool.ErrNoBlob) {
			t.Errorf("agent %q and reference %q: %v, want ErrNoBlob", agent, ref, err)
		}
	}
}

// TestTicketsUnderContention lets many brokers take turns with one workspace: never two exclusive holders, and no lost
// ticket.
func TestTicketsUnderContention(t *testing.T) {
	s := testenv.Server(t)
	const holders, rounds = 5, 12
	var inside sync.Mutex // TryLock tells of two holders
	var wg sync.WaitGroup
	for n := range holders {
		b := testenv.Broker(t, s, fmt.Sprintf("/holder/%d", n))
		wg.Go(func() {
			// this holder's last view, which others have changed since
			known := broker.TicketQueue{Workspace: "w.s > *"}
			for g := range rounds {
				h := ticket.Holder{Agent: "a", Batch: toolyard.BatchID(fmt.Sprint(n)), Group: g}
				change := func(f func(ticket.Queue) (ticket.Queue, error)) broker.TicketQueue {
					q, err := b.ChangeTickets(t.Context(), known, f)
					if err != nil {
						t.Error(err)
					}
					known = q
					return q
				}
				q := change(func(q ticket.Queue) (ticket.Queue, error) {
					next, _, err := q.Join(h, ticket.Exclusive)
					return next, err
				})
				for {
					if _, ok := q.Granted(h, ticket.Exclusive); ok {
						break
					}
					if t.Context().Err() != nil {
						return
					}
					q = change(func(q ticket.Queue) (ticket.Queue, error) { return q, nil })
				}
				if !inside.TryLock() {
					t.Error("two exclusive tickets are granted together")
					return
				}
				inside.Unlock()
				change(func(q ticket.Queue) (ticket.Queue, error) { return q.Leave(h), nil })
			}
		})
	}
	wg.Wait()
}

func TestWorkIsTakenOnceAndComesBack(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	r := batch.Route{Pool: "default", Class: toolyard.ReadOnly}
	var queue []batch.Queue
	for i := range 2 {
		queue = append(queue, batch.Queue{Route: r, Request: events.Requested{Agent: "a", Batch: "b",
			Calls: []events.RequestedCall{{Index: i, Input: json.RawMessage(`{}`)}}}})
	}
	for i, q := range b.QueueAll(t.Context(), broker.LaneOf("a"), queue) {
		if q.Err != nil || q.Seq == 0 {
			t.Fatalf("call %d: %+v", i, q)
		}
	}
	l := lane(t, b)
	take := func() *broker.Delivery { return testenv.Take(t, l) }
	first := take()
	if err := first.Alive(t.Context()); err != nil {
		t.Errorf("keeping a delivery: %v", err)
	}
	must.OK(t, first.Return(0))
	got := map[int]int{}
	for range 2 {
		d := take()
		got[d.Calls[0].Index]++
		must.OK(t, d.Done())
	}
	if got[0] != 1 || got[1] != 1 {
		t.Errorf("calls taken: %v", got)
	}
	l.Stop()
	for d, err := range l.Take(t.Context(), 1) {
		if !errors.Is(err, broker.ErrStopped) {
			t.Errorf("after Stop: %+v, %v, want ErrStopped", d, err)
		}
	}
}

func TestWorkersComeAndGo(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan broker.WorkerChange, 16)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := b.WatchWorkers(ctx, nil, func(c broker.WorkerChange, err error) {
			if err != nil {
				t.Error(err)
			}
			changes <- c
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	defer wg.Wait()
	defer cancel()
	want := func(id string, alive bool) {
		t.Helper()
		select {
		case c := <-changes:
			if c.ID != id || (c.Worker != nil) != alive {
				t.Fatalf("saw %+v, want %q alive %v", c, id, alive)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("saw nothing of %q", id)
		}
	}
	want("", false)
	must.OK(t, b.Beat(ctx, broker.Worker{ID: "w.1", Pool: "default"}))
	want("w.1", true)
	must.OK(t, b.Gone(ctx, "w.1"))
	want("w.1", false)
	must.OK(t, b.Beat(ctx, broker.Worker{ID: "w.2", Pool: "default"}))
	want("w.2", true)
	want("w.2", false) // its heartbeats stop
}

func TestSettingsThatDoNotFit(t *testing.T) {
	for name, s := range map[string]broker.Settings{
		"replicas":         {Replicas: 2},
		"shorter than":     {Lifetime: time.Minute, CallAckWait: 2 * time.Minute},
		"elections":        {Replicas: 3, CallAckWait: 5 * time.Second},
		"whole seconds":    {WorkerTTL: 1500 * time.Millisecond},
		"at least 64 MiB":  {MaxStoreBytes: 1},
		"batch lifetime i": {Lifetime: time.Second},
	} {
		if err := s.WithDefaults().Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want an error about %q", s, err, name)
		}
	}
	for _, s := range []broker.Settings{{}, {Replicas: 3}, {Replicas: 5}} {
		if err := s.WithDefaults().Check(); err != nil {
			t.Errorf("the defaults with %d replicas: %v", s.Replicas, err)
		}
	}
}
