package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/ticket"
)

// The rhythm of looking for tickets that nobody will give back.
const (
	sweepEvery  = time.Second
	stuckBefore = 5 * time.Second
	sweptAtOnce = 64 // tickets of one workspace
)

// desk is where one dispatcher's batches stand in line for workspaces. Changes to one workspace that come while another
// is on its way are combined into one.
type desk struct {
	b   *broker.Broker
	log *slog.Logger
	// ctx is the dispatcher's: a change serves all batches that wait for it, and does not end with the one that began it.
	ctx   context.Context
	flows sync.WaitGroup
	mu    sync.Mutex
	lines map[toolyard.Workspace]*line
}

// wait returns when no change is on its way any more.
func (d *desk) wait() { d.flows.Wait() }

// line is one workspace as this dispatcher sees it.
type line struct {
	queue   broker.TicketQueue
	changed time.Time // when the first ticket last changed, whatever joined behind it
	pending []change
	busy    bool
	waiting map[ticket.Holder]func(ticket.Ticket, error)
}

// change is one joining or leaving. done is called once, without the desk's lock, when it is stored or has failed.
type change struct {
	holder ticket.Holder
	mode   ticket.Mode // empty: leave
	number uint64      // not 0: take out just this ticket
	done   func(error)
}

func newDesk(b *broker.Broker, log *slog.Logger) *desk {
	return &desk{b: b, log: log, lines: map[toolyard.Workspace]*line{}}
}

// take joins a workspace's queue and calls granted once: when the ticket is granted, or when joining failed. Asking again
// for the same holder replaces granted.
func (d *desk) take(w toolyard.Workspace, h ticket.Holder, mode ticket.Mode, granted func(ticket.Ticket, error)) {
	d.mu.Lock()
	d.line(w).waiting[h.Key()] = granted
	d.mu.Unlock()
	d.submit(w, change{holder: h, mode: mode, done: func(err error) {
		if err == nil {
			return
		}
		d.mu.Lock()
		f, ok := d.line(w).waiting[h.Key()]
		delete(d.line(w).waiting, h.Key())
		d.mu.Unlock()
		if ok {
			f(ticket.Ticket{}, err)
		}
	}})
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
		l = &line{waiting: map[ticket.Holder]func(ticket.Ticket, error){}}
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
		refused := make([]error, len(changes))
		q, err := d.b.ChangeTickets(d.ctx, known, func(q ticket.Queue) (ticket.Queue, error) {
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
		if err == nil {
			d.see(q)
		}
		for i, c := range changes {
			c.done(errors.Join(refused[i], err))
		}
	}
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
		l.queue = q
	}
	for h, tell := range l.waiting {
		if t, ok := l.queue.Granted(h); ok {
			grants = append(grants, grant{tell, t})
			delete(l.waiting, h)
		}
	}
	d.mu.Unlock()
	for _, g := range grants {
		g.tell(g.t, nil)
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
		if err != nil {
			d.log.Warn("a workspace's tickets cannot be read", "workspace", w, "error", err)
			continue
		}
		d.see(q)
	}
}

// sweep takes out tickets that stand before a waiting one for long and whose group is over: their owner died between the
// group's last result and leaving, or a former owner joined when it no longer was one.
func (d *desk) sweep(ctx context.Context) {
	for w, tickets := range d.stuck() {
		for _, t := range tickets {
			out, over, err := d.over(ctx, t)
			if err != nil {
				d.log.Warn("the holder of a ticket cannot be read", "workspace", w, "ticket", t.N, "error", err)
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

// stuck returns, for each workspace where somebody of ours waits and the first ticket has stood for long, the first tickets.
func (d *desk) stuck() map[toolyard.Workspace][]ticket.Ticket {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[toolyard.Workspace][]ticket.Ticket{}
	for w, l := range d.lines {
		if len(l.waiting) > 0 && len(l.queue.Tickets) > 0 && time.Since(l.changed) > stuckBefore {
			out[w] = l.queue.Tickets[:min(len(l.queue.Tickets), sweptAtOnce)]
			l.changed = time.Now() // look again when as much time has passed
		}
		if len(l.waiting) == 0 && !l.busy && len(l.queue.Tickets) == 0 {
			delete(d.lines, w)
		}
	}
	return out
}
