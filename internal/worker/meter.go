package worker

import (
	"errors"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pipeline"
)

// Meter counts what a worker does. Its methods return at once.
type Meter interface {
	// Ran is told of each call that came out of the pipeline with a result.
	Ran(*toolyard.Result)
	// LeaseLost is told of each call that was stopped because the right to run it had lapsed.
	LeaseLost()
}

// unmetered is the meter of a worker without one.
type unmetered struct{}

func (unmetered) Ran(*toolyard.Result) {}
func (unmetered) LeaseLost()           {}

// count counts what came of a run of the pipeline.
func (w *Worker) count(r *running, res *toolyard.Result, err error) {
	switch {
	case err == nil:
		w.cfg.Meter.Ran(res)
	case errors.Is(err, pipeline.ErrLost) && w.mayAct(r) != nil:
		w.cfg.Meter.LeaseLost()
	}
}

// Load is what stands in a worker now.
type Load struct {
	// Registered says that the worker may take calls: its heartbeats are stored.
	Registered bool
	// Slots are its slots by class, and Busy those that have a call.
	Slots, Busy map[toolyard.Class]int
	// Breakers are the dependencies that it does not try now. Stalls is how many calls it found to have lain in the
	// queue for over a second, though it had room and had asked for calls.
	Breakers, Stalls int
	// CacheBytes is how many bytes of outputs it keeps to answer other calls.
	CacheBytes int
}

// Load returns what the worker has now.
func (w *Worker) Load() Load {
	_, registered := w.registered.holds()
	return Load{
		Registered: registered && w.isReady(), Slots: w.cfg.Slots, Busy: w.slots.busy(w.cfg.Slots),
		Breakers: len(w.breakers.OpenUntil()), Stalls: int(w.stalls.Load()),
		CacheBytes: w.pipe.Load().Cache.Bytes(),
	}
}

// isReady reports whether the worker takes calls, or has.
func (w *Worker) isReady() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}
