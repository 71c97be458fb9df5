package dispatcher

import (
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/ticket"
)

// Meter counts what a dispatcher does. Its methods return at once.
type Meter interface {
	// Completed is told of each batch that this dispatcher completed, and Result of each of its results.
	Completed(toolyard.Status)
	Result(*toolyard.Result)
	// Refused is told of each submission that was refused, with its HTTP status.
	Refused(status int)
	// TicketGranted is told of each ticket that a batch got, and how long it has waited for it.
	TicketGranted(mode ticket.Mode, waited time.Duration)
}

// unmetered is the meter of a dispatcher without one.
type unmetered struct{}

func (unmetered) Completed(toolyard.Status)                {}
func (unmetered) Result(*toolyard.Result)                  {}
func (unmetered) Refused(int)                              {}
func (unmetered) TicketGranted(ticket.Mode, time.Duration) {}

// demand is how many slots of workers the batches of a dispatcher could use now.
type demand struct {
	mu     sync.Mutex
	wanted map[batch.Route]int
}

// change replaces what one batch wants.
func (d *demand) change(before, now map[batch.Route]int) {
	if len(before)+len(now) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wanted == nil {
		d.wanted = map[batch.Route]int{}
	}
	for r, n := range now {
		d.wanted[r] += n
	}
	for r, n := range before {
		if d.wanted[r] -= n; d.wanted[r] == 0 {
			delete(d.wanted, r)
		}
	}
}

// add counts what is wanted, and nothing for routes that workers serve and nobody wants.
func (d *demand) add(l *Load, served map[batch.Route]int) {
	l.Wanted = map[toolyard.Pool]map[toolyard.Class]int{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, routes := range []map[batch.Route]int{served, d.wanted} {
		for r := range routes {
			if l.Wanted[r.Pool] == nil {
				l.Wanted[r.Pool] = map[toolyard.Class]int{}
			}
			l.Wanted[r.Pool][r.Class] = d.wanted[r]
		}
	}
}

// Load is what stands in a dispatcher now.
type Load struct {
	// Running are the batches that it owns and that have something to do, Idle those that are open and have nothing,
	// Waiting those that wait for their turn.
	Running, Idle, Waiting int
	// Workers are the workers that it has heard of, with their slots, those of them that had a call at the last
	// heartbeat, and the dependencies that they do not try now.
	Workers, Slots, Busy, Breakers int
	// Stalls is how many calls workers have found to have lain in the queue for over a second, though they had room and
	// had asked for calls, since the dispatcher has started.
	Stalls int
	// Wanted is how many slots of workers its batches could use now, by pool and class; 0 where workers serve a class
	// of which nothing is wanted.
	Wanted map[toolyard.Pool]map[toolyard.Class]int
	// StoreFill is how full the fullest stream or bucket is, in percent.
	StoreFill int
}

// Load returns what the dispatcher has now.
func (d *Dispatcher) Load() Load {
	l := Load{StoreFill: d.store.last().fill.Percent}
	l.Running, l.Waiting, l.Idle = d.admission.load()
	d.workers.count(&l)
	d.demand.add(&l, d.workers.serving(anyShard))
	return l
}
