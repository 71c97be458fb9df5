// Package admission decides which batch a dispatcher runs next, which it rejects, and where an agent's calls queue, so
// that one agent's flood hardly delays the others.
//
// Authority: none over a batch; it only decides the order. A rejected batch has run nothing.
//
// Ordering: batches of one agent and priority start in the order in which they came, and agents take turns. While a
// batch waits whose agent is below its cap and its quotas, each other agent starts at most one batch of its priority
// before it. One for which a quota has no room is passed by smaller ones, but not without end. Of the batches that
// start while some of each priority could, one in [BulkEvery] is a bulk one.
//
// Failure: it stores nothing. The batches that waited in a dispatcher that died are delivered to another one, and wait
// there.
//
// The package is pure.
package admission

import (
	"slices"
	"time"

	"github.com/toolyard/toolyard"
)

// BulkEvery is which start is that of a bulk batch, while interactive ones could start too.
const BulkEvery = 5

// Limits bound one dispatcher.
type Limits struct {
	// Running is how many batches run at a time, AgentRunning how many of one agent.
	Running, AgentRunning int
	// Waiting is how many new batches wait, AgentWaiting how many of one agent.
	Waiting, AgentWaiting int
	// Spare is how many batches that are already under way may run beyond Running, because running ones may wait for
	// what they hold. As many children may run beside them all, and as many again of those that are under way.
	Spare int
	// Idle is how many batches may be open and idle, until their agents append calls, in addition to the running ones.
	// One that gets calls continues at once: a batch under way does not wait.
	Idle int
}

// Batch is what admission knows of one.
type Batch struct {
	Key      toolyard.BatchKey
	Priority toolyard.Priority
	// Calls is how many of its calls may be in flight, Begins how many begin with it, and Bytes how long their inputs
	// are.
	Calls, Begins, Bytes int
	// Child says that a batch that runs has made it, and waits for it. Children have places of their own: the batches
	// that wait for them may have taken all others. A child makes no children.
	Child bool
}

// Reason says why a batch is rejected.
type Reason string

// The reasons.
const (
	Admitted  Reason = ""           // not rejected
	AgentFull Reason = "agent full" // its agent has the maximum of waiting batches
	QueueFull Reason = "queue full" // as many wait as may wait, and its agent has the most of them
	QuotaFull Reason = "quota full" // its agent or team has too much that waits: see [Quotas.MayWait]
	ChildFull Reason = "child full" // as many children wait as new batches may
)

// Queue has the batches of one dispatcher. Make it with [NewQueue]. It is not safe for concurrent use.
type Queue struct {
	limits Limits
	quotas *Quotas
	agents map[toolyard.Agent]*agentQueue
	// turns are the agents that may start a batch of a priority, in the order of their turns.
	turns [priorities][]*agentQueue
	// streak is how many interactive batches have started in a row while a bulk one waited.
	streak int
	// resumed are batches under way, which start before all others.
	resumed []Batch
	// children are those that wait for their places, resumedChildren those that are under way, and childrenRun is how
	// many run.
	children, resumedChildren []Batch
	childrenRun               int
	// reserved are the batches that are to start when a report has come back, in their order; granted those for which
	// that is so. Both count as running. reports is how many there have been.
	reserved []reservation
	granted  []arrival
	reports  uint64
	// started are the batches that run or are idle.
	started map[toolyard.BatchKey]Batch
	running int
	idle    map[toolyard.BatchKey]bool
	waiting int // new batches
	came    uint64
	// holds are for whom others are held back, by scope, and looked is when that was decided last.
	holds  map[Scope]*quotaHold
	looked time.Time
}

// place is that of a priority among all.
type place int

const (
	interactive place = iota
	bulk
	priorities
)

func placeOf(p toolyard.Priority) place {
	if p == toolyard.Bulk {
		return bulk
	}
	return interactive
}

// agentQueue is one agent. It is kept while the agent has a batch here.
type agentQueue struct {
	agent   toolyard.Agent
	waiting [priorities][]arrival
	running int
	idle    int
	inTurns [priorities]bool
}

// arrival is a batch that waits. Those that came later have higher numbers.
type arrival struct {
	Batch
	n uint64
	// passed is since when others pass it because there is no room in its quotas, or when others were held back for it
	// last; hold is for how long they are the next time.
	passed time.Time
	hold   time.Duration
}

// reservation is a batch that is to start. It is in the report of that number; 0 while it is in none.
type reservation struct {
	arrival
	report uint64
}

func (l *agentQueue) waits() int { return len(l.waiting[interactive]) + len(l.waiting[bulk]) }

// NewQueue makes an empty queue. Nil quotas bound nothing.
func NewQueue(l Limits, q *Quotas) *Queue {
	if q == nil {
		q = NewQuotas(Grants{})
	}
	return &Queue{limits: l, quotas: q, agents: map[toolyard.Agent]*agentQueue{}, idle: map[toolyard.BatchKey]bool{},
		started: map[toolyard.BatchKey]Batch{}, holds: map[Scope]*quotaHold{}}
}

// Add adds a batch that is neither waiting nor running here. underWay says that it was planned before: then it is never
// rejected. If the queue is full, the newest batch of the agent with the most waiting batches is rejected, so that a
// flood cannot keep others out. away is that batch, unless why is [Admitted].
func (r *Queue) Add(b Batch, underWay bool, now time.Time) (away toolyard.BatchKey, why Reason) {
	if b.Child {
		if !underWay && len(r.children) >= r.limits.Waiting {
			return b.Key, ChildFull // as a new batch it would wait for the place of the one that waits for it
		}
		if underWay {
			r.resumedChildren = append(r.resumedChildren, b)
		} else {
			r.children = append(r.children, b)
		}
		return away, Admitted
	}
	if underWay {
		r.resumed = append(r.resumed, b)
		return away, Admitted
	}
	l := r.agentQueueOf(b.Key.Agent)
	switch {
	case l.waits() >= r.limits.AgentWaiting:
		why = AgentFull
	case r.quotas.MayWait(b.Key.Agent, b.Bytes) != "":
		why = QuotaFull
	}
	if why != Admitted {
		r.dropUnused(l)
		return b.Key, why
	}
	r.came++
	p := placeOf(b.Priority)
	l.waiting[p] = append(l.waiting[p], arrival{Batch: b, n: r.came})
	r.waiting++
	r.quotas.wait(&b, now)
	if r.waiting > r.limits.Waiting {
		away, why = r.dropNewest(r.longest(l), now), QueueFull
	}
	r.giveTurn(l)
	return away, why
}

// WouldReject returns why a new batch of an agent with inputs of so many bytes would be rejected if it came now.
func (r *Queue) WouldReject(agent toolyard.Agent, bytes int) Reason {
	mine := &agentQueue{agent: agent}
	if l := r.agents[agent]; l != nil {
		mine = l
	}
	switch {
	case mine.waits() >= r.limits.AgentWaiting:
		return AgentFull
	case r.quotas.MayWait(agent, bytes) != "":
		return QuotaFull
	case r.waiting < r.limits.Waiting:
		return Admitted
	}
	for _, l := range r.agents {
		if l.waits() > mine.waits()+1 {
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
		n := l.waits() - most.waits()
		if n > 0 || n == 0 && most != came && l.agent < most.agent {
			most = l
		}
	}
	return most
}

// dropNewest removes an agent's newest waiting batch.
func (r *Queue) dropNewest(l *agentQueue, now time.Time) toolyard.BatchKey {
	p, newest := interactive, arrival{}
	for at := range priorities {
		if w := l.waiting[at]; len(w) > 0 && w[len(w)-1].n > newest.n {
			p, newest = at, w[len(w)-1]
		}
	}
	l.waiting[p] = l.waiting[p][:len(l.waiting[p])-1]
	r.waiting--
	r.quotas.waited(&newest.Batch, now)
	if len(l.waiting[p]) == 0 && l.inTurns[p] {
		r.turns[p] = slices.DeleteFunc(r.turns[p], func(o *agentQueue) bool { return o == l })
		l.inTurns[p] = false
	}
	r.dropUnused(l)
	return newest.Key
}

// Next starts the batch whose turn it is, if one may start. Batches of agents with quotas it only reserves: see
// [Queue.Report].
func (r *Queue) Next(now time.Time) (b Batch, ok bool) {
	if len(r.granted) > 0 {
		b, r.granted = r.granted[0].Batch, r.granted[1:]
		r.started[b.Key] = b
		r.quotas.start(&b, now)
		return b, true
	}
	if b, ok := r.nextChild(); ok {
		r.childrenRun++
		r.goOn(&b, now)
		return b, true
	}
	own := r.running - r.childrenRun
	if len(r.resumed) > 0 && own < r.limits.Running+r.limits.Spare {
		b, r.resumed = r.resumed[0], r.resumed[1:]
		r.goOn(&b, now)
		return b, true
	}
	for ; own < r.limits.Running && own+len(r.idle) < r.limits.Running+r.limits.Idle; own++ {
		a, ok := r.take(now)
		if !ok {
			return b, false
		}
		r.quotas.reserve(&a.Batch, now)
		if !r.quotas.bounded(a.Key.Agent) {
			r.started[a.Key] = a.Batch
			return a.Batch, true
		}
		r.reserved = append(r.reserved, reservation{arrival: a})
	}
	return b, false
}

// nextChild takes a child for which there is a place. Those that run may wait for what one holds that is under way.
func (r *Queue) nextChild() (b Batch, ok bool) {
	switch {
	case len(r.resumedChildren) > 0 && r.childrenRun < 2*r.limits.Spare:
		b, r.resumedChildren = r.resumedChildren[0], r.resumedChildren[1:]
	case len(r.children) > 0 && r.childrenRun < r.limits.Spare:
		b, r.children = r.children[0], r.children[1:]
	default:
		return b, false
	}
	return b, true
}

// goOn starts a batch whatever is used.
func (r *Queue) goOn(b *Batch, now time.Time) {
	r.start(r.agentQueueOf(b.Key.Agent))
	r.started[b.Key] = *b
	r.quotas.reserve(b, now)
	r.quotas.start(b, now)
}

// take takes the waiting batch whose turn it is, if one may start.
func (r *Queue) take(now time.Time) (a arrival, ok bool) {
	first, second := interactive, bulk
	if r.streak >= BulkEvery-1 {
		first, second = second, first
	}
	r.holdBack(now)
	p := first
	l := r.turn(p, now)
	if l == nil {
		p = second
		l = r.turn(p, now)
	}
	if l == nil {
		return a, false
	}
	if p == interactive && r.turnOf(bulk, now) >= 0 {
		r.streak++
	} else {
		r.streak = 0
	}
	a, l.waiting[p] = l.waiting[p][0], l.waiting[p][1:]
	r.waiting--
	r.quotas.waited(&a.Batch, now)
	r.release(a.Key, now)
	r.start(l)
	r.giveTurn(l)
	return a, true
}

// Reserves reports whether batches are reserved, and in no report yet.
func (r *Queue) Reserves() bool {
	return slices.ContainsFunc(r.reserved, func(b reservation) bool { return b.report == 0 })
}

// Report returns what is used of quotas here, for the other dispatchers, and the report's number. One is sent when the
// one before was stored, or is known not to be.
func (r *Queue) Report(now time.Time) (map[Scope]Usage, uint64) {
	r.reports++
	for i := range r.reserved {
		if r.reserved[i].report == 0 {
			r.reserved[i].report = r.reports
		}
	}
	return r.quotas.report(now), r.reports
}

// Settle notes that a report has come back, after all that others had reported before it, and nothing that they have
// reported since. What it reserves starts, or waits on if others were faster.
func (r *Queue) Settle(report uint64, now time.Time) {
	fit := r.reserved[:0:0]
	for _, b := range slices.Backward(r.reserved) { // the last are the first to go
		if r.quotas.fits(&b.Batch, now) {
			fit = append(fit, b)
		} else {
			r.putBack(b.arrival, now)
		}
	}
	r.reserved = nil
	for _, b := range slices.Backward(fit) {
		if b.report == 0 || b.report > report {
			r.reserved = append(r.reserved, b)
		} else {
			r.granted = append(r.granted, b.arrival)
		}
	}
}

// Regrant has other quotas bound all agents from now on. What runs goes on, and counts against the new ones; what was
// reserved is reserved again, and waits for the next report. Calls that began before under other quotas do not count
// against a new quota of calls a minute.
func (r *Queue) Regrant(g Grants, now time.Time) {
	again := make([]reservation, 0, len(r.granted)+len(r.reserved))
	for _, a := range r.granted {
		again = append(again, reservation{arrival: a})
	}
	for _, b := range r.reserved {
		again = append(again, reservation{arrival: b.arrival})
	}
	r.granted, r.reserved = nil, again
	r.count(-1, now)
	r.quotas.grants = g
	r.count(1, now)
}

// count counts so many times what waits, is reserved and runs.
func (r *Queue) count(times int, now time.Time) {
	for _, l := range r.agents {
		for _, waiting := range l.waiting {
			for _, a := range waiting {
				r.quotas.add(&a.Batch, now, Usage{Bytes: times * a.Bytes})
			}
		}
	}
	for _, b := range r.reserved {
		r.quotas.add(&b.Batch, now, Usage{Batches: times, Calls: times * r.quotas.reserves(&b.Batch),
			Asked: times * b.Begins})
	}
	for _, b := range r.started {
		r.quotas.add(&b, now, Usage{Batches: times, Calls: times * r.quotas.reserves(&b)})
	}
}

// putBack has a batch that was reserved wait on, first of all.
func (r *Queue) putBack(a arrival, now time.Time) {
	l, p := r.agents[a.Key.Agent], placeOf(a.Priority)
	r.quotas.cancel(&a.Batch, now)
	r.quotas.wait(&a.Batch, now)
	l.waiting[p] = slices.Insert(l.waiting[p], 0, a)
	r.waiting++
	l.running--
	r.running--
	if l.inTurns[p] {
		r.turns[p] = slices.DeleteFunc(r.turns[p], func(o *agentQueue) bool { return o == l })
	}
	l.inTurns[p] = true
	r.turns[p] = slices.Insert(r.turns[p], 0, l)
	r.giveTurn(l)
}

// turn takes the agent whose turn it is to start a batch of a priority; nil if none may. Those that may not because of
// a quota keep their turns.
func (r *Queue) turn(p place, now time.Time) *agentQueue {
	i := r.turnOf(p, now)
	if i < 0 {
		return nil
	}
	l := r.turns[p][i]
	r.turns[p] = slices.Delete(r.turns[p], i, i+1)
	l.inTurns[p] = false
	return l
}

// turnOf returns the place of the agent whose turn it is, or -1. Agents that have started other batches since, and may
// start no more, lose their turns.
func (r *Queue) turnOf(p place, now time.Time) int {
	r.turns[p] = slices.DeleteFunc(r.turns[p], func(l *agentQueue) bool {
		l.inTurns[p] = l.running < r.limits.AgentRunning
		return !l.inTurns[p]
	})
	return slices.IndexFunc(r.turns[p], func(l *agentQueue) bool {
		b := &l.waiting[p][0].Batch
		return r.quotas.mayReserve(b, now) && !r.heldBack(b)
	})
}

func (r *Queue) start(l *agentQueue) {
	l.running++
	r.running++
}

// stop counts a started batch that runs no longer.
func (r *Queue) stop(l *agentQueue, k toolyard.BatchKey) {
	l.running--
	r.running--
	if r.started[k].Child {
		r.childrenRun--
	}
}

// Idle records that a running batch is open and has nothing to do.
func (r *Queue) Idle(k toolyard.BatchKey) {
	l := r.agents[k.Agent]
	r.idle[k] = true
	l.idle++
	r.stop(l, k)
	r.giveTurn(l)
}

// Busy records that an idle batch has something to do again.
func (r *Queue) Busy(k toolyard.BatchKey) {
	l := r.agents[k.Agent]
	delete(r.idle, k)
	l.idle--
	r.start(l)
	if r.started[k].Child {
		r.childrenRun++
	}
}

// Remove removes a batch that was running or idle.
func (r *Queue) Remove(k toolyard.BatchKey, now time.Time) {
	l := r.agents[k.Agent]
	b := r.started[k]
	r.quotas.end(&b, now)
	if r.idle[k] {
		delete(r.idle, k)
		l.idle--
	} else {
		r.stop(l, k)
	}
	delete(r.started, k)
	r.giveTurn(l)
	r.dropUnused(l)
}

// Started returns what is known of a batch that runs or is idle.
func (r *Queue) Started(k toolyard.BatchKey) Batch { return r.started[k] }

// Load returns how many batches run, how many wait, and how many are open and idle.
func (r *Queue) Load() (running, waiting, open int) {
	return r.running, r.waiting + len(r.resumed) + len(r.resumedChildren) + len(r.children), len(r.idle)
}

// giveTurn appends an agent to the turns, if it may start a batch.
func (r *Queue) giveTurn(l *agentQueue) {
	for p := range priorities {
		if !l.inTurns[p] && len(l.waiting[p]) > 0 && l.running < r.limits.AgentRunning {
			l.inTurns[p] = true
			r.turns[p] = append(r.turns[p], l)
		}
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
	if l.waits() == 0 && l.running == 0 && l.idle == 0 {
		delete(r.agents, l.agent)
	}
}
