package dispatcher

import (
	"time"

	"github.com/toolyard/toolyard"
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
	// StoreFill is how full the fullest stream or bucket is, in percent.
	StoreFill int
}

// Load returns what the dispatcher has now.
func (d *Dispatcher) Load() Load {
	l := Load{StoreFill: d.store.last().fill.Percent}
	l.Running, l.Waiting, l.Idle = d.admission.load()
	d.workers.count(&l)
	return l
}
