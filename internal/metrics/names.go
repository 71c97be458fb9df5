package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind is a metric's type, in Prometheus's words.
type Kind string

const (
	counter   Kind = "counter"
	gauge     Kind = "gauge"
	histogram Kind = "histogram"
)

// Metric is what is said about one metric. Its name ends with its unit, and a counter's with "_total".
type Metric struct {
	Name   string
	Kind   Kind
	By     string // who has it: dispatcher, worker or both
	Labels []string
	Help   string
}

const (
	ofDispatcher = "dispatcher"
	ofWorker     = "worker"
	ofBoth       = "both"
)

// All are the metrics that this project defines, by name.
func All() []Metric {
	var out []Metric
	for _, m := range []*Metric{
		natsConnected, buildInfo,
		batchesCompleted, batchesRefused, batchesRunning, batchesIdle, batchesWaiting,
		calls, attempts, callSeconds, executeSeconds, queueSeconds, ticketSeconds, stalledCalls,
		workers, slots, slotsBusy, wantedSlots, breakersOpen,
		storeFill, streamFill, deadLetters, queueCalls, queueTaken, queueOldest, shardDispatchers, shardWorkers,
		workerRegistered, workerSlots, workerSlotsBusy, workerRuns, workerLeaseLosses, workerBreakersOpen,
		workerStalledCalls, workerSandboxStarts, workerCacheUses, workerCacheBytes,
	} {
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return out
}

var natsConnected = &Metric{"toolyard_nats_connected", gauge, ofBoth, nil,
	"1 while this process is connected to NATS, 0 otherwise."}

// buildInfo has the names of toolyard version --json as labels.
var buildInfo = &Metric{"toolyard_build_info", gauge, ofBoth, []string{"release", "commit", "go", "wire_version"},
	"1, with what was built: release, commit (empty if the build does not say), Go and wire version."}

// The metrics of a dispatcher.
var (
	batchesCompleted = &Metric{"toolyard_batches_completed_total", counter, ofDispatcher, []string{"status"},
		"Batches that this dispatcher completed, by how they ended."}
	batchesRefused = &Metric{"toolyard_batches_refused_total", counter, ofDispatcher, []string{"status"},
		"Submissions that this dispatcher refused, by HTTP status."}
	batchesRunning = &Metric{"toolyard_batches_running", gauge, ofDispatcher, nil,
		"Batches that this dispatcher owns now and that have something to do."}
	batchesIdle = &Metric{"toolyard_batches_idle", gauge, ofDispatcher, nil,
		"Open batches that this dispatcher owns now, and that wait for calls of their agents."}
	batchesWaiting = &Metric{"toolyard_batches_waiting", gauge, ofDispatcher, nil,
		"Batches that wait in this dispatcher for their turn."}
	calls = &Metric{"toolyard_calls_total", counter, ofDispatcher, []string{"class", "code"},
		"Results in the batches that this dispatcher completed, by concurrency class and code; ok is success."}
	attempts = &Metric{"toolyard_call_attempts_total", counter, ofDispatcher, nil,
		"Executions that were started for the results of completed batches."}
	callSeconds = &Metric{"toolyard_call_seconds", histogram, ofDispatcher, []string{"class"},
		"Time in the pipeline on the worker that finished the call."}
	executeSeconds = &Metric{"toolyard_call_execute_seconds", histogram, ofDispatcher, []string{"class"},
		"Time in the tool itself, of the call's time in the pipeline."}
	queueSeconds = &Metric{"toolyard_call_queue_seconds", histogram, ofDispatcher, []string{"class"},
		"Time from being queued to being taken."}
	ticketSeconds = &Metric{"toolyard_ticket_wait_seconds", histogram, ofDispatcher, []string{"mode"},
		"Time from asking for a workspace's lock to having it, by mode (shared, exclusive or named)."}
	stalledCalls = &Metric{"toolyard_calls_stalled_total", counter, ofDispatcher, nil,
		"Calls that lay in the queue for over a second beside a worker with room that had asked for calls."}
	workers = &Metric{"toolyard_workers", gauge, ofDispatcher, nil, "Live workers, as this dispatcher knows them."}
	slots   = &Metric{"toolyard_slots", gauge, ofDispatcher, nil, "Slots of all live workers, of all classes."}

	slotsBusy = &Metric{"toolyard_slots_busy", gauge, ofDispatcher, nil,
		"Slots of all live workers that had a call at the last heartbeats."}
	wantedSlots = &Metric{"toolyard_wanted_slots", gauge, ofDispatcher, []string{"pool", "class"},
		"Slots of workers that the batches of this dispatcher could use now, those that they have included."}
	breakersOpen = &Metric{"toolyard_breakers_open", gauge, ofDispatcher, nil,
		"Dependencies that live workers do not try now because they are down, summed over workers."}
	storeFill = &Metric{"toolyard_store_fill_ratio", gauge, ofDispatcher, nil,
		"How full the fullest of the streams and buckets is that running batches write to, 1 being full."}
	streamFill = &Metric{"toolyard_stream_fill_ratio", gauge, ofDispatcher, []string{"stream"},
		"How full each stream is, in bytes or messages, 1 being full. That of a bucket begins with KV_ or OBJ_."}
	deadLetters = &Metric{"toolyard_dead_letters_total", counter, ofDispatcher, nil,
		"Messages that could not be used, in the whole system, since this dispatcher began."}
	queueCalls = &Metric{"toolyard_queue_calls", gauge, ofDispatcher, []string{"pool", "class"},
		"Calls in the work queue that no worker has taken, in the whole system."}
	queueTaken = &Metric{"toolyard_queue_taken_calls", gauge, ofDispatcher, []string{"pool", "class"},
		"Calls that workers have taken and not ended, in the whole system."}
	queueOldest = &Metric{"toolyard_queue_oldest_seconds", gauge, ofDispatcher, []string{"pool", "class"},
		"How long the oldest call has been in the queue that no worker has taken; 0 if there is none."}
	shardDispatchers = &Metric{"toolyard_shard_dispatchers", gauge, ofDispatcher, []string{"shard"},
		"Dispatchers that take batches of a shard, in the whole system."}
	shardWorkers = &Metric{"toolyard_shard_workers", gauge, ofDispatcher, []string{"pool", "shard"},
		"Live workers of a pool that take calls of a shard, in the whole system."}
)

// The metrics of a worker.
var (
	workerRegistered = &Metric{"toolyard_worker_registered", gauge, ofWorker, nil,
		"1 while this worker may take calls: its heartbeats are stored. 0 otherwise."}
	workerSlots     = &Metric{"toolyard_worker_slots", gauge, ofWorker, []string{"class"}, "Slots of this worker."}
	workerSlotsBusy = &Metric{"toolyard_worker_slots_busy", gauge, ofWorker, []string{"class"},
		"Slots of this worker that have a call now."}
	workerRuns = &Metric{"toolyard_worker_runs_total", counter, ofWorker, []string{"class", "code"},
		"Calls that this worker took through its pipeline, by concurrency class and code; ok is success."}
	workerLeaseLosses = &Metric{"toolyard_worker_lease_losses_total", counter, ofWorker, nil,
		"Calls that this worker stopped because its right to run them had lapsed."}
	workerBreakersOpen = &Metric{"toolyard_worker_breakers_open", gauge, ofWorker, nil,
		"Dependencies that this worker does not try now because they are down."}
	workerStalledCalls = &Metric{"toolyard_worker_calls_stalled_total", counter, ofWorker, nil,
		"Calls that lay in the queue for over a second though this worker had room and had asked for calls."}
	workerSandboxStarts = &Metric{"toolyard_worker_sandbox_starts_total", counter, ofWorker, []string{"outcome"},
		"Commands that were to run in the sandbox, by outcome: ran, or not_started."}
)

// The metrics of a worker's cache.
var (
	workerCacheUses = &Metric{"toolyard_worker_cache_uses_total", counter, ofWorker, []string{"use"},
		"Results of calls that may use their tool's cache, by use: hit, shared (with an equal call), or miss."}
	workerCacheBytes = &Metric{"toolyard_worker_cache_bytes", gauge, ofWorker, nil,
		"Bytes of the outputs that this worker keeps to answer other calls."}
)

// seconds are the buckets of durations: calls take from a millisecond to minutes.
var seconds = prometheus.ExponentialBuckets(0.001, 4, 10)

// counters makes the counters of a metric.
func (m *Metric) counters() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// durations makes the histograms of a metric.
func (m *Metric) durations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: seconds}, m.Labels)
}
