package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/ticket"
)

// ChangeTickets applies a change to a workspace's queue: read, change, compare and set, until it succeeds. known is the
// queue as it was last seen: if it has a revision, the first attempt needs no read. change may be called several times;
// if it returns an error, nothing is stored. It returns the queue after the change. A change that leaves the queue
// equal is stored too: a batch that leaves must not be in the queue, and one that joins must be in it, although a read
// may be outdated.
func (b *Broker) ChangeTickets(ctx context.Context, known broker.TicketQueue,
	change func(ticket.Queue) (ticket.Queue, error)) (broker.TicketQueue, error) {
	w := known.Workspace
	b = b.ofWorkspace(w)
	q, revision, err := swap(ctx, b.tickets, broker.Escape(string(w)), seen[ticket.Queue]{known.Queue, known.Revision},
		true, change)
	if err != nil {
		err = fmt.Errorf("change the queue of workspace %q: %w", w, err)
	}
	return broker.TicketQueue{Workspace: w, Queue: q, Revision: revision}, err
}

// Tickets reads a workspace's queue. The answer may be outdated; a change based on it then fails and is repeated.
func (b *Broker) Tickets(ctx context.Context, w toolyard.Workspace) (broker.TicketQueue, error) {
	b = b.ofWorkspace(w)
	q, _, revision, err := load[ticket.Queue](ctx, b.tickets, broker.Escape(string(w)))
	if err != nil {
		err = fmt.Errorf("read the queue of workspace %q: %w", w, err)
	}
	return broker.TicketQueue{Workspace: w, Queue: q, Revision: revision}, err
}

// DeleteTickets deletes the key of a workspace's queue as it was seen: empty, under a revision. What was stored since
// stays, however late or often the server gets the request. So it does not matter which request deleted the key. The
// workspace's next queue begins above the numbers of this one: see [ticket.Queue.MayGo]. It sends one request.
//
// It removes messages from the stream without a marker: a marker would be longer than the queue that it replaces, and a
// full bucket would refuse it. So watchers are not told.
func (b *Broker) DeleteTickets(ctx context.Context, seen broker.TicketQueue) error {
	if !seen.MayGo(seen.Revision) {
		return fmt.Errorf("delete the queue of workspace %q: it has %d tickets, and the last number %d under "+
			"revision %d",
			seen.Workspace, len(seen.Tickets), seen.Last, seen.Revision)
	}
	b = b.ofWorkspace(seen.Workspace)
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	key := "$KV." + bucketLock + "." + broker.Escape(string(seen.Workspace))
	upTo := jetstream.WithPurgeSequence(seen.Revision + 1) // which itself stays
	err := b.streams[streamTickets].Purge(ctx, jetstream.WithPurgeSubject(b.out(key)), upTo)
	if err != nil {
		return fmt.Errorf("delete the queue of workspace %q: %w", seen.Workspace, err)
	}
	return nil
}

// WatchTickets calls see with every workspace's queue and with each later change, until ctx ends. The deletion of a key
// by [Broker.DeleteTickets] is not reported.
func (b *Broker) WatchTickets(ctx context.Context, see func(broker.TicketQueue, error)) error {
	if b.several() {
		return b.watchEach(ctx, func(ctx context.Context, one *Broker, seeing sync.Locker) error {
			return one.WatchTickets(ctx, func(q broker.TicketQueue, err error) {
				seeing.Lock()
				defer seeing.Unlock()
				see(q, err)
			})
		})
	}
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
		state: func(broker.WatchState) {}, // waiters for a ticket read the queue periodically
	})
}

// AllTickets reads the queues that have tickets, by the names of their workspaces: most at most.
func (b *Broker) AllTickets(ctx context.Context, most int) ([]broker.TicketQueue, error) {
	var out []broker.TicketQueue
	var failed error
	if b.several() {
		for _, one := range b.each() {
			some, err := one.AllTickets(ctx, most-len(out))
			if out = append(out, some...); err != nil || len(out) >= most {
				return out, err
			}
		}
		slices.SortFunc(out, func(a, b broker.TicketQueue) int { return cmp.Compare(a.Workspace, b.Workspace) })
		return out, nil
	}
	err := list(ctx, b.tickets, ">", func(key string, revision uint64, q ticket.Queue, err error) bool {
		name, bad := broker.Unescape(key)
		if err = errors.Join(err, bad); err != nil {
			failed = errors.Join(failed, err)
		} else if len(q.Tickets) > 0 {
			out = append(out, broker.TicketQueue{Workspace: toolyard.Workspace(name), Queue: q.At(revision),
				Revision: revision})
		}
		return len(out) < most
	})
	slices.SortFunc(out, func(a, b broker.TicketQueue) int { return cmp.Compare(a.Workspace, b.Workspace) })
	return out, errors.Join(err, failed)
}
