package sim

import (
	"fmt"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
)

// Fence is a guard of the design that can be taken away.
type Fence int

// The fences, each with what is done when it is taken away.
const (
	// FenceClaim: a claim expects the call's last sequence. Without: it is stored wherever the chain ends.
	FenceClaim Fence = iota
	// FenceFinish: so does a result.
	FenceFinish
	// FenceBatch: so do the events of the batch chain. Without: two owners at once.
	FenceBatch
	// FenceReply: so does a reply.
	FenceReply
	// FenceTicket: a workspace's queue is changed by compare-and-set. Without: the last writer wins.
	FenceTicket
	// FenceLeaveGroup: leaving names the group. Without: a former owner gives a later group's ticket away.
	FenceLeaveGroup
	// FenceCommit: the lease is checked before effects. Without: a worker that woke up goes on.
	FenceCommit
	// FenceLapsed: a lease that has lapsed stays so, the call's and the registration's. Without: the next answered
	// heartbeats of a worker that woke up revive them.
	FenceLapsed
	// FenceSilence: the owner settles a lost call when its worker has been silent for long. Without: at the first late
	// heartbeat.
	FenceSilence
	// FenceHolder: an owner that hears from a claim's holder that it knows nothing of the call settles the call.
	// Without: it stands in the log, claimed by a live worker that never got the answer to its claim.
	FenceHolder
	// FenceLapsedAtStart: a call whose lease lapsed before it started is left to its redelivery. Without: its message
	// is acknowledged.
	FenceLapsedAtStart
	// FenceFoldOrder: A fold reads the input chain after the batch chain. Without: the plan may have calls whose input
	// the fold does not.
	FenceFoldOrder
	// FenceRecognise: a worker recognises a claim of its own whose answer it never got.
	FenceRecognise
	// FenceInFlight: After a takeover the new owner rereads all open calls of a started group. Without: only those that
	// it queued itself, while the former owner's may be answered already.
	FenceInFlight
	// FenceTerm: joining and leaving name the owner's term. Without: a former owner gives the ticket of an open batch
	// away whose group has grown since.
	FenceTerm
	// FenceBeatTimeout: A worker waits for the answer to a heartbeat no longer than until the next one. Without: a
	// single lost one outlasts its lease.
	FenceBeatTimeout
	// FenceKeepPace: A call's heartbeats are sent at a pace, also after one that was not answered. Without: the pause
	// begins when the wait for the answer is over, and a single lost one outlasts the lease.
	FenceKeepPace
	// FenceNonce: an append whose answer was lost recognises itself. Without: it takes itself for another's.
	FenceNonce
	// FenceRedelivery: a submission that its owner no longer keeps alive is delivered again.
	FenceRedelivery
	// FenceReread: an owner reads the calls in flight from the stream. Without: it trusts the live feed.
	FenceReread
	// FenceSweep: who waits for long takes out tickets that were left behind.
	FenceSweep
	// FenceAckLast: a call's message is acknowledged when its result is stored. Without: when it is taken.
	FenceAckLast
	// FenceApproval: a call that needs a person runs with an approval only. Without: its worker does not ask.
	FenceApproval
	// FenceApprovedHash: a worker compares the input that was approved with the one that it would run.
	FenceApprovedHash
	// FenceWholeChain: of a call that is not finished all events are read. Without: the last one, and what was decided
	// is forgotten.
	FenceWholeChain
	// FenceGap: a live copy of a call's event behind a gap has the chain read. Without: it is taken as it comes.
	FenceGap
	// FenceWaitClaim: A worker does not let a call wait for a person that it finds claimed by itself. Without: it
	// writes so behind its claim.
	FenceWaitClaim
	// FenceTakes: an answer to an earlier request for a ticket counts no more once the batch has left the queue.
	FenceTakes
	// FenceParkLeave: a batch gives its ticket back before it is parked.
	FenceParkLeave
	// FenceParkedTicket: a ticket that a former owner has taken for a batch that is parked is swept.
	FenceParkedTicket
	// FenceParkReread: an owner that has parked its batch looks once more for news.
	FenceParkReread
	// FenceNewsWakes: when there is some, it wakes the batch. Without: it adopts it again, by the message by which it
	// was kept, which another dispatcher may have acknowledged.
	FenceNewsWakes
	// FenceParkedHandle: The message by which a parked batch was kept wakes it when it is delivered again. Without: it
	// adopts it, and the owner that has parked it may acknowledge it after that.
	FenceParkedHandle
	// FenceHandle: only the message by which a batch is kept adopts it, or a wake. Without: any message for it.
	FenceHandle
	// FenceWakeSeq: a wake counts for the parking that it names. Without: for any.
	FenceWakeSeq
	// FenceUnlist: who takes a call off the list looks whether its batch is parked. Without: a former owner answers a
	// call of a parked batch, and nobody is told.
	FenceUnlist
	// FenceProof: an owner proves that it is one, after a decision and before it queues the call. Without: a former one
	// queues it with a ticket that the next has given back.
	FenceProof
	// FenceTicketSure: a change of a workspace's queue that changes nothing is stored too. Without: a read that is
	// behind says that a ticket was given back already.
	FenceTicketSure
	// FenceGiveBack: a wake for a batch that runs here is given back. Without: it is acknowledged.
	FenceGiveBack
	// FenceWake: who decides or cancels wakes the batch.
	FenceWake
	// FenceMissed: dispatchers look for decisions whose wake was lost, FenceExpired: and for requests that nobody
	// answers.
	FenceMissed
	FenceExpired
	// FenceForgotten: a read that the server may have delivered before, and forgotten that, is claimed. Without: only
	// one that the server knows to have delivered before.
	FenceForgotten
	// FenceQuiet: an owner that lets go of a workspace asks the workers whether they are done with its reads, where the
	// server may have forgotten a delivery. Without: a second execution of one goes on beside the next group.
	FenceQuiet
	fenceCount
)

var fenceNames = [fenceCount]string{
	FenceClaim: "expected sequence on claims", FenceFinish: "expected sequence on results",
	FenceBatch: "expected sequence on the batch chain",
	FenceReply: "expected sequence on replies", FenceTicket: "compare-and-set on tickets",
	FenceLeaveGroup: "group check on leaving",
	FenceCommit:     "lease check at commit points", FenceLapsed: "a lapsed lease stays lapsed",
	FenceSilence:       "silence before a lost call is settled",
	FenceHolder:        "a dropped claim is settled",
	FenceLapsedAtStart: "a call that lapsed before its start is redelivered",
	FenceFoldOrder:     "a fold reads the input after the plan", FenceRecognise: "a worker recognises its own claim",
	FenceInFlight: "what a former owner queued is reread",
	FenceTerm:     "term check on leaving", FenceBeatTimeout: "a heartbeat is given up when the next is due",
	FenceKeepPace: "heartbeats keep their pace",
	FenceNonce:    "nonce of an append", FenceRedelivery: "redelivery of submissions",
	FenceReread: "rereading of calls in flight",
	FenceSweep:  "sweep of tickets left behind", FenceAckLast: "acknowledge after the result",
	FenceApproval: "approval before a call runs", FenceApprovedHash: "hash of the approved input",
	FenceWholeChain: "open calls are read whole",
	FenceGap:        "a gap before a live copy is read", FenceWaitClaim: "no waiting behind a claim",
	FenceTakes:     "old grants count no more",
	FenceParkLeave: "leave before parked", FenceParkedTicket: "sweep of a parked batch's ticket",
	FenceParkReread: "look for news after parked", FenceNewsWakes: "news wakes a parked batch",
	FenceParkedHandle: "a parked batch is adopted by a wake only", FenceHandle: "only the handle adopts",
	FenceWakeSeq:  "a wake names its parking",
	FenceGiveBack: "a wake is given back while the batch runs", FenceWake: "wake after a decision",
	FenceMissed: "sweep of lost wakes",
	FenceProof:  "an owner proves itself after a decision", FenceUnlist: "look before a call is taken off the list",
	FenceExpired:    "sweep of expired requests",
	FenceTicketSure: "a change of nothing is stored too",
	FenceForgotten:  "what the server may have forgotten is claimed",
	FenceQuiet:      "workers are done with the reads",
}

func (f Fence) String() string { return fenceNames[f] }

// has says that a fence stands.
func (s *Sim) has(f Fence) bool { return !s.removed[f] }

// settings are the real ones for one node, and so are the relations between heartbeat, lease and wait.
var settings = broker.Settings{}.WithDefaults()

// faults says what goes wrong in one history, and how often.
type faults struct {
	kinds []faultKind
	// strike is how often a step over the network is the last one before a party is hit; every is the mean time between
	// hits that come out of the blue.
	strike float64
	every  Time
	// restart is how often NATS is killed soon after a read was handed out, or has its result.
	restart float64
	// Per message: request lost, answer lost, request late (also later than its sender waits), refused for now, sent
	// twice; a stale read of a ticket; a live copy lost; an abort lost; slow messages.
	lose, loseAnswer, late, refuse, twice, stale, feedLost, abortLost, slow float64
}

// Focus is what a history is about above all.
type Focus int

// The focuses.
const (
	Anything Focus = iota + 1
	// Streams: open batches, whose owners change.
	Streams
	// Takeovers: owners that fall silent and come back, and whose live feed is poor.
	Takeovers
	// Absences: workers that are silent for long and come back to exclusive calls.
	Absences
	// Restarts: a server that is killed again and again for a moment, with a dispatcher or without, when it has just
	// handed out reads that are followed by writes.
	Restarts
	// People: calls that wait for people, who are slow or silent, and batches that are parked meanwhile.
	People
	// Crowds: open batches that stand in line for one workspace again and again, for calls that people allow and agents
	// cancel.
	Crowds
)

type faultKind int

const (
	crash    faultKind = iota // gone at once; another one of its kind starts later, under a new name
	pause                     // nothing of it runs, for longer than leases last or shorter
	cut                       // nothing goes in or out, but it runs on
	shutdown                  // it is asked to stop, and does so in order (workers)
	// NATS is gone and comes back with what it acknowledged, perhaps without its last deliveries
	outage
)

func (s *Sim) drawFaults() {
	s.quietAt = s.between(4*time.Second, 20*time.Second)
	some := func(p, most float64) float64 {
		if s.rand.Float64() >= p {
			return 0
		}
		return most * s.rand.Float64()
	}
	if s.opt.Calm || s.rand.IntN(12) == 0 { // none at all
		s.f = faults{slow: some(0.5, 0.2)}
		return
	}
	for k := crash; k <= outage; k++ {
		if s.rand.IntN(2) == 0 {
			s.f.kinds = append(s.f.kinds, k)
		}
	}
	switch {
	case s.focus == Restarts:
		s.f.kinds = []faultKind{crash}
	case s.focus != Anything && s.focus < People:
		s.f.kinds = []faultKind{pause, cut}
	}
	s.f = faults{
		kinds: s.f.kinds, strike: some(0.7, 0.02), every: s.between(500*time.Millisecond, 8*time.Second),
		lose: some(0.4, 0.05), loseAnswer: some(0.5, 0.1), late: some(0.4, 0.05), refuse: some(0.4, 0.1),
		twice: some(0.4, 0.1),
		stale: some(0.6, 0.5), feedLost: some(0.6, 0.4), abortLost: some(0.5, 0.8), slow: some(0.6, 0.3),
	}
	switch s.focus {
	case People:
		if s.sc.wavering {
			s.f.late, s.f.lose, s.f.strike = 0.4*s.rand.Float64(), 0.2*s.rand.Float64(), 0
		}
	case Crowds:
		s.f.slow, s.f.loseAnswer = 0.5, 0.1
	case Streams:
		s.f.every, s.f.slow = s.between(300*time.Millisecond, 2*time.Second), 0.5*s.rand.Float64()
	case Takeovers:
		s.f.every, s.f.feedLost = s.between(200*time.Millisecond, 2*time.Second), s.rand.Float64()
	case Restarts:
		s.f.restart, s.f.strike = 0.5*s.rand.Float64(), some(0.5, 0.02)
	case Absences:
		s.f.every, s.f.loseAnswer = s.between(time.Second, 5*time.Second), 0.2*s.rand.Float64()
	}
	var next func()
	next = func() {
		s.after(nil, Time(s.rand.ExpFloat64()*float64(s.f.every)), func() {
			if s.now >= s.quietAt {
				return
			}
			if len(s.f.kinds) > 0 {
				s.hit(s.victim())
			}
			next()
		})
	}
	next()
}

// victim draws whom a fault hits.
func (s *Sim) victim() *machine {
	from, n := 0, len(s.machines)
	switch s.focus {
	case Takeovers, Streams:
		n = s.sc.dispatchers
	case Absences:
		from, n = s.sc.dispatchers, len(s.sc.workers)
	}
	return s.machines[from+s.rand.IntN(n)]
}

// thread is one line of activity of a party. What is planned for it does not happen when it has ended.
type thread struct {
	p     *party
	ended bool
}

func (t *thread) dead() bool { return t.ended || t.p.crashed }

// party is one process, from its start to its end.
type party struct {
	name                  string
	crashed               bool
	born                  Time
	pausedUntil, cutUntil Time
	pausedAt              Time
	held                  []event // what happened to it while it was paused
	cuts                  int     // how often it was cut off: what was on the way then is lost
	// trouble is when it was last hit; losses are its requests that were not answered in time.
	trouble  Time
	troubled bool
	losses   []Time
}

// machine is what starts parties of one kind, one after the other, under names of its own.
type machine struct {
	name  string
	boots int
	p     *party
	boot  func(*party)
	drain func() // of the party that runs now; nil when it has no other way to stop than to be killed
	back  func() // told when its connection is restored; may be nil
}

func (s *Sim) start(m *machine) {
	m.boots++
	name := m.name
	if m.boots > 1 {
		name = fmt.Sprintf("%s.%d", m.name, m.boots)
	}
	m.p = &party{name: name, born: s.now}
	m.drain, m.back = nil, nil
	s.log(name, "starts")
	m.boot(m.p)
}

// hit lets something happen to a machine, or to NATS.
func (s *Sim) hit(m *machine) {
	if m.p.crashed || m.p.pausedUntil > s.now {
		return
	}
	kind := s.f.kinds[s.rand.IntN(len(s.f.kinds))]
	for_ := s.between(10*time.Millisecond, 800*time.Millisecond)
	switch s.rand.IntN(4) {
	case 0:
		for_ = s.between(800*time.Millisecond, 4*time.Second)
	case 1:
		for_ = s.between(4*time.Second, 12*time.Second) // longer than everything that anybody waits for
	}
	switch s.focus {
	case Streams: // back again when the next owner is about to begin
		if s.rand.IntN(2) == 0 {
			break
		}
		for_ = s.between(settings.BatchAckWait-200*time.Millisecond, settings.BatchAckWait+400*time.Millisecond)
	case People: // about as long as it takes to park a batch and to wake it, or until another has taken it over
		switch s.rand.IntN(3) {
		case 0:
			for_ = s.between(settings.BatchAckWait, 3*settings.BatchAckWait)
		case 1:
			for_ = s.between(10*time.Millisecond, 3*time.Second)
		}
	case Absences: // longer than until it counts as lost
		for_ = s.between(settings.WorkerTTL+settings.CallAckWait, 12*time.Second)
	}
	s.faulted++
	p := m.p
	switch kind {
	case crash:
		s.kill(m)
	case pause:
		s.sleep(p, for_)
	case cut:
		s.cutOff(p, for_)
		if m.back != nil {
			s.at(nil, p.cutUntil, m.back)
		}
	case shutdown:
		if m.drain != nil {
			p.troubled, p.trouble = true, never
			s.log(p.name, "SHUTDOWN")
			m.drain()
		}
	case outage:
		if s.now >= s.nats.downUntil {
			s.nats.down(min(for_, 5*time.Second))
		}
	}
}

// restart may kill NATS for a moment, soon after a read was handed out or has its result; now and then it is part of a
// dispatcher.
func (s *Sim) restart(m *message, soon Time) {
	if m.request == nil || !m.request.Calls[0].Judgement.Class.Safe() || !s.chance(s.f.restart) {
		return
	}
	s.after(nil, s.between(0, soon), func() {
		if s.now < s.nats.downUntil {
			return
		}
		s.faulted++
		s.nats.down(s.between(10*time.Millisecond, 300*time.Millisecond))
		if s.one(3) {
			s.kill(s.machines[s.rand.IntN(s.sc.dispatchers)])
		}
	})
}

// reconnect has all workers ask for work again, soon.
func (s *Sim) reconnect() {
	for _, m := range s.machines {
		if m.back != nil {
			s.after(nil, s.between(0, 200*time.Millisecond), m.back)
		}
	}
}

// sleep pauses a party.
func (s *Sim) sleep(p *party, d Time) {
	p.pausedAt, p.pausedUntil = s.now, s.now+d
	p.troubled, p.trouble = true, max(p.trouble, p.pausedUntil)
	s.at(nil, p.pausedUntil, func() { s.wakeUp(p) })
	s.log(p.name, "PAUSE for %s", d)
}

// wakeUp lets everything happen to a party that was held back, in its order.
func (s *Sim) wakeUp(p *party) {
	if p.pausedUntil > s.now {
		return
	}
	held := p.held
	p.held = nil
	for _, e := range held {
		s.at(e.th, s.now, e.do)
	}
}

// comeBack ends what was done to a party before its time.
func (s *Sim) comeBack(p *party) {
	p.cutUntil, p.pausedUntil = min(p.cutUntil, s.now), min(p.pausedUntil, s.now)
	p.trouble = min(p.trouble, s.now)
	s.log(p.name, "is back")
	s.wakeUp(p)
}

// cutOff takes a party's connection away for a while.
func (s *Sim) cutOff(p *party, d Time) {
	p.cutUntil = max(p.cutUntil, s.now+d)
	p.cuts++
	p.troubled, p.trouble = true, max(p.trouble, p.cutUntil)
	s.log(p.name, "CUT OFF for %s", d)
}

// never is later than any history.
const never = Time(1 << 62)

// kill ends a party, and starts the next one later.
func (s *Sim) kill(m *machine) {
	m.p.crashed, m.p.troubled, m.p.trouble = true, true, never
	s.log(m.p.name, "CRASH")
	s.replace(m)
}

func (s *Sim) replace(m *machine) {
	s.after(nil, s.between(50*time.Millisecond, 3*time.Second), func() { s.start(m) })
}

// strike may hit a party at a step over the network.
func (s *Sim) strike(p *party) {
	if len(s.f.kinds) > 0 && s.chance(s.f.strike) {
		for _, m := range s.machines {
			if m.p == p {
				s.hit(m)
				return
			}
		}
	}
}

// around hits a party, now and then, at a moment that matters to a batch that is parked.
func (s *Sim) around(p *party) {
	if s.focus != People || len(s.f.kinds) == 0 || !s.chance(0.1) {
		return
	}
	for _, m := range s.machines {
		if m.p == p {
			s.hit(m)
		}
	}
}

// inTrouble reports whether something happened to the party, or to its messages, since a time, so that it may rightly
// count as lost.
func (s *Sim) inTrouble(p *party, since Time) bool {
	lost := 0
	for _, t := range p.losses {
		if t >= since {
			lost++
		}
	}
	return p.troubled && p.trouble >= since || s.nats.lastDown >= since || lost >= 2
}
