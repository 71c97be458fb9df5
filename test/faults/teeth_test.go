//go:build unix

package faults

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
	"github.com/toolyard/toolyard/tool"
)

// story is a history that is made by hand, a millisecond a step.
type story struct {
	verdict.History
	now time.Time
	seq uint64
}

var beginning = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func (s *story) step() time.Time {
	s.now = s.now.Add(time.Millisecond)
	return s.now
}

func (s *story) store(k toolyard.BatchKey, c batch.Chain, index int, body events.Body) {
	s.seq++
	r := s.Batches[k]
	r.Log = append(r.Log, broker.Logged{Record: batch.Record{Chain: c, Index: index, Seq: s.seq, Time: s.step(),
		Body: body}})
}

func (s *story) did(kind ledger.Kind, k toolyard.BatchKey, index int, token uint64) {
	at := s.step().UnixNano()
	s.Ledger = append(s.Ledger, ledger.Line{
		Kind: kind, Agent: k.Agent, Batch: k.ID, Index: index, Workspace: "shared", Attempt: 1, Token: token, Worker: 7,
		Mono: at, Wall: at,
	})
}

// run has the calls of a group executed one after the other.
func (s *story) run(k toolyard.BatchKey, calls []int, token uint64, claim bool) {
	for _, i := range calls {
		if claim {
			s.store(k, batch.ChainItem, i, events.Claimed{Worker: "w", Attempt: 1, Ticket: token})
		}
		s.did(ledger.Begin, k, i, token)
		s.did(ledger.Effect, k, i, token)
		s.did(ledger.End, k, i, token)
		s.store(k, batch.ChainItem, i, events.Finish(events.End{Result: fine(i)}))
	}
}

func fine(i int) toolyard.Result {
	return toolyard.Result{Index: i, CallID: callID(i), Worker: "w", Attempts: 1}
}

func callID(i int) string { return "call_" + string(rune('1'+i)) }

// told is a history in which everything is as it should be: two batches of [look look] [write] [put], one after the
// other in one workspace.
func told() *story {
	s := &story{now: beginning}
	s.Batches, s.Processes = map[toolyard.BatchKey]*verdict.Batch{}, map[string]int{"w": 7}
	for n, agent := range []toolyard.Agent{"ann", "bob"} {
		b := toolyard.Batch{Agent: agent, ID: "b", Workspace: "shared", Calls: []toolyard.Call{
			{ID: callID(0), Tool: "look"}, {ID: callID(1), Tool: "look"}, {ID: callID(2), Tool: "write"},
			{ID: callID(3), Tool: "put"},
		}}
		k := b.Key()
		s.Batches[k] = &verdict.Batch{View: []byte("{}"), Replayed: []byte("{}")}
		sub := &verdict.Submission{Batch: b}
		s.store(k, batch.ChainSubmission, 0, events.Submitted{Batch: b})
		sub.Acked = s.step()
		plan := events.Planned{Groups: []events.Group{{Safe: true, Calls: []int{0, 1}, Ticket: true},
			{Calls: []int{2}, Ticket: true}, {Calls: []int{3}, Ticket: true}}}
		for _, c := range b.Calls {
			plan.Calls = append(plan.Calls, events.PlannedCall{ID: c.ID, Tool: c.Tool, Claim: c.Tool != "look",
				Judgement: tool.Judgement{Idempotent: c.Tool != "write"}})
		}
		s.store(k, batch.ChainBatch, 0, plan)
		for g, group := range plan.Groups {
			token := uint64(3*n + g + 1)
			s.store(k, batch.ChainBatch, 0, events.Started{Group: g, Ticket: token})
			s.run(k, group.Calls, token, g > 0)
		}
		s.store(k, batch.ChainReply, 0, events.Reply{Results: []toolyard.Result{fine(0), fine(1)}})
		s.store(k, batch.ChainReply, 2, events.Reply{Results: []toolyard.Result{fine(2), fine(3)}, Completed: true})
		for i := range b.Calls {
			sub.Results, sub.At = append(sub.Results, fine(i)), append(sub.At, s.step())
		}
		sub.Over, sub.Again = s.now, [][]toolyard.Result{slices.Clone(sub.Results)}
		s.Submissions, s.Replied = append(s.Submissions, sub), append(s.Replied, k)
	}
	s.FaultEnd = beginning
	return s
}

// The calls of the first batch that stories change.
var ann = toolyard.BatchKey{Agent: "ann", ID: "b"}

// changeLine changes the first line of a kind about a call of the first batch.
func (s *story) changeLine(kind ledger.Kind, index int, change func(*ledger.Line)) {
	for i := range s.Ledger {
		if l := &s.Ledger[i]; l.Kind == kind && l.Key() == ann && l.Index == index {
			change(l)
			return
		}
	}
}

// again is a copy of the first line of a kind about a call of the first batch, at another time.
func (s *story) again(kind ledger.Kind, index int, at time.Time) {
	s.changeLine(kind, index, func(l *ledger.Line) {
		copied := *l
		copied.Wall, copied.Mono = at.UnixNano(), at.UnixNano()
		s.Ledger = append(s.Ledger, copied)
	})
	slices.SortStableFunc(s.Ledger, func(a, b ledger.Line) int { return int(a.Wall - b.Wall) })
}

// drop takes lines about a call of the first batch out.
func (s *story) drop(index int, kinds ...ledger.Kind) {
	s.Ledger = slices.DeleteFunc(s.Ledger, func(l ledger.Line) bool {
		return l.Key() == ann && l.Index == index && slices.Contains(kinds, l.Kind)
	})
}

// changeBody changes the events of a type in the first batch's log.
func changeBody[B events.Body](s *story, change func(*B)) {
	for i := range s.Batches[ann].Log {
		if b, ok := s.Batches[ann].Log[i].Body.(B); ok {
			change(&b)
			s.Batches[ann].Log[i].Body = b
		}
	}
}

// code gives a call of the first batch another result, everywhere.
func (s *story) code(index int, code toolyard.Code) {
	change := func(r *toolyard.Result) {
		if r.Index == index {
			r.Code, r.IsError = code, true
		}
	}
	changeBody(s, func(b *events.Finished) { change(&b.Result) })
	changeBody(s, func(b *events.Reply) {
		b.Results = slices.Clone(b.Results)
		for i := range b.Results {
			change(&b.Results[i])
		}
	})
	sub := s.Submissions[0]
	change(&sub.Results[index])
	change(&sub.Again[0][index])
}

// finishedAt is when a call of the first batch had its result.
func (s *story) finishedAt(index int) time.Time { return s.Batches[ann].Results()[index].At }

// TestTeeth: each invariant finds what breaks it, and a history in which nothing is wrong is taken.
func TestTeeth(t *testing.T) {
	if out := check(&told().History, rules{}); len(out) > 0 {
		t.Fatalf("the history in which nothing is wrong is refused: %q", out)
	}
	for _, c := range []struct {
		name string
		want string // each problem begins so; empty: there is none
		do   func(s *story)
		r    rules
	}{
		{name: "a result is missing on the reply stream", want: "Q1", do: func(s *story) {
			changeBody(s, func(b *events.Reply) {
				b.Results = slices.DeleteFunc(slices.Clone(b.Results),
					func(r toolyard.Result) bool { return r.Index == 3 })
			})
		}},
		{name: "a result stands twice on the reply stream", want: "Q1", do: func(s *story) {
			changeBody(s, func(b *events.Reply) {
				b.Results = append(slices.Clone(b.Results),
					b.Results[len(b.Results)-1])
			})
		}},
		{name: "a result of no call", want: "Q1", do: func(s *story) {
			changeBody(s, func(b *events.Reply) {
				if b.Completed {
					b.Results = append(slices.Clone(b.Results), fine(4))
				}
			})
		}},
		{name: "completed twice", want: "Q1", do: func(s *story) {
			changeBody(s,
				func(b *events.Reply) { b.Completed = true })
		}},
		{name: "never completed", want: "Q1", do: func(s *story) {
			changeBody(s,
				func(b *events.Reply) { b.Completed = false })
		}},
		{name: "a reply to nobody", want: "Q1", do: func(s *story) {
			s.Replied = append(s.Replied,
				toolyard.BatchKey{Agent: "eve", ID: "b"})
		}},
		{name: "a reply to somebody by hand", do: func(s *story) {
			s.Replied = append(s.Replied,
				toolyard.BatchKey{Agent: "eve", ID: "b"})
		},
			r: rules{foreign: []toolyard.BatchKey{{Agent: "eve", ID: "b"}}}},

		{name: "an agent sees results out of order", want: "Q2", do: func(s *story) {
			r := s.Submissions[0].Results
			r[0], r[1] = r[1], r[0]
			s.Submissions[0].Again = nil
		}},
		{name: "an agent sees a gap", want: "Q2", do: func(s *story) {
			s.Submissions[0].Results = slices.Delete(s.Submissions[0].Results, 1, 2)
			s.Submissions[0].Again = nil
		}},
		{name: "an agent sees a result twice", want: "Q2", do: func(s *story) {
			s.Submissions[0].Results = slices.Insert(s.Submissions[0].Results, 1, fine(0))
			s.Submissions[0].Again = nil
		}},

		{name: "a write starts twice", want: "Q3", do: func(s *story) {
			s.again(ledger.Begin, 2,
				s.finishedAt(2).Add(-time.Microsecond))
		}},
		{name: "a write acts twice", want: "Q3", do: func(s *story) {
			s.again(ledger.Effect, 2,
				s.finishedAt(2).Add(-time.Microsecond))
		}},
		{name: "a write succeeds without acting", want: "Q3", do: func(s *story) { s.drop(2, ledger.Effect) }},
		{name: "a read that was never handed in", want: "Q3", do: func(s *story) {
			s.Ledger = append(s.Ledger, ledger.Line{Kind: ledger.Begin, Agent: "eve", Batch: "b",
				Wall: s.now.UnixNano()})
		}},
		{name: "a put starts four times", want: "Q3", do: func(s *story) {
			for range 3 {
				s.again(ledger.Begin, 3, s.finishedAt(3).Add(-time.Microsecond))
			}
		}},
		{name: "a put acts twice", do: func(s *story) {
			s.again(ledger.Begin, 3, s.finishedAt(3).Add(-2*time.Microsecond))
			s.again(ledger.Effect, 3, s.finishedAt(3).Add(-time.Microsecond))
		}},
		{name: "a read succeeds without acting", want: "Q4", do: func(s *story) { s.drop(0, ledger.Effect) }},
		{name: "a put succeeds without acting", want: "Q4", do: func(s *story) { s.drop(3, ledger.Effect) }},

		{name: "a write of one batch begins inside another's", want: "Q5", do: func(s *story) {
			s.changeLine(ledger.Begin, 2,
				func(l *ledger.Line) { l.Wall = s.now.Add(-10 * time.Millisecond).UnixNano() })
			for i := range s.Batches[ann].Log {
				if l := &s.Batches[ann].Log[i]; l.Chain == batch.ChainItem && l.Index == 2 {
					l.Time = s.now
				}
			}
		}},
		{name: "a read whose result was taken goes on beside a write", want: "Q5", do: func(s *story) {
			s.changeLine(ledger.Effect, 1, func(l *ledger.Line) { l.Wall = s.finishedAt(2).UnixNano() })
		}},
		{name: "a read whose result was not taken goes on beside a write", do: func(s *story) {
			s.changeLine(ledger.Effect, 1, func(l *ledger.Line) {
				late := *l
				late.Worker, late.Wall = 8, s.finishedAt(2).Add(-time.Microsecond).UnixNano()
				s.Ledger = append(s.Ledger, late)
			})
		}},

		{name: "a read that was queued twice begins again after its result was taken", do: func(s *story) {
			s.again(ledger.Begin, 1, s.finishedAt(1).Add(time.Microsecond))
			s.again(ledger.Effect, 1, s.finishedAt(2).Add(-time.Microsecond))
		}},

		{name: "a group begins before the one before it is over", want: "Q6", do: func(s *story) {
			s.changeLine(ledger.Begin, 2,
				func(l *ledger.Line) { l.Wall = s.finishedAt(1).Add(-time.Microsecond).UnixNano() })
		}},
		{name: "a group begins and the one before it is never over", want: "Q6", do: func(s *story) {
			s.Batches[ann].Log = slices.DeleteFunc(s.Batches[ann].Log,
				func(l broker.Logged) bool { return l.Chain == batch.ChainItem && l.Index == 1 })
		}},

		{name: "a token shrinks", want: "Q7", do: func(s *story) {
			s.changeLine(ledger.Effect, 2,
				func(l *ledger.Line) { l.Token = 9 })
		}},
		{name: "two groups have one token", want: "Q7",
			do: func(s *story) { s.changeLine(ledger.Effect, 3, func(l *ledger.Line) { l.Token = 2 }) }},
		{name: "a write without a token", want: "Q7", do: func(s *story) {
			s.changeLine(ledger.Effect, 2,
				func(l *ledger.Line) { l.Token = 0 })
		}},
		{name: "a token was refused", want: "Q7", do: func(s *story) { s.did(ledger.Fenced, ann, 2, 1) }},
		{name: "a token of a zombie was refused", do: func(s *story) { s.did(ledger.Fenced, ann, 2, 1) },
			r: rules{zombie: true, pids: []int{7}}},
		{name: "a write acts after its end", want: "Q7", do: func(s *story) {
			s.changeLine(ledger.Effect, 2,
				func(l *ledger.Line) { l.Wall = s.finishedAt(2).Add(time.Microsecond).UnixNano() })
		}},
		{name: "an attempt acts after its end", want: "Q7", do: func(s *story) {
			s.store(ann, batch.ChainItem, 3, events.AttemptFailed{Attempt: 1})
			log := s.Batches[ann].Log
			i := slices.IndexFunc(log, func(l broker.Logged) bool {
				_, ok := l.Body.(events.Finished)
				return ok &&
					l.Index == 3
			})
			failed := log[len(log)-1]
			failed.Time = log[i].Time.Add(-3 * time.Millisecond)
			s.Batches[ann].Log = slices.Insert(log[:len(log)-1], i, failed)
		}},

		{name: "a sibling begins after it was canceled", want: "Q8", do: func(s *story) {
			s.cancelSibling(true)
			s.changeLine(ledger.Begin, 1,
				func(l *ledger.Line) { l.Wall = s.finishedAt(1).Add(time.Microsecond).UnixNano() })
		}},
		{name: "a sibling that was claimed begins after it was canceled", do: func(s *story) {
			s.cancelSibling(true)
			s.changeLine(ledger.Begin, 1,
				func(l *ledger.Line) { l.Wall = s.finishedAt(1).Add(time.Microsecond).UnixNano() })
			log := s.Batches[ann].Log
			s.store(ann, batch.ChainItem, 1, events.Claimed{Worker: "w", Attempt: 1})
			s.Batches[ann].Log = slices.Insert(log, 3, s.Batches[ann].Log[len(s.Batches[ann].Log)-1])
			s.stopped(1, time.Millisecond)
		}},
		{name: "a read begins after it was canceled", do: func(s *story) {
			s.cancelSibling(false)
			s.changeLine(ledger.Begin, 1,
				func(l *ledger.Line) { l.Wall = s.finishedAt(1).Add(time.Microsecond).UnixNano() })
			s.stopped(1, time.Millisecond)
		}},
		{name: "a sibling is told late", want: "Q8", do: func(s *story) {
			s.cancelSibling(true)
			s.stopped(1, 4*time.Second)
		}},
		{name: "a sibling is never told", want: "Q8", do: func(s *story) { s.cancelSibling(true) }},
		{name: "a sibling on a worker that died is never told", do: func(s *story) { s.cancelSibling(true) },
			r: rules{pids: []int{7}}},

		{name: "the same batch again has other results", want: "Q10",
			do: func(s *story) { s.Submissions[0].Again[0][2].Output = "other" }},

		{name: "a batch is never over", want: "Q12", do: func(s *story) { s.Submissions[0].Over = time.Time{} }},
		{name: "a batch is over late", want: "Q12",
			do: func(s *story) { s.Submissions[0].Over = s.Submissions[0].Acked.Add(time.Minute) }},
		{name: "a batch is over late, and so was the fault", do: func(s *story) {
			s.Submissions[0].Over = s.Submissions[0].Acked.Add(time.Minute)
			s.FaultEnd = s.Submissions[0].Over
		}},

		{name: "the replay differs", want: "Q13", do: func(s *story) { s.Batches[ann].Replayed = []byte(`{"a":1}`) }},
		{name: "the log contradicts itself", want: "Q13",
			do: func(s *story) { s.Batches[ann].Contradiction = broker.ErrConflict }},

		{name: "a batch that was acknowledged is not stored", want: "Q14",
			do: func(s *story) { changeBody(s, func(b *events.Submitted) { b.Calls = b.Calls[:1] }) }},
		{name: "an agent has seen another result", want: "Q14", do: func(s *story) {
			s.Submissions[0].Results[2].Output = "other"
			s.Submissions[0].Again = nil
		}},

		{name: "outcome_unknown for nothing", want: "code", do: func(s *story) { s.code(2, toolyard.OutcomeUnknown) }},
		{name: "outcome_unknown of a worker that died", do: func(s *story) { s.code(2, toolyard.OutcomeUnknown) },
			r: rules{pids: []int{7}}},
		{name: "outcome_unknown of a read", want: "code", do: func(s *story) { s.code(0, toolyard.OutcomeUnknown) },
			r: rules{pids: []int{7}}},
		{name: "a time limit", want: "code", do: func(s *story) { s.code(2, toolyard.DeadlineExceeded) }},
		{name: "a time limit that is expected", do: func(s *story) { s.code(2, toolyard.DeadlineExceeded) },
			r: rules{codes: map[string][]toolyard.Code{"write": {toolyard.DeadlineExceeded}}}},
		{name: "a sibling that did not fail", want: "code", do: func(s *story) {
			s.code(0, toolyard.SiblingCanceled)
			s.drop(0, ledger.Begin, ledger.Effect, ledger.End)
		}},
	} {
		s := told()
		c.do(s)
		out := check(&s.History, c.r)
		switch {
		case c.want == "" && len(out) > 0:
			t.Errorf("%s: %q", c.name, out)
		case c.want != "" && !slices.ContainsFunc(out, func(o string) bool { return strings.HasPrefix(o, c.want+":") }):
			t.Errorf("%s: found by %q, want %s", c.name, out, c.want)
		}
	}
}

// cancelSibling makes the first read fail, and cancels the second for it: with a begin, and no end.
func (s *story) cancelSibling(claim bool) {
	changeBody(s, func(b *events.Planned) {
		b.Calls = slices.Clone(b.Calls)
		b.Calls[0].Tool, b.Calls[1].Claim = "fail", claim
	})
	s.Submissions[0].Batch.Calls = slices.Clone(s.Submissions[0].Batch.Calls)
	s.Submissions[0].Batch.Calls[0].Tool = "fail"
	s.code(0, toolyard.ExecutionFailed)
	s.code(1, toolyard.SiblingCanceled)
	s.drop(1, ledger.Effect, ledger.End)
}

// stopped has the tool of a call of the first batch know that it is canceled, so long after it was.
func (s *story) stopped(index int, after time.Duration) {
	s.changeLine(ledger.Begin, index, func(l *ledger.Line) {
		told := *l
		told.Kind, told.Wall = ledger.Stopped, s.finishedAt(index).Add(after).UnixNano()
		s.Ledger = append(s.Ledger, told)
	})
}
