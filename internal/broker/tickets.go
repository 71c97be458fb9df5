package broker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/ticket"
)

// TicketQueue is the tickets of one workspace, as stored.
type TicketQueue struct {
	Workspace toolyard.Workspace
	ticket.Queue
	// Revision grows with every change.
	Revision uint64
}

// ChangeTickets applies a change to a workspace's queue: read, change, compare and set, until it holds. known is the queue as
// it was last seen: with its revision, when there is one, the first attempt needs no read. change may be called several
// times; when it returns an error nothing is stored. It returns the queue as it stands after. Also a change of nothing is stored:
// who leaves must be out of the queue, and who joins in it, whatever a read that is behind says.
func (b *Broker) ChangeTickets(ctx context.Context, known TicketQueue, change func(ticket.Queue) (ticket.Queue, error)) (TicketQueue, error) {
	w := known.Workspace
	q, revision, err := swap(ctx, b.tickets, Escape(string(w)), seen[ticket.Queue]{known.Queue, known.Revision}, true, change)
	if err != nil {
		err = fmt.Errorf("change the queue of workspace %q: %w", w, err)
	}
	return TicketQueue{Workspace: w, Queue: q, Revision: revision}, err
}

// FitsTickets reports [ticket.ErrFull] when a queue has grown too long to be stored in one message.
func FitsTickets(q ticket.Queue) error {
	if len(q.Tickets) < certainlyFits {
		return nil
	}
	value, err := json.Marshal(q)
	if err == nil && len(value) > MaxInlineBytes {
		err = fmt.Errorf("%w: it has %d bytes; at most %d are stored", ticket.ErrFull, len(value), MaxInlineBytes)
	}
	return err
}

// certainlyFits is how many tickets with the longest names fit into one message.
const certainlyFits = 256

// Tickets reads a workspace's queue. The answer may be behind; a change made on it then fails and is repeated.
func (b *Broker) Tickets(ctx context.Context, w toolyard.Workspace) (TicketQueue, error) {
	q, _, revision, err := load[ticket.Queue](ctx, b.tickets, Escape(string(w)))
	if err != nil {
		err = fmt.Errorf("read the queue of workspace %q: %w", w, err)
	}
	return TicketQueue{Workspace: w, Queue: q, Revision: revision}, err
}

// DeleteTickets deletes the key of a workspace's queue as it was seen: empty, under a revision. What was stored since
// stays, however late the server gets the request or how often; so nobody needs to know whether it was the one that
// deleted the key. The workspace's next queue begins above the numbers of this one: see [ticket.Queue.MayGo]. It asks
// once.
//
// It takes messages out of the stream and leaves no marker: a marker would be longer than the queue that it stands
// for, and a bucket that is full would refuse it. So nobody who watches is told.
func (b *Broker) DeleteTickets(ctx context.Context, seen TicketQueue) error {
	if !seen.MayGo(seen.Revision) {
		return fmt.Errorf("delete the queue of workspace %q: it has %d tickets, and the last number %d under revision %d",
			seen.Workspace, len(seen.Tickets), seen.Last, seen.Revision)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	key := "$KV." + bucketLock + "." + Escape(string(seen.Workspace))
	upTo := jetstream.WithPurgeSequence(seen.Revision + 1) // which stays itself
	err := b.streams[streamTickets].Purge(ctx, jetstream.WithPurgeSubject(key), upTo)
	if err != nil {
		return fmt.Errorf("delete the queue of workspace %q: %w", seen.Workspace, err)
	}
	return nil
}

// WatchTickets calls see with every workspace's queue as it is and with each change from then on, until ctx ends. A
// key that [Broker.DeleteTickets] has deleted is no change.
func (b *Broker) WatchTickets(ctx context.Context, see func(TicketQueue, error)) error {
	return b.watchKeys(ctx, b.tickets, nil, keyWatch{
		see: func(e jetstream.KeyValueEntry) {
			name, err := Unescape(e.Key())
			if err != nil {
				see(TicketQueue{}, err)
				return
			}
			q, err := decoded[ticket.Queue](e)
			see(TicketQueue{Workspace: toolyard.Workspace(name), Queue: q, Revision: e.Revision()}, err)
		},
		state: func(WatchState) {}, // who waits for a ticket reads the queue now and then
	})
}
