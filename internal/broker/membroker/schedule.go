package membroker

import (
	"container/heap"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind says what a step is.
type Kind string

// The kinds of steps.
const (
	Operation Kind = "operation" // the server performs what a client has sent
	Delivery  Kind = "delivery"  // a client gets what the server has sent
	Timer     Kind = "timer"     // something is due at the server: an ack wait, an expiry
)

// Step is one thing that may happen next. The steps of one connection and kind happen in their order; so only the first
// of them is ever among those that are pending.
type Step struct {
	Kind  Kind
	Party string // whose connection; "" for timers
	Conn  int    // the connection's number among those of its party, from 1
	// What is the verb and the subject, or what is due. Inboxes have numbers in place of their random names.
	What string
	// Arrived numbers the steps in the order in which they were first seen.
	Arrived uint64

	conn *conn
}

// run performs steps until the server is closed.
func (s *Server) run() {
	for {
		if s.opts.Settle != nil {
			s.opts.Settle()
		}
		if s.Step() {
			continue
		}
		if !s.rest() {
			return
		}
	}
}

// rest waits until something may be pending. It returns false when the server was closed.
func (s *Server) rest() bool {
	var due <-chan time.Time
	if at, ok := s.Next(); ok {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		due = t.C
	}
	select {
	case <-s.wake:
		return true
	case <-due:
		return true
	case <-s.done:
		return false
	}
}

// Step performs one of the pending steps, and reports whether there was one. Call it only when all parties are blocked.
func (s *Server) Step() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	steps := s.pending()
	if len(steps) == 0 {
		return false
	}
	st := steps[s.pick(steps)]
	if s.opts.Trace != nil {
		s.opts.Trace(st)
	}
	switch st.Kind {
	case Operation:
		st.conn.perform()
	case Delivery:
		st.conn.deliver()
	case Timer:
		s.fire()
	}
	return true
}

// Next returns when the next timer of the server is due; false when there is none.
func (s *Server) Next() (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.timers) == 0 {
		return at, false
	}
	return s.timers[0].at, true
}

// pending returns the steps that may happen now, in an order that does not depend on which goroutine ran first. They
// are good until it is called again.
func (s *Server) pending() []Step {
	steps := s.steps[:0]
	if now := s.now(); len(s.timers) > 0 && !s.timers[0].at.After(now) {
		t := s.timers[0]
		s.number(&t.arrived)
		steps = append(steps, Step{Kind: Timer, What: t.what, Arrived: t.arrived})
	}
	for _, c := range s.conns {
		if s.opts.Settle != nil {
			c.order()
		}
		if len(c.in) > 0 && !c.party.fault.mute {
			o := c.in[0]
			if o.arrived == 0 {
				s.number(&o.arrived)
				o.what = o.verb + " " + s.nameOf(o)
			}
			steps = append(steps, Step{
				Kind: Operation, Party: c.party.name, Conn: c.number, What: o.what, Arrived: o.arrived, conn: c,
			})
		}
		if len(c.out) > 0 && !c.party.fault.deaf {
			d := c.out[0]
			if d.arrived == 0 {
				s.number(&d.arrived)
				d.what = d.verb + " " + s.alias(d.subject)
			}
			steps = append(steps, Step{
				Kind: Delivery, Party: c.party.name, Conn: c.number, What: d.what, Arrived: d.arrived, conn: c,
			})
		}
	}
	s.steps = steps
	if s.held != nil {
		steps = slices.DeleteFunc(steps, s.held)
	}
	return steps
}

// nameOf is the subject of an operation. An inbox has a number when something is sent to it, and none before: which of
// several goroutines of a party makes its inbox first is nobody's choice.
func (s *Server) nameOf(o *op) string {
	if o.verb == opSub && strings.HasPrefix(o.subject, inboxPrefix) {
		return inboxPrefix
	}
	return s.alias(o.subject)
}

func (s *Server) number(n *uint64) {
	if *n == 0 {
		s.arrived++
		*n = s.arrived
	}
}

func (s *Server) pick(steps []Step) int {
	switch {
	case s.opts.Pick != nil:
		return s.opts.Pick(steps)
	case s.opts.Seed != 0:
		return s.rng.IntN(len(steps))
	}
	oldest := 0
	for i, st := range steps {
		if st.Arrived < steps[oldest].Arrived {
			oldest = i
		}
	}
	return oldest
}

// inboxPrefix begins the subjects that nats.go makes for answers.
const inboxPrefix = "_INBOX"

// alias is a subject with a number in place of the random name of an inbox.
func (s *Server) alias(subject string) string {
	rest, ok := strings.CutPrefix(subject, inboxPrefix)
	if !ok {
		return subject
	}
	tokens := strings.Split(rest, ".")
	for i, t := range tokens {
		if t == "" || t == "*" || t == ">" {
			continue
		}
		if s.aliases[t] == "" {
			s.aliases[t] = strconv.Itoa(len(s.aliases) + 1)
		}
		tokens[i] = s.aliases[t]
	}
	return inboxPrefix + strings.Join(tokens, ".")
}

// timer is something that is due at the server.
type timer struct {
	at      time.Time
	number  uint64 // among those that are due at the same time
	arrived uint64
	what    string
	run     func()
	index   int // in the heap; -1 when it is not there
}

// at calls run when its time has come, as a step. The caller holds the server's lock, and so does run.
func (s *Server) at(when time.Time, what string, run func()) *timer {
	s.timersMade++
	t := &timer{at: when, number: s.timersMade, what: what, run: run}
	heap.Push(&s.timers, t)
	s.signal()
	return t
}

// stop takes a timer back. A nil timer is none.
func (s *Server) stop(t *timer) {
	if t != nil && t.index >= 0 {
		heap.Remove(&s.timers, t.index)
	}
}

func (s *Server) fire() { heap.Pop(&s.timers).(*timer).run() }

// signal wakes the scheduler.
func (s *Server) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// timers is a heap.
type timers []*timer

func (h timers) Len() int { return len(h) }

func (h timers) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].number < h[j].number
}

func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timers) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	*h = old[:len(old)-1]
	t.index = -1
	return t
}
