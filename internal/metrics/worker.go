package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolyard/toolyard"
)

// WorkerLoad is what stands in a worker now.
type WorkerLoad struct {
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

// Worker counts what a worker does. It implements worker.Meter.
type Worker struct {
	runs, sandboxes, cacheUses *prometheus.CounterVec
	losses                     prometheus.Counter
}

// Worker adds the metrics of a worker whose load is asked for at each reading.
func (m *Metrics) Worker(load func() WorkerLoad) *Worker {
	lost := workerLeaseLosses.counters()
	w := &Worker{runs: workerRuns.counters(), sandboxes: workerSandboxStarts.counters(),
		cacheUses: workerCacheUses.counters(), losses: lost.WithLabelValues()}
	zeroResults(w.runs)
	for _, outcome := range []string{ran, notStarted} {
		w.sandboxes.WithLabelValues(outcome)
	}
	for _, use := range toolyard.CacheUses {
		w.cacheUses.WithLabelValues(string(use))
	}
	m.registry.MustRegister(w.runs, w.sandboxes, w.cacheUses, lost, readings(func(read reader) {
		l := load()
		read(workerRegistered, truth(l.Registered))
		for class, n := range l.Slots {
			read(workerSlots, float64(n), string(class))
			read(workerSlotsBusy, float64(l.Busy[class]), string(class))
		}
		read(workerBreakersOpen, float64(l.Breakers))
		read(workerStalledCalls, float64(l.Stalls))
		read(workerCacheBytes, float64(l.CacheBytes))
	}))
	return w
}

// Ran counts a call that came out of the pipeline with a result.
func (w *Worker) Ran(r *toolyard.Result) {
	class, code := labelsOf(r)
	w.runs.WithLabelValues(class, code).Inc()
	if r.Cache != "" {
		w.cacheUses.WithLabelValues(string(r.Cache)).Inc()
	}
}

// LeaseLost counts a call that was stopped because the worker's right to run it had lapsed.
func (w *Worker) LeaseLost() { w.losses.Inc() }

// The outcomes of a command that was to run in the sandbox.
const (
	ran        = "ran"
	notStarted = "not_started"
)

// SandboxStarted counts a command that was to run in the sandbox. An error says that nothing of it has run.
func (w *Worker) SandboxStarted(err error) {
	outcome := ran
	if err != nil {
		outcome = notStarted
	}
	w.sandboxes.WithLabelValues(outcome).Inc()
}
