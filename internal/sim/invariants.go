package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
)

// execution is one run of a tool, as the tool itself wrote it down: the ledger is the ground truth.
type execution struct {
	n       int // its place in the ledger, from 1
	b       *batchLog
	index   int
	kind    string
	attempt int
	token   uint64 // the fencing token: the number of its group's ticket
	worker  string
	begin   Time
	end     Time   // when the tool returned, or was told to stop; before, when it was last seen alive
	input   string // what it runs on, of a call that needs a person
	effects []Time
	commits int
	over    bool
	slept   bool // its worker was paused since it began
}

func (e *execution) String() string {
	return fmt.Sprintf("execution %d (%s of %s#%d by %s, attempt %d, token %d, begun %s, last effect or end %s)",
		e.n, e.kind, e.b.spec.name, e.index, e.worker, e.attempt, e.token, stamp(e.begin), stamp(e.last()))
}

// begin writes that a tool begins.
func (s *Sim) begin(r *running) *execution {
	e := &execution{
		n: len(s.ledger) + 1, b: r.d.batch, index: r.call.Index, kind: r.spec.kind, attempt: r.call.Attempt,
		token:  r.d.request.Ticket,
		worker: r.w.p.name, begin: s.now, end: s.now, input: r.input,
	}
	s.ledger = append(s.ledger, e)
	s.log(e.worker, "%s: begins, execution %d, token %d", r, e.n, e.token)
	s.checkAtMostOnce(e)
	s.checkBarrier(e)
	s.checkApproved(e)
	return e
}

// commit writes that a tool has passed a commit point: its effect is there.
func (s *Sim) commit(e *execution) {
	e.commits++
	e.effects = append(e.effects, s.now)
	s.log(e.worker, "%s#%d: commits %d, token %d", e.b.spec.name, e.index, e.commits, e.token)
	s.checkTokens(e)
}

func (s *Sim) ended(e *execution) {
	e.end, e.over = s.now, true
	e.slept = s.everyWorker[e.worker].p.pausedUntil > e.begin
	s.log(e.worker, "%s#%d: execution %d ends", e.b.spec.name, e.index, e.n)
}

// check is called with each event as it is stored.
func (s *Sim) check(b *batchLog, m *stored) {
	s.checkInput(b, m)
	s.checkOneResult(b, m)
	s.checkReplies(b, m)
	s.checkAsked(b, m)
	if s.failure == nil {
		s.checkOutcomeUnknown(b, m)
		s.checkFold(b, m)
	}
	if m.Chain == batch.ChainBatch {
		s.checkParked(b, m)
		s.checkKept(b)
	}
}

// checkApproved: a call that needs a person begins when one has allowed it, on the input that was allowed.
func (s *Sim) checkApproved(e *execution) {
	spec, c := e.b.spec.calls[e.index], e.b.truth.Calls[e.index]
	switch d := c.Decision; {
	case !spec.person || spec.wavers && c.Asked == nil:
	case d == nil || d.Decision != events.Approve:
		s.fail("approval", "%v begins, and nobody has allowed it", e)
	case d.InputSHA256 != e.input:
		s.fail("approval", "%v begins on %q, and %q was allowed", e, e.input, d.InputSHA256)
	}
}

// checkAsked: nobody is asked again about what was decided.
func (s *Sim) checkAsked(b *batchLog, m *stored) {
	if m.Body.EventType() == events.CallWaiting && b.truth.Calls[m.Index].Decision != nil {
		s.fail("asked once", "a person is asked about call %d of %s, which was decided", m.Index, b.spec.name)
	}
}

// checkParked: when a batch is parked nothing of it is on its way, and its owner has given back its ticket.
func (s *Sim) checkParked(b *batchLog, m *stored) {
	if m.Body.EventType() != events.BatchParked || s.failure != nil {
		return
	}
	b.parkedAt = s.now
	t := &b.truth
	q := s.nats.key(b.spec.sub.Workspace).revisions
	for _, k := range q[len(q)-1].Tickets {
		if k.Agent == b.spec.key.Agent && k.Batch == b.spec.key.ID && k.Term >= t.Takeovers {
			s.fail("parked", "%s is parked, and its owner holds ticket %d", b.spec.name, k.N)
		}
	}
	for g := range t.Plan.Groups {
		if _, started := t.Started[g]; !started || t.Done(g) {
			continue
		}
		for _, i := range t.Plan.Groups[g].Calls {
			if c := t.Calls[i]; c.Asked == nil && c.Result == nil {
				s.fail("parked", "%s is parked, and its call %d is %s", b.spec.name, i, c.Status)
			}
		}
	}
}

// checkKept is I8 for a batch that has an owner: the message by which it is kept is not acknowledged, so that it goes
// on when the owner dies at this instant.
func (s *Sim) checkKept(b *batchLog) {
	t := &b.truth
	if b.done || t.Plan == nil || t.Parked || s.failure != nil {
		return
	}
	if m := b.messages[t.Handle]; m == nil || m.gone {
		s.fail("I8", "%s is owned by %s, and kept by message %d, which is acknowledged", b.spec.name, t.Owner, t.Handle)
	}
}

// parkedTicketAfter is how long the ticket of a parked batch may stand before others' when nothing goes wrong any more.
const parkedTicketAfter = 20 * time.Second

// checkParkedTickets: a batch that is parked for long stands in nobody's way.
func (s *Sim) checkParkedTickets() {
	for _, w := range s.sc.workspaces {
		revisions := s.nats.key(w).revisions
		q := revisions[len(revisions)-1]
		log := func(t ticket.Ticket) *batchLog { return s.nats.logs[toolyard.BatchKey{Agent: t.Agent, ID: t.Batch}] }
		for i, t := range q.Tickets {
			b := log(t)
			if !b.truth.Parked || s.now-b.parkedAt < parkedTicketAfter {
				continue
			}
			if slices.ContainsFunc(q.Tickets[i+1:], func(t ticket.Ticket) bool {
				return !log(t).done &&
					!log(t).truth.Parked
			}) {
				s.fail("parked", "%s is parked since %s, and its ticket %d stands before others: %s", b.spec.name,
					stamp(b.parkedAt), t.N, tickets(q))
			}
		}
	}
	s.after(nil, time.Second, s.checkParkedTickets)
}

// checkInput is Q10 for open batches: what is appended once stands once.
func (s *Sim) checkInput(b *batchLog, m *stored) {
	body, ok := m.Body.(events.Appended)
	if !ok {
		return
	}
	for _, c := range body.Calls {
		if n := b.spec.first + b.appended; n >= len(b.spec.all) || c.ID != b.spec.all[n].ID {
			s.fail("Q10", "call %s was appended to %s again", c.ID, b.spec.name)
			return
		}
		b.appended++
	}
}

// checkOneResult is I1 (and Q1): no call gets a second result, whoever writes it.
func (s *Sim) checkOneResult(b *batchLog, m *stored) {
	var results []toolyard.Result
	switch body := m.Body.(type) {
	case events.Planned:
		results = body.Results
	case events.Extended:
		results = body.Results
	case events.Settled:
		results = body.Results
	case events.Finished:
		results = []toolyard.Result{body.Result}
	}
	for _, r := range results {
		if b.results[r.Index]++; b.results[r.Index] > 1 {
			s.fail("I1", "call %d of %s has a second result: %s", r.Index, b.spec.name, outcomes(results))
		}
	}
}

// checkReplies is I2 (and Q2), and that a batch completes once: replies come in emission order without gap or repeat.
func (s *Sim) checkReplies(b *batchLog, m *stored) {
	r, ok := m.Body.(events.Reply)
	if !ok || s.failure != nil {
		return
	}
	if b.done {
		s.fail("I1", "%s completes again", b.spec.name)
		return
	}
	for n, res := range r.Results {
		if res.Index != b.truth.Replied+n {
			s.fail("I2", "%s replies call %d where call %d is next", b.spec.name, res.Index, b.truth.Replied+n)
			return
		}
	}
	b.done = r.Completed
}

// checkFold is I7 as it happens: each event can follow those before it, and a reply says what the log says.
func (s *Sim) checkFold(b *batchLog, m *stored) {
	if err := b.truth.Apply(m.Record); err != nil {
		s.fail("I7", "%v", err)
		return
	}
	if r, ok := m.Body.(events.Reply); ok {
		for _, res := range r.Results {
			if in := b.truth.Calls[res.Index].Result; in == nil || encode(*in) != encode(res) {
				s.fail("I7", "%s replies %s, and its log says %+v", b.spec.name, outcomes(r.Results), in)
			}
		}
	}
}

// checkOutcomeUnknown: a result says outcome_unknown only when the call's worker was really lost, paused or cut off
// since it claimed the call.
func (s *Sim) checkOutcomeUnknown(b *batchLog, m *stored) {
	f, ok := m.Body.(events.Finished)
	if !ok || f.Result.Code != toolyard.OutcomeUnknown {
		return
	}
	since, claimSeq := Time(-1), uint64(0)
	for _, c := range b.calls[m.Index] {
		if claim, ok := c.Body.(events.Claimed); ok && claim.Worker == f.Result.Worker {
			since, claimSeq = c.at, c.Seq
		}
	}
	if since < 0 {
		s.fail("outcome_unknown", "call %d of %s was never claimed by %s", m.Index, b.spec.name, f.Result.Worker)
		return
	}
	w := s.everyWorker[f.Result.Worker]
	from := since
	// the worker's own words: its lease runs from a heartbeat that may have been sent before the claim
	if executed(f.Result) {
		from -= settings.CallAckWait
	}
	if b.dropped[claimSeq] && since >= w.letGo[callKey{b, m.Index}] {
		return // it let go of the call while its claim was late, and the claim was stored after that
	}
	if !s.inTrouble(w.p, from) {
		s.fail("outcome_unknown", "call %d of %s, claimed at %s by %s: nothing had happened to that worker", m.Index,
			b.spec.name, stamp(since), w.p.name)
	}
}

// executed reports whether a worker has written the result of a call that it began.
func executed(r toolyard.Result) bool {
	return slices.ContainsFunc(r.Phases, func(f toolyard.Fact) bool { return f.Phase == toolyard.PhaseExecute })
}

// checkAtMostOnce is I5 (and Q3): a call that is not idempotent begins at most once.
func (s *Sim) checkAtMostOnce(e *execution) {
	if kinds[e.kind].idempotent {
		return
	}
	for _, o := range s.ledger[:len(s.ledger)-1] {
		if o.b == e.b && o.index == e.index {
			s.fail("I5", "%v begins, and so did %v", e, o)
		}
	}
}

// checkBarrier is I3 (and Q6): a call begins when every call of the groups before it has its result in the log.
func (s *Sim) checkBarrier(e *execution) {
	plan := e.b.truth.Plan
	for g, group := range plan.Groups {
		if slices.Contains(group.Calls, e.index) {
			break
		}
		if !e.b.truth.Done(g) {
			s.fail("I3", "%v begins before group %d is over", e, g)
		}
	}
}

// checkTokens is Q7: in a workspace the tokens of committed effects only grow.
func (s *Sim) checkTokens(e *execution) {
	if !kinds[e.kind].workspace {
		return
	}
	w := e.b.spec.sub.Workspace
	if s.tokens == nil {
		s.tokens = map[toolyard.Workspace]*execution{}
	}
	if last := s.tokens[w]; last != nil && last.token > e.token {
		s.fail("Q7", "%v commits, after %v", e, last)
	}
	s.tokens[w] = e
}

// last is the last instant at which an execution counts: its last effect when it is exclusive, since all between the
// last commit point and the return is the tool's own affair; its end when it only reads.
func (e *execution) last() Time {
	if !kinds[e.kind].class.Safe() {
		if len(e.effects) == 0 {
			return e.begin
		}
		return e.effects[len(e.effects)-1]
	}
	return e.end
}

// judge checks what can be said at the end only.
func (s *Sim) judge() {
	s.checkExclusive()
	for _, b := range s.sc.batches {
		log := s.nats.logs[b.key]
		s.checkComplete(log)
		s.checkEffects(log)
		s.checkFolds(log)
	}
}

// checkExclusive is I4 (and Q5): in one workspace an exclusive execution overlaps no other. An execution counts from
// its beginning to its last effect, one that only read to its end. If its result was refused and its worker was paused
// meanwhile, it may read while others write, and nobody sees what it read.
func (s *Sim) checkExclusive() {
	byWorkspace := map[toolyard.Workspace][]*execution{}
	for _, e := range s.ledger {
		if !kinds[e.kind].workspace {
			continue
		}
		if kinds[e.kind].class.Safe() {
			r := e.b.truth.Calls[e.index].Result
			if r == nil || !e.over || e.slept && r.Output != fmt.Sprintf("execution %d", e.n) {
				continue
			}
		}
		w := e.b.spec.sub.Workspace
		byWorkspace[w] = append(byWorkspace[w], e)
	}
	for _, w := range slices.Sorted(maps.Keys(byWorkspace)) {
		es := byWorkspace[w]
		slices.SortStableFunc(es, func(a, b *execution) int { return cmp.Compare(a.begin, b.begin) })
		for i, e := range es {
			for _, o := range es[:i] {
				if kinds[e.kind].class.Safe() && kinds[o.kind].class.Safe() {
					continue
				}
				if o.last() >= e.begin {
					s.fail("I4", "in %s: %v overlaps %v", w, e, o)
					return
				}
			}
		}
	}
}

// checkComplete is I1 at the end: every call has exactly one result, in the log and in the replies.
func (s *Sim) checkComplete(b *batchLog) {
	replied := 0
	for _, m := range b.reply {
		replied += len(m.Body.(events.Reply).Results)
	}
	if replied != len(b.truth.Calls) {
		s.fail("I1", "%s has %d calls and %d replied results", b.spec.name, len(b.truth.Calls), replied)
	}
	for i, n := range b.results[:len(b.truth.Calls)] {
		if n != 1 {
			s.fail("I1", "call %d of %s has %d results", i, b.spec.name, n)
		}
	}
}

// checkEffects is Q3 and Q4: what is not idempotent happened at most once, and what reports success has happened,
// whole.
func (s *Sim) checkEffects(b *batchLog) {
	for i, c := range b.spec.calls[:len(b.truth.Calls)] {
		begun, whole := 0, 0
		for _, e := range s.ledger {
			if e.b == b && e.index == i {
				begun++
				if e.commits == c.commits && e.over {
					whole++
				}
			}
		}
		r := b.truth.Calls[i].Result
		switch {
		case r == nil:
		case !kinds[c.kind].idempotent && begun > 1:
			s.fail("Q3", "call %d of %s began %d times", i, b.spec.name, begun)
		case !r.IsError && whole == 0:
			s.fail("Q4", "call %d of %s reports success and happened %d times, never whole", i, b.spec.name, begun)
		case !r.IsError && !kinds[c.kind].idempotent && whole != 1:
			s.fail("Q3", "call %d of %s reports success and happened %d times", i, b.spec.name, whole)
		}
	}
}

// checkFolds is I7 (and Q13): the fold of the log from its beginning, in the order of its chains, is what was folded as
// it came, and what the replies say.
func (s *Sim) checkFolds(b *batchLog) {
	st := batch.State{Key: b.spec.key}
	apply := func(ms subject) {
		for _, m := range ms {
			if err := st.Apply(m.Record); err != nil && s.failure == nil {
				s.fail("I7", "%v", err)
			}
		}
	}
	apply(b.submission)
	apply(b.input)
	apply(b.batch)
	for _, l := range b.calls {
		apply(l)
	}
	apply(b.control)
	apply(b.reply)
	if got, want := encode(st.View()), encode(b.truth.View()); got != want {
		s.fail("I7", "the log of %s folds to\n%s\nand as it came\n%s", b.spec.name, got, want)
	}
}

// checkMachine is I7 for an owner that says its batch is complete: its state is the fold of the log.
func (s *Sim) checkMachine(r *runner) {
	for _, c := range r.m.State().Calls { // a former owner reads that the batch is complete, and not all that led there
		if c.Result != nil {
			if in := r.b.truth.Calls[c.Result.Index].Result; in == nil || encode(*in) != encode(*c.Result) {
				s.fail("I7", "%s has %s for %s in its state, and the log folds to %v", r.d.p.name,
					outcomes([]toolyard.Result{*c.Result}), r.b.spec.name, in)
			}
		}
	}
	if !r.b.truth.Completed {
		s.fail("I7", "%s takes %s for complete", r.d.p.name, r.b.spec.name)
	}
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data always encodes
	}
	return string(b)
}
