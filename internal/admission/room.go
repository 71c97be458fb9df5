// Package admission decides which batch a dispatcher runs next, which it turns away, and where an agent's calls queue, so
// that one agent's flood costs the others little.
//
// Authority: none over a batch; what it decides is whose turn it is. A batch that is turned away has run nothing.
//
// Ordering: batches of one agent start in the order in which they came, agents take turns. While a batch waits whose agent
// is below its cap, each other agent starts one batch at most before it.
//
// Failure: it keeps nothing. What waited in a dispatcher that died is delivered to the next one, and waits there.
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
	// Spare is how many batches that are under way already run beyond Running: they may hold what running ones wait for.
	Spare int
	// Idle is how many batches may be open beside those that run, with nothing to do until their agents append calls. One
	// that gets calls goes on at once: what is under way waits for nobody.
	Idle int
}

// Reason says why a batch is turned away.
type Reason string

// The reasons.
const (
	Welcome   Reason = ""           // it is not
	AgentFull Reason = "agent full" // its agent has as many waiting as it may have
	RoomFull  Reason = "room full"  // as many wait as may wait, and its agent has the most of them
)

// Room is the batches that one dispatcher was handed and has not done with. Make it with [NewRoom]. It is not safe for
// concurrent use.
type Room struct {
	limits Limits
	agents map[toolyard.Agent]*line
	// turns are the agents that may start a batch, in the order of their turns.
	turns []*line
	// ahead are batches under way, which go before all others.
	ahead   []toolyard.BatchKey
	running int
	idle    map[toolyard.BatchKey]bool
	waiting int // new batches
}

// line is what a room knows of one agent. It is there while the agent has a batch here.
type line struct {
	agent   toolyard.Agent
	waiting []toolyard.BatchID
	running int
	idle    int
	inTurns bool
}

// NewRoom makes an empty room.
func NewRoom(l Limits) *Room {
	return &Room{limits: l, agents: map[toolyard.Agent]*line{}, idle: map[toolyard.BatchKey]bool{}}
}

// Arrive lets a batch in that is neither waiting nor running here. underWay says that it was planned before: it is never
// turned away. When the room is full, the newest batch of the agent that has the most waiting is turned away: so a flood
// cannot keep others out. away is that batch, unless why is [Welcome].
func (r *Room) Arrive(k toolyard.BatchKey, underWay bool) (away toolyard.BatchKey, why Reason) {
	if underWay {
		r.ahead = append(r.ahead, k)
		return away, Welcome
	}
	l := r.line(k.Agent)
	if len(l.waiting) >= r.limits.AgentWaiting {
		r.forget(l)
		return k, AgentFull
	}
	l.waiting = append(l.waiting, k.ID)
	r.waiting++
	if r.waiting > r.limits.Waiting {
		away, why = r.dropFrom(r.longest(l)), RoomFull
	}
	r.takeTurns(l)
	return away, why
}

// Crowded is why a new batch of an agent would be turned away if it arrived now.
func (r *Room) Crowded(agent toolyard.Agent) Reason {
	mine := &line{agent: agent}
	if l := r.agents[agent]; l != nil {
		mine = l
	}
	if len(mine.waiting) >= r.limits.AgentWaiting {
		return AgentFull
	}
	if r.waiting < r.limits.Waiting {
		return Welcome
	}
	for _, l := range r.agents {
		if len(l.waiting) > len(mine.waiting)+1 {
			return Welcome // that one's newest would go
		}
	}
	return RoomFull
}

// longest is the agent with the most waiting batches; among equals it is the one that came, or the first by name.
func (r *Room) longest(came *line) *line {
	most := came
	for _, l := range r.agents {
		n := len(l.waiting) - len(most.waiting)
		if n > 0 || n == 0 && most != came && l.agent < most.agent {
			most = l
		}
	}
	return most
}

// dropFrom takes an agent's newest waiting batch out.
func (r *Room) dropFrom(l *line) toolyard.BatchKey {
	last := len(l.waiting) - 1
	k := toolyard.BatchKey{Agent: l.agent, ID: l.waiting[last]}
	l.waiting = l.waiting[:last]
	r.waiting--
	if len(l.waiting) == 0 && l.inTurns {
		r.turns = slices.DeleteFunc(r.turns, func(o *line) bool { return o == l })
		l.inTurns = false
	}
	r.forget(l)
	return k
}

// Next starts the batch whose turn it is, if one may start.
func (r *Room) Next() (k toolyard.BatchKey, ok bool) {
	if len(r.ahead) > 0 && r.running < r.limits.Running+r.limits.Spare {
		k, r.ahead = r.ahead[0], r.ahead[1:]
		r.start(r.line(k.Agent))
		return k, true
	}
	for len(r.turns) > 0 && r.running < r.limits.Running && r.running+len(r.idle) < r.limits.Running+r.limits.Idle {
		l := r.turns[0]
		r.turns, l.inTurns = r.turns[1:], false
		if l.running >= r.limits.AgentRunning { // a batch of it that was under way has started since
			continue
		}
		k = toolyard.BatchKey{Agent: l.agent, ID: l.waiting[0]}
		l.waiting = l.waiting[1:]
		r.waiting--
		r.start(l)
		r.takeTurns(l)
		return k, true
	}
	return k, false
}

func (r *Room) start(l *line) {
	l.running++
	r.running++
}

// Idle is told of a running batch that is open and has nothing to do.
func (r *Room) Idle(k toolyard.BatchKey) {
	l := r.agents[k.Agent]
	r.idle[k] = true
	l.idle++
	l.running--
	r.running--
	r.takeTurns(l)
}

// Busy is told of an idle batch that has something to do again.
func (r *Room) Busy(k toolyard.BatchKey) {
	l := r.agents[k.Agent]
	delete(r.idle, k)
	l.idle--
	r.start(l)
}

// Done is told of a batch that runs no more, or is idle no more.
func (r *Room) Done(k toolyard.BatchKey) {
	l := r.agents[k.Agent]
	if r.idle[k] {
		delete(r.idle, k)
		l.idle--
	} else {
		l.running--
		r.running--
	}
	r.takeTurns(l)
	r.forget(l)
}

// Load is how many batches run, how many wait, and how many are open and idle.
func (r *Room) Load() (running, waiting, open int) {
	return r.running, r.waiting + len(r.ahead), len(r.idle)
}

// takeTurns puts an agent behind the others that take turns, if it has something to start and may.
func (r *Room) takeTurns(l *line) {
	if !l.inTurns && len(l.waiting) > 0 && l.running < r.limits.AgentRunning {
		l.inTurns = true
		r.turns = append(r.turns, l)
	}
}

// line is what is known of an agent, which is nothing at first.
func (r *Room) line(a toolyard.Agent) *line {
	l := r.agents[a]
	if l == nil {
		l = &line{agent: a}
		r.agents[a] = l
	}
	return l
}

func (r *Room) forget(l *line) {
	if len(l.waiting) == 0 && l.running == 0 && l.idle == 0 {
		delete(r.agents, l.agent)
	}
}
