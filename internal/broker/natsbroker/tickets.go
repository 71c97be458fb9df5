package natsbroker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/shard"
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
	failed := func(err error) (broker.TicketQueue, error) {
		return broker.TicketQueue{Workspace: w}, fmt.Errorf("change the queue of workspace %q: %w", w, err)
	}
	v, err := b.current(ctx)
	if err != nil {
		return failed(err)
	}
	begun := time.Now()
	for pause := firstPause / 10; ; {
		path := b.path(v, shard.OfWorkspace(w))
		var q broker.TicketQueue
		if len(path) == 1 {
			q, err = b.inOf(v, path[0]).changeAlone(ctx, known, change)
		} else {
			q, err = b.changeTogether(ctx, v, path, w, change)
		}
		switch {
		case err == nil:
			return q, nil
		case errors.Is(err, errSealed):
			was := v
			if v, err = b.renewed(ctx); err != nil {
				return failed(err)
			}
			if len(v.Epochs) == len(was.Epochs) && was.read.After(begun) {
				return failed(errSealed) // the map is older than the seal: it was put back
			}
		case !errors.Is(err, broker.ErrConflict) && !errors.Is(err, jetstream.ErrKeyExists):
			return failed(err)
		}
		if err := wait(ctx, &pause); err != nil {
			return failed(err)
		}
	}
}

// errSealed says that the queue takes no more tickets: somebody has a newer map.
var errSealed = errors.New("the queue is sealed")

// changeAlone changes the queue of a workspace that has one.
func (b *Broker) changeAlone(ctx context.Context, known broker.TicketQueue,
	change func(ticket.Queue) (ticket.Queue, error)) (broker.TicketQueue, error) {
	w := known.Workspace
	var last seen[ticket.Queue]
	if known.Home == b.shard && known.Formers == 0 {
		last = seen[ticket.Queue]{known.Queue, known.Revision}
	}
	q, revision, err := swap(ctx, b, b.tickets, broker.Escape(string(w)), last, true,
		func(q ticket.Queue) (ticket.Queue, error) {
			if q.Sealed {
				return q, errSealed
			}
			return change(q)
		})
	return broker.TicketQueue{Workspace: w, Queue: q, Revision: revision, Home: b.shard}, err
}

// part is the queue of a workspace in one shard, as it was read.
type part struct {
	ticket.Queue
	revision uint64
}

func (b *Broker) part(ctx context.Context, w toolyard.Workspace) (p part, err error) {
	p.Queue, _, p.revision, err = load[ticket.Queue](ctx, b.tickets, broker.Escape(string(w)))
	return p, err
}

// setPart stores a queue in place of the one that was read, or returns a conflict.
func (b *Broker) setPart(ctx context.Context, w toolyard.Workspace, was part, q ticket.Queue) (part, error) {
	key, value, err := broker.Escape(string(w)), []byte(nil), error(nil)
	if value, err = encodeValue(nil, q); err != nil {
		return was, fmt.Errorf("encode key %s: %w", key, err)
	}
	asked := time.Now()
	revision, err := ask(ctx, func(ctx context.Context, _ int) (uint64, error) {
		return replace(ctx, b.tickets, key, value, was.revision)
	})
	if err == nil {
		return part{under(q, revision), revision}, nil
	}
	again, verdict := classify(err)
	if err := b.unchangeable(ctx, b.tickets, key, was.revision, asked, verdict); err != nil {
		return was, err
	}
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		return was, broker.ErrConflict
	case again: // it may be stored: what stands there is read again
		return was, fmt.Errorf("%w: %w", broker.ErrConflict, err)
	}
	return was, verdict
}

// together is the queues of a workspace as one.
func together(w toolyard.Workspace, path []int, parts map[int]part) (broker.TicketQueue, []ticket.Queue) {
	q := broker.TicketQueue{Workspace: w, Home: path[len(path)-1], Formers: len(path) - 1}
	queues, read := make([]ticket.Queue, len(path)), map[int]shard.Queue{}
	for i, at := range path {
		p := parts[at]
		queues[i], read[at] = p.Queue, shard.Queue{Read: true, Sealed: p.Sealed, Last: p.Last}
		if at == q.Home {
			q.Revision = p.revision
		} else {
			q.Former += p.revision
		}
	}
	q.Queue = ticket.One(queues, shard.Floor(path, read))
	return q, queues
}

// changeTogether changes the queues of a workspace as if they were one: it seals the former ones, and adds tickets to
// the home alone. Tickets leave each. A conflict changes nothing that the same change would not change again.
func (b *Broker) changeTogether(ctx context.Context, v *view, path []int, w toolyard.Workspace,
	change func(ticket.Queue) (ticket.Queue, error)) (broker.TicketQueue, error) {
	parts, read := map[int]part{}, map[int]shard.Queue{}
	note := func(at int, p part) {
		parts[at], read[at] = p, shard.Queue{Read: true, Sealed: p.Sealed, Last: p.Last}
	}
	step := shard.Enter(path, read)
	for ; step.Kind != shard.Change; step = shard.Enter(path, read) {
		p, err := parts[step.Shard], error(nil)
		switch step.Kind {
		case shard.Look:
			p, err = b.inOf(v, step.Shard).part(ctx, w)
		case shard.Seal:
			sealed := p.Queue
			sealed.Sealed = true
			p, err = b.inOf(v, step.Shard).setPart(ctx, w, p, sealed)
			failpoint.HitIf(err == nil, failpoint.QueueSealed)
		default:
			err = errSealed
		}
		if err != nil {
			return broker.TicketQueue{}, err
		}
		note(step.Shard, p)
	}
	home := step.Shard
	if parts[home].revision == 0 { // its numbers are known when it has a revision
		p, err := b.inOf(v, home).setPart(ctx, w, parts[home], parts[home].Queue)
		if err != nil {
			return broker.TicketQueue{}, err
		}
		note(home, p)
	}
	was, queues := together(w, path, parts)
	next, err := change(was.Queue)
	if err != nil {
		return was, err
	}
	for i, q := range next.Split(queues) {
		at := path[i]
		if at != home && len(queues[i].Tickets) == 0 { // it stays sealed and empty
			continue
		}
		p, err := b.inOf(v, at).setPart(ctx, w, parts[at], q)
		if err != nil {
			return was, err
		}
		parts[at] = p
	}
	now, _ := together(w, path, parts)
	return now, nil
}

// Tickets reads a workspace's queue. The answer may be outdated; a change based on it then fails and is repeated.
func (b *Broker) Tickets(ctx context.Context, w toolyard.Workspace) (broker.TicketQueue, error) {
	v, err := b.current(ctx)
	var q broker.TicketQueue
	if err == nil {
		q, err = b.ticketsOf(ctx, v, w)
	}
	if err != nil {
		return broker.TicketQueue{Workspace: w}, fmt.Errorf("read the queue of workspace %q: %w", w, err)
	}
	return q, nil
}

// ticketsOf reads the queues of a workspace, the home first: where it has tickets, the former ones were sealed before,
// and what is read of them then has all tickets that are before its own.
func (b *Broker) ticketsOf(ctx context.Context, v *view, w toolyard.Workspace) (broker.TicketQueue, error) {
	path, parts := b.path(v, shard.OfWorkspace(w)), map[int]part{}
	for _, at := range slices.Backward(path) {
		var err error
		if parts[at], err = b.inOf(v, at).part(ctx, w); err != nil {
			return broker.TicketQueue{}, err
		}
	}
	if home := path[len(path)-1]; len(path) == 1 {
		p := parts[home]
		return broker.TicketQueue{Workspace: w, Queue: p.Queue, Revision: p.revision, Home: home}, nil
	}
	q, _ := together(w, path, parts)
	return q, nil
}

// DeleteTickets deletes the key of a workspace's queue as it was seen: empty, under a revision, and what is left in its
// former shards. While it has former queues its key stays, and that is an error. What was stored since
// stays, however late or often the server gets the request. So it does not matter which request deleted the key. The
// workspace's next queue begins above the numbers of this one: see [ticket.Queue.MayGo]. It sends one request.
//
// It removes messages from the stream without a marker: a marker would be longer than the queue that it replaces, and a
// full bucket would refuse it. So watchers are not told.
func (b *Broker) DeleteTickets(ctx context.Context, seen broker.TicketQueue) error {
	if seen.Revision != 0 && !seen.MayGo(seen.Revision) {
		return fmt.Errorf("delete the queue of workspace %q: it has %d tickets, and the last number %d under "+
			"revision %d",
			seen.Workspace, len(seen.Tickets), seen.Last, seen.Revision)
	}
	v, err := b.current(ctx)
	if err != nil {
		return fmt.Errorf("delete the queue of workspace %q: %w", seen.Workspace, err)
	}
	path := b.path(v, shard.OfWorkspace(seen.Workspace))
	if len(path) > 1 || path[0] != seen.Home {
		return fmt.Errorf("delete the queue of workspace %q: it stays for as long as its former queues do", seen.Workspace)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if err := b.deleteLeft(ctx, v, seen.Workspace); err != nil || seen.Revision == 0 {
		return err
	}
	b = b.inOf(v, seen.Home)
	key := "$KV." + bucketLock + "." + broker.Escape(string(seen.Workspace))
	upTo := jetstream.WithPurgeSequence(seen.Revision + 1) // which itself stays
	err = b.streams[streamTickets].Purge(ctx, jetstream.WithPurgeSubject(b.out(key)), upTo)
	if err != nil {
		return fmt.Errorf("delete the queue of workspace %q: %w", seen.Workspace, err)
	}
	return nil
}

// deleteLeft deletes the keys of a workspace in the shards in which nothing of it counts any more.
func (b *Broker) deleteLeft(ctx context.Context, v *view, w toolyard.Workspace) error {
	for _, at := range v.Left(shard.OfWorkspace(w), v.time(), b.Settings().KeptFor()) {
		one := b.inOf(v, at)
		key := one.out("$KV." + bucketLock + "." + broker.Escape(string(w)))
		if err := one.streams[streamTickets].Purge(ctx, jetstream.WithPurgeSubject(key)); err != nil {
			return fmt.Errorf("delete what is left of workspace %q in shard %d: %w", w, at, err)
		}
	}
	return nil
}

// maxLeft bounds the keys of former shards that a watch has found and not deleted yet. What is beyond it is found by
// the next watch.
const maxLeft = 4_096

// WatchTickets calls see with every workspace's queue and with each later change, until ctx ends. The deletion of a key
// by [Broker.DeleteTickets] is not reported.
func (b *Broker) WatchTickets(ctx context.Context, see func(broker.TicketQueue, error)) error {
	left := make(chan toolyard.Workspace, maxLeft)
	ctx, cancel := context.WithCancel(ctx)
	var deleting sync.WaitGroup
	defer deleting.Wait()
	defer cancel()
	deleting.Go(func() { b.deleteAllLeft(ctx, left) })
	return b.watchEach(ctx, func(ctx context.Context, one *Broker, seeing sync.Locker) error {
		return one.watchKeys(ctx, one.tickets, nil, keyWatch{
			see: func(e jetstream.KeyValueEntry) {
				q, known, err := b.watched(ctx, one.shard, e)
				if !known {
					select {
					case left <- q.Workspace:
					default:
					}
					return
				}
				seeing.Lock()
				defer seeing.Unlock()
				see(q, err)
			},
			state: func(broker.WatchState) {}, // waiters for a ticket read the queue periodically
		})
	})
}

// deleteAllLeft deletes what is left of workspaces in former shards, until ctx ends. What cannot be deleted now is
// found by the next watch.
func (b *Broker) deleteAllLeft(ctx context.Context, left <-chan toolyard.Workspace) {
	for {
		select {
		case w := <-left:
			deleting, cancel := context.WithTimeout(ctx, attemptTimeout)
			_ = b.deleteLeft(deleting, b.view(), w)
			cancel()
		case <-ctx.Done():
			return
		}
	}
}

// watched is the queue of a workspace when one of its keys has changed; known is false if its shard is none of its
// path.
func (b *Broker) watched(ctx context.Context, at int, e jetstream.KeyValueEntry) (q broker.TicketQueue, known bool,
	err error) {
	name, err := broker.Unescape(e.Key())
	if err != nil {
		return q, true, err
	}
	w := toolyard.Workspace(name)
	q.Workspace = w
	v, err := b.current(ctx)
	if err != nil {
		return q, true, err
	}
	path := b.path(v, shard.OfWorkspace(w))
	if !slices.Contains(path, at) {
		return q, false, nil
	}
	if len(path) > 1 {
		read, err := b.Tickets(ctx, w)
		return read, true, err
	}
	q.Home, q.Revision = at, e.Revision()
	q.Queue, err = decoded[ticket.Queue](e)
	return q, true, err
}

// AllTickets reads the queues that have tickets, by the names of their workspaces: most at most.
func (b *Broker) AllTickets(ctx context.Context, most int) ([]broker.TicketQueue, error) {
	v, err := b.current(ctx)
	if err != nil {
		return nil, err
	}
	var out []broker.TicketQueue
	var failed error
	several := map[toolyard.Workspace]bool{}
	for _, one := range b.each() {
		err := list(ctx, one.tickets, ">", func(key string, revision uint64, q ticket.Queue, err error) bool {
			name, bad := broker.Unescape(key)
			w := toolyard.Workspace(name)
			if err = errors.Join(err, bad); err != nil {
				failed = errors.Join(failed, err)
			} else if path := b.path(v, shard.OfWorkspace(w)); len(q.Tickets) > 0 && slices.Contains(path, one.shard) {
				if len(path) > 1 {
					several[w] = true
				} else {
					out = append(out, broker.TicketQueue{Workspace: w, Queue: q.At(revision), Revision: revision,
						Home: one.shard})
				}
			}
			return len(out)+len(several) < most
		})
		if err != nil {
			return out, errors.Join(err, failed)
		}
	}
	for w := range several {
		q, err := b.Tickets(ctx, w)
		if err != nil {
			return out, errors.Join(err, failed)
		}
		if len(q.Tickets) > 0 {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b broker.TicketQueue) int { return cmp.Compare(a.Workspace, b.Workspace) })
	return out, failed
}
