package natsbroker

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/ticket"
)

// ChangeTickets applies a change to a workspace's queue: read, change, compare and set, until it holds. known is the
// queue as it was last seen: with its revision, when there is one, the first attempt needs no read. change may be
// called several times; when it returns an error nothing is stored. It returns the queue as it stands after. Also a
// change of nothing is stored: who leaves must be out of the queue, and who joins in it, whatever a read that is behind
// says.
func (b *Broker) ChangeTickets(ctx context.Context, known broker.TicketQueue,
	change func(ticket.Queue) (ticket.Queue, error)) (broker.TicketQueue, error) {
	w := known.Workspace
	q, revision, err := swap(ctx, b.tickets, broker.Escape(string(w)), seen[ticket.Queue]{known.Queue, known.Revision},
		true, change)
	if err != nil {
		err = fmt.Errorf("change the queue of workspace %q: %w", w, err)
	}
	return broker.TicketQueue{Workspace: w, Queue: q, Revision: revision}, err
}

// Tickets reads a workspace's queue. The answer may be behind; a change made on it then fails and is repeated.
func (b *Broker) Tickets(ctx context.Context, w toolyard.Workspace) (broker.TicketQueue, error) {
	q, _, revision, err := load[ticket.Queue](ctx, b.tickets, broker.Escape(string(w)))
	if err != nil {
		err = fmt.Errorf("read the queue of workspace %q: %w", w, err)
	}
	return broker.TicketQueue{Workspace: w, Queue: q, Revision: revision}, err
}

// DeleteTickets deletes the key of a workspace's queue as it was seen: empty, under a revision. What was stored since
// stays, however late the server gets the request or how often; so nobody needs to know whether it was the one that
// deleted the key. The workspace's next queue begins above the numbers of this one: see [ticket.Queue.MayGo]. It asks
// once.
//
// It takes messages out of the stream and leaves no marker: a marker would be longer than the queue that it stands
// for, and a bucket that is full would refuse it. So nobody who watches is told.
func (b *Broker) DeleteTickets(ctx context.Context, seen broker.TicketQueue) error {
	if !seen.MayGo(seen.Revision) {
		return fmt.Errorf("delete the queue of workspace %q: it has %d tickets, and the last number %d under "+
			"revision %d",
			seen.Workspace, len(seen.Tickets), seen.Last, seen.Revision)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	key := "$KV." + bucketLock + "." + broker.Escape(string(seen.Workspace))
	upTo := jetstream.WithPurgeSequence(seen.Revision + 1) // which stays itself
	err := b.streams[streamTickets].Purge(ctx, jetstream.WithPurgeSubject(key), upTo)
	if err != nil {
		return fmt.Errorf("delete the queue of workspace %q: %w", seen.Workspace, err)
	}
	return nil
}

// WatchTickets calls see with every workspace's queue as it is and with each change from then on, until ctx ends. A
// key that [Broker.DeleteTickets] has deleted is no change.
func (b *Broker) WatchTickets(ctx context.Context, see func(broker.TicketQueue, error)) error {
	return b.watchKeys(ctx, b.tickets, nil, keyWatch{
		see: func(e jetstream.KeyValueEntry) {
			name, err := broker.Unescape(e.Key())
			if err != nil {
				see(broker.TicketQueue{}, err)
				return
			}
			q, err := decoded[ticket.Queue](e)
			see(broker.TicketQueue{Workspace: toolyard.Workspace(name), Queue: q, Revision: e.Revision()}, err)
		},
		state: func(broker.WatchState) {}, // who waits for a ticket reads the queue now and then
	})
}
