package natsbroker_test

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/shard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

// TestListsWhileShardsAreAdded: a process that only reads one kind of list finds what is in shards that were added.
func TestListsWhileShardsAreAdded(t *testing.T) {
	g := growing(t, 1)
	const n = 3 // batches
	length := func(name string, got int, err error) {
		t.Helper()
		if err != nil || got != n {
			t.Errorf("%s: %d of %d, %v", name, got, n, err)
		}
	}
	lists := map[*natsbroker.Broker]func(b *natsbroker.Broker){}
	list := func(do func(b *natsbroker.Broker)) { lists[g.attach()] = do }
	list(func(b *natsbroker.Broker) {
		got, err := b.Approvals(t.Context(), "")
		length("approvals", len(got), err)
	})
	list(func(b *natsbroker.Broker) {
		got, err := b.CountApprovals(t.Context(), "")
		length("number of approvals", got, err)
	})
	list(func(b *natsbroker.Broker) {
		page, _, err := b.Index().Page(t.Context(), broker.Filter{})
		length("index", len(page), err)
	})
	held := g.attach()
	index := held.Index()
	lists[held] = func(*natsbroker.Broker) {
		page, _, err := index.Page(t.Context(), broker.Filter{})
		length("an index that was opened before", len(page), err)
	}
	list(func(b *natsbroker.Broker) {
		got := 0
		for _, err := range b.Kept(t.Context(), "", time.Time{}, time.Time{}) {
			must.OK(t, err)
			got++
		}
		length("kept", got, nil)
	})
	list(func(b *natsbroker.Broker) {
		got, _, err := b.Newest(t.Context(), "", time.Time{}, time.Time{}, 10)
		length("newest", len(got), err)
	})
	list(func(b *natsbroker.Broker) {
		s, err := b.Stock(t.Context())
		if _, ok := s.Streams["TY2_BATCH"]; !ok || err != nil {
			t.Errorf("the stock has %v, %v", s.Streams, err)
		}
	})
	list(func(b *natsbroker.Broker) {
		if _, err := b.Interrupt(t.Context(), "a", "s", "stop"); err != nil {
			t.Fatal(err)
		}
		s, err := b.Session(t.Context(), "a", "s")
		if err != nil || s.Interrupted == nil || len(s.Interrupted.Others) != 2 {
			t.Errorf("interrupted: %+v, %v", s.Interrupted, err)
		}
	})
	list(func(b *natsbroker.Broker) {
		got, err := b.AllTickets(t.Context(), 10)
		length("tickets", len(got), err)
	})
	g.raised(3)
	for i := range n {
		sub := submission(string(moves(1, 3, i)))
		k := sub.Key()
		must.OK(t, g.b.Submit(t.Context(), sub))
		asked := broker.Approval{Agent: k.Agent, Batch: k.ID, AskedAt: time.Now()}
		must.OK(t, g.b.PutApproval(t.Context(), asked))
		o, err := g.b.Origin(t.Context(), k)
		must.OK(t, err)
		must.OK(t, g.b.Index().Add(t.Context(), broker.Entry{ID: k.ID, Agent: k.Agent, Session: "s",
			Workspace: "default", Calls: 1, Status: toolyard.StatusRunning, Place: o.Seq, Revision: 1}))
		w := broker.TicketQueue{Workspace: toolyard.Workspace(k.ID)}
		if _, err := g.b.ChangeTickets(t.Context(), w, func(q ticket.Queue) (next ticket.Queue, err error) {
			next, _, err = q.Join(ticket.Holder{Agent: k.Agent, Batch: k.ID}, ticket.Exclusive)
			return next, err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for b, do := range lists {
		b.Age(shard.Grace)
		do(b)
	}
}

// TestEventsWhileShardsAreAdded: a process that only follows hears what is stored in shards that were added.
func TestEventsWhileShardsAreAdded(t *testing.T) {
	g := growing(t, 1)
	reader := g.attach()
	f, err := natsbroker.NewHub(reader, true).Everything(t.Context(), "")
	must.OK(t, err)
	defer f.Stop()
	g.raised(2)
	reader.Age(shard.Grace)
	k := keyed(moves(1, 2, 0))
	late := time.After(30 * time.Second)
	for n := 0; ; n++ {
		said(t, g.b, k, n, 1)
		select {
		case <-f.News():
		case <-late:
			t.Fatal("all that comes is that events are missing")
		}
		// the first one of the new shard has the number 1, and nobody can tell that it has missed any
		if msgs, lost := f.Take(); n > 0 && !lost && len(msgs) > 0 {
			return
		}
	}
}
