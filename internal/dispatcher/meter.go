package dispatcher

import "github.com/toolyard/toolyard"

// Meter counts what a dispatcher does. Its methods return at once.
type Meter interface {
	// Completed is told of each batch that this dispatcher completed, and Result of each of its results.
	Completed(toolyard.Status)
	Result(*toolyard.Result)
	// Refused is told of each submission that was refused, with its HTTP status.
	Refused(status int)
}

// unmetered is the meter of a dispatcher without one.
type unmetered struct{}

func (unmetered) Completed(toolyard.Status) {}
func (unmetered) Result(*toolyard.Result)   {}
func (unmetered) Refused(int)               {}

// Load is what stands in a dispatcher now.
type Load struct {
	// Running are the batches that it owns and that have something to do, Idle those that are open and have nothing,
	// Waiting those that wait for their turn, Workers the workers that it has heard of.
	Running, Idle, Waiting, Workers int
	// Stalls is how many calls workers have found to have lain in the queue for over a second, though they had room and
	// had asked for calls, since the dispatcher has started.
	Stalls int
	// StoreFill is how full the fullest stream or bucket is, in percent.
	StoreFill int
}

// Load returns what the dispatcher has now.
func (d *Dispatcher) Load() Load {
	workers, stalls := d.workers.count()
	running, waiting, idle := d.admission.load()
	return Load{
		Running: running, Idle: idle, Waiting: waiting, Workers: workers, Stalls: stalls,
		StoreFill: d.store.last().fill.Percent,
	}
}
