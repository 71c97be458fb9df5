package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
)

// How abandoned tickets and unused keys are found.
const (
	blockedFor  = 5 * time.Second // how long a ticket stands first before it is looked at, if batches of ours wait
	sweptAtOnce = 64              // tickets of one workspace that are looked at in one round
	// times the wait of an empty queue: for tickets behind which no batch of ours waits
	abandonedAfter  = 10
	abandonedAtOnce = 16    // queues with such tickets that are looked at in one round
	deletedAtOnce   = 1_000 // keys that are deleted in one round
	deletedTogether = 8     // keys that are deleted at a time
)

// Sweep takes out tickets that have stood first for long and whose group is done: their owner died between the group's
// last result and the release, or a former owner joined after it had lost the batch. It returns the batches in the way
// whose submission is lost.
func (ls *Locks) Sweep(ctx context.Context) map[toolyard.BatchKey]error {
	lost := map[toolyard.BatchKey]error{}
	for w, tickets := range ls.blocking() {
		var unread []error
		for _, t := range tickets {
			out, unneeded, err := ls.unneeded(ctx, t)
			if err != nil && !errors.Is(err, events.ErrNewer) { // a newer dispatcher sweeps that one
				unread = append(unread, fmt.Errorf("ticket %d: %w", t.N, err))
				if broker.IsSubmissionLost(err) {
					lost[toolyard.BatchKey{Agent: t.Agent, ID: t.Batch}] = err
				}
			}
			if !unneeded {
				continue
			}
			ls.log.Warn("a ticket was left behind; taking it out", "workspace", w, "agent", t.Agent, "batch", t.Batch,
				"group", t.Group)
			out.done = func(err error) {
				if err != nil {
					ls.log.Warn("a ticket that was left behind stays", "workspace", w, "error", err)
				}
			}
			ls.enqueue(w, out)
		}
		ls.tellUnread(ctx, w, errors.Join(unread...))
	}
	return lost
}

// tellUnread logs why holders of a workspace's tickets cannot be read, if that is news.
func (ls *Locks) tellUnread(ctx context.Context, w toolyard.Workspace, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, ok := ls.queues[w]
	if !ok {
		return
	}
	if level := l.unread.Level(fmt.Sprint(err)); err != nil {
		ls.log.Log(ctx, level, "the holder of a ticket cannot be read", "workspace", w, "error", err)
	}
}

// unneeded reports whether no batch needs a ticket any more, and returns the change that removes it. A batch whose
// replies are complete needs none, whatever else its log says.
func (ls *Locks) unneeded(ctx context.Context, t ticket.Ticket) (out change, ok bool, err error) {
	// Just this ticket: the batch may have another for the same group by now.
	out = change{holder: t.Holder, number: t.N}
	k := toolyard.BatchKey{Agent: t.Agent, ID: t.Batch}
	replied := batch.State{Key: k}
	if err := ls.b.CatchUp(ctx, &replied, batch.ChainReply, 0); err == nil &&
		(replied.Completed || replied.Refused != nil) {
		return out, true, nil
	}
	s, err := ls.b.Fold(ctx, k)
	switch {
	case errors.Is(err, broker.ErrNoBatch):
		return out, true, nil
	case err != nil || s.Plan == nil:
		return out, false, err
	case s.Parked:
		// The owner that wakes the batch joins in a later term. This change does not remove that ticket.
		return change{holder: ticket.Holder{Agent: t.Agent, Batch: t.Batch, Group: t.Group, Term: s.Takeovers}}, true,
			nil
	}
	// The owner of an open batch may add calls to its last group at any time, and to its safe group where that goes
	// first.
	last := t.Holder.Last()
	if last >= len(s.Plan.Groups) {
		return out, false, nil
	}
	for g := t.Group; g <= last; g++ {
		// Who gives the batch up answers it when its workers have stopped.
		if !s.Done(g) || slices.ContainsFunc(s.Plan.Groups[g].Calls, s.GivenUp) {
			return out, false, nil
		}
	}
	passed := last < len(s.Plan.Groups)-1 && s.Plan.Partition != toolyard.SafeFirst
	return out, s.Closed || passed, nil
}

// blocking returns the first tickets of each workspace where the first one has stood for long: where a batch of ours
// waits, and of some others. Without a waiter an abandoned ticket blocks no batch, but its key takes room.
func (ls *Locks) blocking() map[toolyard.Workspace][]ticket.Ticket {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	out := map[toolyard.Workspace][]ticket.Ticket{}
	abandoned := 0
	for w, l := range ls.queues {
		before := blockedFor
		if len(l.waiting) == 0 {
			before = abandonedAfter * ls.idle
		}
		if len(l.stored.Tickets) == 0 || time.Since(l.changed) <= before {
			continue
		}
		if len(l.waiting) == 0 {
			if abandoned++; abandoned > abandonedAtOnce {
				continue
			}
		}
		out[w] = l.stored.Tickets[:min(len(l.stored.Tickets), sweptAtOnce)]
		l.changed = time.Now() // look again when as much time has passed
	}
	return out
}

// DeleteUnused deletes the keys of queues that have been empty for long, so that unused workspaces cost nothing. A key
// that cannot be deleted now is tried again in the next round.
func (ls *Locks) DeleteUnused(ctx context.Context) {
	queues := ls.unusedQueues()
	var wg sync.WaitGroup
	for some := range slices.Chunk(queues, len(queues)/deletedTogether+1) {
		wg.Go(func() {
			for _, known := range some {
				if err := ls.deleteKey(ctx, known); err != nil {
					if ctx.Err() == nil {
						ls.log.Info("the key of a workspace that nobody uses stays for now", "error", err)
					}
					return // so it would be with the others
				}
			}
		})
	}
	wg.Wait()
}

// deleteKey deletes the key of a queue if it is unchanged. It reads the queue first: the watch does not tell what
// another dispatcher has deleted.
func (ls *Locks) deleteKey(ctx context.Context, known broker.TicketQueue) error {
	q, err := ls.b.Tickets(ctx, known.Workspace)
	switch {
	case err != nil:
		return err
	case q.Newer(known):
		ls.observe(q)
		return nil
	case q.Former != 0: // it stays for as long as its former queues do
		ls.mu.Lock()
		defer ls.mu.Unlock()
		ls.queueOf(known.Workspace).seen = time.Now()
		return nil
	case q.Revision != 0 && !known.MayGo(known.Revision):
		// One change gave out very many numbers; a later revision is above them.
		q, err = ls.b.ChangeTickets(ctx, known, func(q ticket.Queue) (ticket.Queue, error) { return q, nil })
		if err == nil {
			ls.observe(q)
		}
		return err
	case q.Revision != 0 || known.Former != 0:
		if err := ls.b.DeleteTickets(ctx, known); err != nil {
			return err
		}
	}
	ls.discard(known)
	return nil
}

// unusedQueues returns the queues that have been empty for long and that no batch of ours is about to join. It drops
// the workspaces that have no key.
func (ls *Locks) unusedQueues() []broker.TicketQueue {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var out []broker.TicketQueue
	for w, l := range ls.queues {
		switch {
		case !l.unused() || len(l.stored.Tickets) > 0:
		case l.stored.Revision == 0 && l.stored.Former == 0:
			delete(ls.queues, w)
		case time.Since(l.seen) > ls.idle && len(out) < deletedAtOnce:
			out = append(out, l.stored)
		}
	}
	return out
}

// discard drops a workspace, unless something has happened there.
func (ls *Locks) discard(known broker.TicketQueue) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l, ok := ls.queues[known.Workspace]; ok && l.unused() && l.stored.Includes(known) && known.Includes(l.stored) {
		delete(ls.queues, known.Workspace)
	}
}
