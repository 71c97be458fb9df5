package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/ticket"
)

// Load is what stands in a dispatcher now.
type Load struct {
	// Running, Idle and Waiting are its batches: those that it owns and that have something to do, those that are open
	// and have nothing, and those that wait for their turn.
	Running, Idle, Waiting int
	// Workers are those that it has heard of, with their slots, those of them that had a call at the last heartbeat,
	// and the dependencies that they do not try now.
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

// Stock is what stands in the store now.
type Stock struct {
	// Streams is how full each stream is, 1 being full.
	Streams map[string]float64
	// DeadLetters is how many were stored since the first reading.
	DeadLetters uint64
	Queues      []Queue
	Shards      []Shard
}

// Shard is who serves a shard: dispatchers, and workers by their pool.
type Shard struct {
	Shard       int
	Dispatchers int
	Workers     map[toolyard.Pool]int
}

// Queue is the work queue of one pool and class: calls that nobody has taken, calls that workers have, and since when
// the oldest of the former is there; the zero time if there is none.
type Queue struct {
	Pool           toolyard.Pool
	Class          toolyard.Class
	Waiting, Taken int
	Oldest         time.Time
}

// Dispatcher counts what a dispatcher does. It implements dispatcher.Meter.
type Dispatcher struct {
	batches, refused, calls          *prometheus.CounterVec
	attempts                         prometheus.Counter
	pipeline, execute, queue, ticket *prometheus.HistogramVec
	stock                            atomic.Pointer[Stock]
}

// Dispatcher adds the metrics of a dispatcher whose load is asked for at each reading.
func (m *Metrics) Dispatcher(load func() Load) *Dispatcher {
	attempted := attempts.counters()
	d := &Dispatcher{
		batches: batchesCompleted.counters(), refused: batchesRefused.counters(), calls: calls.counters(),
		attempts: attempted.WithLabelValues(), pipeline: callSeconds.durations(), execute: executeSeconds.durations(),
		queue: queueSeconds.durations(), ticket: ticketSeconds.durations(),
	}
	zeroResults(d.calls)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		d.refused.WithLabelValues(strconv.Itoa(status))
	}
	for _, mode := range ticket.Modes {
		d.ticket.WithLabelValues(string(mode))
	}
	d.stock.Store(&Stock{})
	m.registry.MustRegister(d.batches, d.refused, d.calls, attempted, d.pipeline, d.execute, d.queue, d.ticket,
		readings(func(read reader) {
			l := load()
			read(batchesRunning, float64(l.Running))
			read(batchesIdle, float64(l.Idle))
			read(batchesWaiting, float64(l.Waiting))
			read(workers, float64(l.Workers))
			read(slots, float64(l.Slots))
			read(slotsBusy, float64(l.Busy))
			read(breakersOpen, float64(l.Breakers))
			read(stalledCalls, float64(l.Stalls))
			for pool, classes := range l.Wanted {
				for class, n := range classes {
					read(wantedSlots, float64(n), string(pool), string(class))
				}
			}
			read(storeFill, float64(l.StoreFill)/100)
		}), readings(d.readStock))
	return d
}

// readStock reads what was last known of the store.
func (d *Dispatcher) readStock(read reader) {
	stock := d.stock.Load()
	for name, ratio := range stock.Streams {
		read(streamFill, ratio, name)
	}
	if len(stock.Streams) > 0 { // otherwise nothing is known
		read(deadLetters, float64(stock.DeadLetters))
	}
	for _, q := range stock.Queues {
		age := time.Duration(0)
		if !q.Oldest.IsZero() {
			age = max(0, time.Since(q.Oldest))
		}
		read(queueCalls, float64(q.Waiting), string(q.Pool), string(q.Class))
		read(queueTaken, float64(q.Taken), string(q.Pool), string(q.Class))
		read(queueOldest, age.Seconds(), string(q.Pool), string(q.Class))
	}
	for _, s := range stock.Shards {
		read(shardDispatchers, float64(s.Dispatchers), strconv.Itoa(s.Shard))
		for pool, n := range s.Workers {
			read(shardWorkers, float64(n), string(pool), strconv.Itoa(s.Shard))
		}
	}
}

// Stock takes in what stands in the store now. The zero Stock says that nothing is known.
func (d *Dispatcher) Stock(s Stock) { d.stock.Store(&s) }

// Completed counts a batch that is over.
func (d *Dispatcher) Completed(status toolyard.Status) {
	d.batches.WithLabelValues(string(status)).Inc()
}

// Refused counts a submission that was refused, with an HTTP status.
func (d *Dispatcher) Refused(status int) { d.refused.WithLabelValues(strconv.Itoa(status)).Inc() }

// TicketGranted counts a lock of a workspace that a batch has waited for.
func (d *Dispatcher) TicketGranted(mode ticket.Mode, waited time.Duration) {
	d.ticket.WithLabelValues(string(mode)).Observe(waited.Seconds())
}

// Result counts a result of a batch that is over.
func (d *Dispatcher) Result(r *toolyard.Result) {
	class, code := labelsOf(r)
	d.calls.WithLabelValues(class, code).Inc()
	if r.Attempts <= 0 { // a worker may write anything, and a counter that is to fall panics
		return
	}
	d.attempts.Add(float64(r.Attempts))
	d.queue.WithLabelValues(class).Observe(max(0, r.QueueMS) / 1000)
	if r.DurationMS <= 0 { // no worker finished it: it was canceled while it ran, say
		return
	}
	d.pipeline.WithLabelValues(class).Observe(r.DurationMS / 1000)
	d.execute.WithLabelValues(class).Observe(max(0, r.ExecuteMS) / 1000)
}

// zeroResults gives a counter of results its zeros: an increase from nothing to one is none for Prometheus, and what is
// rare would be missed.
func zeroResults(of *prometheus.CounterVec) {
	for _, class := range toolyard.Classes {
		for _, code := range append([]toolyard.Code{toolyard.OK}, toolyard.Codes...) {
			class, code := labelsOf(&toolyard.Result{Class: class, Code: code})
			of.WithLabelValues(class, code)
		}
	}
}

// labelsOf are the class and the code of a result.
func labelsOf(r *toolyard.Result) (class, code string) {
	class, code = string(r.Class), string(r.Code)
	if !r.Class.Known() {
		class = string(toolyard.Unsafe) // which it is read as
	}
	if r.Code == toolyard.OK {
		code = "ok"
	} else if !slices.Contains(toolyard.Codes, r.Code) { // a worker may write anything
		code = string(toolyard.InternalError)
	}
	return class, code
}
