package sim

import (
	"errors"
	"time"

	"github.com/toolyard/toolyard/internal/broker"
)

var (
	errTimeout = errors.New("no answer")
	errAgain   = errors.New("refused for now") // 10164: another write to the subject is in flight; 503: no leader
	errMissing = errors.New("there is no such message")
)

// The rhythm of repeats, as in package broker.
const (
	attemptTimeout = 2 * time.Second
	firstPause     = 5 * time.Millisecond
	longestPause   = 500 * time.Millisecond
)

// ask sends a request to NATS. exec is what NATS does with it, at once and whole, some time later: before the asker has
// given up, after it, never, or twice. then is told what exec answered, or errTimeout when no answer came within the
// limit.
func (s *Sim) ask(th *thread, limit Time, what string, exec func() error, then func(error)) {
	s.request(th, limit, what, func() error {
		if s.chance(s.f.refuse) {
			return errAgain
		}
		return exec()
	}, then)
}

// request is ask for what is never refused: acknowledgements, and what parties say to each other.
func (s *Sim) request(th *thread, limit Time, what string, exec func() error, then func(error)) {
	if th.dead() {
		return
	}
	p := th.p
	sent := max(s.now, p.pausedUntil)
	arrive := sent + s.delay()
	twice := false
	if s.now < s.quietAt && p.cutUntil <= sent {
		u := s.rand.Float64()
		switch {
		case u < s.f.lose:
			s.log(p.name, "%s: request lost", what)
			s.expire(th, sent+limit, then)
			return
		case u < s.f.lose+s.f.late:
			arrive += s.between(0, 4*time.Second)
		case u < s.f.lose+s.f.late+s.f.twice:
			twice = true
		}
	}
	if p.cutUntil > sent {
		if s.rand.IntN(2) == 0 {
			s.log(p.name, "%s: request lost, cut off", what)
			s.expire(th, sent+limit, then)
			return
		}
		arrive += p.cutUntil - sent // the client sends it when it is connected again
	}
	if arrive > sent+limit { // it arrives when its sender has given up
		s.expire(th, sent+limit, then)
		then = nil
	}
	s.at(nil, arrive, func() { s.arrive(th, sent, limit, what, exec, then) })
	if twice {
		s.at(nil, arrive+s.delay(), func() { s.arrive(th, sent, limit, what+" (again)", exec, nil) })
	}
	s.strike(p)
}

// chatter is what is done again and again whatever happens.
var chatter = map[string]bool{"pull": true, "heartbeat": true, "keep the submission": true, "read tickets": true,
	"poll": true, "keep": true}

// arrive is the request at NATS, and its answer on the way.
func (s *Sim) arrive(th *thread, sent, limit Time, what string, exec func() error, then func(error)) {
	p := th.p
	if s.nats.downUntil > s.now {
		if s.rand.IntN(2) == 0 {
			s.log(p.name, "%s: request lost, NATS is down", what)
			s.expire(th, sent+limit, then)
			return
		}
		arrive := s.nats.downUntil + s.delay()
		if arrive > sent+limit {
			s.expire(th, sent+limit, then)
			then = nil
		}
		s.at(nil, arrive, func() { s.arrive(th, sent, limit, what, exec, then) })
		return
	}
	err := exec()
	if s.opt.Trace && (err != nil || s.opt.Chatter || !chatter[what]) {
		answer := "ok"
		if err != nil {
			answer = err.Error()
		}
		s.log(p.name, "%s: %s", what, answer)
	}
	s.strike(p)
	if then == nil || th.dead() {
		return
	}
	epoch, cuts, back := s.nats.epoch, p.cuts, s.now+s.delay()
	if back > sent+limit || p.cutUntil > s.now || s.chance(s.f.loseAnswer) {
		s.log(p.name, "%s: answer lost or late", what)
		s.expire(th, sent+limit, then)
		return
	}
	s.at(th, back, func() {
		late := s.now > sent+limit && s.rand.IntN(2) == 0 // it slept: the answer and the timeout are both there
		if s.nats.epoch != epoch || p.cuts != cuts || late {
			s.log(p.name, "%s: answer lost", what)
			s.expire(th, sent+limit, then)
			return
		}
		then(err)
	})
}

// expire tells the asker that its time is over.
func (s *Sim) expire(th *thread, t Time, then func(error)) {
	if then == nil {
		return
	}
	th.p.losses = append(th.p.losses, s.now)
	s.at(th, t, func() { then(errTimeout) })
}

// tell sends a message to NATS that nobody answers.
func (s *Sim) tell(th *thread, what string, exec func()) {
	s.request(th, never/2, what, func() error { exec(); return nil }, nil)
}

// retry asks until there is an answer that is one, or ctx ends.
func (s *Sim) retry(th *thread, ctx *context, what string, exec func() error, then func(error)) {
	pause := firstPause
	var try func()
	try = func() {
		if ctx.over() {
			return
		}
		s.ask(th, attemptTimeout, what, exec, func(err error) {
			if err == errTimeout || err == errAgain {
				s.after(th, pause, try)
				pause = min(2*pause, longestPause)
				return
			}
			if !ctx.over() {
				then(err)
			}
		})
	}
	try()
}

// context ends work early, as Go's does. A nil context does not end.
type context struct {
	cause error
	after []func()
}

func (c *context) over() bool { return c != nil && c.cause != nil }

// cancel ends the context. What waits for that is told in an event of its own.
func (c *context) cancel(s *Sim, th *thread, cause error) {
	if c.cause != nil {
		return
	}
	c.cause = cause
	for _, do := range c.after {
		s.after(th, 0, do)
	}
}

func (c *context) onEnd(s *Sim, th *thread, do func()) {
	if c.cause != nil {
		s.after(th, 0, do)
		return
	}
	c.after = append(c.after, do)
}

var (
	heartbeat = broker.Heartbeat
	lease     = broker.Lease(settings.CallAckWait)
)
