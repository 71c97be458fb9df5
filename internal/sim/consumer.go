package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/toolyard/toolyard/internal/events"
)

// message is one in a work queue: a submission, or calls to run.
type message struct {
	batch    *batchLog
	seq      uint64
	parked   uint64 // of a wake: the event that it is for
	request  *events.Requested
	count    int  // deliveries
	out      bool // delivered, not acknowledged, and its wait is not over
	gone     bool // acknowledged
	deadline Time // of the wait
}

func (m *message) String() string {
	switch {
	case m.parked != 0:
		return fmt.Sprintf("wake %d of %s for %d", m.seq, m.batch.spec.name, m.parked)
	case m.request == nil:
		return m.batch.spec.name
	}
	return fmt.Sprintf("%s#%d", m.batch.spec.name, m.request.Calls[0].Index)
}

// consumer is a durable pull consumer: each message is out with one party at a time, as far as the consumer knows.
type consumer struct {
	s       *Sim
	name    string
	wait    Time
	ready   []*message
	waiting []*pull
	held    int // messages that are not gone
}

// pull is a party's request for one message.
type pull struct {
	th  *thread
	got func(*delivery)
}

// delivery is a message in the hands of one party. Its acknowledgements are not fenced: also those of a former holder count.
type delivery struct {
	*message
	c        *consumer
	n        int // deliveries when it was delivered
	received Time
}

func (c *consumer) add(m *message) {
	c.held++
	c.ready = append(c.ready, m)
	c.kick()
}

// kick delivers what is ready to who waits.
func (c *consumer) kick() {
	s := c.s
	if s.nats.downUntil > s.now {
		return
	}
	for len(c.ready) > 0 && len(c.waiting) > 0 {
		next := 0
		if s.focus == Absences { // whose turn it is depends on who asked again after a cut
			next = s.rand.IntN(len(c.waiting))
		}
		w := c.waiting[next]
		c.waiting = slices.Delete(c.waiting, next, next+1)
		// NATS may not have noticed yet that the other side is no more.
		if w.th.dead() && (s.now >= s.quietAt || s.rand.IntN(2) == 0) {
			continue
		}
		m := c.ready[0]
		c.ready = c.ready[1:]
		m.count++
		m.out, m.deadline = true, s.now+c.wait
		s.at(nil, m.deadline, func() { c.expire(m) })
		p := w.th.p
		if p.cutUntil > s.now || s.chance(s.f.lose) {
			s.log(p.name, "delivery %d of %s lost", m.count, m)
			continue
		}
		d := &delivery{message: m, c: c, n: m.count}
		cuts := p.cuts
		s.after(w.th, s.delay(), func() {
			if p.cuts != cuts {
				s.log(p.name, "delivery %d of %s lost", d.n, m)
				return
			}
			s.log(p.name, "gets %s, delivery %d", m, d.n)
			w.got(d)
		})
	}
}

// expire makes a message ready again when its wait is over.
func (c *consumer) expire(m *message) {
	switch {
	case m.gone || !m.out:
	case m.deadline > c.s.now:
		c.s.at(nil, m.deadline, func() { c.expire(m) })
	case c.s.nats.downUntil > c.s.now:
		c.s.at(nil, c.s.nats.downUntil, func() { c.expire(m) })
	case m.request == nil && !c.s.has(FenceRedelivery):
	default:
		m.out = false
		c.ready = slices.Insert(c.ready, 0, m) // redeliveries go first
		c.kick()
	}
}

// ask pulls one message. What comes, comes to got, later.
func (c *consumer) ask(th *thread, got func(*delivery)) {
	c.s.request(th, never/2, "pull", func() error {
		c.waiting = slices.DeleteFunc(c.waiting, func(w *pull) bool { return w.th == th && c.s.rand.IntN(4) > 0 })
		c.waiting = append(c.waiting, &pull{th, got})
		c.kick()
		return nil
	}, nil)
}

// alive is "+WPI". It is always answered, whoever sends it.
func (d *delivery) alive() {
	if d.out {
		d.deadline = d.c.s.now + d.c.wait
	}
}

// ack takes the message out, whoever sends it.
func (d *delivery) ack() {
	if d.gone {
		return
	}
	d.gone = true
	d.c.held--
	if !d.out {
		d.c.ready = slices.DeleteFunc(d.c.ready, func(m *message) bool { return m == d.message })
	}
	if d.request == nil {
		d.c.s.checkKept(d.batch)
	}
}

// nak gives the message back after a pause.
func (d *delivery) nak(pause time.Duration) {
	if d.out && !d.gone {
		d.deadline = d.c.s.now + pause
		d.c.s.at(nil, d.deadline, func() { d.c.expire(d.message) })
	}
}
