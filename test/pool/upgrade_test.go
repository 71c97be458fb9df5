package pool

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/internal/version"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// laterVersion is a wire version that no build of today has.
const laterVersion = "1000000"

// later is a system on which a later version writes too.
type later struct {
	t  *testing.T
	s  *natsd.Server
	js jetstream.JetStream
	b  *natsbroker.Broker
}

func withLater(t *testing.T) *later {
	t.Helper()
	s := testenv.Server(t)
	return &later{t, s, testenv.JetStream(t, testenv.Conn(t, s)), testenv.Broker(t, s, "/test")}
}

// write stores an event as a later version would: of a type that this one does not know, behind expected if that is not
// negative.
func (l *later) write(subject, about, eventType string, expected int64) {
	l.t.Helper()
	m := nats.NewMsg(subject)
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": broker.NewID(), "ce-source": "/later", "ce-type": eventType,
		"ce-subject": about,
		"ce-time":    time.Now().UTC().Format(time.RFC3339Nano), "ce-datacontenttype": "application/json",
		"ce-tyversion": laterVersion,
	} {
		m.Header.Set(name, value)
	}
	if expected >= 0 {
		m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatInt(expected, 10))
	}
	m.Data = []byte(`{}`)
	if _, err := l.js.PublishMsg(l.t.Context(), m); err != nil {
		l.t.Fatal(err)
	}
}

func (l *later) stream(name string) jetstream.Stream {
	l.t.Helper()
	return testenv.Stream(l.t, l.js, name)
}

// left waits until the messages of a consumer were handed out so often, and checks that nobody has said anything about
// a batch: that it has no reply but these, no result and no dead letter.
func (l *later) left(k toolyard.BatchKey, stream, consumer string, times uint64) {
	l.t.Helper()
	said := func() (said []string) {
		for _, subject := range []string{"ty.reply." + string(k.Agent) + "." + string(k.ID), "ty.event." +
			string(k.Agent) + "." + string(k.ID) + ".default.0"} {
			m, err := l.stream(strings.ToUpper("ty_"+strings.Split(subject,
				".")[1])).GetLastMsgForSubject(l.t.Context(), subject)
			if err == nil && m.Header.Get("ce-tyversion") != laterVersion {
				said = append(said, m.Header.Get("ce-type")+" "+string(m.Data))
			}
		}
		letters, err := l.b.DeadLetters(l.t.Context(), 100)
		must.OK(l.t, err)
		for _, letter := range letters {
			said = append(said, "a dead letter: "+letter.Cause)
		}
		return said
	}
	testenv.Until(l.t, fmt.Sprintf("the messages of %s were handed out %d times", consumer, times), func() bool {
		c, err := l.js.Consumer(l.t.Context(), stream, consumer)
		return err == nil && c.CachedInfo().Delivered.Consumer >= times || len(said()) > 0
	})
	for _, s := range said() {
		l.t.Errorf("batch %s was answered: %s", k, s)
	}
}

var theLater = toolyard.BatchKey{Agent: "a", ID: "later"}

// TestWorkOfALaterVersion is left in the queue for a worker that knows it, also under a subject of a later grammar.
func TestWorkOfALaterVersion(t *testing.T) {
	testenv.OneShard(t)
	for name, rest := range map[string]string{"another type": ".a.later.0.1", "another subject": ".a.later.0.1.x.y"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := withLater(t)
			startWorker(t, l.s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
			lane := broker.LaneOf("a")
			subject := fmt.Sprintf("ty.call.READ_ONLY.default.%d", lane) + rest
			l.write(subject, "a/later/0", "dev.toolyard.calls.requested.v2", -1)
			l.left(theLater, "TY_CALL", fmt.Sprintf("call_READ_ONLY_default_%d", lane), 3)
			if n := l.stream("TY_CALL").CachedInfo().State.Msgs; n != 1 {
				t.Errorf("the work queue has %d messages", n)
			}
		})
	}
}

// TestASubmissionOfALaterVersion is left for a dispatcher that knows it; others go on beside it.
func TestASubmissionOfALaterVersion(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	l := withLater(t)
	l.write("ty.batch.a.later", "a/later", "dev.toolyard.batch.submitted.v2", 0)
	startWorker(t, l.s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), says("x"))}})
	startDispatcher(t, l.s, dispatcher.Config{MaxDeliveries: 2})
	l.left(theLater, "TY_BATCH", "dispatchers", 3)
	if got := codes(results(t, startClient(t, l.s), toolyard.Batch{Agent: "a", Calls: calls("read")})); got != "ok" {
		t.Errorf("the next batch: %s", got)
	}
}

// TestTooManyOfALaterVersion: what only a newer version can read waits for one, but not so much of it that nobody else
// has room.
func TestTooManyOfALaterVersion(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	l := withLater(t)
	for i := range 5 {
		l.write(fmt.Sprintf("ty.batch.a.later-%d", i), fmt.Sprintf("a/later-%d", i), "dev.toolyard.batch.submitted.v2",
			0)
	}
	l.write("ty.batch.b.later", "b/later", "dev.toolyard.batch.submitted.v2", 0)
	startDispatcher(t, l.s, dispatcher.Config{MaxAgentWaiting: 2})
	testenv.Until(t, "three are refused", func() bool { return l.stream("TY_REPLY").CachedInfo().State.Msgs >= 3 })
	l.left(toolyard.BatchKey{Agent: "b", ID: "later"}, "TY_BATCH", "dispatchers", 12)
	refused := 0
	for i := range 5 {
		replies, err := l.b.Replies(t.Context(), toolyard.BatchKey{Agent: "a",
			ID: toolyard.BatchID(fmt.Sprintf("later-%d", i))}, 0)
		must.OK(t, err)
		if len(replies) > 0 && replies[0].Body.(events.Refused).Status == 503 {
			refused++
		}
	}
	if refused != 3 {
		t.Errorf("%d batches were refused, want 3", refused)
	}
}

// TestALogOfALaterVersion: a dispatcher that finds an event in a batch's log which it does not know leaves the batch to
// one that does, whichever chain the event is in.
func TestALogOfALaterVersion(t *testing.T) {
	testenv.OneShard(t)
	for name, at := range map[string]struct{ subject, about, eventType string }{
		"batch":   {"ty.event.a.later._.batch", "a/later", "dev.toolyard.batch.noted.v1"},
		"control": {"ty.event.a.later._.control", "a/later", "dev.toolyard.batch.slowed.v1"},
		"input":   {"ty.event.a.later._.input", "a/later", "dev.toolyard.calls.appended.v2"},
		"call":    {"ty.event.a.later.default.0", "a/later/0", "dev.toolyard.call.checked.v1"},
		"reply":   {"ty.reply.a.later", "a/later", "dev.toolyard.results.v2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := withLater(t)
			sub := toolyard.Batch{Agent: "a", ID: "later", Calls: calls("read"), Open: true}
			sub.Normalize("later")
			must.OK(t, l.b.Submit(t.Context(), sub))
			rec, err := l.b.Append(t.Context(), theLater, batch.ChainBatch, "", 0, 0, events.Planned{
				SubmissionSeq: 1, Owner: "before", Deadline: time.Now().Add(time.Hour), MaxConcurrency: 1, Open: true,
				Workspace: "default",
				Calls:     []events.PlannedCall{{ID: "call_1", Tool: "read", Pool: "default"}},
				Groups:    []events.Group{{Safe: true, Calls: []int{0}}},
			})
			if err == nil {
				rec, err = l.b.Append(t.Context(), theLater, batch.ChainBatch, "", 0, rec.Seq, events.Started{Group: 0})
			}
			must.OK(t, err)
			behind := int64(0)
			if name == "batch" {
				behind = int64(rec.Seq)
			}
			l.write(at.subject, at.about, at.eventType, behind)
			// The first delivery was the former owner's.
			former, err := l.js.Consumer(t.Context(), "TY_BATCH", "dispatchers")
			must.OK(t, err)
			m, err := former.Next()
			if err == nil {
				err = m.Nak()
			}
			must.OK(t, err)
			startDispatcher(t, l.s, dispatcher.Config{MaxDeliveries: 2})
			l.left(theLater, "TY_BATCH", "dispatchers", 3)
			last, err := l.stream("TY_EVENT").GetLastMsgForSubject(t.Context(), "ty.event.a.later._.batch")
			must.OK(t, err)
			if got := last.Header.Get("ce-type"); got != at.eventType && got != string(events.GroupStarted) {
				t.Errorf("the dispatcher has appended %s", got)
			}
		})
	}
}

// TestABatchOfALaterVersionThatIsOver is acknowledged by any dispatcher, and leaves its workspace.
func TestABatchOfALaterVersionThatIsOver(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	l := withLater(t)
	sub := toolyard.Batch{Agent: "a", ID: "later", Calls: calls("write")}
	sub.Normalize("later")
	must.OK(t, l.b.Submit(t.Context(), sub))
	l.write("ty.event.a.later._.batch", "a/later", "dev.toolyard.batch.planned.v2", 0)
	if _, err := l.b.ChangeTickets(t.Context(), broker.TicketQueue{Workspace: "default"},
		func(q ticket.Queue) (ticket.Queue, error) {
			q, _, err := q.Join(ticket.Holder{Agent: "a", Batch: "later", Group: 3, Term: 2}, ticket.Exclusive)
			return q, err
		}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.b.Append(t.Context(), theLater, batch.ChainReply, "", 0, 0,
		events.Reply{Results: []toolyard.Result{{CallID: "call_1"}}, Completed: true}); err != nil {
		t.Fatal(err)
	}
	c, err := l.js.Consumer(t.Context(), "TY_BATCH", "dispatchers")
	must.OK(t, err)
	m, err := c.Next() // its owner died
	if err == nil {
		err = m.Nak()
	}
	must.OK(t, err)
	startDispatcher(t, l.s, dispatcher.Config{})
	testenv.Until(t, "the batch is acknowledged", func() bool {
		info, err := c.Info(t.Context())
		return err == nil && info.NumAckPending == 0 && info.NumPending == 0
	})
	if q, err := l.b.Tickets(t.Context(), "default"); err != nil || len(q.Tickets) != 0 {
		t.Errorf("the workspace's queue is %+v, %v", q, err)
	}
}

// TestAWorkerOfALaterVersion writes about a call what the batch's owner does not know, while the owner has the batch:
// it lets go of it.
func TestAWorkerOfALaterVersion(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	l := withLater(t)
	began, ended := make(chan struct{}, 9), make(chan error, 9)
	startWorker(t, l.s, worker.Config{Tools: []tool.Tool{make1(t, reader("read"), stuck(began, ended))}})
	startDispatcher(t, l.s, dispatcher.Config{MaxDeliveries: 2})
	if _, err := startClient(t, l.s).Submit(t.Context(),
		toolyard.Batch{Agent: "a", ID: "later", Calls: calls("read")}); err != nil {
		t.Fatal(err)
	}
	testenv.Within(t, "the call runs", began)
	l.write("ty.event.a.later.default.0", "a/later/0", "dev.toolyard.call.checked.v1", 0)
	l.left(theLater, "TY_BATCH", "dispatchers", 3)
}

// TestTicketsOfALaterVersion: a dispatcher neither changes a workspace's queue in which something stands that it does
// not know, nor is anybody granted a place by it.
func TestTicketsOfALaterVersion(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	l := withLater(t)
	startWorker(t, l.s, worker.Config{Tools: []tool.Tool{make1(t, writer("write"), says("x"))}})
	startDispatcher(t, l.s, dispatcher.Config{MaxDeliveries: 2})
	kv, err := l.js.KeyValue(t.Context(), "ty_ticket")
	must.OK(t, err)
	at, err := kv.PutString(t.Context(), "default",
		`{"last":7,"queue":[{"n":7,"agent":"z","batch":"z","group":0,"mode":"shared","until":"tomorrow"}]}`)
	must.OK(t, err)
	sub, err := startClient(t, l.s).Submit(t.Context(), toolyard.Batch{Agent: "a", ID: "later", Calls: calls("write")})
	must.OK(t, err)
	l.left(theLater, "TY_BATCH", "dispatchers", 3)
	if e, err := kv.Get(t.Context(), "default"); err != nil || e.Revision() != at {
		t.Errorf("the queue was changed to %s, %v", e.Value(), err)
	}
	// the later version has left
	if _, err := kv.PutString(t.Context(), "default", `{"last":7,"queue":[]}`); err != nil {
		t.Fatal(err)
	}
	if got := codes(collect(t, t.Context(), sub)); got != "ok" {
		t.Errorf("the results are %s", got)
	}
}

// TestASessionOfALaterVersion keeps what this version does not know when this version changes it.
func TestASessionOfALaterVersion(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	l := withLater(t)
	kv, err := l.js.KeyValue(t.Context(), "ty_session")
	must.OK(t, err)
	if _, err := kv.PutString(t.Context(), "a.s",
		`{"loaded":["x"],"changed":"2026-11-22T00:00:00Z","title":{"text":"Mending"}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := l.b.ChangeSession(t.Context(), "a", "s", func(s *broker.Session) { s.Load("y") }); err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), "a.s")
	must.OK(t, err)
	var got struct {
		Loaded []string
		Title  struct{ Text string }
	}
	if err := json.Unmarshal(e.Value(), &got); err != nil || len(got.Loaded) != 2 || got.Title.Text != "Mending" {
		t.Errorf("the session is %s, %v", e.Value(), err)
	}
}

// TestEverythingNamesItsVersion: each event, each stream and each worker says which version wrote it.
func TestEverythingNamesItsVersion(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	l := withLater(t)
	startWorker(t, l.s, worker.Config{Tools: []tool.Tool{make1(t, writer("write"), says("x"))}})
	startDispatcher(t, l.s, dispatcher.Config{})
	c := startClient(t, l.s)
	want := strconv.Itoa(version.Wire)
	queued := make(chan string, 10)
	sub, err := testenv.Conn(t, l.s).Subscribe("ty.call.>",
		func(m *nats.Msg) { queued <- m.Header.Get("ce-tyversion") })
	must.OK(t, err)
	must.OK(t, sub.SetPendingLimits(-1, -1))
	if got := codes(results(t, c, toolyard.Batch{Agent: "a", ID: "b", Calls: calls("write")})); got != "ok" {
		t.Fatal(got)
	}
	must.OK(t, l.b.Wake(t.Context(), toolyard.BatchKey{Agent: "a", ID: "b"}, 1))
	select {
	case got := <-queued:
		if got != want {
			t.Errorf("work names the version %q", got)
		}
	case <-time.After(30 * time.Second):
		t.Error("no work was seen")
	}
	names := l.js.StreamNames(t.Context())
	streams := 0
	for name := range names.Name() {
		streams++
		s := l.stream(name)
		if md := s.CachedInfo().Config.Metadata; md["toolyard.wire_version"] != want || md["toolyard.version"] == "" {
			t.Errorf("stream %s has the metadata %v", name, md)
		}
		if !strings.HasPrefix(name, "TY_") || name == "TY_DEAD" {
			continue
		}
		for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
			m, err := s.GetMsg(t.Context(), seq)
			if err == nil && m.Header.Get("ce-tyversion") != want {
				t.Errorf("%s on %s names the version %q", m.Header.Get("ce-type"), m.Subject,
					m.Header.Get("ce-tyversion"))
			}
		}
	}
	if err := names.Err(); err != nil || streams < 10 {
		t.Errorf("%d streams, %v", streams, err)
	}
	md := l.stream("TY_BATCH").CachedInfo().Config.Metadata
	if md["toolyard.layout"] == "" || md["toolyard.min_reader"] == "" {
		t.Errorf("the system's metadata are %v", md)
	}
	workers, err := c.Workers(t.Context())
	if err != nil || len(workers) != 1 || workers[0].WireVersion != version.Wire || workers[0].Version == "" {
		t.Errorf("the workers are %+v, %v", workers, err)
	}
}
