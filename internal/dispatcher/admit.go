package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// The limits of admission.
const (
	// SilentPercent is how full the streams of events and replies may be before new batches are not even refused: a
	// refusal is stored there. They are given back for silentPause.
	SilentPercent = 95
	silentPause   = 5 * time.Second
	// tellEvery is how often clients are told that their batches wait.
	tellEvery = time.Second
	// maxRejecting is how many batches are rejected at a time; the next submission is taken when there are fewer.
	maxRejecting = 16
)

// admissionQueue is the shell around [admission.Queue]: the submissions that were delivered to this dispatcher,
// those that wait and those that run. Waiting ones stay unacknowledged, and are kept alive.
type admissionQueue struct {
	mu      sync.Mutex
	queue   *admission.Queue
	lanes   *admission.Lanes
	waiting map[toolyard.BatchKey]*broker.Submission
	running map[toolyard.BatchKey]*runner
	// store is the room in the store, as measured last.
	store store
	// rejecting is a semaphore for concurrent rejections.
	rejecting chan struct{}
	// freed signals that another batch may start.
	freed chan struct{}
}

func newAdmissionQueue(cfg *Config) *admissionQueue {
	return &admissionQueue{
		queue: admission.NewQueue(admission.Limits{
			Running: cfg.MaxBatches, AgentRunning: cfg.MaxAgentBatches, Waiting: cfg.MaxWaiting,
			AgentWaiting: cfg.MaxAgentWaiting,
			Spare:        cfg.MaxBatches, Idle: cfg.MaxOpen,
		}),
		lanes: admission.NewLanes(broker.Lanes, broker.LaneOf), waiting: map[toolyard.BatchKey]*broker.Submission{},
		running: map[toolyard.BatchKey]*runner{}, rejecting: make(chan struct{}, maxRejecting),
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
	r, runs := l.running[sub.Key]
	_, waits := l.waiting[sub.Key]
	if waits {
		sub.Release()
		l.waiting[sub.Key] = sub
	}
	l.mu.Unlock()
	if runs {
		r.redeliver(sub)
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

// startOne starts the batch whose turn it is.
func (d *Dispatcher) startOne() (*runner, bool) {
	l := d.admission
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.queue.Next()
	if !ok {
		return nil, false
	}
	r := d.newRunner(l.waiting[k])
	delete(l.waiting, k)
	l.running[k] = r
	l.lanes.Enter(k.Agent)
	return r, true
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

// receive takes a delivery in: its batch runs, waits or is rejected.
func (d *Dispatcher) receive(ctx context.Context, work *sync.WaitGroup, sub *broker.Submission) {
	if d.admission.takeRedelivery(sub) {
		return
	}
	if d.newer.seenRecently(sub.Key, time.Now()) {
		d.giveBack(sub)
		return
	}
	underWay, full := d.underWay(ctx, sub), d.whyFull()
	if !underWay && full != "" {
		d.reject(ctx, work, sub, storeFull(full))
	} else if away, why := d.admission.add(sub, underWay); why != admission.Admitted {
		d.reject(ctx, work, away, d.tooMany(away.Key, why))
	}
	d.startNext(ctx, work)
	d.admission.dropPayload(sub)
}

// dropPayload drops the payload of a submission that waits; it is fetched again when the batch starts.
func (l *admissionQueue) dropPayload(sub *broker.Submission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[sub.Key] == sub {
		sub.Release()
	}
}

// underWay reports whether a batch was planned before, so that others may wait for what it holds. It returns true
// on error.
func (d *Dispatcher) underWay(ctx context.Context, sub *broker.Submission) bool {
	if sub.Parked != 0 {
		return true
	}
	if sub.Deliveries == 1 {
		return false
	}
	planned, err := d.b.Planned(ctx, sub.Key)
	if err != nil && ctx.Err() == nil {
		d.log.Warn("it cannot be told whether a batch is under way; it goes first", "batch", sub.Key, "error", err)
	}
	return planned || err != nil
}

// startFreed starts batches in place of those that have become idle, until ctx ends.
func (d *Dispatcher) startFreed(ctx context.Context, work *sync.WaitGroup) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.admission.freed:
			d.startNext(ctx, work)
		}
	}
}

// startNext starts as many batches as may run. Each starts others when it ends.
func (d *Dispatcher) startNext(ctx context.Context, work *sync.WaitGroup) {
	for ctx.Err() == nil {
		r, ok := d.startOne()
		if !ok {
			return
		}
		work.Go(func() {
			d.serve(ctx, r)
			d.admission.remove(r.key)
			d.startNext(ctx, work)
		})
	}
}

// keepWaiting keeps the waiting submissions alive until ctx ends; then it gives them back.
func (d *Dispatcher) keepWaiting(ctx context.Context) error {
	tick := time.NewTicker(broker.Heartbeat(d.b.Settings().BatchAckWait))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			for _, s := range d.admission.submissions() { // then another dispatcher gets them at once
				if err := s.Return(0); err != nil {
					d.log.Info("a submission that waits was not given back; it is delivered again when its wait is "+
						"over", "batch", s.Key, "error", err)
				}
			}
			return nil
		case <-tick.C:
		}
		for _, s := range d.admission.submissions() {
			if err := s.Hold(); err != nil {
				d.log.Warn("a submission that waits could not be kept; it is delivered again", "batch", s.Key,
					"error", err)
				break // the connection is closed, or being restored: so it is for the others
			}
		}
	}
}

// tellWaiting tells the clients of waiting batches that they wait, until ctx ends.
func (d *Dispatcher) tellWaiting(ctx context.Context) error {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		running, waiting, _ := d.admission.load()
		for _, s := range d.admission.submissions() {
			if err := d.b.TellWaiting(s.Key, broker.Waiting{Running: running, Waiting: waiting}); err != nil {
				d.log.Debug("nobody is told that batches wait", "error", err)
				break // so it is for the others
			}
		}
	}
}

const (
	statusTooMany     = 429
	statusUnavailable = 503
)

func storeFull(why string) events.Refused {
	return events.Refused{Type: "about:blank", Title: "Service Unavailable", Status: statusUnavailable,
		Detail: why + ". Nothing of the batch ran: try again later, under a new id"}
}

func (d *Dispatcher) tooMany(k toolyard.BatchKey, why admission.Reason) events.Refused {
	return events.Refused{Type: "about:blank", Title: "Too Many Requests", Status: statusTooMany,
		Detail: d.crowdedBecause(k.Agent, why) + ". Nothing of the batch ran: try again when some are done, under " +
			"a new id"}
}

// Crowded returns why a new batch of an agent would be rejected now, or "".
func (d *Dispatcher) Crowded(agent toolyard.Agent) string {
	d.admission.mu.Lock()
	why := d.admission.queue.WouldReject(agent)
	d.admission.mu.Unlock()
	if why == admission.Admitted {
		return ""
	}
	return d.crowdedBecause(agent, why)
}

// crowdedBecause puts a reason into words.
func (d *Dispatcher) crowdedBecause(agent toolyard.Agent, why admission.Reason) string {
	if why == admission.QueueFull {
		return fmt.Sprintf("%d batches wait in a dispatcher, which is the limit (--max-waiting), and no agent has "+
			"more of them than %q", d.cfg.MaxWaiting, agent)
	}
	return fmt.Sprintf("agent %q has %d batches that wait in a dispatcher, which is the limit (--max-agent-waiting)",
		agent, d.cfg.MaxAgentWaiting)
}

// reject refuses a batch for want of room, in a goroutine of its own.
func (d *Dispatcher) reject(ctx context.Context, work *sync.WaitGroup, sub *broker.Submission, why events.Refused) {
	log := d.log.With("agent", sub.Key.Agent, "batch", sub.Key.ID)
	giveBack := func() {
		if err := sub.Return(silentPause); err != nil {
			log.Info("a submission was not given back; it is delivered again when its wait is over", "error", err)
		}
	}
	if now := d.storeNow(); now.fill.Refusals >= SilentPercent || now.disk.Stalled {
		giveBack()
		return
	}
	select {
	case d.admission.rejecting <- struct{}{}:
	case <-ctx.Done():
		return
	}
	work.Go(func() {
		defer func() { <-d.admission.rejecting }()
		refusing, cancel := context.WithTimeout(ctx, broker.Lease(d.b.Settings().BatchAckWait))
		defer cancel()
		switch err := sub.TurnAway(refusing, why); {
		case err == nil:
			d.cfg.Meter.Refused(why.Status)
			log.Info("rejected a batch", "status", why.Status, "detail", why.Detail)
		case errors.Is(err, broker.ErrConflict): // another dispatcher has planned it, or refused it and will answer
		case ctx.Err() == nil:
			log.Warn("a batch could not be refused; it is looked at again", "error", err)
			giveBack()
		}
	})
}
