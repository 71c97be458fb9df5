package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// places are where calls run: so many of each class at a time, and so many of each tool that has a cap. A call has a place
// of both kinds or of none, so that calls which wait for their tool stand in nobody's way. A call of a toolset has a place of the
// toolset alone: one that does not answer takes none of the others' places. Agents take turns: the next place
// goes to the agent that was given one the longest ago, and to its call that has waited the longest.
type places struct {
	mu     sync.Mutex
	free   map[toolyard.Class]int
	taken  map[string]int // by tool, of those with a cap
	queue  []*claimant    // in the order in which they came
	agents map[toolyard.Agent]*turns
	given  uint64 // the number of the last place that was given
	aside  map[laneKey]int
	// room is closed and replaced whenever a place of the class is free, for those who only want to know; since is when
	// none was free for the last time.
	room  map[toolyard.Class]chan struct{}
	since map[toolyard.Class]time.Time
}

// turns is what is known of an agent that has calls here.
type turns struct {
	calls int    // that wait or run
	last  uint64 // the number of the last place that it was given
}

type laneKey struct {
	class toolyard.Class
	lane  int
}

// claimant is a call that wants a place, and then has it.
type claimant struct {
	class toolyard.Class
	agent toolyard.Agent
	tool  string
	cap   int  // of its tool; 0 when there is none
	own   bool // tool is a toolset, whose places are beside those of the class
	mine  chan struct{}
}

func newPlaces(slots map[toolyard.Class]int) *places {
	p := &places{
		free: map[toolyard.Class]int{}, taken: map[string]int{}, agents: map[toolyard.Agent]*turns{}, aside: map[laneKey]int{},
		room: map[toolyard.Class]chan struct{}{}, since: map[toolyard.Class]time.Time{}, given: 1,
	}
	for class, n := range slots {
		p.free[class], p.room[class], p.since[class] = n, make(chan struct{}), time.Now()
	}
	return p
}

// ask puts a call in line. Its channel is closed when it has a place.
func (p *places) ask(c *claimant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.mine = make(chan struct{})
	a := p.agents[c.agent]
	if a == nil {
		a = &turns{last: p.given - 1} // before the agent that was served just now, behind all who have waited for longer
		p.agents[c.agent] = a
	}
	a.calls++
	p.queue = append(p.queue, c)
	p.hand()
}

// take waits until a call that has asked has a place, for so long at most and until ctx ends. Otherwise it asks no more.
func (p *places) take(ctx context.Context, c *claimant, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.mine:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.queue, c)
	if i < 0 { // it was given in this very moment
		return true
	}
	p.queue = slices.Delete(p.queue, i, i+1)
	p.forget(c.agent)
	return false
}

// give gives a place back.
func (p *places) give(c *claimant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.own {
		if p.free[c.class]++; p.free[c.class] == 1 {
			p.since[c.class] = time.Now()
		}
	}
	if c.cap > 0 {
		if p.taken[c.tool]--; p.taken[c.tool] == 0 {
			delete(p.taken, c.tool)
		}
	}
	p.forget(c.agent)
	p.hand()
	if p.free[c.class] > 0 && !c.own {
		close(p.room[c.class])
		p.room[c.class] = make(chan struct{})
	}
}

// hand gives places to those whose turn it is, while there are any that somebody can use.
func (p *places) hand() {
	for {
		next := -1
		for i, c := range p.queue {
			if (c.own || p.free[c.class] > 0) && (c.cap == 0 || p.taken[c.tool] < c.cap) && (next < 0 || p.agents[c.agent].last < p.agents[p.queue[next].agent].last) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		c := p.queue[next]
		p.queue = slices.Delete(p.queue, next, next+1)
		if !c.own {
			p.free[c.class]--
		}
		if c.cap > 0 {
			p.taken[c.tool]++
		}
		p.given++
		p.agents[c.agent].last = p.given
		close(c.mine)
	}
}

// forget lets go of an agent whose last call is gone.
func (p *places) forget(a toolyard.Agent) {
	if t := p.agents[a]; t.calls > 1 {
		t.calls--
	} else {
		delete(p.agents, a)
	}
}

// awaitRoom waits until places of a class are free that nobody can use, and says how many, without taking any.
func (p *places) awaitRoom(ctx context.Context, class toolyard.Class) (free int, err error) {
	for {
		p.mu.Lock()
		free, room := p.free[class], p.room[class]
		p.mu.Unlock()
		if free > 0 {
			return free, nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// roomSince is since when a place of a class has been free all the time. It reports false when none is.
func (p *places) roomSince(class toolyard.Class) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since[class], p.free[class] > 0
}

// setAside counts a call of a tool with a cap that waits beside its lane. It reports false when there are enough of them.
func (p *places) setAside(k laneKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aside[k] >= asidePerLane {
		return false
	}
	p.aside[k]++
	return true
}

func (p *places) takeUp(k laneKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aside[k]--
}

// asidePerLane is how many calls of tools with a cap wait in a worker beside each lane, so that what stands behind them in
// the lane is taken. More are given back, for a while that grows up to longestReturn.
const (
	asidePerLane  = 32
	longestReturn = 5 * time.Second
)

// callsPerRequest is how many messages a worker asks a lane for at a time, if it has places for them: the more, the
// faster one agent's calls are taken, and the more of them may stand before another lane's when all slots are taken.
const callsPerRequest = 8

// serve takes messages of one lane while there is room, and runs each in a place, until the lane is stopped and all of
// them are done.
func (w *Worker) serve(taking, calls context.Context, lane broker.Lane, at laneKey) error {
	var running sync.WaitGroup
	defer running.Wait()
	most := callsPerRequest
	if !at.class.Safe() {
		most = 1 // one exclusive call holds the workspace
	}
	last := time.Now()
	for {
		free, err := w.places.awaitRoom(taking, at.class)
		if err != nil {
			return nil
		}
		for d, err := range lane.Take(calls, min(free, most)) {
			bad, isBad := errors.AsType[*broker.BadWorkError](err)
			newer, isNewer := errors.AsType[*events.NewerError](err)
			switch {
			case errors.Is(err, broker.ErrStopped) && taking.Err() == nil:
				return errors.New("taking calls has ended, which it does when the connection to NATS is closed")
			case errors.Is(err, broker.ErrStopped):
				return nil
			case isNewer:
				w.tellNewer(newer)
			case isBad:
				w.log.Error("a message on the work queue cannot be run", "error", err)
				if !bad.Again {
					w.refuse(calls, bad)
				}
			case err != nil:
				return err
			default:
				w.watch(d, at, last)
				w.place(taking, calls, d, at, &running)
			}
			last = time.Now()
		}
	}
}

// place runs a message in a place, beside its lane. One that finds every place taken waits for half a lease, and is
// given back then: another worker may have room. Of tools with a cap only so many wait, and more are given back at
// once.
func (w *Worker) place(taking, calls context.Context, d *broker.Delivery, at laneKey, running *sync.WaitGroup) {
	c := w.claimant(d, at.class)
	if c.cap > 0 && !w.places.setAside(at) {
		w.returnUnstarted(calls, d, min(returnPause<<min(d.Deliveries, 8), longestReturn))
		return
	}
	w.places.ask(c)
	running.Go(func() {
		has := w.places.take(taking, c, time.Until(d.Received.Add(broker.Lease(w.b.Settings().CallAckWait)/2)))
		if c.cap > 0 {
			w.places.takeUp(at)
		}
		switch {
		case has:
			defer w.places.give(c)
			w.take(calls, d)
		case w.aborted(d): // it ends without a place: nothing of it begins
			w.take(calls, d)
		default:
			w.returnUnstarted(calls, d, returnPause)
		}
	})
}

// stalledAfter is how long a call may lie in the queue beside a worker that has room and asks for calls.
const stalledAfter = time.Second

// watch counts a message that lay in the queue though this worker had asked for it all the time. asked is since when
// the lane is asked and nothing came.
//
// It sees a request that was lost, whoever has lost it, when the next one brings the message. It cannot tell that from
// an outage of NATS, and does not see a message that never comes. It does not see calls that wait for room: a slot that
// is never given back looks like a call that takes long. When a message was stored it knows by the server's clock:
// where that and this machine's differ by more than a second, it counts what did not happen, or nothing. So nothing is
// decided by it.
func (w *Worker) watch(d *broker.Delivery, at laneKey, asked time.Time) {
	room, ok := w.places.roomSince(at.class)
	if !ok || d.Deliveries > 1 { // it was given back, or to a worker that fell silent
		return
	}
	if waited := stalled(d.Received, d.Stored, asked, room); waited > stalledAfter {
		w.log.Warn("a call lay in the queue beside this worker, which had room and had asked for calls",
			"batch", d.Key(), "call", d.Calls[0].Index, "class", at.class, "lane", at.lane,
			"waited", waited, "stalls", w.stalls.Add(1))
	}
}

// stalled is how long a message lay in the queue while the lane was asked and there was room.
func stalled(received, stored, asked, room time.Time) time.Duration {
	return min(received.Sub(stored), received.Sub(asked), received.Sub(room))
}

// maxNewerTypes is how many types of messages of newer versions a worker tells apart.
const maxNewerTypes = 100

// tellNewer says, once for each type, that calls are left to workers of a newer version. They have been given back.
func (w *Worker) tellNewer(e *events.NewerError) {
	w.mu.Lock()
	what := fmt.Sprintf("%s of wire version %d", e.Type, e.Needs())
	told := w.newer[what] || len(w.newer) >= maxNewerTypes
	if !told {
		w.newer[what] = true
	}
	w.mu.Unlock()
	if !told {
		w.log.Warn("calls that a newer version has queued are left to a worker of that version; start one",
			"type", e.Type, "wire_version", e.Needs(), "own_wire_version", toolyard.WireVersion)
	}
}

// claimant is a message as it asks for a place: that of its first tool with a cap, or of a toolset, if one is.
func (w *Worker) claimant(d *broker.Delivery, class toolyard.Class) *claimant {
	c := &claimant{class: class, agent: d.Agent}
	for _, call := range d.Calls {
		_, e, ok := w.tools.Lookup(call.Tool)
		if !ok {
			continue
		}
		if set := w.tools.setOf(&e); set != nil {
			c.tool, c.cap, c.own = "toolset "+set.Name(), set.Places(), true
			break
		}
		if e.MaxInFlight > 0 {
			c.tool, c.cap = e.Name, e.MaxInFlight
			break
		}
	}
	return c
}

// refuse answers a call whose message cannot be read, so that its batch goes on. When the call has an event already, its
// owner knows more than this worker.
func (w *Worker) refuse(ctx context.Context, bad *broker.BadWorkError) {
	if bad.Key.ID == "" {
		return // its subject names no call: nobody waits for it
	}
	res := toolyard.Result{
		Index: bad.Index, IsError: true, Code: toolyard.InternalError, Class: toolyard.Unsafe, Worker: w.cfg.ID, Detail: bad.Err.Error(),
		Error: "Internal error: the worker could not read this call. It did not run.",
		Phases: []toolyard.Fact{
			{Phase: toolyard.PhaseSchedule, Outcome: toolyard.OutcomeFailed, Code: toolyard.InternalError},
			{Phase: toolyard.PhaseEmitTerminal, Outcome: toolyard.OutcomeOK},
		},
	}
	storing, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := w.b.Append(storing, bad.Key, batch.ChainCall, w.cfg.Pool, bad.Index, 0, events.Finished{Result: res})
	if err != nil && !errors.Is(err, broker.ErrConflict) {
		w.log.Error("a call that cannot be read was not answered", "batch", bad.Key, "call", bad.Index, "error", err)
	}
}
