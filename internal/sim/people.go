package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// The rhythm of looking after batches that wait for people, as in package dispatcher but for missedEvery, which is half
// a minute there.
const (
	expireEvery = time.Second
	missedEvery = 8 * time.Second
	wakeAgain   = 5 * time.Second
)

// approvalChange is a change of the list of approvals.
type approvalChange struct {
	callKey
	listed  bool
	expires Time
}

// answer is what a person is going to say about a call, and how long after it is listed.
type answer struct {
	after    Time
	decision events.Decision
	edits    bool
}

// bootPerson makes somebody who follows the list of approvals, and decides about some of the calls.
func (s *Sim) bootPerson(n int) func(*party) {
	return func(p *party) {
		th := &thread{p: p}
		seen := map[callKey]bool{}
		see := func(c approvalChange) {
			a := c.b.spec.calls[c.index].answers[n]
			if c.listed && a != nil && !seen[c.callKey] {
				seen[c.callKey] = true
				s.after(th, a.after, func() { s.decide(th, c.callKey, a) })
			}
		}
		s.watchApprovals(th, see, func() {})
	}
}

// watchApprovals tells of each call that is listed, and of each change from then on.
func (s *Sim) watchApprovals(th *thread, see func(approvalChange), then func()) {
	var now []approvalChange
	s.retry(th, nil, "watch approvals", func() error {
		now = s.nats.watchApprovals(th, see)
		return nil
	}, func(error) {
		for _, c := range now {
			see(c)
		}
		then()
	})
}

func (n *server) watchApprovals(th *thread, see func(approvalChange)) (now []approvalChange) {
	for _, k := range sortedCalls(n.approvals) {
		now = append(now, approvalChange{k, true, n.approvals[k]})
	}
	if !slices.ContainsFunc(n.approvalWatch, func(w *watch[approvalChange]) bool { return w.th == th }) {
		n.approvalWatch = append(n.approvalWatch, &watch[approvalChange]{th: th, see: see})
	}
	return now
}

func sortedCalls[T any](m map[callKey]T) []callKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b callKey) int {
		return cmp.Or(cmp.Compare(a.b.spec.name, b.b.spec.name), cmp.Compare(a.index, b.index))
	})
}

// asked is broker.Asked: the event by which a call waits for a person; nil when it does not.
func (s *Sim) asked(th *thread, k callKey, then func(*stored)) {
	s.last(th, nil, k.b, batch.ChainItem, k.index, func(m *stored) {
		if m != nil && m.Body.EventType() != events.CallWaiting {
			m = nil
		}
		then(m)
	})
}

// decide is broker.Decide.
func (s *Sim) decide(th *thread, k callKey, a *answer) {
	s.asked(th, k, func(m *stored) {
		if m == nil {
			return
		}
		d := events.Decided{Decision: a.decision, By: th.p.name}
		switch {
		case a.decision == events.Approve && a.edits:
			d.Edited = "input as edited by " + th.p.name
			d.InputSHA256 = d.Edited
		case a.decision == events.Approve:
			d.InputSHA256 = m.Body.(events.Waiting).InputSHA256
		}
		s.append(th, nil, k.b, batch.ChainItem, k.index, m.Seq, d, func(_ batch.Record, err error) {
			if err != nil { // somebody was faster
				return
			}
			s.around(th.p)
			if s.has(FenceWake) {
				s.wakeIfParked(th, k.b, func(bool) {})
			}
		})
	})
}

// wakeIfParked is broker.WakeIfParked.
func (s *Sim) wakeIfParked(th *thread, b *batchLog, then func(parked bool)) {
	s.last(th, nil, b, batch.ChainBatch, 0, func(m *stored) {
		if m == nil || m.Body.EventType() != events.BatchParked {
			then(false)
			return
		}
		what := "wake"
		if s.opt.Trace {
			what = fmt.Sprintf("wake %s, parked at %d", b.spec.name, m.Seq)
		}
		s.retry(th, nil, what, func() error { s.nats.wake(b, m.Seq); return nil }, func(error) { then(true) })
	})
}

// waitingCall is dispatcher.waitingCall: a call that is listed.
type waitingCall struct{ expires, woken, checked Time }

func (d *dispatcher) seeApproval(c approvalChange) {
	if !c.listed {
		delete(d.waiting, c.callKey)
		return
	}
	w := &waitingCall{expires: c.expires, woken: -wakeAgain, checked: d.s.now}
	if before, ok := d.waiting[c.callKey]; ok { // an owner has listed it again
		w.woken, w.checked = before.woken, before.checked
	}
	d.waiting[c.callKey] = w
}

// lookAfter is dispatcher.waitingRoom.look, again and again: it wakes the batches whose requests expire, and those
// whose wake was lost.
func (d *dispatcher) lookAfter() {
	s := d.s
	s.after(d.th, expireEvery, func() {
		var todo []func(next func())
		for _, k := range sortedCalls(d.waiting) {
			w := d.waiting[k]
			expired := s.has(FenceExpired) && s.now >= w.expires && s.now-w.woken >= wakeAgain
			missed := s.has(FenceMissed) && s.now-w.checked >= missedEvery
			if expired || missed {
				todo = append(todo, func(next func()) { d.lookAt(k, w, expired, next) })
			}
		}
		inTurn(todo, d.lookAfter)
	})
}

func (d *dispatcher) lookAt(k callKey, w *waitingCall, expired bool, then func()) {
	s := d.s
	w.checked = s.now
	wake := func(decided bool) {
		w.woken = s.now
		s.wakeIfParked(d.th, k.b, func(parked bool) {
			if !decided {
				then()
				return
			}
			s.log(d.p.name, "finds %s#%d decided, parked: %v", k.b.spec.name, k.index, parked)
			s.retry(d.th, nil, "unlist", func() error { s.nats.unlist(k); return nil }, func(error) { then() })
		})
	}
	s.asked(d.th, k, func(m *stored) {
		switch {
		case m == nil:
			wake(true)
		case expired:
			wake(false)
		default: // was anything asked of it since it was parked?
			s.last(d.th, nil, k.b, batch.ChainBatch, 0, func(b *stored) {
				if b == nil || b.Body.EventType() != events.BatchParked {
					then()
					return
				}
				s.last(d.th, nil, k.b, batch.ChainControl, 0, func(c *stored) {
					if c == nil || c.Seq <= b.Seq {
						then()
						return
					}
					wake(false)
				})
			})
		}
	})
}

// park is dispatcher.park: the batch is parked in the log, and has no owner any more. What came while that was written
// is looked for, since whoever appended it may have looked before; then the batch is woken at once.
func (r *runner) park(then func()) {
	s, st := r.s, r.m.State()
	r.parked = true
	s.around(r.d.p)
	release := func() {
		s.around(r.d.p)
		r.done(then)
	}
	type chain struct {
		c     batch.Chain
		index int
	}
	chains := []chain{{batch.ChainControl, 0}}
	for i := range st.Calls {
		if st.Calls[i].Status == batch.Waiting {
			chains = append(chains, chain{batch.ChainItem, i})
		}
	}
	if !s.has(FenceParkReread) {
		chains = nil
	}
	var look func()
	look = func() {
		if len(chains) == 0 {
			release()
			return
		}
		c := chains[0]
		chains = chains[1:]
		s.newer(r.th, r.b, st, c.c, c.index, func(rs []batch.Record) {
			switch {
			case len(rs) == 0:
				look()
			case s.has(FenceNewsWakes):
				s.wakeIfParked(r.th, r.b, func(bool) { release() })
			default:
				r.again()
			}
		})
	}
	look()
}

// again goes on with a batch for which there was news when it was parked, by the message by which it was kept.
func (r *runner) again() {
	r.parked = false
	r.s.fold(r.th, r.b, func(st *batchState, err error) {
		if err != nil {
			r.s.fail("I7", "%s cannot fold %s: %v", r.d.p.name, r.b.spec.name, err)
			return
		}
		r.d.adopt(r, *st)
	})
}
