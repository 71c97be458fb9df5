// Package admission decides which batch a dispatcher runs next, which it rejects, and where an agent's calls queue, so
// that one agent's flood hardly delays the others.
//
// Authority: none over a batch; it only decides the order. A rejected batch has run nothing.
//
// Ordering: batches of one agent start in the order in which they came, and agents take turns. While a batch waits
// whose agent is below its cap, each other agent starts at most one batch before it.
//
// Failure: it stores nothing. The batches that waited in a dispatcher that died are delivered to another one, and wait
// there.
//
// The package is pure.
package admission

import (
	"slices"

	"github.com/toolyard/toolyard"
)

// Limits bound one dispatcher.
type Limits struct {
	// Running is how many batches run at a time, AgentRunning how many of one agent.
	Running, AgentRunning int
	// Waiting is how many new batches wait, AgentWaiting how many of one agent.
	Waiting, AgentWaiting int
	// Spare is how many batches that are already under way may run beyond Running, because running ones may wait for
	// what they hold.
	Spare int
	// Idle is how many batches may be open and idle, until their agents append calls, in addition to the running ones.
	// One that gets calls continues at once: a batch under way does not wait.
	Idle int
}

// Reason says why a batch is rejected.
type Reason string

// The reasons.
const (
	Admitted  Reason = ""           // not rejected
	AgentFull Reason = "agent full" // its agent has the maximum of waiting batches
	QueueFull Reason = "queue full" // as many wait as may wait, and its agent has the most of them
)

// Queue has the batches of one dispatcher. Make it with [NewQueue]. It is not safe for concurrent use.
type Queue struct {
	limits Limits
	agents map[toolyard.Agent]*agentQueue
	// turns are the agents that may start a batch, in the order of their turns.
	turns []*agentQueue
	// resumed are batches under way, which start before all others.
	resumed []toolyard.BatchKey
	running int
	idle    map[toolyard.BatchKey]bool
	waiting int // new batches
}

// agentQueue is one agent. It is kept while the agent has a batch here.
type agentQueue struct {
	agent   toolyard.Agent
	waiting []toolyard.BatchID
	running int
	idle    int
	inTurns bool
}

// NewQueue makes an empty queue.
func NewQueue(l Limits) *Queue {
	return &Queue{limits: l, agents: map[toolyard.Agent]*agentQueue{}, idle: map[toolyard.BatchKey]bool{}}
}

// Add adds a batch that is neither waiting nor running here. underWay says that it was planned before: then it is never
// rejected. If the queue is full, the newest batch of the agent with the most waiting batches is rejected, so that a
// flood cannot keep others out. away is that batch, unless why is [Admitted].
func (r *Queue) Add(k toolyard.BatchKey, underWay bool) (away toolyard.BatchKey, why Reason) {
	if underWay {
		r.resumed = append(r.resumed, k)
		return away, Admitted
	}
	l := r.agentQueueOf(k.Agent)
	if len(l.waiting) >= r.limits.AgentWaiting {
		r.dropUnused(l)
		return k, AgentFull
	}
	l.waiting = append(l.waiting, k.ID)
	r.waiting++
	if r.waiting > r.limits.Waiting {
		away, why = r.dropNewest(r.longest(l)), QueueFull
	}
	r.giveTurn(l)
	return away, why
}

// WouldReject returns why a new batch of an agent would be rejected if it came now.
func (r *Queue) WouldReject(agent toolyard.Agent) Reason {
	mine := &agentQueue{agent: agent}
	if l := r.agents[agent]; l != nil {
		mine = l
	}
	if len(mine.waiting) >= r.limits.AgentWaiting {
		return AgentFull
	}
	if r.waiting < r.limits.Waiting {
		return Admitted
	}
	for _, l := range r.agents {
		if len(l.waiting) > len(mine.waiting)+1 {
			return Admitted // that agent's newest batch would be rejected
		}
	}
	return QueueFull
}

// longest returns the agent with the most waiting batches; if several have equally many, the one that came, or the
// first by name.
func (r *Queue) longest(came *agentQueue) *agentQueue {
	most := came
	for _, l := range r.agents {
		n := len(l.waiting) - len(most.waiting)
		if n > 0 || n == 0 && most != came && l.agent < most.agent {
			most = l
		}
	}
	return most
}

// dropNewest removes an agent's newest waiting batch.
func (r *Queue) dropNewest(l *agentQueue) toolyard.BatchKey {
	last := len(l.waiting) - 1
	k := toolyard.BatchKey{Agent: l.agent, ID: l.waiting[last]}
	l.waiting = l.waiting[:last]
	r.waiting--
	if len(l.waiting) == 0 && l.inTurns {
		r.turns = slices.DeleteFunc(r.turns, func(o *agentQueue) bool { return o == l })
		l.inTurns = false
	}
	r.dropUnused(l)
	return k
}

// Next starts the batch whose turn it is, if one may start.
func (r *Queue) Next() (k toolyard.BatchKey, ok bool) {
	if len(r.resumed) > 0 && r.running < r.limits.Running+r.limits.Spare {
		k, r.resumed = r.resumed[0], r.resumed[1:]
		r.start(r.agentQueueOf(k.Agent))
		return k, true
	}
	for len(r.turns) > 0 && r.running < r.limits.Running && r.running+len(r.idle) < r.limits.Running+r.limits.Idle {
		l := r.turns[0]
		r.turns, l.inTurns = r.turns[1:], false
		if l.running >= r.limits.AgentRunning { // a resumed batch of the agent has started since
			continue
		}
		k = toolyard.BatchKey{Agent: l.agent, ID: l.waiting[0]}
		l.waiting = l.waiting[1:]
		r.waiting--
		r.start(l)
		r.giveTurn(l)
		return k, true
	}
	return k, false
}

func (r *Queue) start(l *agentQueue) {
	l.running++
	r.running++
}

// Idle records that a running batch is open and has nothing to do.
func (r *Queue) Idle(k toolyard.BatchKey) {
	l := r.agents[k.Agent]
	r.idle[k] = true
	l.idle++
	l.running--
	r.running--
	r.giveTurn(l)
}

// Busy records that an idle batch has something to do again.
func (r *Queue) Busy(k toolyard.BatchKey) {
	l := r.agents[k.Agent]
	delete(r.idle, k)
	l.idle--
	r.start(l)
}

// Remove removes a batch that was running or idle.
func (r *Queue) Remove(k toolyard.BatchKey) {
	l := r.agents[k.Agent]
	if r.idle[k] {
		delete(r.idle, k)
		l.idle--
	} else {
		l.running--
		r.running--
	}
	r.giveTurn(l)
	r.dropUnused(l)
}

// Load returns how many batches run, how many wait, and how many are open and idle.
func (r *Queue) Load() (running, waiting, open int) {
	return r.running, r.waiting + len(r.resumed), len(r.idle)
}

// giveTurn appends an agent to the turns, if it may start a batch.
func (r *Queue) giveTurn(l *agentQueue) {
	if !l.inTurns && len(l.waiting) > 0 && l.running < r.limits.AgentRunning {
		l.inTurns = true
		r.turns = append(r.turns, l)
	}
}

// agentQueueOf returns an agent's queue, and adds it if it is new.
func (r *Queue) agentQueueOf(a toolyard.Agent) *agentQueue {
	l := r.agents[a]
	if l == nil {
		l = &agentQueue{agent: a}
		r.agents[a] = l
	}
	return l
}

func (r *Queue) dropUnused(l *agentQueue) {
	if len(l.waiting) == 0 && l.running == 0 && l.idle == 0 {
		delete(r.agents, l.agent)
	}
}
