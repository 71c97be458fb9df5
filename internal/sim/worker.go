package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// worker is the shell of package worker: slots that take calls, and a heartbeat.
type worker struct {
	s       *Sim
	m       *machine
	p       *party
	th      *thread
	classes []toolyard.Class
	slots   []*slot
	// lacks says that it has one tool in another version than the batches were planned with.
	lacks   string
	running []*running
	// letGo is when it last let go of a call without a result.
	letGo map[callKey]Time
	// draining says that it takes nothing more; idle is then told when its last call has ended.
	draining bool
	// registered is the right to count as alive: renewed by each heartbeat that was stored.
	registered rightToAct
}

// callKey names a call among all.
type callKey struct {
	b     *batchLog
	index int
}

// rightToAct is worker.lease: once it has lapsed it stays so, unless it is begun again.
type rightToAct struct {
	length, since Time
	lapsed        bool
	term          int // grows when it is begun again after it has lapsed
}

// again extends it, or begins a new term when it has lapsed: what was begun in the old one stays without a right.
func (l *rightToAct) again(now, sent Time) {
	if !l.holds(now) {
		l.term++
	}
	l.since, l.lapsed = sent, false
}

func (l *rightToAct) holds(now Time) bool {
	l.lapsed = l.lapsed || now-l.since > l.length
	return !l.lapsed
}

func (s *Sim) bootWorker(m *machine, spec workerSpec) func(*party) {
	return func(p *party) {
		w := &worker{s: s, m: m, p: p, th: &thread{p: p}, classes: spec.classes, lacks: spec.lacks,
			letGo: map[callKey]Time{}}
		if m.boots > 1 {
			w.lacks = ""
		}
		m.drain, m.back = w.drain, w.back
		s.everyWorker[p.name] = w
		s.nats.workers = append(s.nats.workers, w)
		w.registered = rightToAct{length: broker.Lease(settings.WorkerTTL), since: s.now}
		for _, c := range spec.classes {
			for range spec.slots {
				w.slots = append(w.slots, &slot{w: w, class: c})
			}
		}
		s.retry(w.th, nil, "first heartbeat", func() error { s.nats.beat(w); return nil }, func(error) {
			w.registered.again(s.now, s.now)
			w.beat()
			for _, sl := range w.slots {
				sl.next()
			}
		})
	}
}

// has reports whether a call is in this worker's hands.
func (w *worker) has(b *batchLog, index int) bool {
	return slices.ContainsFunc(w.running, func(r *running) bool { return r.d.batch == b && r.call.Index == index })
}

// beat keeps the worker's registry key.
func (w *worker) beat() {
	s := w.s
	sent := s.now
	limit := heartbeat(settings.WorkerTTL)
	if !s.has(FenceBeatTimeout) {
		limit = min(attemptTimeout, settings.WorkerTTL)
	}
	s.request(w.th, limit, "heartbeat", func() error { s.nats.beat(w); return nil }, func(err error) {
		if err == nil {
			w.registered.again(s.now, sent)
		}
		s.at(w.th, max(sent+heartbeat(settings.WorkerTTL), s.now), w.beat)
	})
}

// abort stops calls that were aborted by broadcast.
func (w *worker) abort(b *batchLog, calls []int, code toolyard.Code) {
	for _, r := range slices.Clone(w.running) {
		if r.d.batch == b && slices.Contains(calls, r.call.Index) {
			w.s.log(w.p.name, "is told to stop %s: %s", r, code)
			r.ctx.cancel(w.s, r.th, stopped{code})
		}
	}
}

// drain lets what runs finish within a grace, hands the rest over, signs off, and ends.
func (w *worker) drain() {
	if w.draining {
		return
	}
	w.draining = true
	s := w.s
	s.after(w.th, s.between(0, 2*lease), func() {
		for _, r := range slices.Clone(w.running) {
			r.ctx.cancel(s, r.th, errShutdown)
		}
		var signOff func()
		signOff = func() {
			if len(w.running) > 0 || slices.ContainsFunc(w.slots, func(sl *slot) bool { return sl.busy }) {
				s.after(w.th, heartbeat(settings.CallAckWait), signOff)
				return
			}
			s.retry(w.th, nil, "sign off", func() error { s.nats.gone(w.p.name); return nil }, func(error) {
				w.p.crashed = true
				s.log(w.p.name, "is gone")
				s.replace(w.m)
			})
		}
		signOff()
	})
}

// back is what happens when the connection is restored: a heartbeat has waited for it, and the server has forgotten who
// asked for work.
func (w *worker) back() {
	if w.th.dead() || w.p.cutUntil > w.s.now || w.p.pausedUntil > w.s.now {
		return
	}
	s, sent := w.s, w.s.now
	s.request(w.th, heartbeat(settings.WorkerTTL), "heartbeat", func() error { s.nats.beat(w); return nil },
		func(err error) {
			if err == nil {
				w.registered.again(s.now, sent)
			}
		})
	for _, sl := range w.slots {
		if !sl.busy {
			sl.next()
		}
	}
}

// slot runs one message after the other.
type slot struct {
	w     *worker
	class toolyard.Class
	inbox []*delivery
	busy  bool
	pulls int
}

// next takes the next message: one that came already, or one that is pulled now.
func (sl *slot) next() {
	s, w := sl.w.s, sl.w
	sl.busy = false
	if w.draining {
		return // what is in the inbox is delivered again when its wait is over
	}
	if len(sl.inbox) > 0 {
		d := sl.inbox[0]
		sl.inbox = sl.inbox[1:]
		if s.now-d.received > lease/2 { // it has waited for the slot; another worker may have room
			s.tell(w.th, "give back", func() { d.nak(returnPause) })
			sl.next()
			return
		}
		sl.take(d)
		return
	}
	sl.pulls++
	mine := sl.pulls
	s.nats.work[sl.class].ask(w.th, func(d *delivery) {
		sl.inbox = append(sl.inbox, d)
		if !sl.busy {
			sl.next()
		}
	})
	s.after(w.th, pullAgain, func() {
		if mine == sl.pulls && !sl.busy {
			sl.next()
		}
	})
}

// take runs the call of one message.
func (sl *slot) take(d *delivery) {
	sl.busy = true
	s, w := sl.w.s, sl.w
	acknowledge := func(then func()) {
		what := "acknowledge"
		if s.opt.Trace {
			what = fmt.Sprintf("acknowledge %s", d)
		}
		s.request(w.th, attemptTimeout, what, func() error { d.ack(); return nil }, func(error) { then() })
	}
	if !s.has(FenceAckLast) {
		acknowledge(func() { w.run(d, func(bool) { sl.next() }) })
		return
	}
	w.run(d, func(settled bool) {
		if !settled {
			sl.next() // given back, or left to be delivered again
			return
		}
		s.restart(d.message, 2*time.Millisecond)
		acknowledge(sl.next)
	})
}
