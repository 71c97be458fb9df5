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
	// tellEvery is how often those who wait for a batch are told that it waits.
	tellEvery = time.Second
	// turningAway is how many batches are refused at a time; the next submission is taken when there are fewer.
	turningAway = 16
)

// lobby is the shell around [admission.Room]: the submissions that were handed to this dispatcher and do not run yet. They
// stay unacknowledged, and kept alive.
type lobby struct {
	mu      sync.Mutex
	room    *admission.Room
	lanes   *admission.Lanes
	waiting map[toolyard.BatchKey]*broker.Submission
	running map[toolyard.BatchKey]*runner
	// store is what was seen of the store when it was last looked at.
	store store
	// leaving bounds those that are refused.
	leaving chan struct{}
	// freed says that another batch may begin.
	freed chan struct{}
}

func newLobby(cfg *Config) *lobby {
	return &lobby{
		room: admission.NewRoom(admission.Limits{
			Running: cfg.MaxBatches, AgentRunning: cfg.MaxAgentBatches, Waiting: cfg.MaxWaiting, AgentWaiting: cfg.MaxAgentWaiting,
			Spare: cfg.MaxBatches, Idle: cfg.MaxOpen,
		}),
		lanes: admission.NewLanes(broker.Lanes, broker.LaneOf), waiting: map[toolyard.BatchKey]*broker.Submission{},
		running: map[toolyard.BatchKey]*runner{}, leaving: make(chan struct{}, turningAway), freed: make(chan struct{}, 1),
	}
}

// laneOf is the lane of an agent's calls.
func (l *lobby) laneOf(a toolyard.Agent) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lanes.Of(a)
}

// known reports whether a batch runs or waits here already. Then the delivery is a new handle to keep it by.
func (l *lobby) known(sub *broker.Submission) bool {
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

// arrive takes a submission in. It returns the one that is turned away for it, if there is one, and why.
func (l *lobby) arrive(sub *broker.Submission, underWay bool) (*broker.Submission, admission.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[sub.Key] = sub
	k, why := l.room.Arrive(sub.Key, underWay)
	if why == admission.Welcome {
		return nil, why
	}
	away := l.waiting[k]
	delete(l.waiting, k)
	return away, why
}

// next begins the batch whose turn it is.
func (d *Dispatcher) next() (*runner, bool) {
	l := d.lobby
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.room.Next()
	if !ok {
		return nil, false
	}
	r := d.newRunner(l.waiting[k])
	delete(l.waiting, k)
	l.running[k] = r
	l.lanes.Enter(k.Agent)
	return r, true
}

// done is told of a batch that runs here no more.
func (l *lobby) done(k toolyard.BatchKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, k)
	l.room.Done(k)
	l.lanes.Leave(k.Agent)
}

// idle is told whether an open batch has nothing to do: then another may begin in its place, and it goes on when it has.
func (l *lobby) idle(k toolyard.BatchKey, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !idle {
		l.room.Busy(k)
		return
	}
	l.room.Idle(k)
	select {
	case l.freed <- struct{}{}:
	default: // somebody looks already
	}
}

// load is how many batches run, wait, and are open and idle.
func (l *lobby) load() (running, waiting, idle int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.room.Load()
}

// all are the submissions that wait.
func (l *lobby) all() []*broker.Submission {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*broker.Submission, 0, len(l.waiting))
	for _, s := range l.waiting {
		out = append(out, s)
	}
	return out
}

// receive finds a place for a delivery: it runs, waits or is turned away.
func (d *Dispatcher) receive(ctx context.Context, work *sync.WaitGroup, sub *broker.Submission) {
	if d.lobby.known(sub) {
		return
	}
	if d.left.recently(sub.Key, time.Now()) {
		d.giveBack(sub)
		return
	}
	underWay, full := d.underWay(ctx, sub), d.full()
	if !underWay && full != "" {
		d.turnAway(ctx, work, sub, storeFull(full))
	} else if away, why := d.lobby.arrive(sub, underWay); why != admission.Welcome {
		d.turnAway(ctx, work, away, d.refused(away.Key, why))
	}
	d.startNext(ctx, work)
	d.lobby.lighten(sub)
}

// lighten lets go of what a submission says that has to wait.
func (l *lobby) lighten(sub *broker.Submission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[sub.Key] == sub {
		sub.Release()
	}
}

// underWay reports whether a batch was planned before, so that others may wait for what it holds. In doubt it was.
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

// startFreed runs batches in the places of those that have become idle, until ctx ends.
func (d *Dispatcher) startFreed(ctx context.Context, work *sync.WaitGroup) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.lobby.freed:
			d.startNext(ctx, work)
		}
	}
}

// startNext runs as many batches as may run, each until it runs here no more.
func (d *Dispatcher) startNext(ctx context.Context, work *sync.WaitGroup) {
	for ctx.Err() == nil {
		r, ok := d.next()
		if !ok {
			return
		}
		work.Go(func() {
			d.serve(ctx, r)
			d.lobby.done(r.key)
			d.startNext(ctx, work)
		})
	}
}

// keepWaiting tells the stream that the submissions that wait are in work, until ctx ends; then it gives them back.
func (d *Dispatcher) keepWaiting(ctx context.Context) error {
	tick := time.NewTicker(broker.Heartbeat(d.b.Settings().BatchAckWait))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			for _, s := range d.lobby.all() { // another dispatcher need not wait until they are missed
				if err := s.Return(0); err != nil {
					d.log.Info("a submission that waits was not given back; it is delivered again when its wait is over", "batch", s.Key, "error", err)
				}
			}
			return nil
		case <-tick.C:
		}
		for _, s := range d.lobby.all() {
			if err := s.Hold(); err != nil {
				d.log.Warn("a submission that waits could not be kept; it is delivered again", "batch", s.Key, "error", err)
				break // the connection is closed, or being restored: so it is for the others
			}
		}
	}
}

// tellWaiting tells whoever listens that his batch waits for its turn, until ctx ends.
func (d *Dispatcher) tellWaiting(ctx context.Context) error {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		running, waiting, _ := d.lobby.load()
		for _, s := range d.lobby.all() {
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

func (d *Dispatcher) refused(k toolyard.BatchKey, why admission.Reason) events.Refused {
	return events.Refused{Type: "about:blank", Title: "Too Many Requests", Status: statusTooMany,
		Detail: d.crowd(k.Agent, why) + ". Nothing of the batch ran: try again when some are done, under a new id"}
}

// Crowded is why a new batch of an agent would be turned away now, if it came here; "" when it would not.
func (d *Dispatcher) Crowded(agent toolyard.Agent) string {
	d.lobby.mu.Lock()
	why := d.lobby.room.Crowded(agent)
	d.lobby.mu.Unlock()
	if why == admission.Welcome {
		return ""
	}
	return d.crowd(agent, why)
}

// crowd says why there is no room for a batch of an agent.
func (d *Dispatcher) crowd(agent toolyard.Agent, why admission.Reason) string {
	if why == admission.RoomFull {
		return fmt.Sprintf("%d batches wait in a dispatcher, which is the limit (--max-waiting), and no agent has more of them than %q", d.cfg.MaxWaiting, agent)
	}
	return fmt.Sprintf("agent %q has %d batches that wait in a dispatcher, which is the limit (--max-agent-waiting)", agent, d.cfg.MaxAgentWaiting)
}

// turnAway refuses a batch for want of room, beside what else there is to do.
func (d *Dispatcher) turnAway(ctx context.Context, work *sync.WaitGroup, sub *broker.Submission, why events.Refused) {
	log := d.log.With("agent", sub.Key.Agent, "batch", sub.Key.ID)
	giveBack := func() {
		if err := sub.Return(silentPause); err != nil {
			log.Info("a submission was not given back; it is delivered again when its wait is over", "error", err)
		}
	}
	if now := d.filled(); now.fill.Refusals >= SilentPercent || now.disk.Stalled {
		giveBack()
		return
	}
	select {
	case d.lobby.leaving <- struct{}{}:
	case <-ctx.Done():
		return
	}
	work.Go(func() {
		defer func() { <-d.lobby.leaving }()
		refusing, cancel := context.WithTimeout(ctx, broker.Lease(d.b.Settings().BatchAckWait))
		defer cancel()
		switch err := sub.TurnAway(refusing, why); {
		case err == nil:
			d.cfg.Meter.Refused(why.Status)
			log.Info("turned a batch away", "status", why.Status, "detail", why.Detail)
		case errors.Is(err, broker.ErrConflict): // another dispatcher has planned it, or refused it and will answer
		case ctx.Err() == nil:
			log.Warn("a batch could not be refused; it is looked at again", "error", err)
			giveBack()
		}
	})
}
