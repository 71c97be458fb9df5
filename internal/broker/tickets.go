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

func decodeTickets(w toolyard.Workspace, e jetstream.KeyValueEntry) (TicketQueue, error) {
	q := TicketQueue{Workspace: w, Revision: e.Revision()}
	if len(e.Value()) == 0 { // deleted by an operator
		return q, nil
	}
	if err := json.Unmarshal(e.Value(), &q.Queue); err != nil {
		return q, fmt.Errorf("the queue of workspace %q is not readable: %w", w, err)
	}
	return q, nil
}

// WatchTickets calls see with every workspace's queue as it is and with each change from then on, until ctx ends.
func (b *Broker) WatchTickets(ctx context.Context, see func(TicketQueue, error)) error {
	return b.watchKeys(ctx, b.tickets, nil, keyWatch{
		see: func(e jetstream.KeyValueEntry) {
			name, err := Unescape(e.Key())
			if err != nil {
				see(TicketQueue{}, err)
				return
			}
			see(decodeTickets(toolyard.Workspace(name), e))
		},
		state: func(WatchState) {}, // who waits for a ticket reads the queue now and then
	})
}
