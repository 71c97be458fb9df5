// Package lock gives batches the locks of workspaces: it keeps one dispatcher's places in their wait queues.
//
// Authority: none of its own. A workspace's queue is a [ticket.Queue] that NATS stores, and the first ticket of it
// holds the lock. What is known of it here may be old, and an older queue grants nothing.
//
// Ordering: changes to one workspace that come while another is being stored are stored together, in the order in
// which they came.
//
// Failure: the tickets of a dispatcher that died stand in the queue until the batch's next owner, or [Locks.Sweep] of
// any dispatcher, takes them out.
package lock

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/tool"
)

// Broker is what locks need of the store.
type Broker interface {
	broker.Log
	broker.Tickets
}

// Locks are the workspace locks that one dispatcher's batches hold and wait for. Make it with [New].
type Locks struct {
	// TellBehind has grants name the batches that were waited for. Set it before the first use.
	TellBehind bool

	b   Broker
	log *slog.Logger
	// ctx outlives every batch: a change serves all batches that wait for it, not only the one that began it.
	ctx   context.Context
	flows sync.WaitGroup // the goroutines that store changes
	// idle is how long a queue is empty before its key is deleted.
	idle   time.Duration
	mu     sync.Mutex
	queues map[toolyard.Workspace]*waitQueue
}

// Wait returns when no change is being stored.
func (ls *Locks) Wait() { ls.flows.Wait() }

// waitQueue is one workspace as this dispatcher sees it. It is kept while a batch of ours waits there, and while the
// stored queue has a key.
type waitQueue struct {
	stored  broker.TicketQueue
	seen    time.Time // when this revision of it was first seen
	changed time.Time // when the first ticket last changed, whatever joined behind it
	pending []change
	busy    bool
	waiting map[ticket.Holder]*waiter
	// unread is what was said of the holders of its tickets that cannot be read, and said of the queue itself.
	unread, said broker.Said
}

// unused reports whether no batch of ours waits or is about to.
func (l *waitQueue) unused() bool { return len(l.waiting) == 0 && len(l.pending) == 0 && !l.busy }

// Grant is the answer to a batch that asked for a ticket: the ticket, or why it could not join.
type Grant struct {
	Ticket ticket.Ticket
	Err    error
	// Behind are the batches that it waited for, so many at most as [MaxBehind]; none unless [Locks.TellBehind] is set.
	Behind []toolyard.BatchKey
}

// MaxBehind is how many batches a grant names.
const MaxBehind = 8

// waiter is a batch that waits. tell is called once: when its ticket is granted, or when joining failed.
type waiter struct {
	tell   func(Grant)
	mode   ticket.Mode
	locks  []tool.Lock // of a named ticket
	behind []toolyard.BatchKey
	// joined is the queue in which the ticket was stored, nil while it is not. An older one may hold an earlier ticket
	// of the same holder.
	joined *broker.TicketQueue
}

// change is one ticket that joins or leaves. done is called once, without the mutex, when it is stored or has failed.
type change struct {
	holder ticket.Holder
	mode   ticket.Mode // empty: leave
	locks  []tool.Lock // of a named ticket
	waiter *waiter     // set in a change that joins for a batch that waits
	number uint64      // not 0: remove just this ticket
	// reserve: the batch is not planned yet
	reserve bool
	done    func(error)
}

func (c *change) joins() bool { return c.number == 0 && c.mode != "" }

// New makes the locks of a dispatcher. idle is how long a queue is empty before its key is deleted. Changes are stored
// until ctx ends.
func New(ctx context.Context, b Broker, log *slog.Logger, idle time.Duration) *Locks {
	return &Locks{ctx: ctx, b: b, log: log, idle: idle, queues: map[toolyard.Workspace]*waitQueue{}}
}

// Acquire joins a workspace's queue and calls granted once: when the ticket is granted, or when joining failed. Another
// call for the same holder replaces granted.
func (ls *Locks) Acquire(w toolyard.Workspace, h ticket.Holder, mode ticket.Mode, granted func(Grant),
	locks ...tool.Lock) {
	own := &waiter{tell: granted, mode: mode, locks: locks}
	ls.mu.Lock()
	ls.queueOf(w).waiting[h.Key()] = own
	ls.mu.Unlock()
	ls.enqueue(w, change{holder: h, mode: mode, locks: locks, waiter: own, done: func(err error) {
		if err == nil {
			return
		}
		ls.mu.Lock()
		l := ls.queueOf(w)
		waits := l.waiting[h.Key()] == own
		if waits {
			delete(l.waiting, h.Key())
		}
		ls.mu.Unlock()
		if waits {
			granted(Grant{Err: err})
		}
	}})
}

// Reserve joins a workspace's queue for a batch that is not planned yet, and says whether the ticket is granted at
// once. It does not join where it would have to wait, as far as is known. reserved says that the ticket may be in the
// queue: the planned batch finds it there when it joins, and the batch's owner takes it out.
func (ls *Locks) Reserve(ctx context.Context, w toolyard.Workspace, h ticket.Holder, mode ticket.Mode,
	locks ...tool.Lock) (own ticket.Ticket, reserved, granted bool) {
	ls.mu.Lock()
	next, own, err := ls.queueOf(w).stored.Reserve(h, mode, locks...)
	if err == nil {
		_, granted = next.Granted(h, mode, locks...)
	}
	ls.mu.Unlock()
	if !granted {
		return own, false, false
	}
	err = ls.store(ctx, w, change{holder: h, mode: mode, locks: locks, reserve: true})
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if found, ok := ls.queueOf(w).stored.Granted(h, mode, locks...); ok && err == nil {
		return found, true, true
	}
	return own, true, false // after an error the planned batch joins again, and meets it
}

// Kept returns the ticket of an earlier group of h's batch that is for h's group too, if the batch is alone in the
// queue. The batch then goes on under it, and need not join. A batch that others wait for joins behind them.
//
// What is known of the queue may be old. Then somebody waits for one group more. Only the batch's owners, and who finds
// it complete or parked, take its ticket out; and a former owner cannot start a group.
func (ls *Locks) Kept(w toolyard.Workspace, h ticket.Holder, mode ticket.Mode, locks ...tool.Lock,
) (own ticket.Ticket, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.queueOf(w)
	if len(l.pending) > 0 || len(l.stored.Tickets) != 1 {
		return own, false
	}
	own, ok = l.stored.Granted(h, mode, locks...)
	return own, ok && own.Group < h.Group && own.Term == h.Term
}

// Settle takes out the tickets of a batch that another dispatcher owns, if the batch is over or parked: no owner will
// do it any more. This one has reserved one for its own plan, or has joined as a former owner.
func (ls *Locks) Settle(ctx context.Context, w toolyard.Workspace, k toolyard.BatchKey) error {
	var own []ticket.Ticket
	ls.mu.Lock()
	for _, t := range ls.queueOf(w).stored.Tickets {
		if t.Agent == k.Agent && t.Batch == k.ID {
			own = append(own, t)
		}
	}
	ls.mu.Unlock()
	for _, t := range own {
		out, unneeded, err := ls.unneeded(ctx, t)
		if err == nil && unneeded {
			err = ls.store(ctx, w, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// InQueue reports whether [Locks.Release] would take out a ticket, as far as is known.
func (ls *Locks) InQueue(w toolyard.Workspace, h ticket.Holder) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, ok := ls.queues[w]
	return ok && len(l.stored.Leave(h).Tickets) < len(l.stored.Tickets)
}

// ReleaseAll takes out all tickets of a batch, of every group and owner. It is for a batch that has ended.
func (ls *Locks) ReleaseAll(ctx context.Context, w toolyard.Workspace, k toolyard.BatchKey) error {
	return ls.Release(ctx, w, ticket.Holder{Agent: k.Agent, Batch: k.ID, Group: math.MaxInt, Term: math.MaxInt})
}

// Release takes out the tickets of h's batch up to h's group, and returns when that is stored.
func (ls *Locks) Release(ctx context.Context, w toolyard.Workspace, h ticket.Holder) error {
	ls.mu.Lock()
	delete(ls.queueOf(w).waiting, h.Key())
	ls.mu.Unlock()
	return ls.store(ctx, w, change{holder: h})
}

// StopWaiting drops a batch's waiters and leaves its tickets in the queue, for a batch that goes on elsewhere.
func (ls *Locks) StopWaiting(w toolyard.Workspace, k toolyard.BatchKey) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.queueOf(w)
	for h := range l.waiting {
		if h.Agent == k.Agent && h.Batch == k.ID {
			delete(l.waiting, h)
		}
	}
}

func (ls *Locks) queueOf(w toolyard.Workspace) *waitQueue {
	l, ok := ls.queues[w]
	if !ok {
		l = &waitQueue{waiting: map[ticket.Holder]*waiter{}}
		ls.queues[w] = l
	}
	return l
}

func (ls *Locks) enqueue(w toolyard.Workspace, c change) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.queueOf(w)
	l.pending = append(l.pending, c)
	if !l.busy {
		l.busy = true
		ls.flows.Go(func() { ls.flush(w, l) })
	}
}

// store returns when a change is stored or has failed. It is stored even if ctx ends before.
func (ls *Locks) store(ctx context.Context, w toolyard.Workspace, c change) error {
	stored := make(chan error, 1)
	c.done = func(err error) { stored <- err }
	ls.enqueue(w, c)
	select {
	case err := <-stored:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// flush stores pending changes until there are none.
func (ls *Locks) flush(w toolyard.Workspace, l *waitQueue) {
	for {
		ls.mu.Lock()
		changes, known := l.pending, l.stored
		known.Workspace = w
		l.pending = nil
		if len(changes) == 0 {
			l.busy = false
			ls.mu.Unlock()
			return
		}
		ls.mu.Unlock()
		q, refused, err := ls.apply(known, changes)
		if errors.Is(err, broker.ErrFull) {
			// Tickets that leave make room. They do not wait for those that join.
			in, out := split(changes)
			if len(in) > 0 && len(out) > 0 {
				for _, c := range in {
					c.done(err)
				}
				changes = out
				q, refused, err = ls.apply(known, changes)
			}
		}
		if err == nil {
			var left []toolyard.BatchKey // that have joined, and whose owner here has gone
			ls.mu.Lock()
			for i, c := range changes {
				if c.waiter != nil && refused[i] == nil {
					c.waiter.joined = &q
					if l.waiting[c.holder.Key()] == nil {
						left = append(left, toolyard.BatchKey{Agent: c.holder.Agent, ID: c.holder.Batch})
					}
				}
			}
			ls.mu.Unlock()
			ls.observe(q)
			for _, k := range left {
				ls.flows.Go(func() { ls.settleLeft(w, k) })
			}
		}
		for i, c := range changes {
			c.done(errors.Join(refused[i], err))
		}
	}
}

// settleLeft settles a batch that has joined too late for its owner here.
func (ls *Locks) settleLeft(w toolyard.Workspace, k toolyard.BatchKey) {
	if err := ls.Settle(ls.ctx, w, k); err != nil {
		ls.log.Info("a ticket of a batch that went on elsewhere may stay for a while", "workspace", w, "batch", k,
			"error", err)
	}
}

// split separates the changes that join from those that leave.
func split(changes []change) (in, out []change) {
	for _, c := range changes {
		if c.joins() {
			in = append(in, c)
		} else {
			out = append(out, c)
		}
	}
	return in, out
}

// apply stores changes as one and returns the new queue. refused says why some of them were not made.
func (ls *Locks) apply(known broker.TicketQueue, changes []change) (q broker.TicketQueue, refused []error, err error) {
	refused = make([]error, len(changes))
	q, err = ls.b.ChangeTickets(ls.ctx, known, func(q ticket.Queue) (ticket.Queue, error) {
		for i, c := range changes {
			refused[i] = nil
			switch {
			case c.number != 0:
				q = q.Remove(c.number)
				continue
			case c.mode == "":
				q = q.Leave(c.holder)
				continue
			}
			join := q.Join
			if c.reserve {
				join = q.Reserve
			}
			next, _, err := join(c.holder, c.mode, c.locks...)
			if err == nil {
				err = broker.FitsTickets(next)
			}
			if refused[i] = err; err == nil {
				q = next
			}
		}
		return q, nil
	})
	return q, refused, err
}

// observe takes in a workspace's queue, and tells the waiters whose tickets it grants.
func (ls *Locks) observe(q broker.TicketQueue) {
	type answer struct {
		tell  func(Grant)
		grant Grant
	}
	var answers []answer
	ls.mu.Lock()
	l := ls.queueOf(q.Workspace)
	if q.Newer(l.stored) {
		if head(q) != head(l.stored) || l.changed.IsZero() {
			l.changed = time.Now()
		}
		l.stored, l.seen, l.said = q, time.Now(), ""
	}
	for h, own := range l.waiting {
		if own.joined == nil || !l.stored.Includes(*own.joined) {
			continue
		}
		if t, ok := l.stored.Granted(h, own.mode, own.locks...); ok {
			answers = append(answers, answer{own.tell, Grant{Ticket: t, Behind: own.behind}})
			delete(l.waiting, h)
		} else if ls.TellBehind && own.behind == nil {
			own.behind = batchesOf(l.stored.Blocking(h, own.mode, MaxBehind, own.locks...))
		}
	}
	ls.mu.Unlock()
	for _, a := range answers {
		a.tell(a.grant)
	}
}

// batchesOf returns the batches of tickets.
func batchesOf(tickets []ticket.Ticket) []toolyard.BatchKey {
	out := []toolyard.BatchKey{}
	for _, t := range tickets {
		out = append(out, toolyard.BatchKey{Agent: t.Agent, ID: t.Batch})
	}
	return out
}

// fail tells all waiters of a workspace that this dispatcher cannot read its queue.
func (ls *Locks) fail(w toolyard.Workspace, why error) {
	var refused []*waiter
	ls.mu.Lock()
	if l, ok := ls.queues[w]; ok {
		refused = slices.Collect(maps.Values(l.waiting))
		clear(l.waiting)
	}
	ls.mu.Unlock()
	for _, own := range refused {
		own.tell(Grant{Err: why})
	}
}

// head returns the number of a queue's first ticket, 0 if it is empty.
func head(q broker.TicketQueue) uint64 {
	if len(q.Tickets) == 0 {
		return 0
	}
	return q.Tickets[0].N
}

// Watch follows all queues until ctx ends.
func (ls *Locks) Watch(ctx context.Context) error {
	return ls.b.WatchTickets(ctx, func(q broker.TicketQueue, err error) {
		if errors.Is(err, events.ErrNewer) {
			ls.fail(q.Workspace, err)
			return
		}
		if err != nil {
			ls.log.Error("a workspace's tickets cannot be read", "error", err)
			return
		}
		ls.observe(q)
	})
}

// Reread reads the queues in which batches of ours wait, in case the watch has missed a change.
func (ls *Locks) Reread(ctx context.Context) {
	ls.mu.Lock()
	var waiting []toolyard.Workspace
	for w, l := range ls.queues {
		if len(l.waiting) > 0 {
			waiting = append(waiting, w)
		}
	}
	ls.mu.Unlock()
	for _, w := range waiting {
		q, err := ls.b.Tickets(ctx, w)
		if errors.Is(err, events.ErrNewer) {
			ls.fail(w, err)
			continue
		}
		if err != nil {
			ls.mu.Lock()
			level := ls.queueOf(w).said.Level(err.Error())
			ls.mu.Unlock()
			ls.log.Log(ctx, level, "a workspace's tickets cannot be read", "workspace", w, "error", err)
			continue
		}
		ls.observe(q)
	}
}
