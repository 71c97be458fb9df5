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
	// Running are the batches that it owns, Waiting those that wait for their turn, Workers those that it has heard of.
	Running, Waiting, Workers int
	// StoreFill is how full the fullest stream is, in percent.
	StoreFill int
}

// Load says what stands in the dispatcher now.
func (d *Dispatcher) Load() Load {
	workers := d.roster.count()
	d.lobby.mu.Lock()
	defer d.lobby.mu.Unlock()
	return Load{Running: len(d.lobby.running), Waiting: len(d.lobby.waiting), Workers: workers, StoreFill: d.lobby.fill.Percent}
}

// meter counts the batch that is over.
func (r *runner) meter() {
	s := r.m.State()
	for i := range s.Calls {
		if res := s.Calls[i].Result; res != nil {
			r.d.cfg.Meter.Result(res)
		}
	}
	r.d.cfg.Meter.Completed(s.Status())
}
