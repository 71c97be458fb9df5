// Package metrics counts what a dispatcher sees, for Prometheus. No label has a value that an agent or a model chooses:
// their number is bounded.
package metrics

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/toolyard/toolyard"
)

// ContentType is that of [Metrics.Write].
var ContentType = string(expfmt.NewFormat(expfmt.TypeTextPlain))

// Load is what stands in a dispatcher now.
type Load struct {
	// Running, Idle and Waiting are its batches: those that it owns and that have something to do, those that are open
	// and have nothing, and those that wait for their turn.
	Running, Idle, Waiting int
	// Workers are those that it has heard of.
	Workers int
	// Stalls is how many calls workers have found to have lain in the queue for over a second, though they had room and
	// had asked for calls, since the dispatcher has started.
	Stalls int
	// StoreFill is how full the fullest stream or bucket is, in percent.
	StoreFill int
}

// Metrics are one process's. It implements dispatcher.Meter. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	batches  *prometheus.CounterVec
	refused  *prometheus.CounterVec
	calls    *prometheus.CounterVec
	attempts prometheus.Counter
	pipeline *prometheus.HistogramVec
	execute  *prometheus.HistogramVec
	queue    *prometheus.HistogramVec
}

// seconds are the buckets of durations: calls take from a millisecond to minutes.
var seconds = prometheus.ExponentialBuckets(0.001, 4, 10)

// New makes the metrics of a process whose load is asked for at each reading.
func New(load func() Load) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	durations := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds},
			[]string{"class"})
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		batches: counter("toolyard_batches_completed_total",
			"Batches that this dispatcher completed, by how they ended.", "status"),
		refused: counter("toolyard_batches_refused_total", "Submissions that this dispatcher refused, by HTTP status.",
			"status"),
		calls: counter("toolyard_calls_total",
			"Results in the batches that this dispatcher completed, by concurrency class and code; ok is success.",
			"class", "code"),
		attempts: prometheus.NewCounter(prometheus.CounterOpts{Name: "toolyard_call_attempts_total",
			Help: "Executions that were started for these results."}),
		pipeline: durations("toolyard_call_seconds", "Time in the pipeline on the worker that finished the call."),
		execute:  durations("toolyard_call_execute_seconds", "The tool's own part of it."),
		queue:    durations("toolyard_call_queue_seconds", "Time from being queued to being taken."),
	}
	gauge := func(name, help string, of func(Load) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(of(load())) })
	}
	m.registry.MustRegister(
		m.batches, m.refused, m.calls, m.attempts, m.pipeline, m.execute, m.queue,
		gauge("toolyard_batches_running", "Batches that this dispatcher owns now and that have something to do.",
			func(l Load) int { return l.Running }),
		gauge("toolyard_batches_idle",
			"Open batches that this dispatcher owns now, and that wait for calls of their agents.",
			func(l Load) int { return l.Idle }),
		gauge("toolyard_batches_waiting", "Batches that wait in this dispatcher for their turn.",
			func(l Load) int { return l.Waiting }),
		gauge("toolyard_workers", "Live workers, as this dispatcher knows them.",
			func(l Load) int { return l.Workers }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "toolyard_calls_stalled_total",
			Help: "Calls that lay in the queue for over a second beside a worker with room that had asked for calls.",
		}, func() float64 { return float64(load().Stalls) }),
		gauge("toolyard_store_fill_percent",
			"How full the fullest of the streams and buckets is that running batches write to.",
			func(l Load) int { return l.StoreFill }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return m
}

// Completed counts a batch that is over.
func (m *Metrics) Completed(status toolyard.Status) { m.batches.WithLabelValues(string(status)).Inc() }

// Refused counts a submission that was refused, with an HTTP status.
func (m *Metrics) Refused(status int) { m.refused.WithLabelValues(strconv.Itoa(status)).Inc() }

// Result counts a result of a batch that is over.
func (m *Metrics) Result(r *toolyard.Result) {
	class, code := r.Class, string(r.Code)
	if !class.Known() {
		class = toolyard.Unsafe // which it is read as
	}
	if r.Code == toolyard.OK {
		code = "ok"
	}
	m.calls.WithLabelValues(string(class), code).Inc()
	if r.Attempts == 0 {
		return
	}
	m.attempts.Add(float64(r.Attempts))
	m.pipeline.WithLabelValues(string(class)).Observe(r.DurationMS / 1000)
	m.execute.WithLabelValues(string(class)).Observe(r.ExecuteMS / 1000)
	m.queue.WithLabelValues(string(class)).Observe(r.QueueMS / 1000)
}

// Write writes all metrics as text of [ContentType].
func (m *Metrics) Write(w io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil {
		return fmt.Errorf("gather metrics: %w", err)
	}
	for _, f := range families { // not by an expfmt.Encoder, which links the forms in protobuf too
		_, writeErr := expfmt.MetricFamilyToText(w, f)
		err = errors.Join(err, writeErr)
	}
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}
