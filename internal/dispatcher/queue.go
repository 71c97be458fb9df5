package dispatcher

import (
	"log/slog"
	"sync"

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
	lanes   *admission.Lanes
	waiting map[toolyard.BatchKey]*broker.Submission
	running map[toolyard.BatchKey]*kept
	// freed signals that another batch may start.
	freed chan struct{}
}

func newAdmissionQueue(cfg *Config, log *slog.Logger) *admissionQueue {
	return &admissionQueue{
		queue: admission.NewQueue(admission.Limits{
			Running: cfg.MaxBatches, AgentRunning: cfg.MaxAgentBatches, Waiting: cfg.MaxWaiting,
			AgentWaiting: cfg.MaxAgentWaiting,
			Spare:        cfg.MaxBatches, Idle: cfg.MaxOpen,
		}),
		log: log, lanes: admission.NewLanes(broker.Lanes, broker.LaneOf),
		waiting: map[toolyard.BatchKey]*broker.Submission{}, running: map[toolyard.BatchKey]*kept{},
		freed: make(chan struct{}, 1),
	}
}

// laneOf is the lane of an agent's calls.
func (l *admissionQueue) laneOf(a toolyard.Agent) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lanes.Of(a)
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
func (l *admissionQueue) add(sub *broker.Submission, underWay bool) (*broker.Submission, admission.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[sub.Key] = sub
	k, why := l.queue.Add(sub.Key, underWay)
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
	key, ok := l.queue.Next()
	if !ok {
		return nil, false
	}
	k := &kept{key: key, sub: l.waiting[key], log: l.log.With("agent", key.Agent, "batch", key.ID)}
	delete(l.waiting, key)
	l.running[key] = k
	l.lanes.Enter(key.Agent)
	return k, true
}

// remove takes out a batch that no longer runs here.
func (l *admissionQueue) remove(k toolyard.BatchKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, k)
	l.queue.Remove(k)
	l.lanes.Leave(k.Agent)
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
	select {
	case l.freed <- struct{}{}:
	default: // it is signalled already
	}
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
	return l.queue.WouldReject(a)
}
