package membroker

import (
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// The server fails only as these methods tell it to. Each may be called at any time, by any goroutine, and takes effect
// at once, between two steps.

// partyFault is what is wrong with the way to one party.
type partyFault struct {
	cut    bool // it cannot connect
	deaf   bool // nothing arrives at it
	mute   bool // nothing of it arrives
	lost   int  // so many of the next answers to it are lost
	answer time.Duration
}

// streamFault is what is wrong with one stream.
type streamFault struct {
	stalled    bool // it stores nothing, and says nothing
	full       bool // it is at its limit
	leaderless bool // nobody is there to answer
	closed     bool // but for its leader, whose store is closed
	lag        int  // so many changes lie direct reads behind
	deposed    int  // and so many, reads through the leader
}

// change makes a change to what is wrong, between two steps.
func (s *Server) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	s.signal()
}

// Cut cuts the connections of a party, and refuses new ones until [Server.Heal]. What was on its way in either
// direction is lost; an operation that was performed stays performed.
func (s *Server) Cut(party string) {
	s.change(func() {
		s.party(party).fault.cut = true
		s.dropAll(func(c *conn) bool { return c.party.name == party })
	})
}

// Drop cuts the connections of a party, which may connect again at once.
func (s *Server) Drop(party string) {
	s.change(func() { s.dropAll(func(c *conn) bool { return c.party.name == party }) })
}

// SetClock has the server's clock, by which it stamps what it stores from now on, be so far ahead of everybody else's.
func (s *Server) SetClock(ahead time.Duration) { s.change(func() { s.ahead = ahead }) }

// Deafen holds what is sent to a party, while its connections stay, until [Server.Heal].
func (s *Server) Deafen(party string) { s.change(func() { s.party(party).fault.deaf = true }) }

// Mute holds what a party sends, while its connections stay, until [Server.Heal].
func (s *Server) Mute(party string) { s.change(func() { s.party(party).fault.mute = true }) }

// LoseAnswers loses the next answers to a party: what was asked for happens, and the party does not hear of it. An
// answer is what goes to an inbox.
func (s *Server) LoseAnswers(party string, n int) { s.change(func() { s.party(party).fault.lost = n }) }

// DelayAnswers has the server send each answer to a party so much later; 0 ends that. Others may overtake it.
func (s *Server) DelayAnswers(party string, by time.Duration) {
	s.change(func() { s.party(party).fault.answer = by })
}

// Hold keeps steps from happening: those that held reports, and what comes after each on its connection and in its
// direction. It replaces what was held before; nil ends it. held must not call the server.
func (s *Server) Hold(held func(Step) bool) { s.change(func() { s.held = held }) }

// Heal ends all that is wrong with the way to a party. What was held arrives.
func (s *Server) Heal(party string) { s.change(func() { s.party(party).fault = partyFault{} }) }

// shape does to a message on its way what is wrong with the way. It returns false when the message is not to be sent
// now.
func (c *conn) shape(o *outgoing) bool {
	f := &c.party.fault
	if !strings.HasPrefix(o.subject, inboxPrefix) {
		return true
	}
	if f.lost > 0 {
		f.lost--
		return false
	}
	if f.answer > 0 && !o.late {
		o.late = true
		c.s.at(c.s.now().Add(f.answer), "late answer to "+c.party.name, func() { c.enqueue(o) })
		return false
	}
	return true
}

// dropAll breaks connections.
func (s *Server) dropAll(which func(*conn) bool) {
	for _, c := range s.conns {
		if which(c) {
			c.drop()
		}
	}
	s.conns = slices.DeleteFunc(s.conns, which)
	s.js.interestGone()
}

// Stop stops the server in an orderly way: whoever waits for messages is told, and all that it knows is kept. Nobody
// can connect until [Server.Start].
func (s *Server) Stop() {
	s.change(func() {
		for _, o := range s.js.all() {
			for _, r := range o.waiting {
				o.tell(r.reply, 409, "Server Shutdown", r.rest()...)
			}
		}
		for _, c := range slices.Clone(s.conns) {
			if !c.party.fault.deaf {
				c.hangUp()
			}
		}
		s.js.stop()
	})
}

// Kill kills the server. What it had acknowledged is there when it starts again; a stream that it keeps alone has
// forgotten the deliveries of the last tenth of a second. Nobody can connect until [Server.Start].
func (s *Server) Kill() {
	s.change(func() {
		for _, o := range s.js.all() {
			o.forgetDeliveries()
		}
		s.js.stop()
	})
}

// Start starts a server that was stopped or killed.
func (s *Server) Start() {
	s.change(func() {
		s.js.down = false
		for _, st := range s.js.streams {
			st.recall()
		}
		for _, o := range s.js.all() {
			o.restarted()
		}
	})
}

// stop takes away what a server does not have any more when it is started again.
func (js *jetStream) stop() {
	js.down = true
	js.s.dropAll(func(*conn) bool { return true })
	js.streams = slices.DeleteFunc(js.streams, func(st *stream) bool {
		lost := st.cfg.Storage == server.MemoryStorage && !st.replicated()
		for _, o := range slices.Clone(st.consumers) {
			o.waiting, o.active = nil, false
			if lost || o.cfg.MemoryStorage && !st.replicated() {
				o.delete()
			}
		}
		if lost {
			js.s.stop(st.expiry)
		}
		return lost
	})
}

// recall makes the window of message ids anew from what is stored: an id whose message is gone is forgotten.
func (st *stream) recall() {
	st.ids, st.idOrder, st.lastID = map[string]dedupe{}, nil, ""
	now := st.js.s.now()
	for _, m := range st.msgs {
		id := header(m.hdr, server.JSMsgId)
		st.lastID = id
		if id != "" && now.Sub(m.at) < st.cfg.Duplicates {
			st.ids[id] = dedupe{m.seq, m.at}
			st.idOrder = append(st.idOrder, id)
		}
	}
}

// restarted sets the timers of a consumer anew, and takes its position back to what the stream has.
func (o *consumer) restarted() {
	now := o.st.js.s.now()
	o.lastAsk = now
	o.reconcile()
	o.st.js.s.stop(o.acks)
	o.acks = nil
	if len(o.pending) > 0 {
		o.watchAcks(now)
	}
	o.watchIdle()
}

// reconcile takes the position back when the stream has lost its tail.
func (o *consumer) reconcile() {
	if o.sseq <= o.st.last+1 {
		return
	}
	for seq := range o.pending { // in any order: all behind the end go
		if seq > o.st.last {
			delete(o.pending, seq)
			delete(o.deliveries, seq)
		}
	}
	o.again = slices.DeleteFunc(o.again, func(seq uint64) bool { return seq > o.st.last })
	o.sseq, o.delivered = o.st.last+1, min(o.delivered, o.st.last)
	o.sfloor = min(o.sfloor, o.st.last)
}

// all are the consumers of all streams.
func (js *jetStream) all() (out []*consumer) {
	for _, st := range js.streams {
		out = append(out, st.consumers...)
	}
	return out
}

// on calls do with a stream, or with all when name is "". A stream that is not there fails the run.
func (s *Server) on(name string, do func(*stream)) {
	s.change(func() {
		found := false
		for _, st := range s.js.streams {
			if name == "" || st.name() == name {
				found = true
				do(st)
			}
		}
		if !found && name != "" {
			s.fail("a fault is to befall stream %s, which is not there", name)
		}
	})
}

// LoseLeader takes the leader of a stream away, or of all and of the cluster when name is "": nobody answers what is
// published, API requests are refused with 503, nothing is delivered. [Server.ElectLeader] ends that.
func (s *Server) LoseLeader(name string) {
	s.on(name, func(st *stream) { st.fault.leaderless = true })
	if name == "" {
		s.change(func() { s.js.leaderless = true })
	}
}

// CloseStore closes the store of a stream's leader, which still answers some requests, as a server does whose disk is
// full until it has stopped JetStream. It has no messages to read, and turns an append down that expects one before it.
// Of all else the stream has no leader. [Server.ElectLeader] ends that.
func (s *Server) CloseStore(name string) {
	s.on(name, func(st *stream) { st.fault.leaderless, st.fault.closed = true, true })
}

// ElectLeader ends what [Server.LoseLeader] or [Server.CloseStore] has begun. Whoever waited for messages is told, and
// asks again.
func (s *Server) ElectLeader(name string) {
	if name == "" {
		s.change(func() { s.js.leaderless = false })
	}
	s.on(name, func(st *stream) {
		st.fault.leaderless, st.fault.closed = false, false
		for _, o := range st.consumers {
			for _, r := range o.waiting {
				o.tell(r.reply, 409, "Leadership Change")
			}
			o.waiting = nil
			o.pump()
		}
	})
}

// Stall has a stream, or all when name is "", store nothing and answer no publish, as a server does whose disk is full.
func (s *Server) Stall(name string, stalled bool) {
	s.on(name, func(st *stream) { st.fault.stalled = stalled })
}

// Fill has a stream, or all when name is "", refuse every new message, as one at its limit of bytes does.
func (s *Server) Fill(name string, full bool) { s.on(name, func(st *stream) { st.fault.full = full }) }

// Exhaust has the server refuse every new message for want of resources.
func (s *Server) Exhaust(exhausted bool) { s.change(func() { s.js.full = exhausted }) }

// Depose has reads through the leader of a stream answered by one that was deposed so many changes ago, at most 256,
// and does not know it. It stores nothing: what is published goes to the next one. 0 ends that.
func (s *Server) Depose(name string, changes int) {
	if changes < 0 || changes > maxChanges {
		s.fail("a deposed leader lies 0 to %d changes behind, not %d", maxChanges, changes)
	}
	s.on(name, func(st *stream) { st.fault.deposed = changes })
}

// Lag has direct reads of a stream with replicas answered as it was so many changes ago, at most 256.
func (s *Server) Lag(name string, changes int) {
	if changes < 0 || changes > maxChanges {
		s.fail("a stream lies 0 to %d changes behind, not %d", maxChanges, changes)
	}
	s.on(name, func(st *stream) { st.fault.lag = changes })
}

// LoseTail takes the last messages of a stream away, as if they had never been there: their sequences are given to new
// ones. A server does that when it starts again after an unclean stop and finds a damaged record; so call it between
// [Server.Kill] and [Server.Start].
func (s *Server) LoseTail(name string, n int) {
	s.on(name, func(st *stream) {
		for range min(n, len(st.msgs)) {
			last := st.msgs[len(st.msgs)-1]
			st.take(last)
			st.last = last.seq - 1
			if len(st.msgs) == 0 {
				st.first = last.seq
			}
		}
	})
}

// ExpireAcks has the ack waits of a consumer's pending messages be over now: they are delivered again, whoever has
// them.
func (s *Server) ExpireAcks(name, consumer string) {
	s.on(name, func(st *stream) {
		o := st.consumer(consumer)
		if o == nil {
			s.fail("the acks of consumer %s of %s are to expire, which is not there", consumer, name)
			return
		}
		now := s.now()
		o.note()
		for seq, p := range o.pending { // each for itself: the order shows in overdue, which sorts
			p.at = now.Add(-o.ackWait(seq))
			o.pending[seq] = p
		}
		s.stop(o.acks)
		o.acks = nil
		o.watchAcks(now)
	})
}
