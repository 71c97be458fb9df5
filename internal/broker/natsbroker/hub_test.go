package natsbroker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// said appends n calls to a batch's input, each as an event of its own.
func said(t *testing.T, b *natsbroker.Broker, k toolyard.BatchKey, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		if _, err := b.Input(t.Context(), k, 0, events.Appended{Calls: []toolyard.Call{{ID: fmt.Sprint("c", i),
			Tool: "t", Input: []byte(`{}`)}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// attached is a program that reads, and its connection.
func attached(t *testing.T, s *natsd.Server) (*natsbroker.Broker, *nats.Conn) {
	t.Helper()
	nc := testenv.Conn(t, s)
	b, err := natsbroker.Attach(t.Context(), nc, "/reader")
	must.OK(t, err)
	return b, nc
}

// read takes events from a follower until it has so many.
func read(t *testing.T, f broker.Follower, n int) (out []broker.Logged) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		l, ok, err := f.Next(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case ok:
			if out = append(out, l); len(out) == n {
				return out
			}
			continue
		}
		select {
		case <-f.News():
		case <-late:
			t.Fatalf("%d events came of %d", len(out), n)
		}
	}
}

// TestAHubHasOneSubscription: many followers of many batches share one subscription of each kind, and each sees its own
// batch completely, also from its middle.
func TestAHubHasOneSubscription(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	reader, nc := attached(t, s)
	hub := natsbroker.NewHub(reader, true)
	before := nc.NumSubscriptions()
	const followers = 40
	var all []broker.Follower
	key := func(i int) toolyard.BatchKey {
		return toolyard.BatchKey{Agent: "a.b *", ID: toolyard.BatchID(fmt.Sprint("b>", i%4))}
	}
	for i := range 4 {
		said(t, b, key(i), 0, 3)
	}
	for i := range followers {
		f, err := hub.Follower(t.Context(), key(i), 0, 0)
		must.OK(t, err)
		all = append(all, f)
	}
	if n := nc.NumSubscriptions() - before; n > 3 { // events, replies, and where requests are answered
		t.Errorf("%d followers have %d subscriptions", followers, n)
	}
	middle := read(t, all[0], 2)[1].Seq
	late, err := hub.Follower(t.Context(), key(0), middle, 0)
	must.OK(t, err)
	for i := range 4 {
		said(t, b, key(i), 3, 5)
	}
	for i, f := range all {
		n := 8
		if i == 0 {
			n = 6
		}
		last := uint64(0)
		for j, l := range read(t, f, n) {
			body, ok := l.Body.(events.Appended)
			if want := fmt.Sprint("c", 8-n+j); !ok || l.Chain != batch.ChainInput || l.Seq <= last ||
				body.Calls[0].ID != want {
				t.Errorf("follower %d: event %d is %+v, not %s", i, j, l, want)
			}
			last = l.Seq
		}
		f.Stop()
	}
	if got := read(t, late, 6); got[0].Body.(events.Appended).Calls[0].ID != "c2" {
		t.Errorf("behind the second comes %+v", got[0])
	}
	late.Stop()
	late.Stop()
}

// TestAHubKnowsWhatItMissed: live copies that never come, including the last one, are read from the stream.
func TestAHubKnowsWhatItMissed(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	hub := natsbroker.NewHub(testenv.Broker(t, s, "/reader"), true)
	k := toolyard.BatchKey{Agent: "a", ID: "b"}
	f, err := hub.Follower(t.Context(), k, 0, 0)
	must.OK(t, err)
	said(t, b, k, 0, 1)
	read(t, f, 1)
	js, err := testenv.Conn(t, s).JetStream()
	must.OK(t, err)
	info, err := js.StreamInfo("TY_EVENT")
	must.OK(t, err)
	deaf := info.Config
	deaf.RePublish = nil
	republish := func(cfg nats.StreamConfig) {
		t.Helper()
		if _, err := js.UpdateStream(&cfg); err != nil {
			t.Fatal(err)
		}
	}
	republish(deaf)
	said(t, b, k, 1, 2) // nobody is told
	if got := read(t, f, 2); got[1].Body.(events.Appended).Calls[0].ID != "c2" {
		t.Errorf("what was lost at the end is read as %+v", got)
	}
	said(t, b, k, 3, 1)
	republish(info.Config)
	said(t, b, k, 4, 1) // the number of this one says that one is missing
	if got := read(t, f, 2); got[0].Body.(events.Appended).Calls[0].ID != "c3" ||
		got[1].Body.(events.Appended).Calls[0].ID != "c4" {
		t.Errorf("what was lost in the middle is read as %+v", got)
	}
}

// TestASlowEarLosesItsOwn: a follower that takes nothing is told so, holds a bounded number of messages, and does not
// affect others.
func TestASlowEarLosesItsOwn(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	hub := natsbroker.NewHub(b, true)
	k := toolyard.BatchKey{Agent: "a", ID: "b"}
	slow, err := hub.Progress(t.Context(), k)
	must.OK(t, err)
	fast, err := hub.Progress(t.Context(), k)
	must.OK(t, err)
	seen := 0
	for i := range 2 * natsbroker.MaxHubMessages {
		must.OK(t, b.Report(k, broker.Progress{Index: i}))
		for seen <= i {
			testenv.Within(t, fmt.Sprintf("report %d comes", i), fast.News())
			msgs, lost := fast.Take()
			if seen += len(msgs); lost {
				t.Fatal("who takes everything lost something")
			}
		}
	}
	if msgs, lost := slow.Take(); !lost || len(msgs) != 0 {
		t.Errorf("who takes nothing has %d messages, lost %t", len(msgs), lost)
	}
	must.OK(t, b.Report(k, broker.Progress{}))
	testenv.Within(t, "something comes", slow.News())
}

// TestAHubOfOneProgram: it has a subscription for each batch that is followed, and none when that is over. What it is
// not told it reads within a second.
func TestAHubOfOneProgram(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	reader, nc := attached(t, s)
	hub := natsbroker.NewHub(reader, false)
	k, other := toolyard.BatchKey{Agent: "a.b *", ID: "c>d"}, toolyard.BatchKey{Agent: "a.b *", ID: "other"}
	f, err := hub.Follower(t.Context(), k, 0, 0)
	must.OK(t, err)
	if n := hub.Subscriptions(); n != 2 { // events and replies
		t.Errorf("one follower has %d subscriptions", n)
	}
	before := nc.Stats().InMsgs
	said(t, b, other, 0, 5)
	must.OK(t, nc.Flush())
	if n := nc.Stats().InMsgs - before; n != 0 {
		t.Errorf("%d messages of another batch came", n)
	}
	said(t, b, k, 0, 3)
	for i, l := range read(t, f, 3) {
		if id := l.Body.(events.Appended).Calls[0].ID; id != fmt.Sprint("c", i) {
			t.Errorf("event %d is of %s", i, id)
		}
	}
	js, err := testenv.Conn(t, s).JetStream()
	must.OK(t, err)
	info, err := js.StreamInfo("TY_EVENT")
	must.OK(t, err)
	info.Config.RePublish = nil
	if _, err := js.UpdateStream(&info.Config); err != nil {
		t.Fatal(err)
	}
	said(t, b, k, 3, 1) // nobody is told
	read(t, f, 1)
	f.Stop()
	if n := hub.Subscriptions(); n != 0 {
		t.Errorf("nobody follows, and there are %d subscriptions", n)
	}
}

// TestANewBatchIsHeard: who follows a batch that was stored a moment ago gets its reply from the live copy, without a
// request. A copy that did not come costs a read, soon.
func TestANewBatchIsHeard(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	reader, nc := attached(t, s)
	end := func(sub toolyard.Batch) {
		t.Helper()
		must.OK(t, b.EndReplies(t.Context(), sub.Key(), &sub, "a test"))
	}
	follow := func(sub toolyard.Batch) broker.ReplyFollower {
		t.Helper()
		must.OK(t, b.Submit(t.Context(), sub))
		f, err := reader.Hub(false).ReplyFollower(t.Context(), sub.Key(), 0, true)
		must.OK(t, err)
		t.Cleanup(f.Stop)
		return f
	}
	next := func(f broker.ReplyFollower) {
		t.Helper()
		late := time.After(30 * time.Second)
		for {
			r, ok, err := f.Next(t.Context())
			must.OK(t, err)
			if ok {
				if !r.Body.(events.Reply).Completed {
					t.Errorf("the first reply is %+v", r.Body)
				}
				return
			}
			select {
			case <-f.News():
			case <-late:
				t.Fatal("the reply does not come")
			}
		}
	}
	// A busy machine may be late with the copy. Then the follower reads, and that is another request.
	heard := false
	for n := 0; n < 50 && !heard; n++ {
		sub := submission(fmt.Sprint("heard", n))
		f := follow(sub)
		must.OK(t, nc.Flush())
		before := nc.Stats().OutMsgs
		end(sub)
		next(f)
		heard = nc.Stats().OutMsgs == before
	}
	if !heard {
		t.Error("every reply cost a request")
	}
	missed := submission("missed")
	must.OK(t, b.Submit(t.Context(), missed))
	end(missed)
	next(follow(missed))
}
