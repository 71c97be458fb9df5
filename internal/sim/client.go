package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

var errConflict = errors.New("conflict")

// append is broker.Append: it repeats what was not answered, and on a conflict looks whether what stands there is its
// own. When ctx ends it gives up, with the cause, and whether the event is stored is not known.
func (s *Sim) append(th *thread, ctx *context, b *batchLog, c batch.Chain, index int, expected uint64, body events.Body,
	then func(batch.Record, error)) {
	s.nats.ids++
	id := s.nats.ids
	force := s.forced(c, body)
	what := "append"
	if s.opt.Trace {
		what = fmt.Sprintf("append to %s behind %d: %s", b.subjectName(c, index), expected, describe(body))
	}
	answered := false
	answer := func(seq uint64, err error) {
		if answered {
			return
		}
		answered = true
		then(batch.Record{Chain: c, Index: index, Seq: seq, Time: s.clock(), Body: body}, err)
	}
	if ctx != nil {
		ctx.onEnd(s, th, func() { answer(0, ctx.cause) })
	}
	pause := firstPause
	var try func()
	try = func() {
		if ctx.over() || answered {
			return
		}
		var seq uint64 // what the first of two copies was told
		s.ask(th, attemptTimeout, what, func() error {
			got, err := s.nats.append(b, c, index, expected, id, force, body)
			if seq == 0 {
				seq = got
			}
			return err
		}, func(err error) {
			switch err {
			case nil:
				answer(seq, nil)
			case errConflict:
				if !s.has(FenceNonce) {
					answer(0, errConflict)
					return
				}
				s.chain(th, ctx, b, c, index, expected, func(ms []*stored) {
					if len(ms) > 0 && ms[0].id == id {
						answer(ms[0].Seq, nil)
						return
					}
					answer(0, errConflict)
				})
			default:
				s.after(th, pause, try)
				pause = min(2*pause, longestPause)
			}
		})
	}
	try()
}

// forced says that the expectation of an append was taken away.
func (s *Sim) forced(c batch.Chain, body events.Body) bool {
	switch c {
	case batch.ChainBatch:
		return !s.has(FenceBatch)
	case batch.ChainReply:
		return !s.has(FenceReply)
	case batch.ChainItem:
		switch body.(type) {
		case events.Claimed:
			return !s.has(FenceClaim)
		case events.Finished:
			return !s.has(FenceFinish)
		}
	}
	return false
}

func (b *batchLog) subjectName(c batch.Chain, index int) string {
	if c == batch.ChainItem {
		return fmt.Sprintf("%s#%d", b.spec.name, index)
	}
	return fmt.Sprintf("%s.%s", b.spec.name, c)
}

// chain reads the events of a subject behind a sequence, the oldest first, from the last one back: each is one read.
func (s *Sim) chain(th *thread, ctx *context, b *batchLog, c batch.Chain, index int, after uint64,
	then func([]*stored)) {
	s.last(th, ctx, b, c, index, func(m *stored) { s.behind(th, ctx, b, c, index, after, m, then) })
}

// behind reads a chain from its last event back to a sequence.
func (s *Sim) behind(th *thread, ctx *context, b *batchLog, c batch.Chain, index int, after uint64, last *stored,
	then func([]*stored)) {
	var out []*stored
	var walk func(m *stored)
	walk = func(m *stored) {
		if m == nil || m.Seq <= after {
			slices.Reverse(out)
			then(out)
			return
		}
		out = append(out, m)
		if m.expected == 0 || m.expected <= after {
			walk(nil)
			return
		}
		var got *stored
		before := m.expected
		s.retry(th, ctx, "read back", func() error {
			got = b.at(c, index, before)
			return nil
		}, func(error) { walk(got) })
	}
	walk(last)
}

func records(ms []*stored) []batch.Record {
	out := make([]batch.Record, len(ms))
	for i, m := range ms {
		out[i] = m.Record
	}
	return out
}

func (b *batchLog) at(c batch.Chain, index int, seq uint64) *stored {
	for _, m := range *b.chain(c, index) {
		if m.Seq == seq {
			return m
		}
	}
	return nil
}

// last reads the last event of a subject through the leader; nil when there is none.
func (s *Sim) last(th *thread, ctx *context, b *batchLog, c batch.Chain, index int, then func(*stored)) {
	what := "read the last"
	if s.opt.Trace {
		what += " of " + b.subjectName(c, index)
	}
	var got *stored
	s.retry(th, ctx, what, func() error {
		got = nil
		if l := *b.chain(c, index); len(l) > 0 {
			got = l[len(l)-1]
		}
		return nil
	}, func(error) { then(got) })
}

// newer is broker.Newer: what a chain has beyond the state; of finished calls and of replies the last event only.
func (s *Sim) newer(th *thread, b *batchLog, st *batch.State, c batch.Chain, index int, then func([]batch.Record)) {
	switch c {
	case batch.ChainBatch, batch.ChainControl, batch.ChainInput:
		after := st.BatchSeq
		switch c {
		case batch.ChainControl:
			after = st.ControlSeq
		case batch.ChainInput:
			after = st.InputSeq
		}
		s.chain(th, nil, b, c, 0, after, func(ms []*stored) {
			then(records(ms))
		})
	default:
		seen := st.ReplySeq
		if c == batch.ChainItem {
			seen = st.Calls[index].Seq
		}
		s.last(th, nil, b, c, index, func(m *stored) {
			if m == nil || m.Seq <= seen {
				then(nil)
				return
			}
			if _, over := m.Body.(events.Finished); c == batch.ChainItem && !over && s.has(FenceWholeChain) {
				s.behind(th, nil, b, c, index, seen, m, func(ms []*stored) { then(records(ms)) })
				return
			}
			r := m.Record
			r.Latest = c == batch.ChainReply
			then([]batch.Record{r})
		})
	}
}

// fold is broker.Fold.
func (s *Sim) fold(th *thread, b *batchLog, then func(*batch.State, error)) {
	st := &batch.State{Key: b.spec.key}
	catchUp := func(c batch.Chain, index int, next func()) {
		s.newer(th, b, st, c, index, func(rs []batch.Record) {
			for _, r := range rs {
				if err := st.Apply(r); err != nil {
					then(st, err)
					return
				}
			}
			next()
		})
	}
	s.last(th, nil, b, batch.ChainSubmission, 0, func(m *stored) {
		if m == nil {
			then(st, errMissing)
			return
		}
		if err := st.Apply(m.Record); err != nil {
			then(st, err)
			return
		}
		first, second := batch.ChainBatch, batch.ChainInput
		if !s.has(FenceFoldOrder) {
			first, second = second, first
		}
		catchUp(first, 0, func() {
			if s.focus == Streams && s.chance(0.6) {
				s.sleep(th.p, s.between(50*time.Millisecond, time.Second))
			}
			catchUp(second, 0, func() {
				var calls []int
				for _, g := range slices.Sorted(maps.Keys(st.Started)) {
					calls = append(calls, st.Plan.Groups[g].Calls...)
				}
				var each func()
				each = func() {
					if len(calls) == 0 {
						catchUp(batch.ChainReply, 0, func() { then(st, nil) })
						return
					}
					i := calls[0]
					calls = calls[1:]
					catchUp(batch.ChainItem, i, each)
				}
				catchUp(batch.ChainControl, 0, each)
			})
		})
	})
}
