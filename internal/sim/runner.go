package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
)

// rereadAfter is how long an owner trusts the live feed, as in package dispatcher.
const rereadAfter = time.Second

// runner is dispatcher.runner: the shell around one batch's machine. Where the real one blocks, this one is busy.
type runner struct {
	s   *Sim
	d   *dispatcher
	th  *thread
	b   *batchLog
	m   *batch.Machine
	sub *delivery
	// mine are the calls that this owner has queued.
	mine map[int]bool

	busy    bool
	copies  []liveCopy
	granted []grant
	noticed bool
	beatDue bool
	wakeDue bool
	wakes   int

	news     Time
	pending  []batch.Input
	complete bool
	parked   bool
	takes    int // how often a ticket was asked for: an answer to an earlier time counts no more
	// term counts the owners before this one; heard is when the log last said anything of a call.
	term  int
	heard map[int]Time
	// asked is when workers were last asked about the calls that they claimed.
	asked Time
	// adopted and since are as in package dispatcher.
	adopted bool
	since   int
	lapsed  bool // the machine knows that another may own the batch
}

type liveCopy struct {
	m      *stored
	before uint64
}

type grant struct {
	take  int
	group int
	t     ticket.Ticket
	err   error
}

func (r *runner) run(st batch.State) {
	r.m, r.term, r.heard = batch.New(r.s.machineConfig(), st), st.Takeovers, map[int]Time{}
	r.news = r.s.now
	r.asked = -settings.CallAckWait
	r.adopted, r.since = st.Takeovers > 0, -1
	r.tick()
	// What was canceled or appended before the feed began.
	r.read(batch.ChainControl, 0, func() {
		if st.Closed {
			r.step()
			return
		}
		r.read(batch.ChainInput, 0, r.step)
	})
}

// wake steps the machine when a decision of its own is due.
func (r *runner) wake() {
	r.wakes++
	mine := r.wakes
	t := r.m.Wake()
	if t.IsZero() || t.Sub(epoch) > r.s.quietAt+2*patience {
		return
	}
	r.s.at(r.th, max(t.Sub(epoch), r.s.now+time.Millisecond), func() {
		if mine == r.wakes {
			r.wakeDue = true
			r.next()
		}
	})
}

func (r *runner) tick() {
	r.s.after(r.th, heartbeat(settings.BatchAckWait), func() {
		r.beatDue = true
		r.next()
		r.tick()
	})
}

func (r *runner) copy(m *stored, before uint64) {
	r.copies = append(r.copies, liveCopy{m, before})
	r.next()
}

// next takes up one of the things that have come in while the runner was busy: any of them, as select does.
func (r *runner) next() {
	if r.busy || r.th.dead() {
		return
	}
	var ready [5]int
	n := 0
	add := func(ok bool, what int) {
		if ok {
			ready[n] = what
			n++
		}
	}
	add(len(r.copies) > 0, 0)
	add(len(r.granted) > 0, 1)
	add(r.beatDue, 2)
	add(r.wakeDue, 3)
	add(r.noticed, 4)
	if n == 0 {
		return
	}
	r.busy = true
	switch ready[r.s.rand.IntN(n)] {
	case 0:
		r.drain()
	case 1:
		g := r.granted[0]
		r.granted = r.granted[1:]
		switch {
		case g.take != r.takes && r.s.has(FenceTakes):
			r.step()
		case g.err == nil:
			r.pending = append(r.pending, batch.Granted{Group: g.group, Ticket: g.t.N})
			r.step()
		case errors.Is(g.err, ticket.ErrPassed):
			r.stop("a later group of it stands in line")
		default:
			r.s.fail("I9", "no ticket: %v", g.err)
		}
	case 2:
		r.beatDue = false
		r.beat()
	case 3:
		r.wakeDue = false
		r.step()
	case 4:
		r.noticed = false
		r.pending = append(r.pending, batch.Noticed{})
		r.step()
	}
}

// step steps the machine and performs its effects, until there is nothing new.
func (r *runner) step() {
	if !r.lapsed && r.sub.lapsed() {
		r.lapsed = true
		r.pending = append(r.pending, batch.Lapsed{})
	}
	inputs := r.pending
	r.pending = nil
	effects, err := r.m.Step(r.s.clock(), inputs...)
	if err != nil {
		r.s.fail("I7", "the machine of %s for %s: %v", r.d.p.name, r.b.spec.name, err)
		return
	}
	r.perform(effects, nil, func() {
		switch {
		case r.parked:
			r.stop("it is parked")
		case r.complete:
			r.s.checkMachine(r)
			r.stop("it is complete")
		case len(r.pending) > 0:
			r.step()
		default:
			r.busy = false
			r.wake()
			r.next()
		}
	})
}

// perform does one effect after the other; the calls go into the queue at the end, together.
func (r *runner) perform(effects []batch.Effect, calls []batch.Queue, then func()) {
	s := r.s
	for i, e := range effects {
		rest := func() { r.perform(effects[i+1:], calls, then) }
		switch e := e.(type) {
		case batch.Append:
			r.append(e, rest)
			return
		case batch.Extend:
			r.append(batch.Append{Chain: batch.ChainBatch, Expected: e.Expected, Body: r.b.spec.extend(r.m.State())},
				rest)
			return
		case batch.TakeTicket:
			s.log(r.d.p.name, "wants a ticket for %s group %d, %s", r.b.spec.name, e.Group, e.Mode)
			r.quiet(e.Group, func() {
				r.take(e)
				rest()
			})
			return
		case batch.ReleaseTickets:
			r.takes++
			if !s.has(FenceParkLeave) && r.allWait() {
				continue
			}
			r.quiet(e.Group+1, func() {
				r.d.desk.leave(r.m.State().Plan.Workspace, r.holder(e.Group), func() {
					if !r.th.dead() {
						rest()
					}
				})
			})
			return
		case batch.Queue:
			r.mine[e.Request.Calls[0].Index] = true
			calls = append(calls, e)
		case batch.Abort:
			s.tell(r.th, "abort", func() { s.nats.abort(r.b, e.Calls, e.Code) })
		case batch.Withdraw: // nothing is found out
		case batch.ListApproval:
			r.ask(e, rest)
			return
		case batch.Notify:
			s.after(r.th, s.between(0, 500*time.Millisecond), func() {
				r.noticed = true
				r.next()
			})
		case batch.Park:
			r.park(rest)
			return
		case batch.Complete:
			r.complete = true
			r.done(rest)
			return
		}
	}
	r.queue(calls, then)
}

// ask puts a call on the list of those that wait for people, or takes it off. Who takes one off looks first whether the
// batch is parked: this may be a former owner, whose append nobody else would act on.
func (r *runner) ask(e batch.ListApproval, then func()) {
	s, k := r.s, callKey{r.b, e.Index}
	if !e.Remove {
		expires := r.m.ApprovalEnd(e.Index).Sub(epoch)
		s.retry(r.th, nil, "list", func() error { s.nats.list(k, expires); return nil }, func(error) { then() })
		return
	}
	unlist := func(bool) {
		s.retry(r.th, nil, "unlist", func() error { s.nats.unlist(k); return nil }, func(error) { then() })
	}
	if !s.has(FenceUnlist) {
		unlist(false)
		return
	}
	s.wakeIfParked(r.th, r.b, unlist)
}

// allWait reports whether all open calls that somebody could move on wait for a person.
func (r *runner) allWait() bool {
	st, waiting := r.m.State(), false
	for _, i := range r.m.InFlight() {
		if st.Calls[i].Status != batch.Waiting {
			return false
		}
		waiting = true
	}
	return waiting
}

// append stores an event, or finds what stands there instead.
func (r *runner) append(e batch.Append, then func()) {
	if st := r.m.State(); !r.s.has(FenceProof) {
		if b, ok := e.Body.(events.Started); ok && b.Ticket != 0 && st.Started[b.Group] == b.Ticket {
			r.pending = append(r.pending, batch.Stored{Record: batch.Record{Chain: e.Chain, Seq: st.BatchSeq, Body: b}})
			then()
			return
		}
	}
	r.s.append(r.th, nil, r.b, e.Chain, e.Index, e.Expected, e.Body, func(rec batch.Record, err error) {
		switch {
		case err == nil:
			r.pending = append(r.pending, batch.Stored{Record: rec})
			then()
		case e.Chain == batch.ChainBatch:
			r.stop("it has another owner")
		default:
			r.read(e.Chain, e.Index, then)
		}
	})
}

func (r *runner) holder(group int) ticket.Holder {
	h := ticket.Holder{Agent: r.b.spec.key.Agent, Batch: r.b.spec.key.ID, Group: group}
	if r.s.has(FenceTerm) {
		h.Term = r.term
	}
	return h
}

// queue hands calls to the workers, all on their way at once, each repeated until it is stored: once or more.
func (r *runner) queue(calls []batch.Queue, then func()) {
	s := r.s
	left := len(calls)
	if left == 0 {
		then()
		return
	}
	if r.since < 0 {
		r.since = s.restored(r.d.p)
	}
	for _, c := range calls {
		what := "queue"
		if s.opt.Trace {
			what = fmt.Sprintf("queue %s#%d, attempt %d, behind %d", r.b.spec.name, c.Request.Calls[0].Index,
				c.Request.Calls[0].Attempt, c.Request.Expected)
		}
		tries := 0
		s.retry(r.th, nil, what, func() error {
			tries++
			s.nats.work[c.Route.Class].queue(&message{batch: r.b, request: &c.Request, again: tries > 1})
			return nil
		}, func(error) {
			if left--; left == 0 {
				then()
			}
		})
	}
}

// read brings in what a chain has beyond the state.
func (r *runner) read(c batch.Chain, index int, then func()) {
	r.s.newer(r.th, r.b, r.m.State(), c, index, func(rs []batch.Record) {
		for _, rec := range rs {
			r.pending = append(r.pending, batch.Stored{Record: rec})
		}
		then()
	})
}

// drain brings in all live copies that have come: they are one step, and one reply.
func (r *runner) drain() {
	if len(r.copies) == 0 {
		r.step()
		return
	}
	c := r.copies[0]
	r.copies = r.copies[1:]
	r.news = r.s.now
	st := r.m.State()
	last := st.BatchSeq
	switch c.m.Chain {
	case batch.ChainControl:
		last = st.ControlSeq
	case batch.ChainInput:
		last = st.InputSeq
	case batch.ChainItem:
		if c.m.Index >= len(st.Calls) { // another owner has planned it
			r.stop("a live event is about a call that it does not know")
			return
		}
		last = st.Calls[c.m.Index].Seq
		r.heard[c.m.Index] = r.s.now
	}
	switch {
	case c.m.Seq <= last:
	case c.m.Chain == batch.ChainBatch:
		r.stop("the live feed says that it has another owner")
		return
	case c.before != last && (c.m.Chain != batch.ChainItem || c.m.Body.EventType() != events.CallFinished &&
		r.s.has(FenceGap)):
		r.read(c.m.Chain, c.m.Index, r.drain)
		return
	default:
		r.pending = append(r.pending, batch.Stored{Record: c.m.Record})
	}
	r.drain()
}

// keep tells the stream that the batch is in work, whatever else the runner is waiting for.
func (r *runner) keep() {
	s := r.s
	due := s.now + heartbeat(settings.BatchAckWait)
	s.at(r.th, due, func() {
		sub := r.sub
		alive := func() error { sub.alive(); return nil }
		s.request(r.th, settings.BatchAckWait, "keep the submission", alive, func(err error) {
			if err == nil {
				sub.keptAt(due)
			}
			r.keep()
		})
	})
}

// beat looks at the workers, and reads what the feed may have missed.
func (r *runner) beat() {
	s, st := r.s, r.m.State()
	routes := map[batch.Route]bool{}
	seen := batch.Observed{Dropped: map[int]uint64{}}
	quiet := s.now-r.news >= rereadAfter
	reread := s.has(FenceReread)
	var claimed []int
	var todo []func(next func())
	for _, i := range r.inFlight() {
		p, c := st.Plan.Calls[i], st.Calls[i]
		switch c.Status {
		case batch.Claimed:
			claimed = append(claimed, i)
		case batch.Waiting:
		default:
			routes[batch.Route{Pool: p.Pool, Class: p.Judgement.Class}] = true
		}
		if reread && s.now-r.heard[i] >= rereadAfter {
			r.heard[i] = s.now
			todo = append(todo, func(next func()) { r.read(batch.ChainItem, i, next) })
		}
	}
	if reread && quiet {
		todo = append(todo, func(next func()) { r.read(batch.ChainControl, 0, next) },
			func(next func()) { r.read(batch.ChainInput, 0, next) })
	}
	if quiet {
		todo = append(todo, func(next func()) { r.news = s.now; next() })
	}
	switch {
	case !s.has(FenceSilence):
		for _, i := range claimed {
			if r.d.silent(st.Calls[i].Worker) {
				seen.Dropped[i] = st.Calls[i].Seq
			}
		}
	default: // all holders are asked now and then; those that are gone from the registry at every beat
		all := s.now-r.asked >= settings.CallAckWait
		if all {
			r.asked = s.now
		}
		silent := map[string]bool{}
		for _, i := range claimed {
			if _, here := r.d.live[st.Calls[i].Worker]; here && !all {
				continue
			}
			todo = append(todo, func(next func()) { r.askHolder(i, silent, &seen, next) })
		}
	}
	inTurn(todo, func() {
		for _, route := range slices.SortedFunc(maps.Keys(routes),
			func(a, b batch.Route) int { return a.Class.Strictness() - b.Class.Strictness() }) {
			if !r.d.serves(route) {
				seen.Absent = append(seen.Absent, route)
			}
		}
		if len(seen.Absent)+len(seen.Dropped) > 0 {
			s.log(r.d.p.name, "sees for %s: dropped %v, absent %v", r.b.spec.name, seen.Dropped, seen.Absent)
		}
		r.pending = append(r.pending, seen)
		r.step()
	})
}

// inFlight returns the calls that are reread. Without its fence those of a former owner are left out.
func (r *runner) inFlight() []int {
	out, st := r.m.InFlight(), r.m.State()
	if r.s.has(FenceInFlight) {
		return out
	}
	return slices.DeleteFunc(out, func(i int) bool { return !r.mine[i] && st.Calls[i].Status != batch.Claimed })
}

// inTurn does one after the other, and then the last.
func inTurn(todo []func(next func()), last func()) {
	if len(todo) == 0 {
		last()
		return
	}
	todo[0](func() { inTurn(todo[1:], last) })
}

// take stands in line for a group's ticket.
func (r *runner) take(e batch.TakeTicket) {
	r.takes++
	take := r.takes
	r.d.desk.take(r.m.State().Plan.Workspace, r.holder(e.Group), e.Mode, func(t ticket.Ticket, err error) {
		if !r.th.dead() {
			r.granted = append(r.granted, grant{take, e.Group, t, err})
			r.next()
		}
	})
}

// quiet goes on when no worker runs a read of the groups before one that has its result. Those that do are told to
// stop.
func (r *runner) quiet(before int, then func()) {
	s, st := r.s, r.m.State()
	doubt := s.has(FenceQuiet) && (r.adopted || r.since >= 0 && r.since != s.restored(r.d.p))
	if _, under := st.Started[before]; !under { // what a former owner has started is asked about when it is over
		r.adopted, r.since = false, -1
	}
	var calls []int
	for i, g := range st.Plan.Groups[:before] {
		if _, started := st.Started[i]; !started || !doubt || !g.Ticket || !g.Safe {
			continue
		}
		for _, i := range g.Calls {
			if !st.Open(i) {
				calls = append(calls, i)
			}
		}
	}
	if len(calls) == 0 {
		then()
		return
	}
	var asked []string
	s.retry(r.th, nil, "catch up with the registry", func() error {
		asked = slices.Sorted(maps.Keys(s.nats.alive))
		return nil
	}, func(error) {
		for id := range r.d.live {
			if !slices.Contains(asked, id) {
				asked = append(asked, id)
			}
		}
		slices.Sort(asked)
		r.hush(asked, calls, then)
	})
}

// hush tells workers to stop some calls, and again until none of them has any.
func (r *runner) hush(asked []string, calls []int, then func()) {
	s := r.s
	if len(asked) == 0 {
		then()
		return
	}
	s.tell(r.th, "abort", func() { s.nats.abort(r.b, calls, toolyard.Canceled) })
	var still []string
	var todo []func(next func())
	for _, id := range asked {
		todo = append(todo, func(next func()) {
			r.holds(id, calls, func(has, answered bool) {
				if has || !answered && !r.d.silent(id) {
					still = append(still, id)
				}
				next()
			})
		})
	}
	inTurn(todo, func() { s.after(r.th, quietPause, func() { r.hush(still, calls, then) }) })
}

// quietPause is the pause between two rounds of questions, as in package dispatcher.
const quietPause = 20 * time.Millisecond

// holderTimeout is how long a worker may take to say whether it has a call, as in package broker.
const holderTimeout = 300 * time.Millisecond

// askHolder finds out whether the worker that claimed a call still has it.
//
// silent are the workers that did not answer in this round, and are not asked again.
func (r *runner) askHolder(i int, silent map[string]bool, seen *batch.Observed, then func()) {
	s, c := r.s, r.m.State().Calls[i]
	w := s.everyWorker[c.Worker]
	answer := func(has, known bool) {
		silent[c.Worker] = !known
		switch {
		case has:
			then()
		case known && !s.has(FenceHolder):
			then()
		case known:
			s.newer(r.th, r.b, r.m.State(), batch.ChainItem, i, func(rs []batch.Record) {
				if len(rs) == 0 {
					seen.Dropped[i] = c.Seq
					r.b.dropped[c.Seq] = true
				}
				for _, rec := range rs {
					r.pending = append(r.pending, batch.Stored{Record: rec})
				}
				then()
			})
		default:
			if r.d.silent(c.Worker) && s.focus == Absences && s.chance(1) { // and just then it is back
				s.comeBack(w.p)
				w.back()
			}
			if r.d.silent(c.Worker) {
				seen.Dropped[i] = c.Seq
			}
			then()
		}
	}
	if silent[c.Worker] {
		answer(false, false)
		return
	}
	r.holds(c.Worker, []int{i}, answer)
}

// holds is broker.Holds: it asks a worker whether it has any of some calls in its hands. answered is false when it does
// not say.
func (r *runner) holds(worker string, calls []int, then func(has, answered bool)) {
	s, w := r.s, r.s.everyWorker[worker]
	over := false
	answer := func(has, answered bool) {
		if !over {
			over = true
			then(has, answered)
		}
	}
	s.after(r.th, holderTimeout, func() { answer(false, false) })
	what := "ask holder"
	if s.opt.Trace {
		what = fmt.Sprintf("ask %s whether it has %s#%d", worker, r.b.spec.name, calls)
	}
	s.request(r.th, never/2, what, func() error {
		if w == nil || w.p.cutUntil > s.now {
			return nil
		}
		s.after(w.th, s.delay(), func() {
			has := slices.ContainsFunc(calls, func(i int) bool { return w.has(r.b, i) })
			s.log(w.p.name, "says whether it has %s#%d: %v", r.b.spec.name, calls, has)
			if w.p.cutUntil <= s.now && r.d.p.cutUntil <= s.now {
				s.after(r.th, s.delay(), func() { answer(has, true) })
			}
		})
		return nil
	}, nil)
}
