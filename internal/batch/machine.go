package batch

import (
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
)

// MaxReplyBytes is how many bytes of output and errors one reply carries, unless a single result has more.
const MaxReplyBytes = 256 << 10

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
	// EndGrace is how long workers have to answer for calls that were ended and that one of them may run without a claim. It is
	// longer than any of them can have a right to.
	EndGrace time.Duration
	// QueueWait is how long a call waits in the queue at most, under this owner, though workers are there: then it ends as
	// dependency_unavailable. One that needs no claim may be running unseen, and has its tool's timeout on top.
	QueueWait time.Duration
	// Hooks says that hooks want to know of a batch that is over, before the reply that says so.
	Hooks bool
}

// Machine runs one planned batch for its owner. It is not safe for concurrent use.
type Machine struct {
	state State
	cfg   Config
	now   time.Time

	group int // the first group that is not over
	// standing is the group whose ticket this owner asked for last, -1 for none; granted is its number once it is
	// granted; inLine says that a ticket of this batch may stand in the queue.
	standing int
	granted  *uint64
	inLine   bool
	// queued says since when each call is in the work queue, for all that this owner queued and that are still open;
	// active are those and the open calls that somebody has claimed, retrying those that wait for another attempt.
	queued   map[int]time.Time
	active   map[int]bool
	retrying map[int]bool
	// waiting are the open calls that a person was asked about and has not decided; listed says which are on the list.
	waiting map[int]bool
	listed  map[int]bool
	// relist are the calls for which the two differ.
	relist map[int]bool
	// unproven are the calls that a person has decided about since this owner last proved that it is the owner; proving are
	// those that the append which is on its way proves it for.
	unproven map[int]bool
	proving  []int
	// unqueued is the place in the current group's calls before which all were queued once, or are answered.
	unqueued int
	// openIn counts each group's calls without a result.
	openIn []int
	// failed is the first call with an error, -1 for none; culprits is, by group, the first call whose failure ends its
	// siblings.
	failed   int
	culprits map[int]int
	absent   map[Route]time.Time
	// dropped are the claims that their worker knows nothing of, by call, with the claim's sequence.
	dropped map[int]uint64
	// ends are the open calls that are to end without more ado, decided and not stored yet.
	ends map[int]*ending
	// stopped are calls whose end was stored and whose workers are to be told, by the reason.
	stopped map[Stop][]int
	// retries says for which calls the end of a lost attempt was handed to the shell, with the sequence it expected.
	retries map[int]uint64
	groupOf []int // by call
	// appending, replying and closing say that an append on the batch, reply or input chain was handed to the shell.
	appending, replying, closing, done bool
	// context is what the session's tools have set before group contextOf.
	context   map[string]string
	contextOf int
	// notified says that the hooks were told, and noticed that they have answered: with notice.
	notified, noticed bool
	notice            *toolyard.Notice
	// lapsed says that another may own the batch.
	lapsed bool
	// remembered says that what the calls have changed in the session was handed to the shell.
	remembered bool
}

// New makes the machine of a batch whose state has a plan. Step it once, without inputs, to begin.
func New(cfg Config, s State) *Machine {
	m := &Machine{
		state: s, cfg: cfg, standing: -1, contextOf: -1, queued: map[int]time.Time{}, absent: map[Route]time.Time{},
		dropped: map[int]uint64{}, ends: map[int]*ending{}, stopped: map[Stop][]int{}, retries: map[int]uint64{},
		active: map[int]bool{}, retrying: map[int]bool{}, waiting: map[int]bool{}, listed: map[int]bool{}, relist: map[int]bool{},
		unproven: map[int]bool{},
	}
	m.index()
	for i := range s.Calls { // the former owner may have died before it took them off the list
		if c := &s.Calls[i]; c.Asked != nil && c.Status != Waiting {
			m.listed[i] = true
			m.noteListed(i)
		}
	}
	for _, group := range s.Plan.Groups {
		m.inLine = m.inLine || group.Ticket && s.Takeovers > 0 // the former owner's
	}
	return m
}

// index takes note of the groups as they are planned now.
func (m *Machine) index() {
	m.groupOf = make([]int, len(m.state.Calls))
	m.openIn = make([]int, len(m.state.Plan.Groups))
	m.unqueued, m.failed, m.culprits = 0, -1, map[int]int{}
	for g, group := range m.state.Plan.Groups {
		for _, i := range group.Calls {
			m.groupOf[i] = g
			if m.state.Open(i) {
				m.openIn[g]++
			}
		}
	}
	for i := range m.state.Calls {
		m.note(i)
	}
}

// note takes note of what became of a call.
func (m *Machine) note(i int) {
	c := &m.state.Calls[i]
	_, queued := m.queued[i]
	if c.Result == nil {
		m.active[i] = queued || c.Status == Claimed
		m.retrying[i] = c.Status == Retrying || c.Status == Decided && !queued
	}
	if m.waiting[i] = c.Status == Waiting; !m.waiting[i] {
		delete(m.waiting, i)
	}
	m.noteListed(i)
	if !m.active[i] || c.Result != nil {
		delete(m.active, i)
	}
	if !m.retrying[i] || c.Result != nil {
		delete(m.retrying, i)
	}
	if r := c.Result; r != nil && r.IsError {
		if m.failed < 0 || i < m.failed {
			m.failed = i
		}
		g := m.groupOf[i]
		if first, ok := m.culprits[g]; (!ok || i < first) && r.Code.FailsSiblings() && m.state.Plan.Calls[i].AbortsSiblings && executed(r) {
			m.culprits[g] = i
		}
	}
}

// Idle reports whether the batch is open and has nothing to do until calls are appended, or it is closed.
func (m *Machine) Idle() bool {
	s := &m.state
	return !m.done && !s.Closed && m.group == len(s.Plan.Groups) && s.Replied == len(s.Calls) && s.InputSeq <= s.PlannedInput &&
		!m.appending && !m.replying && !m.closing && !m.inLine
}

// State is the fold so far. It is not to be changed.
func (m *Machine) State() *State { return &m.state }

// InFlight returns the open calls of which something may be stored by others, by index: those that are queued, claimed or
// waiting for a person, and after a takeover all of the current group, since a former owner may have queued them.
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
	for i := range m.active {
		out = append(out, i)
	}
	for i := range m.waiting {
		out = append(out, i)
	}
	slices.Sort(out)
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
	earlier(m.state.Plan.Deadline)
	if !m.state.Closed {
		earlier(m.idleEnd())
	}
	if m.group == len(m.state.Plan.Groups) {
		return wake
	}
	for i := range m.retrying {
		earlier(m.state.Calls[i].NotBefore)
	}
	for i := range m.waiting {
		earlier(m.ApprovalEnd(i))
	}
	if m.cfg.QueueWait > 0 {
		for i := range m.active {
			if at, ok := m.queueEnd(i); ok {
				earlier(at)
			}
		}
	}
	for _, e := range m.ends {
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
	m.now = now
	for _, in := range inputs {
		if err := m.take(in); err != nil {
			return nil, err
		}
	}
	if m.done {
		return nil, nil
	}
	for m.group < len(m.state.Plan.Groups) && m.openIn[m.group] == 0 {
		m.group++
		m.unqueued = 0
	}
	if m.state.Parked { // a person has the batch now, or nobody: who is woken for it adopts it
		m.done = true
		return append(slices.Concat(m.list(), m.leave(m.group)), Park{}), nil
	}
	m.decideEnds()
	return slices.Concat(m.input(), m.endCalls(), m.list(), m.reply(), m.advance()), nil
}

// noteListed takes note of whether the list of calls that wait for a person is behind for a call.
func (m *Machine) noteListed(i int) {
	if m.relist[i] = m.waiting[i] != m.listed[i]; !m.relist[i] {
		delete(m.relist, i)
	}
}

// list keeps the list of calls that wait for a person: those that do so no more go first.
func (m *Machine) list() []Effect {
	var out []Effect
	changed := slices.Sorted(maps.Keys(m.relist))
	for _, over := range []bool{true, false} {
		for _, i := range changed {
			if m.waiting[i] != over {
				m.listed[i] = !over
				out = append(out, Ask{Index: i, Over: over})
			}
		}
	}
	clear(m.relist)
	return out
}

// ApprovalEnd is when a call that waits for a person ends as approval_expired.
func (m *Machine) ApprovalEnd(i int) time.Time {
	at := m.state.Calls[i].AskedAt.Add(time.Duration(m.state.Plan.ApprovalWaitMS) * time.Millisecond)
	if end := m.state.Plan.End; !end.IsZero() && end.Before(at) {
		return end
	}
	return at
}

// queueEnd is when a call that is queued and not claimed has waited long enough.
func (m *Machine) queueEnd(i int) (time.Time, bool) {
	at, ok := m.queued[i]
	if !ok || m.cfg.QueueWait <= 0 || m.state.Calls[i].Status == Claimed {
		return time.Time{}, false
	}
	at = at.Add(m.cfg.QueueWait)
	if p := m.state.Plan.Calls[i]; !p.Claim {
		at = at.Add(time.Duration(p.TimeoutMS) * time.Millisecond)
	}
	return at, true
}

func (m *Machine) take(in Input) error {
	switch in := in.(type) {
	case Stored:
		open := in.Chain == ChainCall && in.Index < len(m.state.Calls) && m.state.Open(in.Index)
		if err := m.state.Apply(in.Record); err != nil {
			return err
		}
		switch in.Chain {
		case ChainBatch:
			m.appending = false
			for _, i := range m.proving {
				delete(m.unproven, i)
			}
			m.proving = nil
			switch b := in.Body.(type) {
			case events.Extended:
				m.index()
				m.group = min(m.group, b.FirstGroup)
			case events.Settled:
				m.index()
			}
		case ChainInput:
			m.closing = false
		case ChainReply:
			m.replying = false
		case ChainCall:
			if in.Body.EventType() == events.CallDecided {
				m.unproven[in.Index] = true
			}
			switch m.state.Calls[in.Index].Status {
			case Retrying, Waiting, Decided:
				delete(m.queued, in.Index)
			}
			if open && !m.state.Open(in.Index) {
				m.openIn[m.groupOf[in.Index]]--
				delete(m.queued, in.Index)
			}
			m.note(in.Index)
			// What was decided of a call in another state is decided anew: one that was claimed meanwhile is running.
			if e, ok := m.ends[in.Index]; ok && !e.stops() && m.state.Open(in.Index) {
				delete(m.ends, in.Index)
			}
		}
		for i, e := range m.ends {
			if m.state.Open(i) {
				continue
			}
			if code := m.state.Calls[i].Result.Code; code == e.Code && e.handed {
				m.stopped[e.Stop] = append(m.stopped[e.Stop], i) // it stands in the log; now whoever runs it may know
			}
			delete(m.ends, i)
		}
	case Lapsed:
		m.lapsed = true
	case Withdrawn:
		for _, i := range in.Never {
			if e, ok := m.ends[i]; ok {
				e.never = true
			}
		}
	case Noticed:
		m.noticed, m.notice = true, in.Notice
	case Granted:
		if in.Group == m.standing {
			m.granted = &in.Ticket
		}
	case Observed:
		seen := map[Route]time.Time{}
		for _, r := range in.Absent {
			seen[r] = m.now
			if since, ok := m.absent[r]; ok {
				seen[r] = since
			}
		}
		m.absent = seen
		maps.Copy(m.dropped, in.Dropped)
	}
	return nil
}

// input plans what was appended to an open batch, and closes one that gets nothing any more. It is closed on the input
// chain, so that every call that was accepted stands before the end.
func (m *Machine) input() []Effect {
	s := &m.state
	if s.Closed || m.appending {
		return nil
	}
	if s.InputSeq > s.PlannedInput {
		m.appending = true
		return []Effect{Extend{Expected: s.BatchSeq}}
	}
	reason := ""
	switch {
	case s.canceled():
		reason = "the batch was canceled"
	case len(s.Interrupts) > 0:
		reason = "the session was interrupted"
	case !m.now.Before(s.Plan.Deadline):
		reason = "the batch's time limit passed"
	case !m.now.Before(m.idleEnd()):
		reason = "no calls came for " + m.cfg.OpenIdle.String()
	}
	if reason == "" || m.closing {
		return nil
	}
	m.closing = true
	return []Effect{Append{Chain: ChainInput, Expected: s.InputSeq, Body: events.Closed{By: "owner", Reason: reason}}}
}

// idleEnd is when an open batch is closed if nothing is appended.
func (m *Machine) idleEnd() time.Time {
	last := m.state.SubmittedAt
	if m.state.InputAt.After(last) {
		last = m.state.InputAt
	}
	return last.Add(m.cfg.OpenIdle)
}

// reply answers all results that are there in emission order and were not answered yet, and says with the last one
// that the batch is complete.
func (m *Machine) reply() []Effect {
	s := &m.state
	if s.Completed {
		m.done = true
		return append(m.leave(len(s.Plan.Groups)-1), Complete{})
	}
	if m.replying {
		return nil
	}
	r := events.Reply{Results: []toolyard.Result{}}
	size := 0
	for i := s.Replied; i < len(s.Calls) && !s.Open(i); i++ {
		size += replyBytes(s.Calls[i].Result)
		if size > MaxReplyBytes && len(r.Results) > 0 {
			break
		}
		r.Results = append(r.Results, *s.Calls[i].Result)
	}
	r.Completed = s.Closed && s.Replied+len(r.Results) == len(s.Calls)
	var out []Effect
	if r.Completed && m.cfg.Hooks {
		if r.Completed, r.Notice = m.noticed, m.notice; !m.notified {
			m.notified = true
			out = append(out, Notify{})
		}
	}
	if len(r.Results) == 0 && !r.Completed {
		return out
	}
	m.replying = true
	if r.Completed && !m.remembered {
		m.remembered = true
		if change, ok := s.Changes(); ok {
			out = append(out, Remember{change})
		}
	}
	return append(out, Append{Chain: ChainReply, Index: s.Replied, Expected: s.ReplySeq, Body: r})
}

// replyBytes is what a result adds to a reply, but for what every result has.
func replyBytes(r *toolyard.Result) int {
	size := len(r.Output) + len(r.Error) + len(r.Structured) + len(r.Echo)
	for i := range r.Content {
		p := &r.Content[i]
		size += len(p.Text) + len(p.Data)*4/3 + len(p.Schema) + len(p.Description) // data is encoded in base64
	}
	return size
}

// advance moves the current group on: its ticket, its start, its calls into the queue.
func (m *Machine) advance() []Effect {
	s := &m.state
	if m.done {
		return nil
	}
	if m.group == len(s.Plan.Groups) {
		return m.leave(m.group - 1)
	}
	g := s.Plan.Groups[m.group]
	if m.ending(g) {
		return nil
	}
	if m.idle(g) {
		return m.park()
	}
	if s.Plan.Partition == toolyard.SafeFirst && !g.Safe && !s.Closed {
		return m.leave(m.group - 1) // a safe call may still come, and goes first
	}
	var out []Effect
	switch {
	case g.Ticket && m.standing != m.group:
		take := Take{Group: m.group, Mode: ticket.Exclusive}
		if g.Safe {
			take.Mode = ticket.Shared
		}
		m.standing, m.granted, m.inLine = m.group, nil, true
		return []Effect{take}
	case g.Ticket && m.granted == nil:
		return nil
	case !g.Ticket:
		out = m.leave(m.group - 1)
	}
	number := uint64(0)
	if g.Ticket {
		number = *m.granted
	}
	// A former owner may learn of a decision, and still hold for its own a ticket that the next one has given back when the
	// call waited. So it is written down once more that the group has started, before the call is queued: who does that is the
	// owner, and whoever comes after it knows of the decision, and keeps the ticket.
	decided := g.Ticket && slices.ContainsFunc(g.Calls, func(i int) bool { return m.unproven[i] && s.Open(i) })
	if started, ok := s.Started[m.group]; !ok || started != number || decided {
		if m.appending {
			return out
		}
		m.appending = true
		m.proving = slices.Sorted(maps.Keys(m.unproven))
		return append(out, Append{
			Chain: ChainBatch, Expected: s.BatchSeq, Body: events.Started{Group: m.group, Ticket: number},
		})
	}
	return append(out, m.queueCalls(g, number)...)
}

// idle reports whether every open call of the group waits for a person, so that nothing of the batch runs.
func (m *Machine) idle(g events.Group) bool {
	if len(m.waiting) == 0 {
		return false
	}
	for _, i := range g.Calls {
		if _, ends := m.ends[i]; m.state.Open(i) && (ends || !m.waiting[i]) {
			return false
		}
	}
	return true
}

// park lets go of the ticket, and then of the batch. One that is open keeps its owner, since calls may be appended.
func (m *Machine) park() []Effect {
	s := &m.state
	if !s.Closed || m.appending || m.replying {
		return m.leave(m.group)
	}
	m.appending = true
	return append(m.leave(m.group), Append{Chain: ChainBatch, Expected: s.BatchSeq,
		Body: events.Parked{RemainingMS: max(0, s.Plan.Deadline.Sub(m.now).Milliseconds())}})
}

// isStarted reports whether the call's group was: only then was it queued.
func (m *Machine) isStarted(i int) bool {
	_, ok := m.state.Started[m.groupOf[i]]
	return ok
}

// leave takes the batch out of its workspace's queue, up to a group.
func (m *Machine) leave(group int) []Effect {
	if !m.inLine {
		return nil
	}
	m.standing, m.granted, m.inLine = -1, nil, false
	return []Effect{Leave{Group: group}}
}

// ending reports whether every open call of the group is to end without running.
func (m *Machine) ending(g events.Group) bool {
	if len(m.ends) == 0 { // a group that is over is not the current one any more
		return false
	}
	for _, i := range g.Calls {
		if _, ok := m.ends[i]; m.state.Open(i) && !ok {
			return false
		}
	}
	return true
}

// queueCalls queues calls of a started group up to the batch's limit of calls in flight. A call that is claimed already
// (by a worker that this owner found at work) counts as in flight.
func (m *Machine) queueCalls(g events.Group, number uint64) []Effect {
	s := &m.state
	if m.contextOf != m.group { // groups change it, calls of one group do not
		m.context, m.contextOf = s.Context(), m.group
	}
	var handed []int
	// room reports whether another call may be in flight.
	room := func() bool { return len(m.active) < s.Plan.MaxConcurrency }
	hand := func(i int) {
		if _, ends := m.ends[i]; !s.Open(i) || m.active[i] || m.waiting[i] || ends || m.now.Before(s.Calls[i].NotBefore) {
			return
		}
		m.queued[i] = m.now
		m.active[i] = true
		delete(m.retrying, i)
		handed = append(handed, i)
	}
	for _, i := range slices.Sorted(maps.Keys(m.retrying)) {
		if room() {
			hand(i)
		}
	}
	for ; m.unqueued < len(g.Calls) && room(); m.unqueued++ {
		if i := g.Calls[m.unqueued]; !m.retrying[i] {
			hand(i)
		}
	}
	out := make([]Effect, len(handed))
	for n, i := range handed {
		out[n] = m.queue(i, g, number)
	}
	return out
}

func (m *Machine) queue(i int, g events.Group, number uint64) Queue {
	s, plan, sub := &m.state, m.state.Plan, m.state.Submission
	c := plan.Calls[i]
	as := s.call(i).Tool
	if as == c.Tool {
		as = ""
	}
	return Queue{
		Route: Route{Pool: c.Pool, Class: c.Judgement.Class},
		Request: events.Requested{
			Agent: s.Key.Agent, Batch: s.Key.ID, Session: plan.Session, Workspace: plan.Workspace,
			Interactive: sub.Interactive && !plan.Alone, Group: m.group, Ticket: number, WasConcurrent: len(m.active) > 1,
			Deny: slices.Concat(sub.Options.Deny, plan.Deny), Ask: slices.Concat(sub.Options.Ask, plan.Ask), CallTimeoutMS: sub.Options.CallTimeoutMS,
			RemainingMS: max(0, plan.Deadline.Sub(m.now).Milliseconds()), QueuedAt: m.now, MaxAttempts: m.cfg.MaxAttempts,
			Remembered: plan.Remembered, Context: m.context, Surface: plan.Surface,
			Calls: []events.RequestedCall{{
				Index: i, ID: c.ID, Tool: c.Tool, Input: s.call(i).Input, Declaration: c.Declaration,
				Judgement: c.Judgement, Claim: c.Claim, Expected: s.Calls[i].Seq, Attempt: s.Calls[i].Attempt + 1,
				Again: s.Takeovers > 0 || m.lapsed, Approved: s.approved(i), Echo: s.call(i).Echo,
				As: as,
			}},
		},
	}
}
