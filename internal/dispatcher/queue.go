package dispatcher

import (
	"log/slog"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/broker"
)

// admissionQueue is the shell around [admission.Queue]: the submissions that were delivered to this dispatcher,
// those that wait and those that run. Waiting ones stay unacknowledged, and are kept alive.
type admissionQueue struct {
	log     *slog.Logger
	mu      sync.Mutex
	queue   *admission.Queue
	quotas  *admission.Quotas
	rates   *rateGate
	lanes   *admission.Lanes
	waiting map[toolyard.BatchKey]*broker.Submission
	running map[toolyard.BatchKey]*kept
	// freed signals that another batch may start, and reserved that one would, when that is reported.
	freed, reserved chan struct{}
}

func newAdmissionQueue(cfg *Config, log *slog.Logger) *admissionQueue {
	quotas := admission.NewQuotas(cfg.Quotas)
	reserved := make(chan struct{}, 1)
	return &admissionQueue{
		quotas: quotas, queue: admission.NewQueue(admission.Limits{
			Running: cfg.MaxBatches, AgentRunning: cfg.MaxAgentBatches, Waiting: cfg.MaxWaiting,
			AgentWaiting: cfg.MaxAgentWaiting,
			Spare:        cfg.MaxBatches, Idle: cfg.MaxOpen,
		}, quotas),
		log: log, lanes: admission.NewLanes(broker.Lanes, broker.LaneOf),
		waiting: map[toolyard.BatchKey]*broker.Submission{}, running: map[toolyard.BatchKey]*kept{},
		freed: make(chan struct{}, 1), reserved: reserved, rates: newRateGate(cfg.Quotas, reserved),
	}
}

// laneOf is the lane of a batch's calls.
func (l *admissionQueue) laneOf(b *toolyard.Batch) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lanes.Of(b.Agent, b.Options.Priority)
}

// concurrency is how many calls of a batch of an agent may be in flight, of so many that it may have by itself.
func (l *admissionQueue) concurrency(a toolyard.Agent, calls int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quotas.Concurrency(a, calls)
}

// begin counts calls that begin although they did not come with their batch.
func (l *admissionQueue) begin(a toolyard.Agent, calls int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quotas.Begin(a, calls, time.Now())
}

// runs reports whether a batch runs here.
func (l *admissionQueue) runs(k toolyard.BatchKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[k] != nil
}

// takeRedelivery reports whether a batch runs or waits here already. The batch is then kept by the new delivery.
func (l *admissionQueue) takeRedelivery(sub *broker.Submission) bool {
	l.mu.Lock()
	k, runs := l.running[sub.Key]
	_, waits := l.waiting[sub.Key]
	if waits {
		sub.Release()
		l.waiting[sub.Key] = sub
	}
	l.mu.Unlock()
	if runs {
		k.redeliver(sub)
	}
	return runs || waits
}

// add takes a submission in. It returns the one that is rejected for it, if any, and why.
func (l *admissionQueue) add(sub *broker.Submission, b admission.Batch, underWay, child bool) (*broker.Submission,
	admission.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[sub.Key] = sub
	b.Child = child
	k, why := l.queue.Add(b, underWay, time.Now())
	if why == admission.Admitted {
		return nil, why
	}
	away := l.waiting[k]
	delete(l.waiting, k)
	return away, why
}

// start takes the batch whose turn it is from those that wait to those that run.
func (l *admissionQueue) start() (*kept, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.queue.Next(time.Now())
	if l.queue.Reserves() {
		signal(l.reserved)
	}
	if !ok {
		return nil, false
	}
	key := b.Key
	k := &kept{key: key, sub: l.waiting[key], log: l.log.With("agent", key.Agent, "batch", key.ID)}
	delete(l.waiting, key)
	l.running[key] = k
	l.lanes.Enter(key.Agent, b.Priority)
	return k, true
}

// remove takes out a batch that no longer runs here.
func (l *admissionQueue) remove(k toolyard.BatchKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, k)
	l.lanes.Leave(k.Agent, l.queue.Started(k).Priority)
	l.queue.Remove(k, time.Now())
}

// setIdle notes whether an open batch has nothing to do. While it has nothing, another may start in its place. It
// goes on as soon as it has something again.
func (l *admissionQueue) setIdle(k toolyard.BatchKey, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !idle {
		l.queue.Busy(k)
		return
	}
	l.queue.Idle(k)
	l.free()
}

// free signals that another batch may start.
func (l *admissionQueue) free() { signal(l.freed) }

// report is what is used of quotas here, and the report's number. asks says that batches wait for it to come back.
func (l *admissionQueue) report() (u map[admission.Scope]admission.Usage, number uint64, asks bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asks = l.queue.Reserves()
	u, number = l.queue.Report(time.Now())
	l.rates.update(func(r *admission.Rates, now time.Time) {
		asks = asks || r.Reserves()
		r.Report(number, now, u)
	})
	return u, number, asks
}

// settle notes that a report has come back, after all that others had reported before it.
func (l *admissionQueue) settle(report uint64) {
	l.mu.Lock()
	l.queue.Settle(report, time.Now())
	l.mu.Unlock()
	l.rates.update(func(r *admission.Rates, now time.Time) { r.Settle(report, now) })
	l.free()
}

// heard takes in what another dispatcher uses of quotas; nil, that it is gone.
func (l *admissionQueue) heard(dispatcher string, report map[admission.Scope]admission.Usage) {
	l.mu.Lock()
	l.quotas.Heard(dispatcher, report, time.Now())
	l.mu.Unlock()
	l.rates.update(func(r *admission.Rates, now time.Time) { r.Heard(dispatcher, report, now) })
	l.free()
}

// regrant has other quotas bound the agents from now on.
func (l *admissionQueue) regrant(g admission.Grants) {
	l.mu.Lock()
	l.queue.Regrant(g, time.Now())
	l.mu.Unlock()
	l.rates.regrant(g)
	signal(l.reserved) // which reports what is used by the new ones, too
	l.free()
}

// know notes whether what all dispatchers use is known.
func (l *admissionQueue) know(all bool) {
	l.mu.Lock()
	l.quotas.Know(all)
	l.mu.Unlock()
	l.rates.update(func(r *admission.Rates, _ time.Time) { r.Know(all) })
	l.free()
}

// whyQuota says why a new batch of an agent with so many bytes may not wait.
func (l *admissionQueue) whyQuota(a toolyard.Agent, bytes int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quotas.MayWait(a, bytes)
}

// load is how many batches run, wait, and are open and idle.
func (l *admissionQueue) load() (running, waiting, idle int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.Load()
}

// submissions returns those that wait.
func (l *admissionQueue) submissions() []*broker.Submission {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*broker.Submission, 0, len(l.waiting))
	for _, s := range l.waiting {
		out = append(out, s)
	}
	return out
}

// dropPayload drops the payload of a submission that waits; it is fetched again when the batch starts.
func (l *admissionQueue) dropPayload(sub *broker.Submission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[sub.Key] == sub {
		sub.Release()
	}
}

// wouldReject returns why a new batch of an agent would be rejected now.
func (l *admissionQueue) wouldReject(a toolyard.Agent) admission.Reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.WouldReject(a, 1)
}
