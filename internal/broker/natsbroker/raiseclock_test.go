package natsbroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestShardsAreAddedWhereClocksDiffer: epochs begin by the server's clock. A process whose clock is days ahead of that
// still looks for batches, and for the tickets of workspaces, where they were before; it takes a submission that came
// behind a raise which it has not heard of.
func TestShardsAreAddedWhereClocksDiffer(t *testing.T) {
	settings := broker.Settings{MaxStoreBytes: 256 << 20}.WithDefaults()
	bubble.Run(t, settings, func(e *bubble.Env) {
		e.Server.SetClock(-2 * settings.KeptFor())
		b := e.Broker("stays")
		in, err := b.Submissions()
		must.OK(e.T, err)
		e.Cleanup(in.Stop)
		before, after := moves(1, 2, 0), moves(1, 2, 1)
		must.OK(e.T, b.Submit(e.Context(), submission(string(before))))
		sub, err := in.Next(e.Context())
		must.OK(e.T, err)
		must.OK(e.T, sub.Done(e.Context()))
		w := moving(1, 2)
		_, err = b.ChangeTickets(e.Context(), broker.TicketQueue{Workspace: w}, join(standing("former")))
		must.OK(e.T, err)
		_, _, err = natsbroker.Raise(e.Context(), e.Conn("raises"), broker.Settings{Shards: 2}, 0,
			func(r natsbroker.Raising) {
				if r.Map.Next > 0 { // it serves the new shard, and hears of no more
					_, _, err := b.Renew(e.Context())
					must.OK(e.T, err)
				}
			})
		must.OK(e.T, err)
		later := e.Broker("later")
		other := submission(string(before))
		other.Calls = append(other.Calls, toolyard.Call{ID: "other", Tool: "read"})
		if err := later.Submit(e.Context(), other); !errors.Is(err, broker.ErrOtherContent) {
			e.Errorf("another batch under the id of one in a former shard: %v", err)
		}
		q, err := later.ChangeTickets(e.Context(), broker.TicketQueue{Workspace: w}, join(standing("later")))
		if err != nil || len(q.Tickets) != 2 {
			e.Errorf("behind a ticket in a former shard the queue is %+v, %v", q.Tickets, err)
		}
		must.OK(e.T, later.Submit(e.Context(), submission(string(after))))
		next, cancel := context.WithTimeout(e.Context(), time.Minute)
		defer cancel()
		if sub, err := in.Next(next); err != nil || sub.Key.ID != after || sub.Shard != 1 {
			e.Errorf("a submission behind the raise: %+v, %v", sub, err)
		}
	})
}
