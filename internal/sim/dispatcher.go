package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

type batchState = batch.State

// How often a party pulls again while nothing comes: its client sees that a pull was forgotten.
const pullAgain = 3 * time.Second

// machineConfig is what the owner decides with. It waits less than the real one, so that histories are short.
func (s *Sim) machineConfig() batch.Config {
	return batch.Config{WorkerWait: 4 * time.Second, MaxAttempts: 3, OpenIdle: 2500 * time.Millisecond,
		AbortEvery: time.Second, EndGrace: settings.CallAckWait * 3 / 2, QueueWait: s.sc.queueWait, Hooks: s.sc.hooks,
		ItemCalls: 1}
}

// dispatcher is the shell of package dispatcher: it takes submissions, and runs their batches.
type dispatcher struct {
	s    *Sim
	p    *party
	th   *thread
	desk desk
	open map[*batchLog]*runner
	// The roster: who is alive, and since when the others are gone.
	live  map[string][]toolyard.Class
	beats map[string]Time // when each live worker was last heard of
	gone  map[string]Time
	pulls int
	// waiting are the calls on the list of those that wait for people.
	waiting map[callKey]*waitingCall
}

func (s *Sim) bootDispatcher() func(*party) {
	return func(p *party) {
		d := &dispatcher{s: s, p: p, th: &thread{p: p}, open: map[*batchLog]*runner{},
			live: map[string][]toolyard.Class{}, beats: map[string]Time{}, gone: map[string]Time{},
			waiting: map[callKey]*waitingCall{}}
		d.desk.d = d
		// First the watches, which begin with what is there.
		var workers []workerChange
		var waiting []approvalChange
		s.retry(d.th, nil, "watch workers, tickets and approvals", func() error {
			workers = workers[:0]
			waiting = s.nats.watchApprovals(d.th, d.seeApproval)
			for _, id := range slices.Sorted(maps.Keys(s.nats.alive)) {
				workers = append(workers, workerChange{id, true, s.nats.alive[id].classes})
			}
			if !slices.ContainsFunc(s.nats.workerWatch, func(w *watch[workerChange]) bool { return w.th == d.th }) {
				s.nats.workerWatch = append(s.nats.workerWatch, &watch[workerChange]{th: d.th, see: d.seeWorker})
				s.nats.ticketWatch = append(s.nats.ticketWatch, &watch[ticketChange]{th: d.th, see: d.desk.see})
				for _, w := range s.sc.workspaces {
					k := s.nats.key(w)
					rev := len(k.revisions) - 1
					d.desk.see(ticketChange{w, k.revisions[rev], uint64(rev)})
				}
			}
			return nil
		}, func(error) {
			for _, w := range workers {
				d.seeWorker(w)
			}
			for _, c := range waiting {
				d.seeApproval(c)
			}
			d.pull()
			d.sweep()
			if s.focus >= People {
				d.lookAfter()
			}
		})
	}
}

func (d *dispatcher) seeWorker(c workerChange) {
	if c.alive {
		d.live[c.id], d.beats[c.id] = c.classes, d.s.now
		delete(d.gone, c.id)
		return
	}
	d.remove(c.id)
}

func (d *dispatcher) remove(id string) {
	if _, ok := d.live[id]; ok {
		delete(d.live, id)
		delete(d.beats, id)
		d.gone[id] = d.s.now
	}
}

// expire takes out workers that were not heard of for longer than their time to live.
func (d *dispatcher) expire(ttl Time) {
	for _, id := range slices.Sorted(maps.Keys(d.beats)) {
		if d.s.now-d.beats[id] > ttl {
			d.remove(id)
		}
	}
}

// silent reports whether a worker has been gone for at least the wait.
func (d *dispatcher) silent(id string) bool {
	s := d.s
	if !s.has(FenceSilence) { // a heartbeat is late, and that is enough
		k, ok := s.nats.alive[id]
		return !ok || s.now > k.expires-settings.WorkerTTL+heartbeat(settings.WorkerTTL)+50*time.Millisecond
	}
	if _, ok := d.live[id]; ok {
		return false
	}
	last, ok := d.gone[id]
	if !ok { // never heard of: it may have come just now
		last, d.gone[id] = s.now, s.now
	}
	return s.now-last >= settings.CallAckWait
}

// serves reports whether a live worker takes the route's calls.
func (d *dispatcher) serves(r batch.Route) bool {
	for _, classes := range d.live {
		if slices.Contains(classes, r.Class) {
			return true
		}
	}
	return false
}

func (d *dispatcher) sweep() {
	d.s.after(d.th, sweepEvery, func() {
		d.desk.reread(func() {
			d.desk.sweep()
			d.expire(settings.WorkerTTL * 3 / 2)
			d.sweep()
		})
	})
}

// pull takes submissions, one after the other.
func (d *dispatcher) pull() {
	d.pulls++
	mine := d.pulls
	d.s.nats.submissions.ask(d.th, func(sub *delivery) {
		d.take(sub)
		if mine == d.pulls {
			d.pull()
		}
	})
	d.s.after(d.th, pullAgain, func() {
		if mine == d.pulls {
			d.pull()
		}
	})
}

func (d *dispatcher) take(sub *delivery) {
	if r, ok := d.open[sub.batch]; ok {
		switch {
		case r.sub.seq == sub.seq: // it runs here already: this is a new handle to keep it by
			sub.late = r.sub.lapsed() || sub.n != r.sub.n+1
			r.sub = sub
		case !d.s.has(FenceGiveBack):
			d.s.tell(d.th, "acknowledge", sub.ack)
		default: // until it can be told what it is worth
			d.s.tell(d.th, "give back", func() { sub.nak(min(givenBack<<min(sub.n, 10), 10*time.Second)) })
		}
		return
	}
	r := &runner{s: d.s, d: d, th: &thread{p: d.p}, b: sub.batch, sub: sub, busy: true, mine: map[int]bool{}}
	d.open[sub.batch] = r
	r.keep()
	d.accept(r)
}

// givenBack is half the shortest pause after which a wake is delivered again.
const givenBack = 50 * time.Millisecond

// accept takes a delivered submission up: it plans it, adopts it, or finds it complete, and then runs it.
func (d *dispatcher) accept(r *runner) {
	s, b := d.s, r.b
	b.feeds = append(b.feeds, &feed{th: r.th, last: map[subjectKey]Time{}, got: r.copy})
	st := batch.State{Key: b.spec.key}
	if err := st.Apply(b.submission[0].Record); err != nil {
		s.fail("I7", "the submission cannot be read: %v", err)
		return
	}
	decide := func(st *batch.State, err error) {
		switch {
		case err != nil:
			s.fail("I7", "%s cannot fold %s: %v", d.p.name, b.spec.name, err)
		case st.Completed:
			done := func() { r.done(func() { r.stop("it is complete") }) }
			if st.Plan != nil && len(st.Started) > 0 { // its owner may have died before it left its workspace
				r.term = st.Takeovers
				d.desk.leave(st.Plan.Workspace, r.holder(len(st.Plan.Groups)-1), done)
				return
			}
			done()
		case st.Plan == nil && r.sub.parked != 0:
			s.fail("I7", "there is a wake for %s, which has no plan", b.spec.name)
		case st.Plan == nil:
			d.own(r, *st, b.spec.plan(d.p.name, r.sub.seq, s.clock()))
		// Its owner died before it had let go of it.
		case st.Parked && st.Handle == r.sub.seq && s.has(FenceParkedHandle):
			s.wakeIfParked(r.th, b, func(bool) { r.done(func() { r.stop("it is parked") }) })
		case st.Parked && st.BatchSeq == r.sub.parked, st.Handle == r.sub.seq, !s.has(FenceHandle),
			st.Parked && r.sub.parked != 0 && !s.has(FenceWakeSeq):
			d.adopt(r, *st)
		case r.sub.parked == 0 && st.Plan.SubmissionSeq != r.sub.seq:
			s.fail("I7", "planned for submission %d, adopted for %d", st.Plan.SubmissionSeq, r.sub.seq)
		default: // another message keeps the batch, or wakes it
			r.done(func() { r.stop("it is kept by another message") })
		}
	}
	if r.sub.n > 1 || r.sub.parked != 0 {
		s.fold(r.th, b, decide)
		return
	}
	decide(&st, nil)
}

// adopt goes on with a batch whose former owner fell silent, or which was parked and has been woken: then its clock,
// which stood still, goes on.
func (d *dispatcher) adopt(r *runner, st batch.State) {
	by := events.Adopted{Owner: d.p.name, Takeover: st.Takeovers + 1}
	if r.sub.seq != st.Handle {
		by.Handle = r.sub.seq
	}
	if st.Parked {
		by.Deadline = d.s.clock().Add(st.Remaining)
		d.s.around(d.p)
	}
	d.own(r, st, by)
}

// own appends the event that makes this dispatcher the owner.
func (d *dispatcher) own(r *runner, st batch.State, by events.Body) {
	d.s.append(r.th, nil, r.b, batch.ChainBatch, 0, st.BatchSeq, by, func(rec batch.Record, err error) {
		if err != nil {
			r.stop("it has another owner")
			return
		}
		if err := st.Apply(rec); err != nil {
			d.s.fail("I7", "%s: %v", d.p.name, err)
			return
		}
		r.run(st)
	})
	if _, adopts := by.(events.Adopted); adopts && d.s.focus == Takeovers && d.s.chance(0.5) {
		d.s.cutOff(d.p, d.s.between(4*time.Second, 9*time.Second)) // it learns only later that it has adopted
	}
}

// stop ends a runner.
func (r *runner) stop(why string) {
	r.s.log(r.d.p.name, "stops with %s: %s", r.b.spec.name, why)
	r.th.ended = true
	if r.m != nil {
		r.d.desk.forget(r.m.State().Plan.Workspace, r.b.spec.key)
	}
	delete(r.d.open, r.b)
}

// done acknowledges the submission. When that fails it is delivered again, to whomever, who finds it complete.
func (r *runner) done(then func()) {
	what := "acknowledge"
	if r.s.opt.Trace {
		what = fmt.Sprintf("acknowledge %s", r.b.spec.name)
	}
	r.s.request(r.th, 5*time.Second, what, func() error { r.sub.ack(); return nil }, func(error) { then() })
}
