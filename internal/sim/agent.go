package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// pollEvery is how often an agent reads the replies.
const pollEvery = 900 * time.Millisecond

// bootAgent makes an agent, which hands in its batches and reads the replies. One that starts again hands in the same
// batches again, and reads from the beginning.
func (s *Sim) bootAgent(n int) func(*party) {
	return func(p *party) {
		th := &thread{p: p}
		for _, b := range s.sc.batches {
			if b.agent != n {
				continue
			}
			log := s.nats.logs[b.key]
			followed := false
			submit := func() {
				s.submit(th, log, func() {
					if !followed {
						followed = true
						s.follow(th, log, 0, 0)
					}
				})
			}
			s.at(th, b.submit, submit)
			if b.twice {
				s.at(th, b.submit+s.delay(), submit)
			}
			if b.open {
				s.at(th, b.submit+b.pause, func() { s.resume(th, log) })
			}
			for n, i := range b.canceled {
				if b.apart > 0 {
					s.at(th, b.cancel+Time(n)*b.apart, func() {
						s.control(th, log,
							events.Canceled{Calls: []int{i}, By: p.name})
					})
				}
			}
			if b.cancel > 0 && b.apart == 0 {
				s.at(th, b.cancel, func() {
					s.control(th, log, events.Canceled{Calls: b.canceled, By: p.name, Reason: "no longer needed"})
				})
			}
			if b.interrupt > 0 {
				s.at(th, b.interrupt, func() { s.control(th, log, events.Interrupted{By: p.name}) })
			}
		}
	}
}

// submit is broker.Submit: the same batch again is accepted again.
func (s *Sim) submit(th *thread, b *batchLog, accepted func()) {
	s.append(th, nil, b, batch.ChainSubmission, 0, 0, events.Submitted{Batch: b.spec.sub},
		func(_ batch.Record, err error) {
			s.log(th.p.name, "%s is accepted (%v)", b.spec.name, err)
			if len(b.submission) != 1 {
				s.fail("I8", "%s was accepted, and the stream holds %d submissions", b.spec.name, len(b.submission))
			}
			accepted()
		})
}

// control is broker.control: it appends a wish to the control chain, behind whatever stands there, and wakes the batch.
func (s *Sim) control(th *thread, b *batchLog, wish events.Body) {
	s.last(th, nil, b, batch.ChainControl, 0, func(m *stored) {
		expected := uint64(0)
		if m != nil {
			expected = m.Seq
		}
		s.append(th, nil, b, batch.ChainControl, 0, expected, wish, func(_ batch.Record, err error) {
			switch {
			case err == errConflict:
				s.control(th, b, wish)
			case b.spec.asks() && s.has(FenceWake): // one that asks nobody is never parked: that look is saved
				s.wakeIfParked(th, b, func(bool) {})
			}
		})
	})
}

// resume appends to an open batch what its input chain does not have yet, one call at a time, and closes it.
func (s *Sim) resume(th *thread, b *batchLog) {
	s.chain(th, nil, b, batch.ChainInput, 0, 0, func(ms []*stored) {
		after, next := uint64(0), b.spec.first
		for _, m := range ms {
			after = m.Seq
			switch body := m.Body.(type) {
			case events.Appended:
				next += len(body.Calls)
			case events.Closed:
				return
			}
		}
		s.feedInput(th, b, after, next)
	})
}

func (s *Sim) feedInput(th *thread, b *batchLog, after uint64, next int) {
	var body events.Body = events.Closed{By: th.p.name}
	if n := len(b.spec.calls); next < n {
		to := min(n, next+1+s.rand.IntN(2))
		body = events.Appended{Calls: b.spec.all[next:to]}
		next = to
	} else if !b.spec.closes {
		return
	}
	s.input(th, b, after, body, func(seq uint64) {
		if body.EventType() == events.BatchClosed {
			return
		}
		s.after(th, b.spec.pause, func() {
			s.feedInput(th, b, seq, next)
		})
	})
}

// input is broker.Input: an append to the input chain, behind whatever stands there, unless that closes it.
func (s *Sim) input(th *thread, b *batchLog, after uint64, body events.Body, then func(seq uint64)) {
	s.append(th, nil, b, batch.ChainInput, 0, after, body, func(rec batch.Record, err error) {
		if err == nil {
			then(rec.Seq)
			return
		}
		if strings.Contains(th.p.name, ".") { // it was started again: what it did before may have come late
			s.resume(th, b)
			return
		}
		s.chain(th, nil, b, batch.ChainInput, 0, after, func(ms []*stored) {
			for _, m := range ms {
				if after = m.Seq; m.Body.EventType() == events.BatchClosed {
					return
				}
			}
			s.input(th, b, after, body, then)
		})
	})
}

// follow reads the replies behind a sequence, and checks what the agent sees: emission order without gap or repeat.
func (s *Sim) follow(th *thread, b *batchLog, after uint64, next int) {
	s.chain(th, nil, b, batch.ChainReply, 0, after, func(ms []*stored) {
		for _, m := range ms {
			after = m.Seq
			r := m.Body.(events.Reply)
			for _, res := range r.Results {
				if res.Index != next {
					s.fail("I2", "%s sees the result of call %d of %s where that of call %d is next", th.p.name,
						res.Index, b.spec.name, next)
					return
				}
				next++
			}
			if r.Completed {
				if next != len(b.truth.Calls) {
					s.fail("I1", "%s is told that %s is complete, with %d of %d results", th.p.name, b.spec.name, next,
						len(b.truth.Calls))
				}
				s.log(th.p.name, "has all %d results of %s", next, b.spec.name)
				return
			}
		}
		s.after(th, pollEvery, func() { s.follow(th, b, after, next) })
	})
}

// atRest reports that all that was submitted is complete, and nothing is left to be delivered.
func (s *Sim) atRest() bool {
	n := s.nats
	if n.submissions.held > 0 {
		return false
	}
	for _, c := range n.kicks[1:] {
		if c.held > 0 {
			return false
		}
	}
	for _, b := range n.logs {
		if !b.done {
			return false
		}
	}
	return true
}

// open says what a history that does not come to rest waits for.
func (s *Sim) open() string {
	out := ""
	for _, spec := range s.sc.batches {
		b := s.nats.logs[spec.key]
		if b.done {
			continue
		}
		out += fmt.Sprintf("%s (owner %q)", spec.name, b.truth.Owner)
		for i, c := range b.truth.Calls {
			if c.Result == nil {
				out += fmt.Sprintf(" call %d is %s %s", i, c.Status, c.Worker)
			}
		}
		out += "; "
	}
	for _, c := range s.nats.kicks {
		if c.held > 0 {
			out += fmt.Sprintf("%d messages of %s; ", c.held, c.name)
		}
	}
	return out
}
