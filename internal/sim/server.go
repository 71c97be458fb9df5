package sim

import (
	"fmt"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
)

// stored is one event in a stream.
type stored struct {
	batch.Record
	// expected is the sequence that it was appended behind, and id its nonce.
	expected uint64
	id       uint64
	at       Time
}

// subject is one literal subject: its events, the oldest first.
type subject []*stored

func (l subject) last() uint64 {
	if len(l) == 0 {
		return 0
	}
	return l[len(l)-1].Seq
}

// batchLog is all that the streams hold of one batch.
type batchLog struct {
	spec                                     *batchSpec
	submission, batch, control, input, reply subject
	calls                                    []subject
	feeds                                    []*feed
	// truth is the fold of all that is stored, in the order in which it was stored.
	truth   batch.State
	results []int // how many results each call has in the log
	done    bool
	// appended counts the calls on the input chain.
	appended int
	// dropped are the claims, by sequence, of which their worker has said that it knows nothing.
	dropped map[uint64]bool
	// messages are its submission and the wakes for it, by sequence.
	messages map[uint64]*message
	parkedAt Time // when it was parked last
}

func (b *batchLog) chain(c batch.Chain, index int) *subject {
	switch c {
	case batch.ChainSubmission:
		return &b.submission
	case batch.ChainBatch:
		return &b.batch
	case batch.ChainControl:
		return &b.control
	case batch.ChainInput:
		return &b.input
	case batch.ChainReply:
		return &b.reply
	}
	return &b.calls[index]
}

// server is NATS: what it holds survives its restarts.
type server struct {
	s         *Sim
	downUntil Time
	lastDown  Time // when it was last not there; -1 for never
	epoch     int
	back      Time                   // when it was last there again
	restarts  int                    // how often it was
	seq       map[batch.Chain]uint64 // by stream: submission, batch (all events), reply
	ids       uint64

	logs map[toolyard.BatchKey]*batchLog
	// submissions and work are the consumers.
	submissions *consumer
	work        map[toolyard.Class]*consumer
	kicks       []*consumer // all of them
	tickets     map[toolyard.Workspace]*ticketKey
	ticketWatch []*watch[ticketChange]
	alive       map[string]workerKey // by worker
	workerWatch []*watch[workerChange]
	workers     []*worker // who listens for aborts
	// approvals is the list of calls that wait for people, with when each wait is over.
	approvals     map[callKey]Time
	approvalWatch []*watch[approvalChange]
}

type workerKey struct {
	expires Time
	classes []toolyard.Class
}

// ticketKey is one workspace's queue, in all its revisions.
type ticketKey struct{ revisions []ticket.Queue }

type ticketChange struct {
	w        toolyard.Workspace
	q        ticket.Queue
	revision uint64
}

type workerChange struct {
	id      string
	alive   bool
	classes []toolyard.Class
}

func newServer(s *Sim) *server {
	n := &server{
		s: s, lastDown: -1, seq: map[batch.Chain]uint64{}, logs: map[toolyard.BatchKey]*batchLog{},
		work:    map[toolyard.Class]*consumer{},
		tickets: map[toolyard.Workspace]*ticketKey{}, alive: map[string]workerKey{}, approvals: map[callKey]Time{},
	}
	n.submissions = &consumer{s: s, name: "submissions", wait: settings.BatchAckWait}
	n.kicks = append(n.kicks, n.submissions)
	for _, c := range toolyard.Classes {
		n.work[c] = &consumer{s: s, name: "calls " + string(c), wait: settings.CallAckWait}
		n.kicks = append(n.kicks, n.work[c])
	}
	return n
}

// down stops NATS for a while. What is on its way is lost, and so are the pulls that wait.
func (n *server) down(d Time) {
	n.downUntil = n.s.now + d
	n.lastDown = n.downUntil
	n.epoch++
	n.s.log("nats", "DOWN for %s", d)
	forgets := n.s.focus == Restarts || n.s.aside.IntN(2) == 0
	for _, c := range n.kicks {
		c.waiting = nil
		if forgets {
			c.forget()
		}
	}
	n.s.at(nil, n.downUntil, func() {
		n.s.log("nats", "is back")
		n.back = n.s.now
		n.restarts++
		if n.s.focus == Restarts {
			n.s.reconnect()
		}
		for _, c := range n.kicks {
			c.kick()
		}
	})
}

// append is a publish with an expected last sequence; force takes the expectation away.
func (n *server) append(b *batchLog, c batch.Chain, index int, expected, id uint64, force bool,
	body events.Body) (uint64, error) {
	chain := b.chain(c, index)
	if last := chain.last(); last != expected && !force {
		return 0, errConflict
	}
	stream := c
	if c == batch.ChainItem || c == batch.ChainControl || c == batch.ChainInput {
		stream = batch.ChainBatch
	}
	n.seq[stream]++
	before := chain.last()
	if c == batch.ChainReply {
		if r, ok := body.(events.Reply); ok && len(r.Results) > 0 {
			index = r.Results[0].Index
		}
	}
	m := &stored{Record: batch.Record{Chain: c, Index: index, Seq: n.seq[stream], Time: n.s.clock(), Body: body},
		expected: before, id: id, at: n.s.now}
	*chain = append(*chain, m)
	n.s.check(b, m)
	if c == batch.ChainSubmission {
		n.deliver(b, m.Seq, 0)
	} else if c != batch.ChainReply {
		n.publish(b, m, before)
	}
	return m.Seq, nil
}

// deliver hands a message of the batch stream to the dispatchers: a submission, or a wake for a parking.
func (n *server) deliver(b *batchLog, seq, parked uint64) {
	m := &message{batch: b, seq: seq, parked: parked}
	b.messages[seq] = m
	n.submissions.add(m)
}

// wake stores a wake. It is a message like a submission, and under another subject.
func (n *server) wake(b *batchLog, parked uint64) {
	n.seq[batch.ChainSubmission]++
	n.deliver(b, n.seq[batch.ChainSubmission], parked)
}

// list puts a call on the list of those that wait for people, unlist takes it off.
func (n *server) list(k callKey, expires Time) {
	n.approvals[k] = expires
	n.approvalWatch = notify(n.s, n.approvalWatch, approvalChange{k, true, expires})
}

func (n *server) unlist(k callKey) {
	if _, ok := n.approvals[k]; ok {
		delete(n.approvals, k)
		n.approvalWatch = notify(n.s, n.approvalWatch, approvalChange{callKey: k})
	}
}

// feed is one owner's subscription to the live copies of a batch's events.
type feed struct {
	th   *thread
	last map[subjectKey]Time // copies of one subject come in order
	got  func(m *stored, before uint64)
}

type subjectKey struct {
	c     batch.Chain
	index int
}

// publish sends live copies. They may be lost, late, and in another order than those of other subjects.
func (n *server) publish(b *batchLog, m *stored, before uint64) {
	s := n.s
	b.feeds = slices.DeleteFunc(b.feeds, func(f *feed) bool { return f.th.dead() })
	for _, f := range b.feeds {
		p := f.th.p
		if p.cutUntil > s.now || s.chance(s.f.feedLost) {
			s.log(p.name, "live copy of %d lost", m.Seq)
			continue
		}
		key := subjectKey{m.Chain, m.Index}
		t := max(s.now+s.delay(), f.last[key])
		f.last[key] = t
		cuts := p.cuts
		s.at(f.th, t, func() {
			if p.cuts == cuts {
				f.got(m, before)
			}
		})
	}
}

// watch is a party's watch of a bucket: every change, in order, sooner or later.
type watch[T any] struct {
	th      *thread
	pending []T
	see     func(T)
}

func notify[T any](s *Sim, ws []*watch[T], c T) []*watch[T] {
	ws = slices.DeleteFunc(ws, func(w *watch[T]) bool { return w.th.dead() })
	for _, w := range ws {
		w.pending = append(w.pending, c)
		s.after(w.th, s.delay(), func() { w.next(s) })
	}
	return ws
}

func (w *watch[T]) next(s *Sim) {
	if until := max(w.th.p.cutUntil, s.nats.downUntil); until > s.now {
		s.at(w.th, until+s.delay(), func() { w.next(s) })
		return
	}
	c := w.pending[0]
	w.pending = w.pending[1:]
	w.see(c)
}

func (n *server) key(w toolyard.Workspace) *ticketKey {
	k, ok := n.tickets[w]
	if !ok {
		k = &ticketKey{revisions: make([]ticket.Queue, 1, 32)}
		n.tickets[w] = k
	}
	return k
}

// readTickets is a direct get: the answer may be behind.
func (n *server) readTickets(w toolyard.Workspace) (ticket.Queue, uint64) {
	k := n.key(w)
	rev := len(k.revisions) - 1
	if n.s.chance(n.s.f.stale) {
		rev -= n.s.rand.IntN(min(rev, 4) + 1)
	}
	return k.revisions[rev], uint64(rev)
}

// updateTickets is the compare-and-set.
func (n *server) updateTickets(w toolyard.Workspace, q ticket.Queue, revision uint64) (uint64, error) {
	k := n.key(w)
	if last := uint64(len(k.revisions) - 1); last != revision && n.s.has(FenceTicket) {
		return 0, errConflict
	}
	k.revisions = append(k.revisions, q)
	rev := uint64(len(k.revisions) - 1)
	n.ticketWatch = notify(n.s, n.ticketWatch, ticketChange{w, q, rev})
	return rev, nil
}

// beat stores a worker's key for a while.
func (n *server) beat(w *worker) {
	n.alive[w.p.name] = workerKey{n.s.now + settings.WorkerTTL, w.classes}
	n.workerWatch = notify(n.s, n.workerWatch, workerChange{w.p.name, true, w.classes})
	n.s.after(nil, settings.WorkerTTL, func() { n.expireWorker(w.p.name) })
}

func (n *server) expireWorker(id string) {
	k, ok := n.alive[id]
	switch {
	case !ok || k.expires > n.s.now:
	case n.downUntil > n.s.now:
		n.s.at(nil, n.downUntil, func() { n.expireWorker(id) })
	default:
		n.gone(id)
	}
}

func (n *server) gone(id string) {
	delete(n.alive, id)
	n.s.log("nats", "the key of %s is gone", id)
	n.workerWatch = notify(n.s, n.workerWatch, workerChange{id: id})
}

// abort is the broadcast to all workers. A hint: some may not get it.
func (n *server) abort(b *batchLog, calls []int, code toolyard.Code) {
	s := n.s
	n.workers = slices.DeleteFunc(n.workers, func(w *worker) bool { return w.p.crashed })
	for _, w := range n.workers {
		if w.p.cutUntil > s.now || s.chance(s.f.abortLost) {
			s.log(w.p.name, "abort of %s %v lost", b.spec.name, calls)
			continue
		}
		s.after(w.th, s.delay(), func() { w.abort(b, calls, code) })
	}
}

// describe is an event for people.
func describe(b events.Body) string {
	switch b := b.(type) {
	case events.Planned:
		return fmt.Sprintf("planned by %s", b.Owner)
	case events.Adopted:
		return fmt.Sprintf("adopted by %s, takeover %d, handle %d", b.Owner, b.Takeover, b.Handle)
	case events.Waiting:
		return fmt.Sprintf("waiting for a person, %s", b.InputSHA256)
	case events.Decided:
		return fmt.Sprintf("decided by %s: %s %s", b.By, b.Decision, b.InputSHA256)
	case events.Started:
		return fmt.Sprintf("started group %d, ticket %d", b.Group, b.Ticket)
	case events.Settled:
		return "settled " + outcomes(b.Results)
	case events.Finished:
		return "finished " + outcomes([]toolyard.Result{b.Result})
	case events.Reply:
		text := "reply " + outcomes(b.Results)
		if b.Completed {
			text += " completed"
		}
		return text
	case events.Claimed:
		return fmt.Sprintf("claimed by %s, attempt %d, ticket %d", b.Worker, b.Attempt, b.Ticket)
	case events.AttemptFailed:
		return fmt.Sprintf("attempt %d of %q failed: %s", b.Attempt, b.Worker, b.Reason)
	case events.Extended:
		return fmt.Sprintf("extended by %d calls, groups from %d on: %v, closed %v", len(b.Calls), b.FirstGroup,
			b.Groups, b.Closed)
	case events.Appended:
		return fmt.Sprintf("appended %d calls", len(b.Calls))
	case events.Closed:
		return "closed by " + b.By + " " + b.Reason
	case events.Canceled:
		return fmt.Sprintf("cancel %v", b.Calls)
	}
	return string(b.EventType())
}

func outcomes(rs []toolyard.Result) string {
	out := ""
	for _, r := range rs {
		code := r.Code
		if code == "" {
			code = "ok"
		}
		out += fmt.Sprintf("[%d %s %s]", r.Index, code, r.Worker)
	}
	return out
}
