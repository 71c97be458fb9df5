package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
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
	again    bool // it may have been queued before
	deadline Time // of the wait
	// queued is when it was stored, handed when it was delivered last.
	queued, handed Time
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
	all     []*message // calls that are not gone, and perhaps others
	ready   []*message
	waiting []*pull
	held    int        // messages that are not gone
	handed  []*message // those delivered last, of which the server may forget the delivery
}

// pull is a party's request for one message.
type pull struct {
	th  *thread
	got func(*delivery)
}

// delivery is a message in the hands of one party. Its acknowledgements are not fenced: also those of a former holder
// count.
type delivery struct {
	*message
	c        *consumer
	n        int // deliveries when it was delivered
	received Time
	// again says that it may have been delivered before, whatever n says; restored is how often its holder's connection
	// had been restored when it came.
	again    bool
	restored int
	late     bool // of a submission: another dispatcher may have been handed it
}

// queue adds calls, unless they are in the queue already, behind the same event.
func (c *consumer) queue(m *message) {
	call := &m.request.Calls[0]
	for _, o := range c.all {
		stands := &o.request.Calls[0]
		if !o.gone && o.batch == m.batch && stands.Index == call.Index && o.request.Expected == m.request.Expected {
			return
		}
	}
	c.all = append(slices.DeleteFunc(c.all, func(m *message) bool { return m.gone }), m)
	c.add(m)
}

func (c *consumer) add(m *message) {
	c.held++
	m.queued = c.s.now
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
		m.out, m.deadline, m.handed = true, s.now+c.wait, s.now
		c.handed = append(c.handed, m)
		s.at(nil, m.deadline, func() { c.expire(m) })
		p := w.th.p
		if p.cutUntil > s.now || s.chance(s.f.lose) {
			s.log(p.name, "delivery %d of %s lost", m.count, m)
			continue
		}
		s.restart(m, forgets)
		d := &delivery{message: m, c: c, n: m.count}
		cuts := p.cuts
		s.after(w.th, s.delay(), func() {
			if p.cuts != cuts {
				s.log(p.name, "delivery %d of %s lost", d.n, m)
				return
			}
			s.log(p.name, "gets %s, delivery %d", m, d.n)
			d.received, d.restored = s.now, s.restored(p)
			d.again = m.again || s.mayHaveForgotten(p, m)
			w.got(d)
		})
	}
}

// forgets is how old what a server has written of its deliveries may be when it is killed.
const forgets = 100 * time.Millisecond

// forget takes back the last deliveries, as a server does that is killed before it has written them down: the messages
// are ready again when it is back, and it counts those deliveries no more.
func (c *consumer) forget() {
	var again []*message
	for _, m := range c.handed {
		if m.out && !m.gone && m.handed >= c.s.now-forgets {
			c.s.log("nats", "forgets delivery %d of %s", m.count, m)
			m.out = false
			m.count--
			again = append(again, m)
		}
	}
	c.handed = nil
	c.ready = slices.Concat(again, c.ready)
}

// mayHaveForgotten is as in package broker: what was in the queue before a party's connection stood may have been
// delivered before.
func (s *Sim) mayHaveForgotten(p *party, m *message) bool {
	return s.has(FenceForgotten) && m.request != nil && m.queued <= max(p.born, p.cutUntil, s.nats.back)
}

// restored is how often a party's connection has been restored.
func (s *Sim) restored(p *party) int {
	n := s.nats.restarts + p.cuts
	if p.cutUntil > s.now {
		n--
	}
	return n
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

// fresh reports whether the message was stored so soon after it was queued that its owner cannot have lost the batch in
// between.
func (d *delivery) fresh() bool {
	return d.queued-d.request.QueuedAt.Sub(epoch) < heartbeat(settings.BatchAckWait)
}

// lapsed reports whether a submission may have been handed to another dispatcher since it came.
func (d *delivery) lapsed() bool {
	d.late = d.late || d.c.s.now-d.received > broker.Lease(settings.BatchAckWait)
	return d.late
}

// keptAt notes when a heartbeat of a submission was sent that was answered.
func (d *delivery) keptAt(sent Time) {
	if !d.lapsed() {
		d.received = max(d.received, sent)
	}
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
