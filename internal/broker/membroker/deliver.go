package membroker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// request is one pull that stands.
type request struct {
	reply     string
	left      int
	delivered int
	maxBytes  int
	noWait    bool
	expires   time.Time // zero: never
	heartbeat time.Duration
	beat      time.Time // when the next heartbeat is due; zero: never
}

// parseRequest reads a pull: nothing, a number, or JSON.
func (s *Server) parseRequest(data []byte) (*request, error) {
	data = bytes.TrimSpace(data)
	r := &request{left: 1}
	switch {
	case len(data) == 0:
		return r, nil
	case data[0] != '{':
		if n, err := strconv.Atoi(string(data)); err == nil {
			r.left = n
		}
		return r, nil
	}
	var q server.JSApiConsumerGetNextRequest
	if err := json.Unmarshal(data, &q); err != nil {
		return nil, err
	}
	r.left, r.maxBytes, r.noWait, r.heartbeat = q.Batch, q.MaxBytes, q.NoWait, q.Heartbeat
	if q.Expires > 0 {
		r.expires = s.now().Add(q.Expires)
	}
	if q.Heartbeat > 0 {
		if 2*q.Heartbeat > q.Expires {
			return nil, errors.New("heartbeat value too large")
		}
		r.beat = s.now().Add(q.Heartbeat)
	}
	return r, nil
}

// tell answers a request with a status.
func (o *consumer) tell(reply string, code int, text string, pairs ...string) {
	o.st.js.s.route(nil, &message{subject: reply, hdr: status(code, text, pairs...)})
}

// rest is what a request was not given, as headers.
func (r *request) rest() []string {
	return []string{
		server.JSPullRequestPendingMsgs, strconv.Itoa(r.left),
		server.JSPullRequestPendingBytes, strconv.Itoa(r.maxBytes),
	}
}

// pull takes in a request for messages.
func (o *consumer) pull(reply string, data []byte) {
	if o.push() {
		o.tell(reply, 409, "Consumer is push based")
		return
	}
	r, err := o.st.js.s.parseRequest(data)
	if err != nil {
		o.tell(reply, 400, "Bad Request - "+err.Error())
		return
	}
	r.reply = reply
	now := o.st.js.s.now()
	if most := o.cfg.MaxRequestBatch; most > 0 && r.left > most {
		o.tell(reply, 409, fmt.Sprintf("Exceeded MaxRequestBatch of %d", most))
		return
	}
	if most := o.cfg.MaxRequestExpires; most > 0 && r.expires.After(now.Add(most)) {
		o.tell(reply, 409, fmt.Sprintf("Exceeded MaxRequestExpires of %v", most))
		return
	}
	if most := o.cfg.MaxRequestMaxBytes; most > 0 && r.maxBytes > most {
		o.tell(reply, 409, fmt.Sprintf("Exceeded MaxRequestMaxBytes of %v", most))
		return
	}
	if len(o.waiting) >= o.cfg.MaxWaiting {
		o.drop(false)
	}
	if r.noWait {
		there := o.left() + uint64(len(o.again))
		if there == 0 && r.expires.IsZero() {
			o.lastAsk = now
			o.tell(reply, 404, "No Messages")
			return
		}
		if there > 0 && there < uint64(o.drop(false)) {
			o.lastAsk = now
			o.tell(reply, 408, "Requests Pending")
			return
		}
	}
	if len(o.waiting) >= o.cfg.MaxWaiting {
		if r.heartbeat == 0 {
			o.tell(reply, 409, "Exceeded MaxWaiting")
		}
		return
	}
	o.lastAsk = now
	o.waiting = append(o.waiting, r)
	o.pump()
}

// drop takes out the requests that are over, those that wait for nothing when end is set, and those that nobody listens
// for, and returns how many messages the others ask for.
func (o *consumer) drop(end bool) (asked int) {
	now := o.st.js.s.now()
	var next time.Time
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	var kept []*request
	for _, r := range o.waiting {
		switch {
		case !r.expires.IsZero() && !now.Before(r.expires):
			o.tell(r.reply, 408, "Request Timeout", r.rest()...)
			o.lastAsk = later(o.lastAsk, r.expires)
			continue
		case end && r.noWait && r.delivered > 0 && o.st.replicated(): // behind deliveries that are replicated first
			o.tell(r.reply, 408, "Request Timeout", r.rest()...)
			continue
		case end && r.noWait && (r.expires.IsZero() || r.delivered > 0):
			o.tell(r.reply, 404, "No Messages")
			o.lastAsk = later(o.lastAsk, now)
			continue
		case !o.st.js.s.interested(r.reply):
			continue
		}
		if !r.beat.IsZero() && !now.Before(r.beat) {
			o.heartbeat(r.reply)
			r.beat = now.Add(r.heartbeat)
		}
		kept, asked = append(kept, r), asked+r.left
		sooner(r.beat)
		sooner(r.expires)
	}
	o.waiting = kept
	if o.expires != nil && o.expires.at.Equal(next) {
		return asked
	}
	o.st.js.s.stop(o.expires)
	o.expires = nil
	if !next.IsZero() {
		o.expires = o.st.js.s.at(next, "requests of "+o.label(), func() {
			o.expires = nil
			o.drop(true)
		})
	}
	return asked
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// serve returns the request that gets a message of this size, or nil. It is at the head of the line; then it goes to
// the end.
func (o *consumer) serve(size int) *request {
	for len(o.waiting) > 0 {
		r := o.waiting[0]
		o.waiting = o.waiting[1:]
		now := o.st.js.s.now()
		switch {
		case !r.expires.IsZero() && !now.Before(r.expires):
			o.tell(r.reply, 408, "Request Timeout", r.rest()...)
			o.lastAsk = later(o.lastAsk, r.expires)
			continue
		case r.maxBytes > 0 && size > r.maxBytes:
			o.tell(r.reply, 409, "Message Size Exceeds MaxBytes", r.rest()...)
			continue
		case !o.st.js.s.interested(r.reply):
			continue
		}
		if r.maxBytes > 0 {
			if r.maxBytes -= size; r.maxBytes == 0 {
				r.left = 1
			}
		}
		r.delivered++
		if r.left--; r.left > 0 {
			o.waiting = append(o.waiting, r)
		}
		if r.heartbeat > 0 {
			r.beat = now.Add(r.heartbeat)
		}
		return r
	}
	return nil
}

// pump delivers what can be delivered now.
func (o *consumer) pump() {
	if o.pumping || o.gone { // something that a delivery has led to
		return
	}
	o.pumping = true
	for o.mayDeliver() && o.deliver() {
	}
	o.pumping = false
	if !o.push() {
		o.drop(len(o.pending) < o.cfg.MaxAckPending || o.cfg.MaxAckPending <= 0)
		o.watchIdle()
	}
}

func (o *consumer) mayDeliver() bool {
	if o.gone || o.st.js.down || o.st.fault.leaderless {
		return false
	}
	if o.push() {
		return o.active && !o.flow.stalled()
	}
	return len(o.waiting) > 0
}

// deliver delivers one message. It returns false when there is none, or nobody to take it.
func (o *consumer) deliver() bool {
	skip := o.skip
	m, delivery := o.next()
	if m == nil {
		return false
	}
	reply := o.ackSubject(m, delivery, o.dseq)
	out := &message{subject: m.subject, reply: reply, hdr: m.hdr, data: m.data}
	if o.cfg.HeadersOnly {
		out.hdr = withHeaders(m.hdr, server.JSMsgSize, strconv.Itoa(len(m.data)))
		out.data = nil
	}
	size := len(m.subject) + len(reply) + len(out.hdr) + len(out.data)
	var r *request
	if o.push() {
		out.to = o.cfg.DeliverSubject
	} else {
		if r = o.serve(size); r == nil {
			o.undo(m.seq, delivery, skip)
			return false
		}
		out.to = r.reply
		o.lastAsk = o.st.js.s.now()
	}
	o.sent(m.seq)
	o.st.js.s.route(nil, out)
	if r != nil && r.left <= 0 && r.maxBytes > 0 {
		o.tell(r.reply, 409, "Batch Completed", r.rest()...)
	}
	if o.push() {
		o.flowed(size)
		o.watchBeat()
	}
	return true
}

// undo takes back that a message was chosen for delivery: nobody takes it.
func (o *consumer) undo(seq, delivery uint64, skip []uint64) {
	if delivery == 1 {
		o.sseq, o.skip = seq, skip
		return
	}
	if o.deliveries[seq]--; o.deliveries[seq] == 0 {
		delete(o.deliveries, seq)
	}
	o.again = append(o.again, seq)
}

// flow is the flow control of a push consumer.
type flow struct {
	on     bool
	window int    // how many bytes may be on their way
	bytes  int    // so many are, as far as is known
	asked  string // where the client is to answer; "" when it was not asked
	marked int    // how many bytes were on their way when it was asked
	number int
}

// flowWindow is the first window. It doubles with each answer, up to the server's limit.
const flowWindow = server.JsFlowControlMaxPending / 16

func (f *flow) stalled() bool { return f.on && f.bytes > f.window }

// flowed takes in that so many bytes were sent, and asks the client to say when it has them.
func (o *consumer) flowed(size int) {
	f := &o.flow
	if !f.on {
		return
	}
	if f.bytes += size; f.asked != "" || f.bytes <= f.window/2 {
		return
	}
	f.number++
	f.asked, f.marked = fmt.Sprintf("$JS.FC.%s.%s.%d", o.st.name(), o.name, f.number), f.bytes
	o.st.js.s.route(nil, &message{
		subject: o.cfg.DeliverSubject, reply: f.asked, hdr: status(100, "FlowControl Request"),
	})
}

// flows takes in that the client has what was sent before it was asked.
func (o *consumer) flows(subject string) {
	f := &o.flow
	if subject != f.asked {
		return
	}
	f.window = min(2*f.window, server.JsFlowControlMaxPending)
	f.bytes, f.asked = max(f.bytes-f.marked, 0), ""
	o.pump()
}

// heartbeat tells that there is nothing to tell.
func (o *consumer) heartbeat(to string) {
	pairs := []string{
		server.JSLastConsumerSeq, strconv.FormatUint(o.dseq-1, 10), server.JSLastStreamSeq,
		strconv.FormatUint(o.sseq-1, 10),
	}
	if o.flow.asked != "" {
		pairs = append(pairs, server.JSConsumerStalled, o.flow.asked)
	}
	o.tell(to, 100, "Idle Heartbeat", pairs...)
}

// watchBeat sets the timer of a push consumer's heartbeats.
func (o *consumer) watchBeat() {
	if o.cfg.Heartbeat <= 0 {
		return
	}
	s := o.st.js.s
	s.stop(o.beat)
	o.beat = s.at(s.now().Add(o.cfg.Heartbeat), "heartbeat of "+o.label(), func() {
		if o.active {
			o.heartbeat(o.cfg.DeliverSubject)
		}
		o.watchBeat()
	})
}

// await has a push consumer in a bubble deliver nothing before the answer to its maker has come. nats.go holds a lock
// while it waits for that answer, and its handler of messages wants the lock: a goroutine that waits for a lock is not
// durably blocked, so that no step would follow any more. What it misses is as if lost on the way: its maker leaves
// alone what was made by a request whose answer was lost.
func (o *consumer) await(reply string) {
	if o.push() && o.st.js.s.opts.Settle != nil {
		o.awaited = reply
	}
}

// arrived notes that an answer has come.
func (js *jetStream) arrived(reply string) {
	for _, st := range js.streams {
		for _, o := range st.consumers {
			if o.awaited == reply {
				o.awaited = ""
				o.listen()
			}
		}
	}
}

// listen looks whether somebody listens to a push consumer.
func (o *consumer) listen() {
	if !o.push() || o.gone {
		return
	}
	was := o.active
	if o.active = o.awaited == "" && o.st.js.s.interested(o.cfg.DeliverSubject); o.active && !was {
		o.flow.bytes, o.flow.asked = 0, ""
		o.pump()
	}
	if !o.active && (was || o.idle == nil) {
		o.lastAsk = o.st.js.s.now()
		o.watchIdle()
	}
}

// watchIdle sets the timer of a consumer that is deleted when nobody uses it.
func (o *consumer) watchIdle() {
	limit := o.cfg.InactiveThreshold
	if limit <= 0 || o.idle != nil || o.gone {
		return
	}
	o.idle = o.st.js.s.at(o.lastAsk.Add(limit), "inactivity of "+o.label(), o.forgotten)
}

func (o *consumer) forgotten() {
	o.idle = nil
	s, limit := o.st.js.s, o.cfg.InactiveThreshold
	again := func(at time.Time) { o.idle = s.at(at, "inactivity of "+o.label(), o.forgotten) }
	if o.push() {
		if o.active {
			return
		}
	} else if o.drop(true); len(o.waiting) > 0 {
		again(s.now().Add(limit))
		return
	}
	if at := o.lastAsk.Add(limit); at.After(s.now()) {
		again(at)
		return
	}
	var until time.Time
	for _, seq := range slices.Sorted(maps.Keys(o.pending)) {
		until = later(until, o.pending[seq].at.Add(o.ackWait(seq)+limit))
	}
	if until.After(s.now()) && !o.push() {
		again(until)
		return
	}
	o.delete()
}

// The answers to a delivery.
var (
	ackAck  = []byte("+ACK")
	ackOK   = []byte("+OK")
	ackNak  = []byte("-NAK")
	ackWork = []byte("+WPI")
	ackNext = []byte("+NXT")
	ackTerm = []byte("+TERM")
)

// answered takes in what a client says of a delivery. Whoever knows its subject may say it: it is not fenced.
func (o *consumer) answered(seq, dseq, delivery uint64, m *message) {
	data := m.data
	switch {
	case len(data) == 0, bytes.Equal(data, ackAck), bytes.Equal(data, ackOK):
		if !o.acknowledge(seq, dseq) {
			return
		}
	case bytes.HasPrefix(data, ackNext):
		o.acknowledge(seq, dseq)
		o.pull(m.reply, data[len(ackNext):])
		return
	case bytes.HasPrefix(data, ackNak):
		o.nak(seq, dseq, data[len(ackNak):])
	case bytes.Equal(data, ackWork):
		if p, ok := o.pending[seq]; ok {
			o.note()
			p.at = o.st.js.s.now()
			o.pending[seq] = p
		}
	case bytes.HasPrefix(data, ackTerm):
		known := o.acknowledge(seq, dseq)
		o.advise(server.JSAdvisoryConsumerMsgTerminatedPre, server.JSConsumerDeliveryTerminatedAdvisory{
			TypedEvent: o.event(server.JSConsumerDeliveryTerminatedAdvisoryType),
			Stream:     o.st.name(), Consumer: o.name, ConsumerSeq: dseq, StreamSeq: seq, Deliveries: delivery,
			Reason: string(bytes.TrimSpace(data[len(ackTerm):])),
		})
		if !known {
			return
		}
	}
	if m.reply != "" {
		o.st.js.s.route(nil, &message{subject: m.reply})
	}
}

// acknowledge settles a message, and takes it out of a work queue. It returns false when nothing is answered: the
// message was never delivered, as far as this server knows.
func (o *consumer) acknowledge(seq, dseq uint64) bool {
	if seq >= o.sseq {
		return false
	}
	full := o.cfg.MaxAckPending > 0 && len(o.pending) >= o.cfg.MaxAckPending
	switch o.cfg.AckPolicy {
	case server.AckExplicit:
		o.settle(seq)
	case server.AckAll:
		if dseq <= o.dfloor || seq <= o.sfloor {
			return true
		}
		for _, s := range slices.Sorted(maps.Keys(o.pending)) {
			if s <= seq {
				o.settle(s)
			}
		}
		o.note()
		o.dfloor, o.sfloor = max(o.dfloor, dseq), max(o.sfloor, seq)
	default:
		return true
	}
	if o.st.cfg.Retention == server.WorkQueuePolicy {
		if m := o.st.get(seq); m != nil {
			o.st.remove(m)
		}
	}
	if full {
		o.pump()
	}
	return true
}

// nak queues a message again, at once or after a while.
func (o *consumer) nak(seq, dseq uint64, arg []byte) {
	p, ok := o.pending[seq]
	if !ok || dseq <= o.dfloor || dseq > o.dseq {
		return
	}
	o.note()
	if delay, ok := nakDelay(arg); ok {
		o.again = slices.DeleteFunc(o.again, func(s uint64) bool { return s == seq })
		now := o.st.js.s.now()
		p.at = now.Add(delay - o.cfg.AckWait)
		o.pending[seq] = p
		const look = 10 * time.Millisecond // the server's pause before it looks when the next one is due
		o.st.js.s.stop(o.acks)
		o.acks = nil
		o.watchAcks(now.Add(look))
		return
	}
	if !slices.Contains(o.again, seq) {
		o.again = append(o.again, seq)
	}
	o.pump()
}

func nakDelay(arg []byte) (time.Duration, bool) {
	arg = bytes.TrimSpace(arg)
	if len(arg) == 0 {
		return 0, false
	}
	if arg[0] == '{' {
		var opts server.ConsumerNakOptions
		err := json.Unmarshal(arg, &opts)
		return opts.Delay, err == nil
	}
	d, err := time.ParseDuration(string(arg))
	return d, err == nil
}

// advise publishes an advisory about a message of the consumer.
func (o *consumer) advise(prefix string, advisory any) {
	data, err := json.Marshal(advisory)
	if err != nil {
		panic(err) // plain types
	}
	o.st.js.s.route(nil, &message{subject: prefix + "." + o.st.name() + "." + o.name, data: data})
}

func (o *consumer) event(kind string) server.TypedEvent {
	o.st.js.advisories++
	return server.TypedEvent{Type: kind, ID: strconv.Itoa(o.st.js.advisories), Time: o.st.js.s.now().UTC()}
}
