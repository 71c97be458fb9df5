package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/ticket"
)

// The rhythm of looking for tickets that nobody will give back, as in package dispatcher.
const (
	sweepEvery  = time.Second
	stuckBefore = 5 * time.Second
)

// desk is dispatcher.desk: where one dispatcher's batches stand in line.
type desk struct {
	d     *dispatcher
	lines []*line
}

type line struct {
	w        toolyard.Workspace
	queue    ticket.Queue
	revision uint64
	changed  Time
	pending  []change
	busy     bool
	waiting  []waiter
}

type waiter struct {
	h       ticket.Holder
	granted func(ticket.Ticket, error)
}

type change struct {
	h      ticket.Holder
	mode   ticket.Mode // empty: leave
	number uint64      // not 0: take out just this ticket
	done   func(error)
}

func (k *desk) line(w toolyard.Workspace) *line {
	for _, l := range k.lines {
		if l.w == w {
			return l
		}
	}
	l := &line{w: w}
	k.lines = append(k.lines, l)
	return l
}

func (l *line) stopWaiting(h ticket.Holder) (waiter, bool) {
	for i, w := range l.waiting {
		if w.h.Key() == h.Key() {
			l.waiting = slices.Delete(l.waiting, i, i+1)
			return w, true
		}
	}
	return waiter{}, false
}

func (k *desk) take(w toolyard.Workspace, h ticket.Holder, mode ticket.Mode, granted func(ticket.Ticket, error)) {
	l := k.line(w)
	l.stopWaiting(h)
	l.waiting = append(l.waiting, waiter{h, granted})
	k.submit(l, change{h: h, mode: mode, done: func(err error) {
		if err == nil {
			return
		}
		if w, ok := l.stopWaiting(h); ok {
			w.granted(ticket.Ticket{}, err)
		}
	}})
}

func (k *desk) leave(w toolyard.Workspace, h ticket.Holder, then func()) {
	l := k.line(w)
	l.stopWaiting(h)
	k.submit(l, change{h: h, done: func(error) { then() }})
}

// forget stops waiting for the tickets of a batch, which keep standing in the queue.
func (k *desk) forget(w toolyard.Workspace, key toolyard.BatchKey) {
	l := k.line(w)
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool {
		return w.h.Agent == key.Agent &&
			w.h.Batch == key.ID
	})
}

func (k *desk) submit(l *line, c change) {
	l.pending = append(l.pending, c)
	if !l.busy {
		l.busy = true
		k.d.s.after(k.d.th, 0, func() { k.flush(l) })
	}
}

// flush stores what is pending, until nothing is.
func (k *desk) flush(l *line) {
	s := k.d.s
	changes := l.pending
	l.pending = nil
	if len(changes) == 0 {
		l.busy = false
		return
	}
	refused := make([]error, len(changes))
	k.change(l, func(q ticket.Queue) ticket.Queue {
		for i, c := range changes {
			refused[i] = nil
			switch {
			case c.number != 0:
				q = q.Remove(c.number)
			case c.mode != "":
				q, _, refused[i] = q.Join(c.h, c.mode)
			case s.has(FenceLeaveGroup):
				q = q.Leave(c.h)
			default:
				q = q.Leave(ticket.Holder{Agent: c.h.Agent, Batch: c.h.Batch, Group: 1 << 30, Term: 1 << 30})
			}
		}
		return q
	}, func(q ticket.Queue, revision uint64) {
		k.see(ticketChange{l.w, q, revision})
		for i, c := range changes {
			c.done(refused[i])
		}
		k.flush(l)
	})
}

// change is broker.ChangeTickets: read, change, compare and set, until it holds. It begins with what was last seen, and
// reads when that is not what stands there, or when nothing would change; also then it sets what it has read.
func (k *desk) change(l *line, edit func(ticket.Queue) ticket.Queue, then func(ticket.Queue, uint64)) {
	s, th, w := k.d.s, k.d.th, l.w
	pause := firstPause
	set := func(next ticket.Queue, revision uint64, then func(stored uint64, err error)) {
		what := "update tickets"
		if s.opt.Trace {
			what = fmt.Sprintf("update tickets of %s behind %d to %s", w, revision, tickets(next))
		}
		var stored uint64
		s.ask(th, attemptTimeout, what, func() error {
			rev, err := s.nats.updateTickets(w, next, revision)
			if stored == 0 {
				stored = rev
			}
			return err
		}, func(err error) { then(stored, err) })
	}
	var try func()
	try = func() {
		var have ticket.Queue
		var revision uint64
		s.retry(th, nil, "read tickets", func() error {
			have, revision = s.nats.readTickets(w)
			return nil
		}, func(error) {
			next := edit(have)
			if same(have, next) && !s.has(FenceTicketSure) { // what was read may be behind
				then(next, revision)
				return
			}
			set(next, revision, func(stored uint64, err error) {
				switch err {
				case nil:
					then(next, stored)
				case errConflict:
					try()
				default:
					s.after(th, pause, try)
					pause = min(2*pause, longestPause)
				}
			})
		})
	}
	next := edit(l.queue)
	if l.revision == 0 || same(l.queue, next) {
		try()
		return
	}
	set(next, l.revision, func(stored uint64, err error) {
		if err != nil {
			try()
			return
		}
		then(next, stored)
	})
}

// passed reports whether an open batch does not take up a group again. The last one it may, and that of the safe calls
// where that goes first.
func passed(st *batchState, group int) bool {
	return group < len(st.Plan.Groups)-1 && st.Plan.Partition != toolyard.SafeFirst
}

func same(a, b ticket.Queue) bool { return a.Last == b.Last && slices.Equal(a.Tickets, b.Tickets) }

func tickets(q ticket.Queue) string {
	out := "["
	for _, t := range q.Tickets {
		out += fmt.Sprintf(" %d:%s/%s.%d:%s", t.N, t.Agent, t.Batch, t.Group, t.Mode)
	}
	return out + " ]"
}

// see takes a workspace's queue as it is now, and tells whose ticket it grants.
func (k *desk) see(c ticketChange) {
	l := k.line(c.w)
	if c.revision > l.revision {
		l.queue, l.revision, l.changed = c.q, c.revision, k.d.s.now
	}
	for _, w := range slices.Clone(l.waiting) {
		if t, ok := l.queue.Granted(w.h); ok {
			l.stopWaiting(w.h)
			w.granted(t, nil)
		}
	}
}

// reread looks at the queues in which somebody of ours waits, in case the watch has missed something.
func (k *desk) reread(then func()) {
	s := k.d.s
	var todo []func(next func())
	for _, l := range k.lines {
		if len(l.waiting) == 0 {
			continue
		}
		todo = append(todo, func(next func()) {
			var q ticket.Queue
			var revision uint64
			s.retry(k.d.th, nil, "read tickets", func() error {
				q, revision = s.nats.readTickets(l.w)
				return nil
			}, func(error) {
				k.see(ticketChange{l.w, q, revision})
				next()
			})
		})
	}
	inTurn(todo, then)
}

// sweep takes out tickets that stand before a waiting one for long and whose group is over.
func (k *desk) sweep() {
	s := k.d.s
	for _, l := range k.lines {
		if len(l.waiting) == 0 || len(l.queue.Tickets) == 0 || s.now-l.changed <= stuckBefore || !s.has(FenceSweep) {
			continue
		}
		l.changed = s.now
		for _, t := range l.queue.Tickets {
			b := s.nats.logs[toolyard.BatchKey{Agent: t.Agent, ID: t.Batch}]
			s.fold(k.d.th, b, func(st *batchState, err error) {
				if errors.Is(err, errMissing) {
					return
				}
				over := err == nil && (st.Completed || st.Plan != nil && t.Group < len(st.Plan.Groups) &&
					st.Done(t.Group) &&
					(st.Closed || passed(st, t.Group)))
				switch {
				case over:
					s.log(k.d.p.name, "sweeps ticket %d of %s group %d", t.N, b.spec.name, t.Group)
					k.submit(l, change{h: t.Holder, number: t.N, done: func(error) {}})
				case err == nil && st.Parked && s.has(FenceParkedTicket):
					// A former owner joined late. Whoever wakes the batch joins in a later term, also where this very
					// ticket stands.
					s.log(k.d.p.name, "sweeps ticket %d of %s, which is parked", t.N, b.spec.name)
					h := t.Holder
					h.Term = st.Takeovers
					k.submit(l, change{h: h, done: func(error) {}})
				}
			})
		}
	}
}
