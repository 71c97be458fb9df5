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
	"github.com/toolyard/toolyard/internal/outcome"
	"github.com/toolyard/toolyard/internal/version"
)

// slots bound how many calls of each class run at a time, and how many of each tool that has a cap. A call gets
// both slots or neither, so that calls which wait for their tool block no others. A call of a toolset has a slot of
// the toolset alone: a server that does not answer takes no slot of the classes. Agents take turns: the next slot
// goes to the agent that got one the longest ago, and to its oldest call.
type slots struct {
	mu     sync.Mutex
	free   map[toolyard.Class]int
	taken  map[string]int // by tool, of those with a cap
	queue  []*waiter      // in the order in which they came
	agents map[toolyard.Agent]*agentTurns
	grants uint64 // the number of the last place that was given
	beside map[laneKey]int
	// freed is closed and replaced whenever a slot of the class is free, for those who take none; freeFrom is since
	// when one has been free.
	freed    map[toolyard.Class]chan struct{}
	freeFrom map[toolyard.Class]time.Time
}

// agentTurns is one agent that has calls here.
type agentTurns struct {
	calls int    // that wait or run
	last  uint64 // the number of the last slot that it was granted
}

type laneKey struct {
	class toolyard.Class
	lane  int
}

// waiter is a call that waits for a slot, and then holds it.
type waiter struct {
	class     toolyard.Class
	agent     toolyard.Agent
	tool      string
	cap       int  // of its tool; 0 when there is none
	ofToolset bool // tool is a toolset, whose slots are beside those of the class
	granted   chan struct{}
}

func newSlots(counts map[toolyard.Class]int) *slots {
	p := &slots{
		free: map[toolyard.Class]int{}, taken: map[string]int{}, agents: map[toolyard.Agent]*agentTurns{},
		beside: map[laneKey]int{},
		freed:  map[toolyard.Class]chan struct{}{}, freeFrom: map[toolyard.Class]time.Time{}, grants: 1,
	}
	for class, n := range counts {
		p.free[class], p.freed[class], p.freeFrom[class] = n, make(chan struct{}), time.Now()
	}
	return p
}

// enqueue adds a call. Its channel is closed when it has a slot.
func (p *slots) enqueue(c *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.granted = make(chan struct{})
	a := p.agents[c.agent]
	if a == nil {
		// before the agent that was served just now, behind all who have waited for longer
		a = &agentTurns{last: p.grants - 1}
		p.agents[c.agent] = a
	}
	a.calls++
	p.queue = append(p.queue, c)
	p.grantFree()
}

// await reports whether a call got a slot before the wait was over and before ctx ended. A call without one is
// removed.
func (p *slots) await(ctx context.Context, c *waiter, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.granted:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.queue, c)
	if i < 0 { // the slot was granted just now
		return true
	}
	p.queue = slices.Delete(p.queue, i, i+1)
	p.dropCall(c.agent)
	return false
}

// release gives a slot back.
func (p *slots) release(c *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.ofToolset {
		if p.free[c.class]++; p.free[c.class] == 1 {
			p.freeFrom[c.class] = time.Now()
		}
	}
	if c.cap > 0 {
		if p.taken[c.tool]--; p.taken[c.tool] == 0 {
			delete(p.taken, c.tool)
		}
	}
	p.dropCall(c.agent)
	p.grantFree()
	if p.free[c.class] > 0 && !c.ofToolset {
		close(p.freed[c.class])
		p.freed[c.class] = make(chan struct{})
	}
}

// grantFree grants free slots to the calls whose turn it is. The lock is held.
func (p *slots) grantFree() {
	for {
		next := -1
		for i, c := range p.queue {
			if (c.ofToolset || p.free[c.class] > 0) && (c.cap == 0 || p.taken[c.tool] < c.cap) &&
				(next < 0 || p.agents[c.agent].last < p.agents[p.queue[next].agent].last) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		c := p.queue[next]
		p.queue = slices.Delete(p.queue, next, next+1)
		if !c.ofToolset {
			p.free[c.class]--
		}
		if c.cap > 0 {
			p.taken[c.tool]++
		}
		p.grants++
		p.agents[c.agent].last = p.grants
		close(c.granted)
	}
}

// dropCall counts a call of an agent less, and drops the agent with its last call. The lock is held.
func (p *slots) dropCall(a toolyard.Agent) {
	if t := p.agents[a]; t.calls > 1 {
		t.calls--
	} else {
		delete(p.agents, a)
	}
}

// awaitFree waits until slots of a class are free that no waiting call can use, and returns how many. It takes
// none.
func (p *slots) awaitFree(ctx context.Context, class toolyard.Class) (free int, err error) {
	for {
		p.mu.Lock()
		free, room := p.free[class], p.freed[class]
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

// freeSince returns since when a slot of a class has been free. It reports false when none is.
func (p *slots) freeSince(class toolyard.Class) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freeFrom[class], p.free[class] > 0
}

// addBeside counts a call of a tool with a cap that waits beside its lane. It reports false when there are enough.
func (p *slots) addBeside(k laneKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beside[k] >= maxBesideLane {
		return false
	}
	p.beside[k]++
	return true
}

func (p *slots) removeBeside(k laneKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beside[k]--
}

// asidePerLane is how many calls of tools with a cap wait in a worker beside each lane, so that what stands behind
// them in the lane is taken. More are given back, for a while that grows up to longestReturn.
const (
	maxBesideLane = 32
	longestReturn = 5 * time.Second
)

// callsPerRequest is how many messages a worker asks a lane for at a time, if it has slots for them. With more, one
// agent's calls are taken faster, and more of them may wait before another lane's when all slots are taken.
const callsPerRequest = 8

// serve takes messages of one lane while slots are free, and runs each in a slot. It returns when the lane is
// stopped and all of them are done.
func (w *Worker) serve(taking, calls context.Context, lane broker.Lane, at laneKey) error {
	var running sync.WaitGroup
	defer running.Wait()
	most := callsPerRequest
	if !at.class.Safe() {
		most = 1 // one exclusive call holds the workspace
	}
	last := time.Now()
	for {
		free, err := w.slots.awaitFree(taking, at.class)
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
				w.logNewer(newer)
			case isBad:
				w.log.Error("a message on the work queue cannot be run", "error", err)
				if !bad.Again {
					w.answerUnreadable(calls, bad)
				}
			case err != nil:
				return err
			default:
				w.countStall(d, at, last)
				w.runInSlot(taking, calls, d, at, &running)
			}
			last = time.Now()
		}
	}
}

// runInSlot runs a message in a slot, beside its lane. A message that gets no slot within half a lease is given
// back, because another worker may have one. Of tools with a cap only so many wait, and more are given back at
// once.
func (w *Worker) runInSlot(taking, calls context.Context, d *broker.Delivery, at laneKey, running *sync.WaitGroup) {
	c := w.newWaiter(d, at.class)
	if c.cap > 0 && !w.slots.addBeside(at) {
		w.returnUnstarted(calls, d, min(returnPause<<min(d.Deliveries, 8), longestReturn))
		return
	}
	w.slots.enqueue(c)
	running.Go(func() {
		has := w.slots.await(taking, c, time.Until(d.Received.Add(broker.Lease(w.b.Settings().CallAckWait)/2)))
		if c.cap > 0 {
			w.slots.removeBeside(at)
		}
		switch {
		case has:
			defer w.slots.release(c)
			w.runMessage(calls, d)
		case w.aborted(d): // it ends without a slot: nothing of it begins
			w.runMessage(calls, d)
		default:
			w.returnUnstarted(calls, d, returnPause)
		}
	})
}

// stalledAfter is how long a call may lie in the queue beside a worker that has room and asks for calls.
const stalledAfter = time.Second

// countStall counts a message that was in the queue although this worker was asking for it all the time. asked is
// when the lane was asked last without an answer.
//
// It sees a lost request when the next one brings the message. It cannot tell that from an outage of NATS, and it
// does not see a message that never comes. It does not see calls that wait for a slot: a slot that is never
// released looks like a long call. The time when a message was stored is the server's: where its clock and this
// machine's differ by more than a second, the count is wrong. So nothing is decided by it.
func (w *Worker) countStall(d *broker.Delivery, at laneKey, asked time.Time) {
	room, ok := w.slots.freeSince(at.class)
	if !ok || d.Deliveries > 1 { // it was given back, or to a worker that fell silent
		return
	}
	if waited := stalled(d.Received, d.Stored, asked, room); waited > stalledAfter {
		w.log.Warn("a call lay in the queue beside this worker, which had room and had asked for calls",
			"batch", d.Key(), "call", d.Calls[0].Index, "class", at.class, "lane", at.lane,
			"waited", waited, "stalls", w.stalls.Add(1))
	}
}

// stalled returns how long a message was in the queue while the lane was asked and a slot was free.
func stalled(received, stored, asked, room time.Time) time.Duration {
	return min(received.Sub(stored), received.Sub(asked), received.Sub(room))
}

// maxNewerTypes is how many types of messages of newer versions a worker tells apart.
const maxNewerTypes = 100

// logNewer logs, once for each type, that calls are left to workers of a newer version. They have been given back.
func (w *Worker) logNewer(e *events.NewerError) {
	w.mu.Lock()
	what := fmt.Sprintf("%s of wire version %d", e.Type, e.Needs())
	told := w.newer[what] || len(w.newer) >= maxNewerTypes
	if !told {
		w.newer[what] = true
	}
	w.mu.Unlock()
	if !told {
		w.log.Warn("calls that a newer version has queued are left to a worker of that version; start one",
			"type", e.Type, "wire_version", e.Needs(), "own_wire_version", version.Wire)
	}
}

// newWaiter makes a message's waiter: for its first tool with a cap, or for a toolset, if one of its calls is of
// one.
func (w *Worker) newWaiter(d *broker.Delivery, class toolyard.Class) *waiter {
	c := &waiter{class: class, agent: d.Agent}
	for _, call := range d.Calls {
		_, e, ok := w.tools.Lookup(call.Tool)
		if !ok {
			continue
		}
		if set := w.tools.setOf(&e); set != nil {
			c.tool, c.cap, c.ofToolset = "toolset "+set.Name(), set.Slots(), true
			break
		}
		if e.MaxInFlight > 0 {
			c.tool, c.cap = e.Name, e.MaxInFlight
			break
		}
	}
	return c
}

// answerUnreadable answers a call whose message cannot be read, so that its batch goes on. A call that has an event
// already is left to its owner, who knows more.
func (w *Worker) answerUnreadable(ctx context.Context, bad *broker.BadWorkError) {
	if bad.Key.ID == "" {
		return // its subject names no call: nobody waits for it
	}
	res := outcome.Ended(toolyard.Result{
		Index: bad.Index, Code: toolyard.InternalError, Class: toolyard.Unsafe, Worker: w.cfg.ID,
		Detail: bad.Err.Error(),
		Error:  "Internal error: the worker could not read this call. It did not run.",
	}, toolyard.PhaseSchedule, "")
	storing, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := w.b.Append(storing, bad.Key, batch.ChainCall, w.cfg.Pool, bad.Index, 0, events.Finished{Result: res})
	if err != nil && !errors.Is(err, broker.ErrConflict) {
		w.log.Error("a call that cannot be read was not answered", "batch", bad.Key, "call", bad.Index, "error", err)
	}
}
