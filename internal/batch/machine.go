package batch

import (
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
)

// Config is what the owner decides with, beside the log.
type Config struct {
	// WorkerWait is how long a queued call waits while no worker can take it. After that it ends as
	// dependency_unavailable.
	WorkerWait time.Duration
	// MaxAttempts is how often an idempotent call is started at most.
	MaxAttempts int
	// OpenIdle is how long an open batch may get no calls before it is closed.
	OpenIdle time.Duration
	// AbortEvery is how often workers are told to stop calls, until they have.
	AbortEvery time.Duration
	// EndGrace is how long workers have to answer for calls that were ended and that one of them may run without a
	// claim. It is longer than any of them can have a right to.
	EndGrace time.Duration
	// QueueWait is how long a call waits in the queue at most, under this owner, though workers are there: then it
	// ends as dependency_unavailable. One that needs no claim may be running unseen, and has its tool's timeout on
	// top.
	QueueWait time.Duration
	// ItemCalls is how many calls one item has at most. 0: [MaxItemCalls].
	ItemCalls int
	// Alone reports whether a call goes to the workers in a message of its own. Nil: none has to.
	Alone func(c *events.PlannedCall) bool
	// Reserved says that a ticket was reserved for the batch before it was planned. If the plan does not say that it
	// was granted, it may still be in the queue.
	Reserved bool
	// Generation is that of the workspace under the reserved ticket; 0: unknown.
	Generation uint64
	// Rested says that the owner goes on with a batch that was idle: it has no ticket, and no call of it is on the list
	// of those that wait for a person.
	Rested bool
	// Hooks says that hooks want to know of a batch that is over, before the reply that says so.
	Hooks bool
	// LogTime says what time it is by the clock that stamps the log, at a time of the owner's clock. Deadlines, and the
	// times of events, are by that one. Nil: both clocks show the same.
	LogTime func(now time.Time) time.Time
}

// Machine runs one planned batch for its owner. It is not safe for concurrent use.
type Machine struct {
	state State
	cfg   Config
	now   time.Time // of the last step
	log   time.Time // the same, by the clock that stamps the log
	group int       // the first group with an open call
	// lapsed: another owner may have taken the batch. done: Complete or Park was returned.
	lapsed, done bool

	index     index
	tickets   tickets
	flight    flight
	appends   appends
	approvals approvals
	ends      ends
	workers   workers
	notice    notice
}

// index follows from the state. It is kept so that the cost of a step does not grow with the batch.
type index struct {
	groupOf []int // by call
	openIn  []int // calls without a result, by group
	items   []int // items, by group
	failed  int   // the first call with an error, -1 for none
	// culprits are, by group, the first calls whose failure ends their siblings.
	culprits map[int]int
}

// tickets is where the batch stands in its workspace's queue.
type tickets struct {
	group      int     // the group whose ticket this owner asked for last, -1 for none
	number     *uint64 // of that ticket, once it is granted
	generation uint64  // of the workspace under that ticket, 0 if it is unknown
	inQueue    bool    // a ticket of this batch may be in the queue
}

// flight is the open calls that workers may have.
type flight struct {
	queued   map[int]time.Time // since when each call that this owner has queued is in the work queue
	active   map[int]bool      // calls that are queued, or claimed by a worker
	held     map[int]bool      // calls that are queued, and kept back from the work queue
	inItem   map[int]int       // how many calls are active, by item
	retrying map[int]bool      // calls that wait to be queued again
	next     int               // the place in the current group before which every call was queued once, or is answered
}

// appends are those that were returned and whose event is not stored yet, by chain.
type appends struct {
	batch, reply, input bool
	proving             []int // the calls of approvals.unproven that the append on the batch chain proves
}

// approvals are the calls about which people decide.
type approvals struct {
	waiting map[int]bool // calls that wait for a decision
	// listed are the calls that are on the list of those that wait, each with the question that it has there.
	listed map[int]question
	// unproven are the calls decided since the last event on the batch chain, which proved that this is the owner.
	unproven map[int]bool
}

// ends are the ends of calls that the owner has decided.
type ends struct {
	decided map[int]*ending // not stored yet
	stopped map[Stop][]int  // stored, and the workers of these calls are to be told
	retried map[int]uint64  // the sequence that the last append of an attempt's end expected, by call
}

// workers is what is known of them.
type workers struct {
	absent   map[Route]time.Time // since when no worker serves a route
	serving  map[Route]int       // how many workers serve each route, as far as is known
	observed time.Time           // when both were looked at
	dropped  map[int]uint64      // the sequence of a claim whose worker no longer runs the call, by call
}

// notice is what hooks say of the batch when all calls have their results.
type notice struct {
	asked  bool
	answer *Noticed // nil until they have answered
}

// New makes the machine of a batch whose state has a plan. Step it once, without inputs, to begin.
func New(cfg Config, s State) *Machine {
	m := &Machine{
		state: s, cfg: cfg, tickets: tickets{group: -1},
		flight: flight{queued: map[int]time.Time{}, active: map[int]bool{}, inItem: map[int]int{},
			held: map[int]bool{}, retrying: map[int]bool{}},
		approvals: approvals{waiting: map[int]bool{}, listed: map[int]question{}, unproven: map[int]bool{}},
		ends:      ends{decided: map[int]*ending{}, stopped: map[Stop][]int{}, retried: map[int]uint64{}},
		workers:   workers{absent: map[Route]time.Time{}, dropped: map[int]uint64{}},
	}
	m.reindex()
	if cfg.Rested {
		return m
	}
	for i := range s.Calls { // the former owner may have died before it removed them
		if c := &s.Calls[i]; c.Asked != nil && c.Status != Waiting {
			m.approvals.listed[i] = questionOf(c)
		}
	}
	m.tickets.inQueue = s.Takeovers > 0 && m.needsTickets() // the former owner's
	if cfg.Reserved {
		m.tickets.inQueue = true
		if start := s.Plan.Start; start != nil && start.Ticket != 0 {
			m.tickets.group, m.tickets.number = start.Group, &start.Ticket
			m.tickets.generation = cfg.Generation
		}
	}
	return m
}

// reindex makes the index of the groups as they are planned now.
func (m *Machine) reindex() {
	m.index.groupOf = make([]int, len(m.state.Calls))
	m.index.openIn = make([]int, len(m.state.Plan.Groups))
	m.index.items = make([]int, len(m.state.Plan.Groups))
	m.flight.next, m.index.failed, m.index.culprits = 0, -1, map[int]int{}
	for g, group := range m.state.Plan.Groups {
		for _, i := range group.Calls {
			m.index.groupOf[i] = g
			if m.state.Calls[i].Item == i {
				m.index.items[g]++
			}
			if m.state.Open(i) {
				m.index.openIn[g]++
			}
		}
	}
	for i := range m.state.Calls {
		m.update(i)
	}
}

// update brings the sets of calls up to date with the state of one.
func (m *Machine) update(i int) {
	c := &m.state.Calls[i]
	_, queued := m.flight.queued[i]
	open := c.Result == nil
	m.setActive(i, open && (queued || c.Status == Claimed))
	set(m.flight.retrying, i, open && !queued && (c.Status == Retrying || c.Status == Decided ||
		c.Status == Pending && c.Back))
	set(m.approvals.waiting, i, c.Status == Waiting)
	if r := c.Result; r != nil && r.IsError {
		if m.index.failed < 0 || i < m.index.failed {
			m.index.failed = i
		}
		g := m.index.groupOf[i]
		if first, ok := m.index.culprits[g]; (!ok || i < first) && failsSiblings(r.Code) &&
			m.state.Plan.Calls[i].AbortsSiblings && executed(r) {
			m.index.culprits[g] = i
		}
	}
}

// failsSiblings reports whether a call that ended so while executing says something about its siblings: infrastructure
// and tool failures do, the model's own mistakes and people's decisions do not.
func failsSiblings(c toolyard.Code) bool {
	return c == toolyard.ExecutionFailed || c == toolyard.Timeout || c == toolyard.DependencyUnavailable
}

// Idle reports whether the batch is open and has nothing to do until calls are appended or it is closed.
func (m *Machine) Idle() bool {
	s := &m.state
	return !m.done && !s.Closed && m.group == len(s.Plan.Groups) && s.Replied == len(s.Calls) &&
		s.InputSeq <= s.PlannedInput &&
		!m.appends.batch && !m.appends.reply && !m.appends.input && !m.tickets.inQueue
}

// InQueue reports whether a ticket that this owner knows of may be in the workspace's queue.
func (m *Machine) InQueue() bool { return m.tickets.inQueue }

// State returns the fold so far. The caller must not change it.
func (m *Machine) State() *State { return &m.state }

// InFlight returns the open calls of which others may store something, by index: calls that are queued, claimed or
// waiting for a person, and after a takeover all of the current group, which a former owner may have queued.
func (m *Machine) InFlight() []int {
	var out []int
	if m.state.Takeovers > 0 && m.group < len(m.state.Plan.Groups) {
		if _, started := m.state.Started[m.group]; started {
			for _, i := range m.state.Plan.Groups[m.group].Calls {
				if m.state.Open(i) {
					out = append(out, i)
				}
			}
			return out
		}
	}
	for i := range m.flight.active {
		out = append(out, i)
	}
	for i := range m.approvals.waiting {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

// Wanted returns how many slots of workers the batch could use now, by route: of each item that is in flight, as many
// as its calls may run at a time. Nil: none.
func (m *Machine) Wanted() map[Route]int {
	if len(m.flight.inItem) == 0 {
		return nil
	}
	out := map[Route]int{}
	for item, active := range m.flight.inItem {
		p := &m.state.Plan.Calls[item]
		out[Route{Pool: p.Pool, Class: p.Judgement.Class}] += min(active, m.width(item))
	}
	return out
}

// Wake returns the earliest time at which a decision of the machine's own is due, or the zero time if there is none.
// It is later than the last step, because that step has decided all that was due.
func (m *Machine) Wake() (wake time.Time) {
	if m.done {
		return wake
	}
	earlier := func(t time.Time) {
		if t.After(m.now) && (wake.IsZero() || t.Before(wake)) {
			wake = t
		}
	}
	earlier(m.own(m.state.Plan.Deadline))
	if !m.state.Closed {
		earlier(m.own(m.idleEnd()))
	}
	if m.group == len(m.state.Plan.Groups) {
		return wake
	}
	for i := range m.flight.retrying {
		earlier(m.own(m.state.Calls[i].NotBefore))
	}
	for i := range m.approvals.waiting {
		earlier(m.own(m.ApprovalEnd(i)))
	}
	if m.cfg.QueueWait > 0 {
		for i := range m.flight.active {
			if at, ok := m.queueEnd(i); ok {
				earlier(at)
			}
		}
	}
	for _, e := range m.ends.decided {
		if !e.told.IsZero() {
			earlier(e.told.Add(m.cfg.AbortEvery))
		}
		if !e.first.IsZero() {
			earlier(e.first.Add(m.cfg.EndGrace))
		}
	}
	return wake
}

// Step takes what happened until now and returns what is to be done. It fails with an [*InvariantError] when a stored
// event contradicts the state.
func (m *Machine) Step(now time.Time, inputs ...Input) ([]Effect, error) {
	m.now, m.log = now, now
	if m.cfg.LogTime != nil {
		m.log = m.cfg.LogTime(now)
	}
	for _, in := range inputs {
		if err := m.apply(in); err != nil {
			return nil, err
		}
	}
	if m.done {
		return nil, nil
	}
	for m.group < len(m.state.Plan.Groups) && m.index.openIn[m.group] == 0 {
		m.group++
		m.flight.next = 0
	}
	if m.state.Parked { // a person has the batch now, or nobody: who is woken for it adopts it
		m.done = true
		return append(slices.Concat(m.listApprovals(), m.leaveQueue()), Park{}), nil
	}
	m.decideEnds()
	return slices.Concat(m.input(), m.endCalls(), m.listApprovals(), m.reply(), m.advance()), nil
}

// own is a time of the log by the owner's clock.
func (m *Machine) own(t time.Time) time.Time { return m.now.Add(t.Sub(m.log)) }

// setActive says whether workers may have a call.
func (m *Machine) setActive(i int, active bool) {
	if m.flight.active[i] == active {
		return
	}
	set(m.flight.active, i, active)
	item := m.state.Calls[i].Item
	if active {
		m.flight.inItem[item]++
	} else if m.flight.inItem[item]--; m.flight.inItem[item] == 0 {
		delete(m.flight.inItem, item)
	}
}

// set puts a call into a set, or takes it out.
func set(calls map[int]bool, i int, in bool) {
	if delete(calls, i); in {
		calls[i] = true
	}
}

// question names one of the questions that a call has asked.
type question struct {
	attempt int
	hash    string
}

func questionOf(c *Call) question { return question{c.Asked.Attempt, c.Asked.InputSHA256} }

// listApprovals keeps the list of calls that wait for a person: it first takes off those that no longer wait. A call
// that was answered and asks again may wait by the time this looks: its new question takes the place of the one before.
func (m *Machine) listApprovals() (out []Effect) {
	waiting, listed := m.approvals.waiting, m.approvals.listed
	for _, i := range slices.Sorted(maps.Keys(listed)) {
		if !waiting[i] {
			delete(listed, i)
			out = append(out, ListApproval{Index: i, Remove: true})
		}
	}
	for _, i := range slices.Sorted(maps.Keys(waiting)) {
		q := questionOf(&m.state.Calls[i])
		if had, is := listed[i]; !is || had != q {
			listed[i] = q
			out = append(out, ListApproval{Index: i})
		}
	}
	return out
}

// ApprovalEnd returns when a call that waits for a person ends as approval_expired.
func (m *Machine) ApprovalEnd(i int) time.Time {
	at := m.state.Calls[i].AskedAt.Add(time.Duration(m.state.Plan.ApprovalWaitMS) * time.Millisecond)
	if end := m.state.Plan.End; !end.IsZero() && end.Before(at) {
		return end
	}
	return at
}

// queueEnd returns when a call that is queued and not claimed has waited long enough.
func (m *Machine) queueEnd(i int) (time.Time, bool) {
	at, ok := m.flight.queued[i]
	if !ok || m.flight.held[i] || m.cfg.QueueWait <= 0 || m.state.Calls[i].Status == Claimed {
		return time.Time{}, false
	}
	at = at.Add(m.cfg.QueueWait)
	if p := m.state.Plan.Calls[i]; !p.Claim {
		at = at.Add(time.Duration(p.TimeoutMS) * time.Millisecond)
	}
	return at, true
}

func (m *Machine) apply(in Input) error {
	switch in := in.(type) {
	case Stored:
		if in.Chain == ChainItem && in.Index >= 0 && in.Index < len(m.state.Calls) && in.Seq <= m.state.End(in.Index) {
			return nil // it was applied before
		}
		var open []int // calls that this may end
		for _, i := range in.Calls() {
			if i >= 0 && i < len(m.state.Calls) && m.state.Open(i) {
				open = append(open, i)
			}
		}
		if err := m.state.Apply(in.Record); err != nil {
			return err
		}
		switch in.Chain {
		case ChainBatch:
			m.appends.batch = false
			for _, i := range m.appends.proving {
				delete(m.approvals.unproven, i)
			}
			m.appends.proving = nil
			switch b := in.Body.(type) {
			case events.Extended:
				m.reindex()
				m.group = min(m.group, b.FirstGroup)
			case events.Settled:
				m.reindex()
			case events.Started:
				if len(b.Items) > 0 {
					m.reindex()
				}
			}
		case ChainInput:
			m.appends.input = false
		case ChainReply:
			m.appends.reply = false
		case ChainItem:
			for _, i := range open {
				m.heard(i, in.Body)
			}
		}
		for i, e := range m.ends.decided {
			if m.state.Open(i) {
				continue
			}
			if code := m.state.Calls[i].Result.Code; code == e.Code && e.handed {
				// it stands in the log; now whoever runs it may know
				m.ends.stopped[e.Stop] = append(m.ends.stopped[e.Stop], i)
			}
			delete(m.ends.decided, i)
		}
	case Lapsed:
		m.lapsed = true
	case Held:
		m.hold(in)
	case Handed:
		m.handed(in)
	case Limited:
		m.limit(in)
	case Withdrawn:
		for _, i := range in.Never {
			if e, ok := m.ends.decided[i]; ok {
				e.never = true
			}
		}
	case Noticed:
		m.notice.answer = &in
	case Granted:
		if in.Group == m.tickets.group {
			m.tickets.number, m.tickets.generation = &in.Ticket, in.Generation
		}
	case Observed:
		seen := map[Route]time.Time{}
		for _, r := range in.Absent {
			seen[r] = m.now
			if since, ok := m.workers.absent[r]; ok {
				seen[r] = since
			}
		}
		m.workers.absent, m.workers.serving, m.workers.observed = seen, in.Serving, m.now
		maps.Copy(m.workers.dropped, in.Dropped)
	}
	return nil
}

// heard follows an event about a call that was open.
func (m *Machine) heard(i int, body events.Body) {
	if body.EventType() == events.CallDecided {
		m.approvals.unproven[i] = true
	}
	delete(m.flight.held, i)
	back, _ := body.(events.Returned)
	switch status := m.state.Calls[i].Status; {
	case len(back.Calls) > 0, status == Retrying, status == Waiting, status == Decided:
		delete(m.flight.queued, i)
	}
	if !m.state.Open(i) {
		m.index.openIn[m.index.groupOf[i]]--
		delete(m.flight.queued, i)
	}
	m.update(i)
	// What was decided of a call in another state is decided anew: one that was claimed meanwhile is running.
	if e, ok := m.ends.decided[i]; ok && !e.stops() && m.state.Open(i) {
		delete(m.ends.decided, i)
	}
}

// input plans calls that were appended to an open batch, and closes one that gets no more. It closes on the input
// chain, so that every accepted call stands before the end.
func (m *Machine) input() []Effect {
	s := &m.state
	if s.Closed || m.appends.batch {
		return nil
	}
	if s.InputSeq > s.PlannedInput {
		m.appends.batch = true
		return []Effect{Extend{Expected: s.BatchSeq}}
	}
	reason := ""
	switch {
	case s.canceled():
		reason = "the batch was canceled"
	case len(s.Interrupts) > 0:
		reason = "the session was interrupted"
	case !m.log.Before(s.Plan.Deadline):
		reason = "the batch's time limit passed"
	case !m.log.Before(m.idleEnd()):
		reason = "no calls came for " + m.cfg.OpenIdle.String()
	}
	if reason == "" || m.appends.input {
		return nil
	}
	m.appends.input = true
	return []Effect{Append{Chain: ChainInput, Expected: s.InputSeq, Body: events.Closed{By: "owner", Reason: reason}}}
}

// idleEnd returns when an open batch is closed if nothing is appended.
func (m *Machine) idleEnd() time.Time {
	last := m.state.SubmittedAt
	if m.state.InputAt.After(last) {
		last = m.state.InputAt
	}
	return last.Add(m.cfg.OpenIdle)
}

// advance moves the current group on: its ticket, its start, its calls into the queue.
func (m *Machine) advance() []Effect {
	s := &m.state
	if m.done {
		return nil
	}
	if m.group == len(s.Plan.Groups) {
		return m.releaseTickets(m.group - 1)
	}
	g := s.Plan.Groups[m.group]
	if m.allEnd(g) {
		return nil
	}
	if m.allWait(g) {
		return m.park()
	}
	if s.Plan.Partition == toolyard.SafeFirst && !g.Safe && !s.Closed {
		return m.releaseTickets(m.group - 1) // a safe call may still come, and goes first
	}
	var out []Effect
	switch {
	case g.Ticket && m.tickets.group != m.group:
		take := TakeTicket{Group: m.group, Mode: ticket.Exclusive, Through: m.sameTicket(m.group)}
		switch {
		case len(g.Locks) > 0:
			take.Mode, take.Locks = ticket.Named, g.Locks
		case g.Safe:
			take.Mode = ticket.Shared
		}
		m.tickets.group, m.tickets.number, m.tickets.inQueue = m.group, nil, true
		return []Effect{take}
	case g.Ticket && m.tickets.number == nil:
		return nil
	case !g.Ticket:
		out = m.releaseTickets(m.group - 1)
	}
	number := uint64(0)
	if g.Ticket {
		number = *m.tickets.number
	}
	// A former owner may learn of a decision when the next one has parked the batch, or while it counts on a ticket
	// that the next one has released when the call waited. So the start of the group is appended once more before the
	// call is queued: only the owner can do that, and every later owner then knows of the decision and keeps the
	// ticket.
	decided := slices.ContainsFunc(g.Calls, func(i int) bool { return m.approvals.unproven[i] && s.Open(i) })
	if ticket, ok := s.Started[m.group]; !ok || ticket != number || decided {
		if m.appends.batch {
			return out
		}
		m.appends.batch = true
		m.appends.proving = slices.Sorted(maps.Keys(m.approvals.unproven))
		started := events.Started{Group: m.group, Ticket: number}
		if !ok {
			started.Items = m.cut(g)
		}
		return append(out, Append{Chain: ChainBatch, Expected: s.BatchSeq, Body: started})
	}
	return append(out, m.queueCalls(g, number)...)
}

// sameTicket returns the last of the groups, from one on, that can share the ticket of an exclusive call: no group
// between them needs another ticket, other names or none. The groups of an open batch may still change.
func (m *Machine) sameTicket(group int) int {
	for s := &m.state; s.Closed && group+1 < len(s.Plan.Groups); group++ {
		if this, next := s.Plan.Groups[group], s.Plan.Groups[group+1]; this.Safe || next.Safe || !next.Ticket ||
			!slices.Equal(this.Locks, next.Locks) {
			break
		}
	}
	return group
}

// allWait reports whether every open call of the group waits for a person, so that nothing of the batch runs.
func (m *Machine) allWait(g events.Group) bool {
	if len(m.approvals.waiting) == 0 {
		return false
	}
	for _, i := range g.Calls {
		if _, ends := m.ends.decided[i]; m.state.Open(i) && (ends || !m.approvals.waiting[i]) {
			return false
		}
	}
	return true
}

// park releases the ticket, and then the batch. An open batch keeps its owner, since calls may be appended; and so does
// one that was made for a running call, since its owner cancels it when that call has ended.
func (m *Machine) park() []Effect {
	s := &m.state
	if !s.Closed || s.Submission.Options.Parent != nil || m.appends.batch || m.appends.reply {
		return m.releaseTickets(m.group)
	}
	m.appends.batch = true
	return append(m.releaseTickets(m.group), Append{Chain: ChainBatch, Expected: s.BatchSeq,
		Body: events.Parked{RemainingMS: max(0, s.Plan.Deadline.Sub(m.log).Milliseconds())}})
}

// isStarted reports whether the call's group was started. No call is queued before that.
func (m *Machine) isStarted(i int) bool {
	_, ok := m.state.Started[m.index.groupOf[i]]
	return ok
}

// releaseTickets takes the batch out of its workspace's queue, up to a group.
func (m *Machine) releaseTickets(group int) []Effect {
	if !m.tickets.inQueue {
		return nil
	}
	m.tickets.group, m.tickets.number, m.tickets.inQueue = -1, nil, false
	return []Effect{ReleaseTickets{Group: group}}
}

// leaveQueue takes the batch out of its workspace's queue, also if this owner has no ticket there: a dispatcher whose
// plan of the batch came too late may have reserved one, and leaves it to the owner until the batch is parked.
func (m *Machine) leaveQueue() []Effect {
	m.tickets.inQueue = m.tickets.inQueue || m.needsTickets()
	return m.releaseTickets(len(m.state.Plan.Groups) - 1)
}

// needsTickets reports whether any group runs under a ticket.
func (m *Machine) needsTickets() bool {
	return slices.ContainsFunc(m.state.Plan.Groups, func(g events.Group) bool { return g.Ticket })
}

// allEnd reports whether every open call of the group is to end without running.
func (m *Machine) allEnd(g events.Group) bool {
	if len(m.ends.decided) == 0 { // a group that is over is not the current one any more
		return false
	}
	for _, i := range g.Calls {
		if _, ok := m.ends.decided[i]; m.state.Open(i) && !ok {
			return false
		}
	}
	return true
}
