package membroker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/ticket"
)

// open opens a broker for a party, as a dispatcher does.
func open(t *testing.T, s *membroker.Server, party string) *natsbroker.Broker {
	t.Helper()
	opts := append(natsbroker.ConnectOptions(party, slog.New(slog.DiscardHandler)), nats.InProcessServer(s.Dial(party)))
	nc, err := nats.Connect("", opts...)
	must.OK(t, err)
	t.Cleanup(nc.Close)
	b, err := natsbroker.Open(t.Context(), nc, broker.Settings{}, "/"+party)
	must.OK(t, err)
	return b
}

// TestOurBrokerRunsOnIt has the code that runs over nats-server run over this one.
func TestOurBrokerRunsOnIt(t *testing.T) {
	membroker.Bubble(t, func(t *testing.T) {
		s := membroker.New(membroker.Options{Settle: synctest.Wait, Seed: 3})
		t.Cleanup(s.Close)
		owner, worker := open(t, s, "owner"), open(t, s, "worker")
		ctx := t.Context()
		k := toolyard.BatchKey{Agent: "a", ID: "b"}

		live, err := worker.FollowEvents(k, 8)
		must.OK(t, err)
		if err := worker.CheckRoundTrip(); err != nil { // the server has heard of the subscription then
			t.Fatal(err)
		}
		first, err := owner.Append(ctx, k, batch.ChainBatch, "", 0, 0, events.Adopted{Owner: "one"})
		must.OK(t, err)
		_, err = worker.Append(ctx, k, batch.ChainBatch, "", 0, 0, events.Adopted{Owner: "two"})
		if !errors.Is(err, broker.ErrConflict) {
			t.Errorf("a second one in the first place: %v", err)
		}
		if _, err := worker.Append(ctx, k, batch.ChainBatch, "", 0, first.Seq,
			events.Adopted{Owner: "two"}); err != nil {
			t.Error(err)
		}
		for range 2 {
			if m := <-live.Copies(); m.Header.Get("Nats-Stream") != "TY_EVENT" {
				t.Errorf("a live copy has the headers %v", m.Header)
			}
		}

		lane, err := worker.Lane(ctx, batch.Route{Class: toolyard.ReadOnly, Pool: "p"}, 0, nil)
		must.OK(t, err)
		req := events.Requested{Agent: k.Agent, Batch: k.ID, Calls: []events.RequestedCall{{Index: 0}}}
		q := owner.QueueAll(ctx, 0, []batch.Queue{{Route: batch.Route{Class: toolyard.ReadOnly, Pool: "p"},
			Request: req}})
		if q[0].Err != nil {
			t.Fatal(q[0].Err)
		}
		d := take(t, lane)
		time.Sleep(2 * owner.Settings().CallAckWait) // nobody hears of it, so it comes again
		if again := take(t, lane); again.Deliveries != 2 {
			t.Errorf("delivered %d times", again.Deliveries)
		} else if err := again.Done(); err != nil {
			t.Error(err)
		}
		if err := d.Done(); err != nil {
			t.Errorf("an ack of what is gone: %v", err)
		}
		lane.Stop()

		watched := make(chan broker.TicketQueue, 10)
		watching, stop := context.WithCancel(ctx)
		over := make(chan error)
		go func() {
			over <- worker.WatchTickets(watching, func(q broker.TicketQueue, err error) {
				if err == nil {
					watched <- q
				}
			})
		}()
		for i := range 3 {
			_, err := owner.ChangeTickets(ctx, broker.TicketQueue{Workspace: "w"},
				func(q ticket.Queue) (ticket.Queue, error) {
					q.Tickets = append(q.Tickets, ticket.Ticket{N: uint64(i + 1), Mode: ticket.Shared})
					return q, nil
				})
			must.OK(t, err)
		}
		for n := 0; n < 3; {
			n = len((<-watched).Tickets)
		}
		stop()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}

		ref, err := worker.PutResult(ctx, "a", fmt.Appendf(nil, "%300000d", 7))
		must.OK(t, err)
		if content, err := owner.Result(ctx, "a", ref); err != nil || len(content) != 300000 {
			t.Errorf("read %d bytes of an object: %v", len(content), err)
		}

		must.OK(t, worker.Beat(ctx, broker.Worker{ID: "p.one", Pool: "p"}))
		if ws, err := owner.Workers(ctx); err != nil || len(ws) != 1 {
			t.Errorf("workers: %v, %v", ws, err)
		}
		time.Sleep(owner.Settings().WorkerTTL + time.Second)
		if ws, err := owner.Workers(ctx); err != nil || len(ws) != 0 {
			t.Errorf("workers after the TTL: %v, %v", ws, err)
		}
		time.Sleep(time.Minute) // until what is left of the watches has ended
	})
}

func take(t *testing.T, l broker.Lane) *broker.Delivery {
	t.Helper()
	for {
		for d, err := range l.Take(t.Context(), 1) {
			must.OK(t, err)
			return d
		}
	}
}
