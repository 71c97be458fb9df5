package dispatcher

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
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
)

// The rhythm of looking for tickets that nobody will give back, and for queues in which nobody stands.
const (
	sweepEvery      = time.Second
	stuckBefore     = 5 * time.Second // before a ticket is looked at that others of ours wait behind
	sweptAtOnce     = 64              // tickets of one workspace
	abandonedAfter  = 10              // times the wait of an empty queue: for tickets that nobody of ours waits behind
	abandonedAtOnce = 16              // queues with such tickets that are looked at in one round
	deletedAtOnce   = 1_000           // keys that are deleted in one round
	deletedTogether = 8               // keys that are deleted at a time
)

// desk is where one dispatcher's batches stand in line for workspaces. Changes to one workspace that come while another
// is on its way are combined into one.
type desk struct {
	b   Broker
	log *slog.Logger
	// ctx is the dispatcher's: a change serves all batches that wait for it, and does not end with the one that began it.
	ctx   context.Context
	flows sync.WaitGroup
	// idle is how long a queue is empty before its key is deleted.
	idle  time.Duration
	mu    sync.Mutex
	lines map[toolyard.Workspace]*line
}

// wait returns when no change is on its way any more.
func (d *desk) wait() { d.flows.Wait() }

// line is one workspace as this dispatcher sees it. There is one while somebody of ours stands in line or wants to,
// and while there is a key.
type line struct {
	queue   broker.TicketQueue
	seen    time.Time // when this revision of it was first seen
	changed time.Time // when the first ticket last changed, whatever joined behind it
	pending []change
	busy    bool
	waiting map[ticket.Holder]*waiter
}

// unused reports whether nobody of ours stands in line or wants to.
func (l *line) unused() bool { return len(l.waiting) == 0 && len(l.pending) == 0 && !l.busy }

// waiter is told once when its ticket is granted, or when joining failed.
type waiter struct {
	tell func(ticket.Ticket, error)
	// joined is the revision under which the joining was stored; 0: it is not yet. An older queue says nothing about
	// the ticket: it may have one of the same holder that is gone.
	joined uint64
}

// change is one joining or leaving. done is called once, without the desk's lock, when it is stored or has failed.
type change struct {
	holder ticket.Holder
	mode   ticket.Mode // empty: leave
	waiter *waiter     // of who joins
	number uint64      // not 0: take out just this ticket
	done   func(error)
}

func (c *change) joins() bool { return c.number == 0 && c.mode != "" }

func newDesk(b Broker, log *slog.Logger, idle time.Duration) *desk {
	return &desk{b: b, log: log, idle: idle, lines: map[toolyard.Workspace]*line{}}
}

// take joins a workspace's queue and calls granted once: when the ticket is granted, or when joining failed. Asking again
// for the same holder replaces granted.
func (d *desk) take(w toolyard.Workspace, h ticket.Holder, mode ticket.Mode, granted func(ticket.Ticket, error)) {
	own := &waiter{tell: granted}
	d.mu.Lock()
	d.line(w).waiting[h.Key()] = own
	d.mu.Unlock()
	d.submit(w, change{holder: h, mode: mode, waiter: own, done: func(err error) {
		if err == nil {
			return
		}
		d.mu.Lock()
		l := d.line(w)
		waits := l.waiting[h.Key()] == own
		if waits {
			delete(l.waiting, h.Key())
		}
		d.mu.Unlock()
		if waits {
			granted(ticket.Ticket{}, err)
		}
	}})
}

// leaveForGood gives back whatever a batch has in a workspace's queue, of all its groups and owners: the batch is over.
func (d *desk) leaveForGood(ctx context.Context, w toolyard.Workspace, k toolyard.BatchKey) error {
	return d.leave(ctx, w, ticket.Holder{Agent: k.Agent, Batch: k.ID, Group: math.MaxInt, Term: math.MaxInt})
}

// leave takes the tickets of h's batch up to h's group out of the queue, and returns when that is stored.
func (d *desk) leave(ctx context.Context, w toolyard.Workspace, h ticket.Holder) error {
	d.mu.Lock()
	delete(d.line(w).waiting, h.Key())
	d.mu.Unlock()
	done := make(chan error, 1)
	d.submit(w, change{holder: h, done: func(err error) { done <- err }})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forget stops waiting for a ticket, which keeps standing in the queue: its batch goes on elsewhere.
func (d *desk) forget(w toolyard.Workspace, k toolyard.BatchKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.line(w)
	for h := range l.waiting {
		if h.Agent == k.Agent && h.Batch == k.ID {
			delete(l.waiting, h)
		}
	}
}

func (d *desk) line(w toolyard.Workspace) *line {
	l, ok := d.lines[w]
	if !ok {
		l = &line{waiting: map[ticket.Holder]*waiter{}}
		d.lines[w] = l
	}
	return l
}

func (d *desk) submit(w toolyard.Workspace, c change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.line(w)
	l.pending = append(l.pending, c)
	if !l.busy {
		l.busy = true
		d.flows.Go(func() { d.flush(w, l) })
	}
}

// flush stores what is pending, until nothing is.
func (d *desk) flush(w toolyard.Workspace, l *line) {
	for {
		d.mu.Lock()
		changes, known := l.pending, l.queue
		known.Workspace = w
		l.pending = nil
		if len(changes) == 0 {
			l.busy = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		q, refused, err := d.store(known, changes)
		if errors.Is(err, broker.ErrFull) {
			// Whoever leaves makes room, and need not wait until those who join with it have some.
			in, out := split(changes)
			if len(in) > 0 && len(out) > 0 {
				for _, c := range in {
					c.done(err)
				}
				changes = out
				q, refused, err = d.store(known, changes)
			}
		}
		if err == nil {
			d.mu.Lock()
			for i, c := range changes {
				if c.joins() && refused[i] == nil {
					c.waiter.joined = q.Revision
				}
			}
			d.mu.Unlock()
			d.see(q)
		}
		for i, c := range changes {
			c.done(errors.Join(refused[i], err))
		}
	}
}

// split tells those who join from those who leave.
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

// store makes changes as one, and returns the queue as it stands then. refused says why some of them were not made.
func (d *desk) store(known broker.TicketQueue, changes []change) (q broker.TicketQueue, refused []error, err error) {
	refused = make([]error, len(changes))
	q, err = d.b.ChangeTickets(d.ctx, known, func(q ticket.Queue) (ticket.Queue, error) {
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
			next, _, err := q.Join(c.holder, c.mode)
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

// see takes a workspace's queue as it is now, and tells whose ticket it grants.
func (d *desk) see(q broker.TicketQueue) {
	type grant struct {
		tell func(ticket.Ticket, error)
		t    ticket.Ticket
	}
	var grants []grant
	d.mu.Lock()
	l := d.line(q.Workspace)
	if q.Revision > l.queue.Revision {
		if head := first(q); head != first(l.queue) || l.changed.IsZero() {
			l.changed = time.Now()
		}
		l.queue, l.seen = q, time.Now()
	}
	for h, own := range l.waiting {
		if own.joined == 0 || l.queue.Revision < own.joined {
			continue
		}
		if t, ok := l.queue.Granted(h); ok {
			grants = append(grants, grant{own.tell, t})
			delete(l.waiting, h)
		}
	}
	d.mu.Unlock()
	for _, g := range grants {
		g.tell(g.t, nil)
	}
}

// refuse tells all who wait for a ticket of a workspace that this dispatcher cannot say whose it is.
func (d *desk) refuse(w toolyard.Workspace, why error) {
	var refused []*waiter
	d.mu.Lock()
	if l, ok := d.lines[w]; ok {
		refused = slices.Collect(maps.Values(l.waiting))
		clear(l.waiting)
	}
	d.mu.Unlock()
	for _, own := range refused {
		own.tell(ticket.Ticket{}, why)
	}
}

// first is the number of a queue's first ticket; 0 when there is none.
func first(q broker.TicketQueue) uint64 {
	if len(q.Tickets) == 0 {
		return 0
	}
	return q.Tickets[0].N
}

// watch follows all workspaces until ctx ends.
func (d *desk) watch(ctx context.Context) error {
	return d.b.WatchTickets(ctx, func(q broker.TicketQueue, err error) {
		if errors.Is(err, events.ErrNewer) {
			d.refuse(q.Workspace, err)
			return
		}
		if err != nil {
			d.log.Error("a workspace's tickets cannot be read", "error", err)
			return
		}
		d.see(q)
	})
}

// reread looks at the queues in which somebody of ours waits, in case the watch has missed something.
func (d *desk) reread(ctx context.Context) {
	d.mu.Lock()
	var waiting []toolyard.Workspace
	for w, l := range d.lines {
		if len(l.waiting) > 0 {
			waiting = append(waiting, w)
		}
	}
	d.mu.Unlock()
	for _, w := range waiting {
		q, err := d.b.Tickets(ctx, w)
		if errors.Is(err, events.ErrNewer) {
			d.refuse(w, err)
			continue
		}
		if err != nil {
			d.log.Warn("a workspace's tickets cannot be read", "workspace", w, "error", err)
			continue
		}
		d.see(q)
	}
}

// sweep takes out tickets that stand before a waiting one for long and whose group is over: their owner died between
// the group's last result and leaving, or a former owner joined when it no longer was one. It returns the batches in
// the way whose submission is lost.
func (d *desk) sweep(ctx context.Context) map[toolyard.BatchKey]error {
	lost := map[toolyard.BatchKey]error{}
	for w, tickets := range d.stuck() {
		for _, t := range tickets {
			out, over, err := d.over(ctx, t)
			if err != nil && !errors.Is(err, events.ErrNewer) { // a newer dispatcher looks after that one
				d.log.Warn("the holder of a ticket cannot be read", "workspace", w, "ticket", t.N, "error", err)
				if broker.IsSubmissionLost(err) {
					lost[toolyard.BatchKey{Agent: t.Agent, ID: t.Batch}] = err
				}
			}
			if !over {
				continue
			}
			d.log.Warn("a ticket was left behind; taking it out", "workspace", w, "agent", t.Agent, "batch", t.Batch, "group", t.Group)
			out.done = func(err error) {
				if err != nil {
					d.log.Warn("a ticket that was left behind stays", "workspace", w, "error", err)
				}
			}
			d.submit(w, out)
		}
	}
	return lost
}

// over reports whether nobody needs a ticket any more, and how it is taken out. A batch whose replies are complete is over,
// whatever else its log says.
func (d *desk) over(ctx context.Context, t ticket.Ticket) (out change, over bool, err error) {
	// Just this ticket: the batch may have taken another for the same group meanwhile.
	out = change{holder: t.Holder, number: t.N}
	k := toolyard.BatchKey{Agent: t.Agent, ID: t.Batch}
	replied := batch.State{Key: k}
	if err := d.b.CatchUp(ctx, &replied, batch.ChainReply, 0); err == nil && (replied.Completed || replied.Refused != nil) {
		return out, true, nil
	}
	s, err := d.b.Fold(ctx, k)
	switch {
	case errors.Is(err, broker.ErrNoBatch):
		return out, true, nil
	case err != nil || s.Plan == nil:
		return out, false, err
	case s.Parked:
		// Whoever wakes the batch joins in a later term, also where this very ticket stands: that keeps it.
		return change{holder: ticket.Holder{Agent: t.Agent, Batch: t.Batch, Group: t.Group, Term: s.Takeovers}}, true, nil
	}
	// The last group of an open batch may be taken up again at any time, by its owner, and so may the one of its safe calls
	// where that goes first.
	passed := t.Group < len(s.Plan.Groups)-1 && s.Plan.Partition != toolyard.SafeFirst
	return out, t.Group < len(s.Plan.Groups) && s.Over(t.Group) && (s.Closed || passed), nil
}

// stuck returns the first tickets of each workspace where the first one has stood for long: where somebody of ours
// waits, and of some others. Where nobody waits a ticket that was left behind harms no batch, and still its key
// stays.
func (d *desk) stuck() map[toolyard.Workspace][]ticket.Ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[toolyard.Workspace][]ticket.Ticket{}
	abandoned := 0
	for w, l := range d.lines {
		before := stuckBefore
		if len(l.waiting) == 0 {
			before = abandonedAfter * d.idle
		}
		if len(l.queue.Tickets) == 0 || time.Since(l.changed) <= before {
			continue
		}
		if len(l.waiting) == 0 {
			if abandoned++; abandoned > abandonedAtOnce {
				continue
			}
		}
		out[w] = l.queue.Tickets[:min(len(l.queue.Tickets), sweptAtOnce)]
		l.changed = time.Now() // look again when as much time has passed
	}
	return out
}

// retire deletes the keys of queues that have been empty for long, so that workspaces which nobody uses cost nothing.
// What cannot be deleted now is looked at again in the next round.
func (d *desk) retire(ctx context.Context) {
	queues := d.empty()
	var wg sync.WaitGroup
	for some := range slices.Chunk(queues, len(queues)/deletedTogether+1) {
		wg.Go(func() {
			for _, known := range some {
				if err := d.delete(ctx, known); err != nil {
					if ctx.Err() == nil {
						d.log.Info("the key of a workspace that nobody uses stays for now", "error", err)
					}
					return // so it would be with the others
				}
			}
		})
	}
	wg.Wait()
}

// delete deletes the key of a queue as it is known. Every dispatcher deletes, and none is told of what another has
// deleted: so it looks first.
func (d *desk) delete(ctx context.Context, known broker.TicketQueue) error {
	q, err := d.b.Tickets(ctx, known.Workspace)
	switch {
	case err != nil:
		return err
	case q.Revision > known.Revision:
		d.see(q)
		return nil
	case q.Revision != 0 && !known.MayGo(known.Revision):
		// One change gave out very many numbers; a later revision is above them.
		q, err = d.b.ChangeTickets(ctx, known, func(q ticket.Queue) (ticket.Queue, error) { return q, nil })
		if err == nil {
			d.see(q)
		}
		return err
	case q.Revision != 0:
		if err := d.b.DeleteTickets(ctx, known); err != nil {
			return err
		}
	}
	d.drop(known)
	return nil
}

// empty returns queues that have been empty for long, and which nobody of ours wants to join. It lets go of
// workspaces of which nothing is known.
func (d *desk) empty() []broker.TicketQueue {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []broker.TicketQueue
	for w, l := range d.lines {
		switch {
		case !l.unused() || len(l.queue.Tickets) > 0:
		case l.queue.Revision == 0:
			delete(d.lines, w)
		case time.Since(l.seen) > d.idle && len(out) < deletedAtOnce:
			out = append(out, l.queue)
		}
	}
	return out
}

// drop lets go of a workspace, unless something has happened there.
func (d *desk) drop(known broker.TicketQueue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l, ok := d.lines[known.Workspace]; ok && l.unused() && l.queue.Revision == known.Revision {
		delete(d.lines, known.Workspace)
	}
}
