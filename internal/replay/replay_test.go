package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/version"
	"github.com/toolyard/toolyard/tool"
)

var update = flag.Bool("update", false, "rewrite the golden timelines")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// logged is a log that is made by hand, an event after the other, ms milliseconds after the submission.
type logged []Event

func (l *logged) add(ms float64, c batch.Chain, index int, source string, body events.Body) {
	subject := "agent=2e1/b"
	if c == batch.ChainItem {
		subject += fmt.Sprintf("/%d", index)
	}
	at := noon.Add(time.Duration(ms * float64(time.Millisecond)))
	*l = append(*l, Event{
		Record: batch.Record{Chain: c, Index: index, Seq: uint64(len(*l) + 1), Time: at, Body: body},
		Meta:   events.Meta{ID: fmt.Sprintf("e%d", len(*l)+1), Source: source, Subject: subject, Time: at},
	})
}

func result(i int, output string, code toolyard.Code) toolyard.Result {
	r := toolyard.Result{
		Index: i, CallID: fmt.Sprintf("c%d", i), Tool: "t", Output: output, Attempts: 1, Worker: "w1", QueueMS: 1,
		DurationMS: 2, ExecuteMS: 1.5,
		Phases: []toolyard.Fact{{Phase: toolyard.PhaseResolveTool, Outcome: toolyard.OutcomeOK, MS: 0.1},
			{Phase: toolyard.PhaseExecute, Outcome: toolyard.OutcomeOK, MS: 1.5}},
	}
	if code != "" {
		r.Code, r.IsError, r.Output, r.Error = code, true, "", output
		r.Phases[1].Outcome, r.Phases[1].Code = toolyard.OutcomeFailed, code
	}
	return r
}

// notRun is the result of a call that its owner answered.
func notRun(i int, code toolyard.Code) toolyard.Result {
	return toolyard.Result{Index: i, CallID: fmt.Sprintf("c%d", i), Tool: "t", IsError: true, Code: code,
		Error:  "it did not run",
		Phases: []toolyard.Fact{{Phase: toolyard.PhaseSchedule, Outcome: toolyard.OutcomeFailed, Code: code}}}
}

func submitted(n int) events.Submitted {
	b := toolyard.Batch{ID: "b", Agent: "agent.1", Session: "s", Workspace: "ws"}
	for i := range n {
		b.Calls = append(b.Calls, toolyard.Call{ID: fmt.Sprintf("c%d", i), Tool: "t",
			Input: json.RawMessage(`{"n":1}`)})
	}
	b.Normalize("")
	return events.Submitted{Batch: b}
}

// planned plans groups of these sizes; one of size 1 is exclusive.
func planned(sizes ...int) events.Planned {
	p := events.Planned{Owner: "d1", Session: "s", Workspace: "ws", Surface: "0123456789abcdef",
		Partition: toolyard.Consecutive, OnError: toolyard.CancelGroup, MaxConcurrency: 10,
		Deadline: noon.Add(time.Minute)}
	for _, size := range sizes {
		g := events.Group{Safe: size > 1, Ticket: true}
		class := toolyard.ReadOnly
		if size == 1 {
			class = toolyard.WriteExclusive
		}
		for range size {
			i := len(p.Calls)
			g.Calls = append(g.Calls, i)
			p.Calls = append(p.Calls, events.PlannedCall{ID: fmt.Sprintf("c%d", i), Tool: "t", Pool: "default",
				Judgement: tool.Judgement{Class: class}, Claim: size == 1})
		}
		p.Groups = append(p.Groups, g)
	}
	return p
}

// whole is the log of a batch of five calls in three groups, to which everything happened that can.
func whole() logged {
	var l logged
	l.add(0, batch.ChainSubmission, 0, "/client/1", submitted(5))
	l.add(1, batch.ChainBatch, 0, "/dispatcher/d1", planned(2, 1, 2))
	l.add(2, batch.ChainBatch, 0, "/dispatcher/d1", events.Started{Group: 0, Ticket: 7})
	l.add(4, batch.ChainItem, 1, "/worker/w1", events.Finish(events.End{Result: result(1, "one", "")}))
	l.add(5, batch.ChainItem, 0, "/worker/w2", events.AttemptFailed{Worker: "w2", Attempt: 1,
		Code: toolyard.DependencyUnavailable, Reason: "busy"})
	l.add(6, batch.ChainBatch, 0, "/dispatcher/d2", events.Adopted{Owner: "d2", Takeover: 1})
	l.add(9, batch.ChainItem, 0, "/worker/w1", events.Finish(events.End{Result: result(0, "line 1\nline 2", "")}))
	l.add(10, batch.ChainReply, 0, "/dispatcher/d2", events.Reply{Results: []toolyard.Result{result(0, "line 1\nline 2",
		""), result(1, "one", "")}})
	l.add(11, batch.ChainBatch, 0, "/dispatcher/d2", events.Started{Group: 1, Ticket: 8})
	l.add(12, batch.ChainItem, 2, "/worker/w1", events.Claimed{Call: 2, Worker: "w1", Attempt: 1, Ticket: 8})
	l.add(15, batch.ChainControl, 0, "/client/1", events.Canceled{By: "/client/1", Reason: "no longer needed"})
	l.add(17, batch.ChainItem, 2, "/worker/w1",
		events.Finish(events.End{Result: result(2, "stopped", toolyard.Canceled)}))
	l.add(18, batch.ChainBatch, 0, "/dispatcher/d2", events.Settled{Results: []toolyard.Result{notRun(3,
		toolyard.Canceled), notRun(4, toolyard.Canceled)}})
	l.add(20, batch.ChainReply, 2, "/dispatcher/d2", events.Reply{Completed: true, Results: []toolyard.Result{
		result(2, "stopped", toolyard.Canceled), notRun(3, toolyard.Canceled), notRun(4, toolyard.Canceled)}})
	return l
}

func play(l logged) *Report {
	var p Replay
	for _, e := range l {
		if p.Add(e) != nil {
			break
		}
	}
	return p.Report()
}

// edit changes the event at a place, counted from 1 as in a contradiction.
func edit[B events.Body](l logged, n int, change func(*B)) logged {
	b := l[n-1].Body.(B)
	change(&b)
	l[n-1].Body = b
	return l
}

// add puts an event of the batch between others.
func insert(l logged, before int, c batch.Chain, index int, body events.Body) logged {
	var one logged
	one.add(float64(before), c, index, "/x", body)
	one[0].Meta.ID = "inserted"
	return slices.Insert(l, before-1, one[0])
}

// TestContradictions breaks a good log in one way at a time. Each breach is one that only one check finds, or that
// another check reports in other words, so a removed check is noticed here.
func TestContradictions(t *testing.T) {
	if r := play(whole()); !r.Consistent {
		t.Fatalf("the log to begin with is not good: %v", r.Contradiction)
	}
	one := func(i int, text string) events.Finished {
		return events.Finish(events.End{Result: result(i, text, "")})
	}
	for _, c := range []struct {
		name  string
		log   logged
		event int
		want  string
	}{
		{"the submission is missing", whole()[1:], 1, "before the submission"},
		{"submitted twice", insert(whole(), 2, batch.ChainSubmission, 0, submitted(5)), 2, "submitted before"},
		{"an event twice", append(whole()[:4], whole()[2]), 5, "has the id of event 3"},
		{"an event of another batch", func() logged { l := whole(); l[2].Meta.Subject = "agent=2e1/other"; return l }(),
			3, "batch agent.1/other in the log of batch agent.1/b"},
		{"all events of another batch", func() logged {
			l := whole()
			for i := range l {
				l[i].Meta.Subject = strings.Replace(l[i].Meta.Subject, "/b", "/other", 1)
			}
			return l
		}(), 2, "batch agent.1/b was submitted"},
		{"the submission of another batch", func() logged {
			l := whole()
			l = insert(l[1:], 1, batch.ChainSubmission, 0,
				edit(whole(), 1, func(s *events.Submitted) { s.ID = "other" })[0].Body)
			return l
		}(), 2, "batch agent.1/other was submitted"},
		{"a subject that names nothing", func() logged { l := whole(); l[2].Meta.Subject = "b"; return l }(), 3,
			"is not <agent>/<batch>"},
		{"a call's event under another call",
			func() logged { l := whole(); l[3].Meta.Subject = "agent=2e1/b/0"; return l }(), 4,
			"not that of its place"},
		{"a call's event under the batch",
			func() logged { l := whole(); l[3].Meta.Subject = "agent=2e1/b"; return l }(), 4, "not that of its place"},
		{"events before the plan", slices.Delete(whole(), 1, 2), 2, "before planned"},
		{"planned twice", insert(whole(), 3, batch.ChainBatch, 0, planned(2, 1, 2)), 3, "planned twice"},
		{"planned other calls", edit(whole(), 2, func(p *events.Planned) { p.Calls[3].ID = "other" }), 2,
			`plans call 3 as "other"`},
		{"planned fewer calls", edit(whole(), 2, func(p *events.Planned) { *p = planned(2, 1) }), 2,
			"plans 3 calls, and 5 were handed in"},
		{"planned more calls", edit(whole(), 2, func(p *events.Planned) { *p = planned(2, 1, 3) }), 2,
			"plans 6 calls, and 5 were handed in"},
		{"answered another call at plan", edit(whole(), 2, func(p *events.Planned) {
			r := notRun(4, toolyard.UnknownTool)
			r.CallID = "c3"
			p.Results = append(p.Results, r)
		}), 2, `result of call 4 is that of "c3"`},
		{"refused after it was planned", insert(whole(), 3, batch.ChainReply, 0, events.Refused{}), 3,
			"planned before"},
		{"planned after it was refused", insert(whole(), 2, batch.ChainReply, 0, events.Refused{}), 3,
			"refused before"},
		{"a takeover left out", edit(whole(), 6, func(a *events.Adopted) { a.Takeover = 2 }), 6,
			"takeover 2 after takeover 0"},
		{"a group started early", edit(whole(), 3, func(s *events.Started) { s.Group = 1 }), 3,
			"group 2 started before call 0 of group 1 had its result"},
		{"a group started before the last result", insert(whole(), 7, batch.ChainBatch, 0, events.Started{Group: 1}), 7,
			"group 2 started before call 0 of group 1"},
		{"a group that is none", insert(whole(), 9, batch.ChainBatch, 0, events.Started{Group: 3}), 9, "no group 3"},
		{"a call of a group that did not start", slices.Delete(whole(), 2, 3), 3, "before its group 1 started"},
		{"claimed before its group started", slices.Delete(whole(), 8, 9), 9, "before its group 2 started"},
		{"two claims", insert(whole(), 11, batch.ChainItem, 2, events.Claimed{Call: 2, Worker: "w9", Attempt: 2}), 11,
			"while the claim of worker w1 stands"},
		{"a renewal by another worker", insert(whole(), 11, batch.ChainItem, 2,
			events.Claimed{Call: 2, Worker: "w9", Attempt: 1, Renewed: true}), 11,
			"while the claim of worker w1 stands"},
		{"a renewal of another attempt", insert(whole(), 11, batch.ChainItem, 2,
			events.Claimed{Call: 2, Worker: "w1", Attempt: 2, Renewed: true}), 11,
			"while the claim of worker w1 stands"},
		{"two results", insert(whole(), 8, batch.ChainItem, 0, one(0, "again")), 8, "result already"},
		{"a result of another call", edit(whole(), 4, func(f *events.Finished) { f.Result.Index = 0 }), 4,
			"names call 0, which is not in the item"},
		{"a result with another call's id", edit(whole(), 4, func(f *events.Finished) { f.Result.CallID = "c0" }), 4,
			`that of "c0", and the call is "c1"`},
		{"settled what was started", edit(whole(), 13, func(s *events.Settled) {
			s.Results[0] = result(1, "x",
				toolyard.Canceled)
		}), 13, "settles call 1, whose group 1 had started"},
		{"settled twice", insert(whole(), 14, batch.ChainBatch, 0, whole()[12].Body), 14,
			"cannot be answered by the owner alone"},
		{"settled with another call's id", edit(whole(), 13, func(s *events.Settled) { s.Results[1].CallID = "c0" }),
			13, `that of "c0", and the call is "c4"`},
		{"a reply left out", slices.Delete(whole(), 7, 8), 13, "call 2 where that of call 0 is next"},
		{"a result left out of a reply", edit(whole(), 14, func(r *events.Reply) { r.Results = r.Results[1:] }), 14,
			"call 3 where that of call 2 is next"},
		{"a reply with another output", edit(whole(), 8,
			func(r *events.Reply) { r.Results[0].Output = "line 1\nline two" }), 8,
			`the reply for call 0 is not its result: output line 2: found "line 2", replied "line two"`},
		{"a reply with another code", edit(whole(), 14, func(r *events.Reply) { r.Results[1].Code = toolyard.Skipped }),
			14, `the reply for call 3 is not its result: code line 1: found "canceled", replied "skipped"`},
		{"a reply that differs elsewhere", edit(whole(), 8, func(r *events.Reply) { r.Results[1].Attempts = 2 }), 8,
			"the reply for call 1 is not its result: they differ beside"},
		{"a reply before another result", edit(insert(slices.Delete(whole(), 7, 8), 7, batch.ChainReply, 0,
			whole()[7].Body), 8, func(f *events.Finished) { f.Result.Output = "late" }), 8,
			"the reply for call 0 is not its result"},
		{"a reply beyond the calls", edit(whole(), 14, func(r *events.Reply) {
			r.Results = append(r.Results,
				result(5, "", ""))
		}), 14, "the batch has 5 calls"},
		{"completed early", edit(whole(), 8, func(r *events.Reply) { r.Completed = true }), 8,
			"completed, after 2 of 5 results"},
		{"completed twice", append(whole(), insert(logged{}, 1, batch.ChainReply, 5, events.Reply{Completed: true})...),
			15, "a reply after the last one"},
		{"a result that stands nowhere", slices.Delete(whole(), 12, 13), 14,
			"call 3 was replied to, and no event gives it a result"},
		{"completed and never closed", edit(whole(), 2, func(p *events.Planned) { p.Open = true }), 15,
			"completed, and no event closed it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := play(c.log)
			if r.Consistent || r.Contradiction == nil {
				t.Fatalf("it was not seen; the log is\n%s", r.Text())
			}
			if r.Contradiction.Event != c.event || !strings.Contains(r.Contradiction.Problem, c.want) {
				t.Errorf("seen: %v\nwant %q at event %d", r.Contradiction, c.want, c.event)
			}
			if !strings.HasSuffix(r.Text(), "contradiction: "+r.Contradiction.Error()+"\n") {
				t.Errorf("the timeline does not end with it:\n%s", r.Text())
			}
			if _, err := r.Rerun(true); err == nil && r.state.Submission != nil {
				t.Error("it may be run again")
			}
		})
	}
}

// TestARenewedClaimIsNoSecondClaim: a worker proves by it that its attempt has not been settled.
func TestARenewedClaimIsNoSecondClaim(t *testing.T) {
	l := insert(whole(), 11, batch.ChainItem, 2,
		events.Claimed{Call: 2, Worker: "w1", Attempt: 1, Ticket: 8, Renewed: true})
	if r := play(l); !r.Consistent {
		t.Errorf("it is taken for a contradiction: %v", r.Contradiction)
	}
}

// TestSubmissionThatNamesNobody replays a batch whose agent left out what the subject says, and what has a default.
func TestSubmissionThatNamesNobody(t *testing.T) {
	l := edit(whole(), 1, func(s *events.Submitted) { s.ID, s.Agent, s.Session, s.Calls[0].ID = "", "", "", "c0" })
	l[0].Meta.Subject = "whatever"
	r := play(l)
	if !r.Consistent || r.Batch.ID != "b" || r.Batch.Agent != "agent.1" {
		t.Errorf("batch %s of agent %s, %v", r.Batch.ID, r.Batch.Agent, r.Contradiction)
	}
	if again, err := r.Rerun(true); err != nil || again.Agent != "agent.1" || again.Session != "default" {
		t.Errorf("run again: %+v, %v", again, err)
	}
}

// TestForeignPool writes about a call under another pool's name, where no reader looks.
func TestForeignPool(t *testing.T) {
	l := insert(whole(), 11, batch.ChainItem, 2, events.Finish(events.End{Result: result(2, "forged", "")}))
	l[10].Pool = "other"
	r := play(l)
	if !r.Consistent || r.Batch.Results[2].Code != toolyard.Canceled {
		t.Errorf("the result is %+v, %v", r.Batch.Results[2], r.Contradiction)
	}
	if w := Words(l[10].Record, &r.state); !strings.Contains(w, "changes nothing") {
		t.Errorf("in words: %s", w)
	}
	l[10].Pool = "default"
	if play(l).Consistent {
		t.Error("under its own pool's name it is a second result, and that was not seen")
	}
}

// TestEventsOfANewerVersion: they are shown unchanged and skipped; a later event that does not fit is no contradiction.
func TestEventsOfANewerVersion(t *testing.T) {
	newer := events.Newer{Type: "dev.toolyard.batch.noted.v1", Version: version.Wire + 1,
		Data: json.RawMessage(`{"x":1}`)}
	l := insert(whole(), 3, batch.ChainBatch, 0, newer)
	r := play(l)
	if r.Contradiction != nil || r.Batch.NewerEvents != 1 ||
		!strings.Contains(r.Text(),
			fmt.Sprintf("an event that only a newer version knows (dev.toolyard.batch.noted.v1, wire version %d)",
				version.Wire+1)) {
		t.Errorf("%v, %+v\n%s", r.Contradiction, r.Batch, r.Text())
	}
	var lines bytes.Buffer
	for _, e := range l {
		e.Meta.Version = 0
		if n, ok := e.Body.(events.Newer); ok {
			e.Meta.Version = n.Version
		}
		encoded, err := events.Encode(e.Meta, e.Body)
		must.OK(t, err)
		text := must.JSON(t, encoded)
		lines.Write(append(text, '\n'))
	}
	var again Replay
	for e, err := range Read(&lines) {
		must.OK(t, err)
		_ = again.Add(e) // the report has it
	}
	if got := again.Report(); got.Contradiction != nil || got.Batch.NewerEvents != 1 {
		t.Errorf("read from its events again: %v, %+v", got.Contradiction, got.Batch)
	}
	// A version that starts groups otherwise: this one sees calls run of a group that it does not know to have started.
	l = slices.Delete(whole(), 2, 3)
	l = insert(l, 3, batch.ChainBatch, 0, newer)
	if r := play(l); r.Contradiction == nil || r.Contradiction.Newer != newer.Type ||
		!strings.Contains(r.Contradiction.Error(), "newer version") {
		t.Errorf("what cannot be followed: %v", r.Contradiction)
	}
}

// TestGivenUp replays batches that their owner gave up: before the plan, and in the middle.
func TestGivenUp(t *testing.T) {
	lost := func(i int) toolyard.Result { return notRun(i, toolyard.InternalError) }
	early := whole()[:1]
	early.add(2, batch.ChainReply, 0, "/dispatcher/d1",
		events.Reply{Results: []toolyard.Result{lost(0), lost(1), lost(2), lost(3), lost(4)}, Completed: true})
	late := whole()[:11]
	late.add(20, batch.ChainReply, 2, "/dispatcher/d1",
		events.Reply{Results: []toolyard.Result{lost(2), lost(3), lost(4)}, Completed: true})
	late.add(21, batch.ChainItem, 2, "/worker/w1", events.Finish(events.End{Result: result(2, "too late", "")}))
	for want, l := range map[string]logged{"given up at +2.00 ms: 5 calls answered as internal_error: [0-4]": early,
		"given up at +21.00 ms: 3 calls answered as internal_error: [2-4]": late} {
		if r := play(l); !r.Consistent || !strings.Contains(r.Text(), want) {
			t.Errorf("want %q:\n%s", want, r.Text())
		}
	}
	short := edit(early, 2, func(r *events.Reply) { r.Results = r.Results[:4] })
	if r := play(short); r.Consistent || !strings.Contains(r.Contradiction.Problem, "after 4 of 5 results") {
		t.Errorf("a call was given no result: %v", r.Contradiction)
	}
}

// TestGivenUpInPart: the batch was never planned, and not all results of its last reply are the owner's that gave it
// up. No event has the other one.
func TestGivenUpInPart(t *testing.T) {
	l := whole()[:1]
	l.add(2, batch.ChainReply, 0, "/dispatcher/d1", events.Reply{Results: []toolyard.Result{
		notRun(0, toolyard.InternalError), result(1, "fine", ""), notRun(2, toolyard.InternalError),
		notRun(3, toolyard.InternalError), notRun(4, toolyard.InternalError)}, Completed: true})
	if r := play(l); r.Consistent || !strings.Contains(r.Contradiction.Problem, "call 1 was replied to, and no event") {
		t.Errorf("%v\n%s", r.Contradiction, r.Text())
	}
}

// TestEventsWithoutATime: a CloudEvent need not have one, and agents write submissions with other libraries. What has
// none counts as if it had come with what was before it.
func TestEventsWithoutATime(t *testing.T) {
	l := whole()
	last := play(l).LastMS
	l[0].Time = time.Time{}
	if r := play(l); !r.Consistent || r.LastMS > last || r.LastMS <= 0 || !r.SubmittedAt.Equal(l[1].Time) {
		t.Errorf("without that of the submission: submitted %s, last +%v ms of %v\n%s", r.SubmittedAt, r.LastMS, last,
			r.Text())
	}
	p := planned(1)
	p.Results = []toolyard.Result{notRun(0, toolyard.UnknownTool)}
	var none logged
	none.add(0, batch.ChainSubmission, 0, "/client/1", submitted(1))
	none.add(1, batch.ChainBatch, 0, "/dispatcher/d1", p)
	none[0].Time, none[1].Time = time.Time{}, time.Time{}
	if text := play(none).Text(); !strings.Contains(text, "unknown_tool") ||
		!strings.Contains(text, "answered at plan") {
		t.Errorf("without any:\n%s", text)
	}
}

// TestBatchesOfAScript: the ids of a script's batches have the number of its attempt, also behind one that was not
// started.
func TestBatchesOfAScript(t *testing.T) {
	var l logged
	plan := planned(1)
	plan.Calls[0].Tool = toolyard.RunCodeTool
	l.add(0, batch.ChainSubmission, 0, "/client/1", submitted(1))
	l.add(1, batch.ChainBatch, 0, "/dispatcher/d1", plan)
	l.add(2, batch.ChainBatch, 0, "/dispatcher/d1", events.Started{Group: 0, Ticket: 7})
	l.add(3, batch.ChainItem, 0, "/worker/w1", events.AttemptFailed{Worker: "w1", Attempt: 1, NotStarted: true,
		Code: toolyard.DependencyUnavailable, Reason: "busy"})
	l.add(900, batch.ChainItem, 0, "/worker/w1", events.Claimed{Worker: "w1", Attempt: 2, Ticket: 7})
	r := result(0, "done", "")
	r.Tool, r.Attempts = toolyard.RunCodeTool, 1
	l.add(901, batch.ChainItem, 0, "/worker/w1", events.Finish(events.End{Result: r}))
	want := submission.ChildID(toolyard.Parent{Batch: "b", Call: 0, Attempt: 2, N: 1})
	if text := play(l).Text(); !strings.Contains(text, "as batches from "+string(want)+" on") {
		t.Errorf("want %s:\n%s", want, text)
	}
}

// TestOpenBatch replays a batch to which calls were appended while it ran.
func TestOpenBatch(t *testing.T) {
	open := func(first int) logged {
		var l logged
		sub := submitted(1)
		sub.Open = true
		l.add(0, batch.ChainSubmission, 0, "/client/1", sub)
		p := planned(2)
		p.Calls, p.Groups[0].Calls, p.Open = p.Calls[:1], []int{0}, true
		l.add(1, batch.ChainBatch, 0, "/dispatcher/d1", p)
		l.add(2, batch.ChainBatch, 0, "/dispatcher/d1", events.Started{Group: 0})
		l.add(3, batch.ChainInput, 0, "/client/1", events.Appended{Calls: []toolyard.Call{{ID: "c1", Tool: "t"},
			{ID: "c2", Tool: "t"}}})
		l.add(4, batch.ChainInput, 0, "/client/1", events.Closed{By: "agent"})
		x := planned(2, 1)
		l.add(5, batch.ChainBatch, 0, "/dispatcher/d1",
			events.Extended{InputSeq: 5, Closed: true, Calls: x.Calls[1:], FirstGroup: first, Groups: x.Groups[first:]})
		l.add(6, batch.ChainItem, 1, "/worker/w1", events.Finish(events.End{Result: result(1, "one", "")}))
		l.add(7, batch.ChainItem, 0, "/worker/w1", events.Finish(events.End{Result: result(0, "zero", "")}))
		l.add(8, batch.ChainReply, 0, "/dispatcher/d1",
			events.Reply{Results: []toolyard.Result{result(0, "zero", ""), result(1, "one", "")}})
		l.add(9, batch.ChainBatch, 0, "/dispatcher/d1", events.Started{Group: 1})
		l.add(10, batch.ChainItem, 2, "/worker/w1", events.Finish(events.End{Result: result(2, "two", "")}))
		l.add(11, batch.ChainReply, 2, "/dispatcher/d1",
			events.Reply{Results: []toolyard.Result{result(2, "two", "")}, Completed: true})
		return l
	}
	r := play(open(0))
	if !r.Consistent {
		t.Errorf("%v", r.Contradiction)
	}
	again, err := r.Rerun(true)
	if err != nil || again.Open || len(again.Calls) != 3 {
		t.Errorf("run again: %+v, %v", again, err)
	}
	other := edit(open(0), 6, func(x *events.Extended) { x.Calls[0].ID = "other" })
	if r := play(other); r.Consistent || !strings.Contains(r.Contradiction.Problem,
		`plans call 1 as "other", and "c1" was handed in`) {
		t.Errorf("an appended call was planned as another: %v", r.Contradiction)
	}
	late := open(0)
	late[5], late[9] = late[9], late[5] // the second group is there only once it is planned
	if r := play(late); r.Consistent {
		t.Error("a group started that was not planned, and it was not seen")
	}
	twice := insert(open(0), 11, batch.ChainBatch, 0, events.Extended{FirstGroup: 0})
	if r := play(edit(twice, 6, func(x *events.Extended) { x.Closed = false })); r.Consistent ||
		!strings.Contains(r.Contradiction.Problem, "plans group 1 again, and group 2 had started") {
		t.Errorf("a group that ran was planned again: %v", r.Contradiction)
	}
}

// TestGoldenTimelines draws logs and compares the drawings with testdata/*.txt. The logs v1-*.jsonl are of real
// batches.
func TestGoldenTimelines(t *testing.T) {
	refused := whole()[:1]
	refused.add(3, batch.ChainReply, 0, "/dispatcher/d1",
		events.Refused{Status: 400, Detail: "options.deny[0]: it is no rule"})
	logs := map[string]logged{
		"everything": whole(), "cut_short": whole()[:11], "accepted": whole()[:1], "refused": refused,
		"contradiction": edit(whole(), 8, func(r *events.Reply) { r.Results[0].Output = "line 1\nline two" }),
	}
	for _, file := range fixtures(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		logs[name] = readLog(t, file)
	}
	for name, log := range logs {
		t.Run(name, func(t *testing.T) {
			got := play(log).Text()
			file := filepath.Join("testdata", name+".txt")
			if *update {
				must.OK(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want := must.Read(t, file)
			if got != string(want) {
				t.Errorf("%s differs; see the change with -update. Now:\n%s", file, got)
			}
		})
	}
}

func fixtures(t *testing.T) []string {
	files, err := filepath.Glob("testdata/v*.jsonl")
	if err != nil || len(files) < 3 {
		t.Fatalf("the logs %v: %v", files, err)
	}
	return files
}

func readLog(t *testing.T, file string) (l logged) {
	t.Helper()
	data := must.Read(t, file)
	for e, err := range Read(bytes.NewReader(data)) {
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		l = append(l, e)
	}
	return l
}

// TestOldEventLogsAreReplayedByEveryLaterVersion replays logs that "dispatcher run --events" has written. They are
// never written again: a version that cannot read one of them, or finds that it contradicts itself, has broken what is
// stored.
func TestOldEventLogsAreReplayedByEveryLaterVersion(t *testing.T) {
	for _, file := range fixtures(t) {
		log := readLog(t, file)
		r := play(log)
		if !r.Consistent || !r.state.Completed {
			t.Errorf("%s: status %s, %v", file, r.Batch.Status, r.Contradiction)
		}
		if again, err := r.Rerun(true); err != nil || len(again.Calls) != len(r.Batch.Results) {
			t.Errorf("%s cannot be run again: %v", file, err)
		}
		for n := range log { // whatever was seen of it while it ran was no contradiction either
			if r := play(log[:n]); n > 0 && !r.Consistent {
				t.Errorf("%s: its first %d events: %v", file, n, r.Contradiction)
			}
		}
	}
}

func TestWhatIsNoLog(t *testing.T) {
	good := must.Read(t, "testdata/v1-explore.jsonl")
	first, _, _ := strings.Cut(string(good), "\n")
	for _, c := range []struct {
		name, text string
		file       int64
		line       int
		want       string
		tooLarge   bool
	}{
		{"nothing", "", 1e6, 1e6, "the log is empty", false},
		{"blank lines", "\n\n  \n", 1e6, 1e6, "the log is empty", false},
		{"no JSON", first + "\nhello\n", 1e6, 1e6, "line 2: ", false},
		{"a cut line", string(good[:len(good)-30]), 1e6, 1e6, "it is no CloudEvent in JSON", false},
		{"JSON that is no event", "{}\n", 1e6, 1e6, "line 1: ", false},
		{"a batch", `{"calls": []}`, 1e6, 1e6, "line 1: ", false},
		{"a type that nobody knows", strings.Replace(first, "submitted.v1", "submitted.v9", 1), 1e6, 1e6,
			"its type is not known", false},
		{"other data", strings.Replace(first, `"calls":[`, `"calls":5,"c":[`, 1), 1e6, 1e6,
			"the data is not of its type", false},
		{"work",
			`{"specversion":"1.0","id":"1","source":"/d","type":"dev.toolyard.calls.requested.v1","subject":"a/b/0","datacontenttype":"application/json","data":{}}`, 1e6, 1e6, "part of a batch's log", false},
		{"a subject that names nothing",
			`{"specversion":"1.0","id":"1","source":"/d","type":"dev.toolyard.group.started.v1","subject":"a=/b","datacontenttype":"application/json","data":{}}`, 1e6, 1e6, "is not <agent>/<batch>", false},
		{"a long line", first + "\n" + strings.Repeat("x", 5000), 1e6, 4096, "line 2 has more than 4096 bytes", true},
		{"a long file", strings.Repeat(strings.Repeat(" ", 99)+"\n", 100), 9_999, 4096, "more than 9999 bytes", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var last error
			for _, last = range read(strings.NewReader(c.text), c.file, c.line) {
			}
			bad, ok := errors.AsType[*toolyard.InputError](last)
			if !ok || !strings.Contains(bad.Error(), c.want) || bad.TooLarge != c.tooLarge {
				t.Errorf("it ends with %v, want %q", last, c.want)
			}
		})
	}
	n := 0
	for _, err := range read(strings.NewReader(strings.Repeat(" ", 98)+"\n"+first+"\n"), int64(len(first))+100, 4096) {
		if n++; err != nil {
			t.Errorf("a file of just the length: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestRerun(t *testing.T) {
	r := play(whole())
	if _, err := r.Rerun(false); err == nil || !strings.Contains(err.Error(), "[2] t (WRITE_EXCLUSIVE)") ||
		strings.Contains(err.Error(), "[1]") {
		t.Errorf("a batch with a write: %v", err)
	}
	b, err := r.Rerun(true)
	if err != nil || b.ID != "" || b.Agent != "agent.1" || b.Session != "s" || b.Workspace != "ws" ||
		len(b.Calls) != 5 || string(b.Calls[4].Input) != `{"n":1}` {
		t.Errorf("with writes allowed: %+v, %v", b, err)
	}
	if _, err := play(whole()[:1]).Rerun(false); err == nil || !strings.Contains(err.Error(), "not judged") {
		t.Errorf("a batch that was never judged: %v", err)
	}
	reads := logged{}
	reads.add(0, batch.ChainSubmission, 0, "/client/1", submitted(2))
	reads.add(1, batch.ChainBatch, 0, "/dispatcher/d1", planned(2))
	if _, err := play(reads).Rerun(false); err != nil {
		t.Errorf("a batch of reads: %v", err)
	}

	after := append([]toolyard.Result(nil), r.Batch.Results...)
	if d := r.Differences(after); len(d) != 0 {
		t.Errorf("the same results differ: %+v", d)
	}
	after[0].Output = "line 1\nline two"
	after[1].Output = "one\n"
	after[2] = result(2, "fine", "")
	after[3].Tool = "renamed"
	after = after[:4]
	var got []string
	for _, d := range r.Differences(after) {
		got = append(got, d.Text())
	}
	want := []string{
		`[0] output line 2: "line 2", now "line two"`,
		`[1] output line 1: "one", now "one\n"`,
		`[2] code: "canceled", now "ok"`, `[2] output line 1: "", now "fine"`, `[2] error line 1: "stopped", now ""`,
		`[3] tool: "t", now "renamed"`,
		`[4] result: "canceled", now "no result"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the differences are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
