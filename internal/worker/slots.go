package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
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

// hasSlot reports whether the call has its slot.
func (c *waiter) hasSlot() bool {
	select {
	case <-c.granted:
		return true
	default:
		return false
	}
}

// busy returns how many of the slots of each class are taken.
func (p *slots) busy(of map[toolyard.Class]int) map[toolyard.Class]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[toolyard.Class]int{}
	for class, n := range of {
		out[class] = n - p.free[class]
	}
	return out
}

// allBusy returns how many slots are taken.
func (p *slots) allBusy(of map[toolyard.Class]int) (n int) {
	for _, busy := range p.busy(of) {
		n += busy
	}
	return n
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
