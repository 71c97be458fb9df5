package membroker

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// pending is a message that waits for its ack.
type pending struct {
	dseq uint64    // its place among the consumer's deliveries
	at   time.Time // when its ack wait began
}

// position is how far a consumer has come: what nats-server writes down of it.
type position struct {
	sseq, dseq     uint64 // the next ones, of the stream and of the consumer's deliveries
	delivered      uint64 // the highest sequence of the stream that was delivered
	sfloor, dfloor uint64 // up to where all is acknowledged
	pending        map[uint64]pending
	deliveries     map[uint64]uint64 // of messages that were delivered again: how often before
	again          []uint64          // to be delivered again, in this order
}

func (p *position) clone() position {
	c := *p
	c.pending, c.deliveries, c.again = maps.Clone(p.pending), maps.Clone(p.deliveries), slices.Clone(p.again)
	return c
}

// consumer is one consumer.
type consumer struct {
	st      *stream
	name    string
	cfg     server.ConsumerConfig
	created time.Time
	filters []string
	position

	// saved is the position as it was written down last, and unsavedSince when the first change after that was made;
	// see note.
	saved        position
	unsavedSince time.Time

	waiting []*request   // of a pull consumer, in the order in which they are served
	lastAsk time.Time    // when it was used last
	skip    []uint64     // the last message of each subject, to be delivered first
	resume  uint64       // where it goes on behind those
	active  bool         // of a push consumer: somebody listens
	awaited string       // of a push consumer: where the answer to its maker goes; "" when that has come
	flow    flow         // of a push consumer
	beat    *timer       // of a push consumer
	acks    *timer       // when an ack wait is over
	expires *timer       // when a request of a pull consumer is over, or wants a heartbeat
	idle    *timer       // when the consumer counts as forgotten
	last    [2]time.Time // of a delivery and of an ack
	gone    bool
	pumping bool
}

// writeEvery is how often a server that keeps a stream alone writes down what its consumers have handed out.
const writeEvery = 100 * time.Millisecond

// note is called before the position changes. What was changed writeEvery ago was written down meanwhile.
func (o *consumer) note() {
	if now := o.st.js.s.now(); now.Sub(o.unsavedSince) >= writeEvery {
		o.saved, o.unsavedSince = o.position.clone(), now
	}
}

// forgetDeliveries takes the position back to what was written down, as a kill of the server does.
func (o *consumer) forgetDeliveries() {
	if o.st.js.s.now().Sub(o.unsavedSince) < writeEvery && !o.st.replicated() {
		o.position = o.saved.clone()
	}
}

func (o *consumer) push() bool { return o.cfg.DeliverSubject != "" }

func (o *consumer) wants(subject string) bool { return matchesAny(subject, o.filters) }

// begin sets where the consumer starts.
func (o *consumer) begin() {
	st, first, seq := o.st, o.st.first, uint64(0)
	switch o.cfg.DeliverPolicy {
	case server.DeliverAll:
		seq = first
	case server.DeliverLast:
		for _, m := range st.msgs {
			if o.wants(m.subject) {
				seq = m.seq
			}
		}
	case server.DeliverLastPerSubject:
		seq = first
		if st.cfg.MaxMsgsPer != 1 {
			for _, m := range st.msgs {
				if on := st.bySubject[m.subject]; o.wants(m.subject) && on[len(on)-1] == m {
					o.skip = append(o.skip, m.seq)
				}
			}
			o.resume, seq = st.last, st.last
			if len(o.skip) > 0 {
				seq = o.skip[0]
			}
		}
	case server.DeliverByStartSequence:
		seq = o.cfg.OptStartSeq
	case server.DeliverByStartTime:
		seq = st.last + 1
		for _, m := range slices.Backward(st.msgs) {
			if !m.stamp.Before(*o.cfg.OptStartTime) {
				seq = m.seq
			}
		}
	case server.DeliverNew:
		seq = st.last + 1
	}
	switch {
	case first == 0 && o.cfg.OptStartSeq == 0:
		seq = 1
	case seq > st.last && o.cfg.OptStartSeq == 0:
		seq = st.last + 1
	case seq < first:
		seq = first
	}
	o.position = position{
		sseq: seq, dseq: 1, delivered: seq - 1, sfloor: seq - 1,
		pending: map[uint64]pending{}, deliveries: map[uint64]uint64{},
	}
	o.saved = o.position.clone()
}

// left is how many messages it has still to deliver for the first time.
func (o *consumer) left() (n uint64) {
	for _, m := range o.st.msgs[o.st.index(o.sseq):] {
		if !o.wants(m.subject) {
			continue
		}
		if o.cfg.DeliverPolicy == server.DeliverLastPerSubject {
			if on := o.st.bySubject[m.subject]; on[len(on)-1] != m {
				continue
			}
		}
		n++
	}
	return n
}

// next returns the next message to deliver, and which delivery of it that is; nil when there is none now.
func (o *consumer) next() (m *stored, delivery uint64) {
	for len(o.again) > 0 {
		seq := o.again[0]
		o.note()
		o.again = o.again[1:]
		o.deliveries[seq]++
		delivery = o.deliveries[seq] + 1
		if most := o.cfg.MaxDeliver; most > 0 && delivery > uint64(most) {
			o.exhausted(seq, delivery-1)
			continue
		}
		if m := o.st.get(seq); m != nil {
			return m, delivery
		}
		delete(o.deliveries, seq)
		o.settle(seq)
	}
	if most := o.cfg.MaxAckPending; most > 0 && len(o.pending) >= most {
		return nil, 0
	}
	if len(o.skip) > 0 {
		seq := o.skip[0]
		o.note()
		if o.skip = o.skip[1:]; len(o.skip) == 0 {
			o.sseq = o.resume
		} else {
			o.sseq = seq
		}
		o.sseq++
		if m := o.st.get(seq); m != nil {
			return m, 1
		}
		return o.next()
	}
	m = o.st.nextOn(o.sseq, o.filters...)
	switch {
	case m != nil:
		o.note()
		o.sseq = m.seq + 1
	case o.sseq <= o.st.last: // nothing there is for it
		o.note()
		o.sseq = o.st.last + 1
	}
	return m, 1
}

// exhausted takes a message that was delivered too often out of what is pending, and says so to who listens. It stays
// in the stream.
func (o *consumer) exhausted(seq, deliveries uint64) {
	p, ok := o.pending[seq]
	if ok {
		delete(o.pending, seq)
		o.raiseFloor(p.dseq, seq)
	}
	o.advise(server.JSAdvisoryConsumerMaxDeliveryExceedPre, server.JSConsumerDeliveryExceededAdvisory{
		TypedEvent: o.event(server.JSConsumerDeliveryExceededAdvisoryType),
		Stream:     o.st.name(), Consumer: o.name, StreamSeq: seq, Deliveries: deliveries,
	})
}

// sent notes that a message was delivered.
func (o *consumer) sent(seq uint64) {
	now := o.st.js.s.now()
	dseq := o.dseq
	o.dseq++
	o.delivered = max(o.delivered, seq)
	o.last[0] = now
	if o.cfg.AckPolicy == server.AckNone {
		o.dfloor, o.sfloor = dseq, seq
		return
	}
	if p, ok := o.pending[seq]; ok {
		dseq = p.dseq
	}
	o.pending[seq] = pending{dseq, now}
	o.watchAcks(now.Add(o.ackWait(seq)))
}

// ackWait is how long the ack of a message is waited for.
func (o *consumer) ackWait(seq uint64) time.Duration {
	if n := len(o.cfg.BackOff); n > 0 {
		return o.cfg.BackOff[min(int(o.deliveries[seq]), n-1)]
	}
	return o.cfg.AckWait
}

// watchAcks makes sure that overdue acks are looked for at this time.
func (o *consumer) watchAcks(at time.Time) {
	if o.acks != nil && !at.Before(o.acks.at) {
		return
	}
	o.st.js.s.stop(o.acks)
	o.acks = o.st.js.s.at(at, "ack wait of "+o.label(), o.overdue)
}

// overdue queues the messages again whose ack wait is over.
func (o *consumer) overdue() {
	o.acks = nil
	if o.gone || len(o.pending) == 0 {
		return
	}
	now := o.st.js.s.now()
	next := now.Add(o.cfg.AckWait)
	if n := len(o.cfg.BackOff); n > 0 {
		next = now.Add(o.cfg.BackOff[n-1])
	}
	var late []uint64
	for _, seq := range slices.Sorted(maps.Keys(o.pending)) {
		due := o.pending[seq].at.Add(o.ackWait(seq))
		switch {
		case due.After(now):
			next = earlier(next, due)
		case !slices.Contains(o.again, seq) && !o.worn(seq):
			late = append(late, seq)
		}
	}
	if len(late) > 0 {
		o.note()
		o.again = append(o.again, late...)
		off := now.Sub(o.pending[late[0]].at)
		for _, seq := range late {
			p := o.pending[seq]
			p.at = p.at.Add(off)
			o.pending[seq] = p
		}
	}
	if len(o.pending) > 0 {
		o.watchAcks(next)
	}
	o.pump()
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// worn reports whether a message was delivered as often as it may be, and gives it up then.
func (o *consumer) worn(seq uint64) bool {
	most := o.cfg.MaxDeliver
	if most <= 0 {
		return false
	}
	count := max(o.deliveries[seq], 1)
	if count < uint64(most) {
		return false
	}
	o.note()
	o.exhausted(seq, o.deliveries[seq]+1)
	o.deliveries[seq] = count
	return true
}

// raiseFloor moves the ack floors on behind a message that is pending no longer.
func (o *consumer) raiseFloor(dseq, sseq uint64) {
	if len(o.pending) == 0 {
		o.dfloor, o.sfloor = o.dseq-1, o.delivered
		return
	}
	if dseq != o.dfloor+1 {
		return
	}
	o.dfloor, o.sfloor = dseq, sseq
	for seq := sseq + 1; seq < o.sseq; seq++ {
		if p, ok := o.pending[seq]; ok {
			if p.dseq > 0 {
				o.dfloor, o.sfloor = p.dseq-1, seq-1
			}
			return
		}
	}
}

// settle takes a message out of what is pending.
func (o *consumer) settle(seq uint64) {
	p, ok := o.pending[seq]
	o.note()
	delete(o.deliveries, seq)
	o.again = slices.DeleteFunc(o.again, func(s uint64) bool { return s == seq })
	if !ok {
		return
	}
	delete(o.pending, seq)
	o.raiseFloor(p.dseq, seq)
	o.last[1] = o.st.js.s.now()
}

// removed is called when a message was taken out of the stream.
func (o *consumer) removed(m *stored) {
	if !o.wants(m.subject) { // since its filter was changed: nats-server does not tell it
		return
	}
	if _, ok := o.pending[m.seq]; ok {
		o.settle(m.seq)
		o.pump()
	}
	delete(o.deliveries, m.seq)
}

// purged is called when the messages on a filter were purged, or all when it is "". As nats-server does, it moves a
// consumer on that wants nothing but what was purged.
func (o *consumer) purged(filter string) {
	st := o.st
	next, wider := st.first, false
	if filter != "" {
		some, all := false, len(o.filters) > 0
		for _, f := range o.filters {
			some = some || within(f, filter)
			all = all && within(f, filter)
		}
		switch {
		case !some && !o.covers(filter):
			return
		case !some || !all:
			wider = true
		default:
			next = 0
			if m := st.nextOn(st.first, filter); m != nil {
				next = m.seq
			}
		}
	}
	if next == 0 && !wider {
		next = st.last + 1
	}
	o.note()
	o.sseq = max(o.sseq, next)
	if o.sfloor < next {
		o.sfloor = next - 1
		for _, seq := range slices.Sorted(maps.Keys(o.pending)) {
			if seq <= o.sfloor || wider && st.get(seq) == nil {
				o.dfloor = max(o.dfloor, o.pending[seq].dseq)
				o.dseq = max(o.dseq, o.dfloor)
				delete(o.pending, seq)
				delete(o.deliveries, seq)
			}
		}
	}
	if len(o.pending) == 0 {
		clear(o.deliveries)
		o.dfloor, o.sfloor = o.dseq-1, o.sseq-1
	}
	o.again = slices.DeleteFunc(o.again, func(seq uint64) bool { return seq < o.sseq })
	o.delivered = o.sseq - 1
	o.pump()
}

// covers reports whether the consumer gets all that matches a filter.
func (o *consumer) covers(filter string) bool {
	return len(o.filters) == 0 || slices.ContainsFunc(o.filters, func(f string) bool { return within(filter, f) })
}

func (o *consumer) label() string { return o.st.name() + " " + o.name }

// ackSubject is where a delivery is acknowledged.
func (o *consumer) ackSubject(m *stored, delivery, dseq uint64) string {
	b := []byte("$JS.ACK." + o.st.name() + "." + o.name)
	for _, n := range []uint64{delivery, m.seq, dseq, uint64(m.stamp.UnixNano()), o.left()} {
		b = strconv.AppendUint(append(b, '.'), n, 10)
	}
	return string(b)
}

func (o *consumer) info() *server.ConsumerInfo {
	cfg := o.cfg
	o.drop(false)
	info := &server.ConsumerInfo{
		Stream: o.st.name(), Name: o.name, Created: o.created.UTC(), Config: &cfg,
		Delivered:      server.SequenceInfo{Consumer: o.dseq - 1, Stream: o.delivered},
		AckFloor:       server.SequenceInfo{Consumer: o.dfloor, Stream: o.sfloor},
		NumAckPending:  len(o.pending),
		NumRedelivered: len(o.deliveries), NumWaiting: len(o.waiting), NumPending: o.left(),
		PushBound: o.push() && o.active, TimeStamp: o.st.js.s.stamp(), Cluster: o.st.js.cluster(),
	}
	if o.cfg.MaxDeliver == 1 {
		info.NumRedelivered = 0
	}
	if at := o.last[0]; !at.IsZero() {
		at = at.UTC()
		info.Delivered.Last = &at
	}
	if at := o.last[1]; !at.IsZero() {
		at = at.UTC()
		info.AckFloor.Last = &at
	}
	return info
}

// delete ends the consumer.
func (o *consumer) delete() {
	if o.gone {
		return
	}
	o.gone = true
	for _, t := range []*timer{o.acks, o.expires, o.idle, o.beat} {
		o.st.js.s.stop(t)
	}
	for _, r := range o.waiting {
		o.st.js.s.route(nil, &message{subject: r.reply, hdr: status(409, "Consumer Deleted")})
	}
	o.waiting = nil
	o.st.consumers = slices.DeleteFunc(o.st.consumers, func(p *consumer) bool { return p == o })
}
