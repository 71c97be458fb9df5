package natsbroker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

// TestADamagedRecordOfAccountsProvesNothing: where the record is damaged which says that decisions need proofs, one
// without a proof does not count.
func TestADamagedRecordOfAccountsProvesNothing(t *testing.T) {
	testenv.OneShard(t)
	s := testenv.Restartable(t)
	b := testenv.Broker(t, s.Server, "/test")
	must.OK(t, b.Guard(t.Context(), time.Now().Add(-time.Hour)))
	data := must.JSON(t, events.Decided{Decision: events.Approve, By: "a worker"})
	m := nats.NewMsg("ty.event.a.b.p.0")
	m.Data = data
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": "forged", "ce-source": "/w", "ce-type": string(events.CallDecided),
		"ce-time": time.Now().UTC().Format(time.RFC3339Nano), "content-type": "application/json", "ce-subject": "a/b/0",
		"ce-partitionkey": "a/b", "ce-tyversion": "1",
	} {
		m.Header.Set(name, value)
	}
	js, err := jetstream.New(testenv.Conn(t, s.Server))
	if err == nil {
		_, err = js.PublishMsg(t.Context(), m, jetstream.WithExpectLastSequencePerSubject(0))
	}
	must.OK(t, err)
	k := toolyard.BatchKey{Agent: "a", ID: "b"}
	if _, err := b.Item(t.Context(), k, "p", 0, 0); err == nil {
		t.Fatal("a decision without a proof counts")
	}
	s.Shutdown()
	testenv.Damage(t, s.Options.StoreDir, "KV_ty_session", func(string, []byte) bool { return true })
	s.Start()
	records, err := testenv.Broker(t, s.Server, "/test").Item(t.Context(), k, "p", 0, 0)
	if !errors.Is(err, broker.ErrDamaged) {
		t.Errorf("the decision is read as %+v, %v", records, err)
	}
}

// TestWhatIsStoredMeanwhileMakesUpForNothing: a takeover counts the events of a batch and reads them then. An event
// that is stored in between does not stand for one that is lost: its agent knows where the chain ended. Who does not
// know it cannot append, and learns why.
func TestWhatIsStoredMeanwhileMakesUpForNothing(t *testing.T) {
	testenv.OneShard(t)
	s := testenv.Restartable(t)
	sub := toolyard.Batch{Agent: "a", Open: true, Calls: []toolyard.Call{{ID: "0", Tool: "x"}}}
	sub.Normalize("b")
	k := sub.Key()
	more := func(b *natsbroker.Broker, end uint64, id string) (uint64, error) {
		return b.Input(t.Context(), k, end, events.Appended{Calls: []toolyard.Call{{ID: id, Tool: "x"}}})
	}
	b := testenv.Broker(t, s.Server, "/test")
	must.OK(t, b.Submit(t.Context(), sub))
	end, err := more(b, 0, "lost")
	must.OK(t, err)
	s.Shutdown()
	testenv.Damage(t, s.Options.StoreDir, "TY_EVENT", func(string, []byte) bool { return true })
	s.Start()
	agent := testenv.Broker(t, s.Server, "/agent")
	b = testenv.Broker(t, s.Server, "/test")
	if _, err := more(agent, 0, "more"); !errors.Is(err, broker.ErrDamaged) {
		t.Errorf("an append behind an event that is lost: %v", err)
	}
	var once sync.Once
	b.BeforeLast(func(subject string) {
		if strings.HasSuffix(subject, ".input") {
			once.Do(func() {
				if _, err := more(agent, end, "more"); err != nil {
					t.Error(err)
				}
			})
		}
	})
	if st, err := b.Resume(t.Context(), k); !errors.Is(err, broker.ErrDamaged) {
		t.Errorf("of two calls that were appended, one of which is lost, it finds %+v, %v", st.Input, err)
	}
}

// TestASessionThatWasDeleted is a new one: the marker of the deletion is no damage.
func TestASessionThatWasDeleted(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	if _, err := b.ChangeSession(t.Context(), "a", "s", func(v *broker.Session) { v.Unattended = true }); err != nil {
		t.Fatal(err)
	}
	js := testenv.JetStream(t, testenv.Conn(t, s))
	sessions, err := js.KeyValue(t.Context(), "ty_session")
	if err == nil {
		err = sessions.Delete(t.Context(), "a.s")
	}
	must.OK(t, err)
	for range 2 {
		if v, err := b.Session(t.Context(), "a", "s"); err != nil || v.Unattended {
			t.Errorf("it is %+v, %v", v, err)
		}
	}
}

// TestAChangeOfADamagedKey: the server stores a value over a damaged one and never says so. Who changes the key gets an
// error, and who changes another key has none. When the bucket was emptied, the key can be changed again.
func TestAChangeOfADamagedKey(t *testing.T) {
	testenv.OneShard(t)
	s := testenv.Restartable(t)
	b := testenv.Broker(t, s.Server, "/test")
	listed := broker.Approval{Agent: "a", Batch: "b"}
	join := func(q ticket.Queue) (ticket.Queue, error) {
		q, _, err := q.Join(ticket.Holder{Agent: "a", Batch: "b"}, ticket.Exclusive)
		return q, err
	}
	leaveAlone := func(v *broker.Session) { v.Unattended = true }
	changes := func(w toolyard.Workspace) map[string]func(context.Context) error {
		return map[string]func(context.Context) error{
			"KV_ty_ticket": func(ctx context.Context) error {
				_, err := b.ChangeTickets(ctx, broker.TicketQueue{Workspace: w}, join)
				return err
			},
			"KV_ty_session": func(ctx context.Context) error {
				_, err := b.ChangeSession(ctx, "a", toolyard.Session(w), leaveAlone)
				return err
			},
			"KV_ty_approval": func(ctx context.Context) error {
				listed.Batch, listed.AskedAt = toolyard.BatchID(w), time.Now()
				return b.PutApproval(ctx, listed)
			},
		}
	}
	for bucket, change := range changes("w") {
		if err := change(t.Context()); err != nil {
			t.Fatalf("%s: %v", bucket, err)
		}
	}
	s.Shutdown()
	for bucket := range changes("w") {
		testenv.Damage(t, s.Options.StoreDir, bucket, func(string, []byte) bool { return true })
	}
	s.Start()
	b = testenv.Broker(t, s.Server, "/test")
	js := testenv.JetStream(t, testenv.Conn(t, s.Server))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for bucket, change := range changes("w") {
		if err := change(ctx); !errors.Is(err, broker.ErrDamaged) {
			t.Errorf("%s: a change of the damaged key: %v", bucket, err)
		}
		if err := changes("other")[bucket](ctx); err != nil {
			t.Errorf("%s: a change of another key: %v", bucket, err)
		}
		stream, err := js.Stream(ctx, bucket)
		if err == nil {
			err = stream.Purge(ctx) // of the one key it would change nothing
		}
		if err == nil {
			err = change(ctx)
		}
		if err != nil {
			t.Errorf("%s: a change when the bucket was emptied: %v", bucket, err)
		}
	}
}
