package pool

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
)

// TestAnAppendToARefusedBatchWithoutAReply: a batch is refused for want of room, and its input is closed. The disk has
// no room for the reply yet. Who appends hears of the refusal, and not that the batch was closed.
func TestAnAppendToARefusedBatchWithoutAReply(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/dispatcher/a")
	c, err := client.Connect(t.Context(), testenv.Conn(t, s), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	open, err := c.Open(t.Context(), toolyard.Batch{ID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	k := open.Key()
	full := events.Refused{Type: "about:blank", Title: "Service Unavailable", Status: 503, Detail: "the disk is full"}
	if _, err := b.Append(t.Context(), k, batch.ChainBatch, "", 0, 0, full); err != nil {
		t.Fatal(err)
	}
	closed := events.Closed{By: "dispatcher", Reason: "the batch was refused"}
	if _, err := b.Input(t.Context(), k, 0, closed); err != nil {
		t.Fatal(err)
	}
	err = open.Append(t.Context(), toolyard.Call{Tool: "read"})
	r, ok := errors.AsType[*client.RefusedError](err)
	if !ok || r.Detail != full.Detail || !errors.Is(err, client.ErrFull) {
		t.Errorf("the append says %v", err)
	}
}

// TestAnAppendBetweenARefusalAndItsReply: a dispatcher refuses open batches as wrong, and cannot store the replies yet.
// Who appends then is told why, and so is everybody when the replies are there.
func TestAnAppendBetweenARefusalAndItsReply(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/dispatcher/a")
	nc := testenv.Conn(t, s)
	c, err := client.Connect(t.Context(), nc, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	right, err := c.Open(t.Context(), toolyard.Batch{ID: "right"})
	if err != nil {
		t.Fatal(err)
	}
	unread := c.Reopen(toolyard.BatchKey{ID: "unread"})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "ty.batch.default.unread",
		Data: []byte(`{"open": true, "calls": [], "options": {"partition": "no strategy"}}`),
		Header: nats.Header{"Content-Type": {"application/json"}, "ce-specversion": {"1.0"}, "ce-id": {"x"},
			"ce-source": {"/test"}, "ce-type": {string(events.BatchSubmitted)}}}); err != nil {
		t.Fatal(err)
	}
	room := func(bytes int64) (before int64) {
		t.Helper()
		stream, err := js.Stream(t.Context(), "TY_REPLY")
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		before, cfg.MaxBytes = cfg.MaxBytes, bytes
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		return before
	}
	before := room(1)
	subs, err := b.Submissions()
	if err != nil {
		t.Fatal(err)
	}
	defer subs.Stop()
	for _, st := range []*client.Stream{right, unread} {
		sub, err := subs.Next(t.Context())
		if err != nil || sub.Key.ID != st.Key().ID {
			t.Fatalf("%v, %v", sub, err)
		}
		why := events.Refused{Type: "about:blank", Title: "Bad Request", Status: 400, Detail: "it is wrong"}
		told := func(when string) {
			t.Helper()
			err := st.Append(t.Context(), toolyard.Call{Tool: "read"})
			if r, ok := errors.AsType[*client.RefusedError](err); !ok || r.Detail != why.Detail {
				t.Errorf("%s: the append %s says %v", st.Key().ID, when, err)
			}
		}
		if err := sub.Refuse(t.Context(), why); !errors.Is(err, broker.ErrFull) {
			t.Fatalf("%s: a reply without room: %v", st.Key().ID, err)
		}
		told("before the reply")
		room(before)
		again := why
		again.Detail = "it is wrong, as another version says it"
		if err := sub.Refuse(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		told("behind the reply")
		before = room(1)
		s := batch.State{Key: st.Key()}
		if err := b.CatchUp(t.Context(), &s, batch.ChainReply, 0); err != nil || s.Refused == nil ||
			s.Refused.Detail != why.Detail {
			t.Errorf("%s: the reply is %+v, %v", st.Key().ID, s.Refused, err)
		}
	}
}
