package history

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/tool"
)

var (
	noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	key  = toolyard.BatchKey{Agent: "a", ID: "b"}
)

// story is the log of a batch, each event a second after the one before it.
type story struct {
	log *Log
	seq uint64
}

func begin(b toolyard.Batch) *story {
	b.Agent, b.ID, b.Session, b.Workspace = key.Agent, key.ID, "s", "w"
	b.Normalize("")
	s := &story{log: New(key, 7, noon.Add(time.Second))}
	s.add(batch.ChainSubmission, 0, events.Submitted{Batch: b})
	return s
}

func (s *story) add(c batch.Chain, index int, body events.Body) { s.addIn(c, "", index, body) }

func (s *story) addIn(c batch.Chain, pool toolyard.Pool, index int, body events.Body) {
	s.seq++
	s.log.Add(batch.Record{Chain: c, Pool: pool, Index: index, Seq: s.seq, Body: body,
		Time: noon.Add(time.Duration(s.seq) * time.Second)})
}

func call(i int, input string) toolyard.Call {
	return toolyard.Call{ID: fmt.Sprint("c", i), Tool: "said", Input: json.RawMessage(input)}
}

func planned(calls int, open bool, groups ...events.Group) events.Planned {
	p := events.Planned{Owner: "d1", Session: "s2", Workspace: "w", Surface: "hash", Partition: toolyard.Sequential,
		MaxConcurrency: 3, Groups: groups, Open: open}
	for i := range calls {
		p.Calls = append(p.Calls, plannedCall(i))
	}
	return p
}

func plannedCall(i int) events.PlannedCall {
	return events.PlannedCall{ID: fmt.Sprint("c", i), Tool: "t", Pool: "p",
		Judgement: tool.Judgement{Class: toolyard.ReadOnly}}
}

func good(i int, output string) toolyard.Result {
	return toolyard.Result{Index: i, CallID: fmt.Sprint("c", i), Tool: "t", Output: output, Attempts: 1, Worker: "p.w1",
		QueueMS: 0.0004, DurationMS: 500, ExecuteMS: 1.0016, Class: toolyard.ReadOnly}
}

func bad(i int, code toolyard.Code) toolyard.Result {
	return toolyard.Result{Index: i, CallID: fmt.Sprint("c", i), Tool: "t", IsError: true, Code: code, Error: "because"}
}

func second(n float64) *time.Time {
	return new(noon.Add(time.Duration(n * float64(time.Second))))
}

func rows(s *story) (Batch, []Call) { return s.log.Rows() }

// TestRows follows one batch to which much happened, and looks at all that its rows say.
func TestRows(t *testing.T) {
	s := begin(toolyard.Batch{Interactive: true, Open: true, Calls: []toolyard.Call{call(0, `{"a": 1}`), call(1, ``)}})
	p := planned(2, true, events.Group{Safe: true, Calls: []int{0}}, events.Group{Calls: []int{1}})
	p.Calls[1].Judgement.Class, p.Calls[1].Claim = toolyard.Unsafe, true
	s.add(batch.ChainBatch, 0, p)                                                 // 2
	s.add(batch.ChainBatch, 0, events.Started{Group: 0})                          // 3
	s.add(batch.ChainItem, 0, events.Finish(events.End{Result: good(0, "four")})) // 4
	s.add(batch.ChainInput, 0, events.Appended{Calls: []toolyard.Call{call(2, `"x"`), {Tool: "nothing"}}})
	s.add(batch.ChainInput, 0, events.Closed{})                                        // 6
	s.add(batch.ChainInput, 0, events.Appended{Calls: []toolyard.Call{call(9, `{}`)}}) // too late
	s.add(batch.ChainBatch, 0, events.Adopted{Owner: "d2", Takeover: 1})
	fourth := plannedCall(3)
	fourth.ID, fourth.Tool, fourth.Pool, fourth.Judgement.Class = "call_4", "nothing", "", toolyard.Unsafe
	unknown := bad(3, toolyard.UnknownTool)
	unknown.CallID = "call_4"
	s.add(batch.ChainBatch, 0, events.Extended{Closed: true, FirstGroup: 2, InputSeq: 6,
		Calls:   []events.PlannedCall{plannedCall(2), fourth},
		Groups:  []events.Group{{Safe: true, Calls: []int{2}}, {Calls: []int{3}}},
		Results: []toolyard.Result{unknown}}) // 9
	s.add(batch.ChainBatch, 0, events.Started{Group: 1})
	s.add(batch.ChainItem, 1, events.Claimed{Call: 1, Worker: "p.w1", Attempt: 1}) // 11
	s.add(batch.ChainItem, 1, events.AttemptFailed{Call: 1, Worker: "p.w1", Attempt: 1, Code: toolyard.Timeout})
	s.add(batch.ChainItem, 1, events.Claimed{Call: 1, Worker: "p.w2", Attempt: 2}) // 13
	s.addIn(batch.ChainItem, "other", 1, events.Claimed{Call: 1, Worker: "other.w", Attempt: 3})
	s.addIn(batch.ChainItem, "other", 1, events.Finish(events.End{Result: good(1, "forged")}))
	lost := bad(1, toolyard.OutcomeUnknown)
	lost.Attempts, lost.Worker, lost.Class = 2, "p.w2", toolyard.Unsafe
	s.add(batch.ChainItem, 1, events.Finish(events.End{Result: lost})) // 16
	s.add(batch.ChainBatch, 0, events.Settled{Results: []toolyard.Result{bad(2, toolyard.Skipped)}})
	s.add(batch.ChainReply, 0, events.Reply{Completed: true, Results: []toolyard.Result{good(0, "four"), lost,
		bad(2, toolyard.Skipped), unknown}}) // 18
	gotBatch, gotCalls := rows(s)
	if diff := cmp.Diff(Batch{Agent: "a", ID: "b", Session: "s2", Workspace: "w", Place: 7,
		Status: toolyard.StatusCompleted, Submitted: *second(1), Planned: second(2), Ended: second(18), Calls: 4,
		Failed: 3,
		Groups: 4, InputBytes: 15, OutputBytes: 25, Partition: toolyard.Sequential, MaxConcurrency: new(int32(3)),
		Interactive: true, Surface: new("hash"), Owner: new("d2"), Takeovers: 1, Events: 18}, gotBatch); diff != "" {
		t.Errorf("the batch (-want +got):\n%s", diff)
	}
	row := func(i int, group int32, tool string, class toolyard.Class, at *time.Time, input int64) Call {
		return Call{Agent: "a", Batch: "b", Session: "s2", Workspace: "w", Index: int32(i), Group: &group,
			ID: fmt.Sprint("c", i), Tool: tool, Class: &class, Pool: new(toolyard.Pool("p")), Submitted: *at,
			InputBytes: input,
			OK:         new(false), Truncated: new(false), OutputBytes: new(int64(7)), Attempts: new(int32(0)),
			QueueUS:    new(int64(0)),
			DurationUS: new(int64(0)), ExecuteUS: new(int64(0)), ApprovalWaitUS: new(int64(0))}
	}
	want := []Call{row(0, 0, "t", toolyard.ReadOnly, second(1), 8), row(1, 1, "t", toolyard.Unsafe, second(1), 2),
		row(2, 2, "t", toolyard.ReadOnly, second(5), 3), row(3, 3, "nothing", toolyard.Unsafe, second(5), 2)}
	w := &want[0]
	w.OK, w.Code, w.OutputBytes, w.Attempts, w.Worker = new(true), new(toolyard.OK), new(int64(4)), new(int32(1)),
		new("p.w1")
	w.Started, w.Ended, w.DurationUS, w.ExecuteUS = second(3.5), second(4), new(int64(500_000)), new(int64(1002))
	w = &want[1]
	w.Code, w.Attempts, w.Worker = new(toolyard.OutcomeUnknown), new(int32(2)), new("p.w2")
	w.Started, w.Ended = second(13), second(16)
	want[2].Code, want[2].Ended = new(toolyard.Skipped), second(17)
	w = &want[3]
	w.ID, w.Pool, w.Code, w.Ended = "call_4", nil, new(toolyard.UnknownTool), second(9)
	if diff := cmp.Diff(want, gotCalls); diff != "" {
		t.Errorf("the calls (-want +got):\n%s", diff)
	}
}

// TestEnds looks at batches that did not run to their end.
func TestEnds(t *testing.T) {
	one := toolyard.Batch{Calls: []toolyard.Call{call(0, `{}`), call(1, `{}`)}}
	group := events.Group{Safe: true, Calls: []int{0, 1}}
	check := func(t *testing.T, s *story, status toolyard.Status, ended *time.Time, problem string, codes ...string) {
		t.Helper()
		b, calls := rows(s)
		if b.Status != status || !cmp.Equal(b.Ended, ended) {
			t.Errorf("it is %s since %v, want %s since %v", b.Status, b.Ended, status, ended)
		}
		if (b.Problem == nil) != (problem == "") || b.Problem != nil && !strings.Contains(*b.Problem, problem) {
			t.Errorf("the problem is %v, want %q", b.Problem, problem)
		}
		var got []string
		for _, c := range calls {
			code := "open"
			if c.Code != nil {
				code = string(*c.Code)
			}
			if got = append(got, code); (c.Code == nil) != (c.Ended == nil) || (c.Code == nil) != (c.OK == nil) {
				t.Errorf("call %d has the code %v, the end %v and ok %v", c.Index, c.Code, c.Ended, c.OK)
			}
		}
		if diff := cmp.Diff(codes, got); diff != "" {
			t.Errorf("codes (-want +got):\n%s", diff)
		}
	}
	t.Run("accepted", func(t *testing.T) {
		check(t, begin(one), toolyard.StatusRunning, nil, "", "open", "open")
	})
	t.Run("running", func(t *testing.T) {
		s := begin(one)
		s.add(batch.ChainBatch, 0, planned(2, false, group))
		s.add(batch.ChainBatch, 0, events.Started{Items: []events.Item{{0, 1}}})
		s.addIn(batch.ChainItem, "p", 0, events.Finish(events.End{Result: good(1, "x")}))
		check(t, s, toolyard.StatusRunning, nil, "", "open", "")
	})
	t.Run("refused", func(t *testing.T) {
		s := begin(one)
		s.add(batch.ChainBatch, 0, events.Refused{Status: 503})
		s.add(batch.ChainReply, 0, events.Refused{Status: 503})
		check(t, s, Refused, second(2), "", "open", "open")
	})
	t.Run("canceled", func(t *testing.T) {
		s := begin(one)
		s.add(batch.ChainBatch, 0, planned(2, false, group))
		s.add(batch.ChainControl, 0, events.Canceled{})
		s.add(batch.ChainBatch, 0, events.Settled{Results: []toolyard.Result{bad(0, toolyard.Canceled),
			bad(1, toolyard.Canceled)}})
		s.add(batch.ChainReply, 0, events.Reply{Completed: true, Results: []toolyard.Result{bad(0, toolyard.Canceled),
			bad(1, toolyard.Canceled)}})
		check(t, s, toolyard.StatusCanceled, second(5), "", "canceled", "canceled")
	})
	t.Run("given up", func(t *testing.T) { // its owner replied to a call that has no event
		s := begin(one)
		s.add(batch.ChainBatch, 0, planned(2, false, group))
		s.add(batch.ChainBatch, 0, events.Started{})
		s.add(batch.ChainItem, 0, events.Finish(events.End{Result: good(0, "x")}))
		s.add(batch.ChainReply, 0, events.Reply{Completed: true, Results: []toolyard.Result{bad(0,
			toolyard.InternalError),
			bad(1, toolyard.InternalError)}})
		check(t, s, toolyard.StatusCompleted, second(5), "", "", "internal_error")
	})
	t.Run("given up before it was planned", func(t *testing.T) {
		s := begin(one)
		s.add(batch.ChainReply, 0, events.Reply{Completed: true, Results: []toolyard.Result{bad(0,
			toolyard.InternalError),
			bad(1, toolyard.InternalError)}})
		check(t, s, toolyard.StatusCompleted, second(2), "", "internal_error", "internal_error")
	})
	t.Run("it contradicts itself", func(t *testing.T) { // what follows changes nothing
		s := begin(one)
		s.add(batch.ChainBatch, 0, planned(2, false, group))
		s.add(batch.ChainBatch, 0, events.Started{})
		s.add(batch.ChainItem, 0, events.Finish(events.End{Result: good(0, "x")}))
		s.add(batch.ChainItem, 0, events.Finish(events.End{Result: good(0, "again")}))
		s.add(batch.ChainItem, 1, events.Finish(events.End{Result: good(1, "x")}))
		check(t, s, toolyard.StatusRunning, nil, "result already", "", "open")
	})
	t.Run("of a newer version", func(t *testing.T) {
		s := begin(one)
		s.add(batch.ChainBatch, 0, events.Newer{Type: "dev.toolyard.batch.new.v9", Version: 99})
		check(t, s, toolyard.StatusRunning, nil, "a newer version wrote 1", "open", "open")
	})
	t.Run("unreadable", func(t *testing.T) {
		s := &story{log: New(key, 7, noon)}
		s.log.Stop(strings.Repeat("ä", maxProblemBytes))
		s.log.Stop("later")
		s.add(batch.ChainSubmission, 0, events.Submitted{Batch: one})
		check(t, s, Unreadable, nil, "ää")
		if b, _ := rows(s); len(*b.Problem) > maxProblemBytes+len("…") {
			t.Errorf("the problem has %d bytes", len(*b.Problem))
		}
	})
}

// TestNothingOfContentStays: a log keeps no input, no output and no error.
func TestNothingOfContentStays(t *testing.T) {
	const secret = "not to be kept"
	s := begin(toolyard.Batch{Open: true, Calls: []toolyard.Call{{ID: "c0", Tool: "t",
		Input: json.RawMessage(`"` + secret + `"`), Echo: toolyard.Echo(`"` + secret + `"`)}}})
	r := good(0, secret)
	r.Error, r.Detail, r.Structured, r.Blob = secret, secret, json.RawMessage(`"`+secret+`"`), secret
	r.Content = []toolyard.Content{{Type: toolyard.ContentImage, Data: []byte(secret)}}
	r.Phases = []toolyard.Fact{{Phase: secret}}
	p := planned(1, true, events.Group{Safe: true, Calls: []int{0}})
	s.add(batch.ChainBatch, 0, p)
	s.add(batch.ChainBatch, 0, events.Started{})
	s.add(batch.ChainItem, 0, events.Finish(events.End{Result: r,
		Session: &tool.SessionChange{Context: map[string]string{"x": secret}}}))
	s.add(batch.ChainInput, 0, events.Appended{Calls: []toolyard.Call{call(1, `"`+secret+`"`)}})
	s.add(batch.ChainReply, 0, events.Reply{Results: []toolyard.Result{r}})
	b, calls := rows(s)
	for what, v := range map[string]any{"the state": s.log.state, "a batch": b, "calls": calls} {
		if text := fmt.Sprintf("%+v", v); strings.Contains(text, secret) {
			t.Errorf("%s has it: %s", what, text)
		}
		if text, err := json.Marshal(v); err != nil || strings.Contains(string(text), secret) {
			t.Errorf("%s has it: %s (%v)", what, text, err)
		}
	}
	if *calls[0].OutputBytes != int64(4*len(secret)+2) ||
		calls[0].InputBytes != int64(len(secret)+2) {
		t.Errorf("sizes %d and %d", calls[0].InputBytes, *calls[0].OutputBytes)
	}
}
