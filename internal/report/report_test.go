package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/tool"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// story tells a log, an event a second.
type story struct {
	log *Log
	seq uint64
}

func begin(id string, tools ...string) *story {
	key := toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(id)}
	b := toolyard.Batch{Agent: key.Agent, ID: key.ID}
	for _, name := range tools {
		b.Calls = append(b.Calls, toolyard.Call{Tool: name, Input: json.RawMessage(`{}`)})
	}
	b.Normalize("")
	s := &story{log: NewLog(key)}
	s.add(batch.ChainSubmission, 0, events.Submitted{Batch: b})
	return s
}

func (s *story) add(c batch.Chain, index int, body events.Body) {
	s.seq++
	pool := toolyard.Pool("")
	if c == batch.ChainItem {
		pool = "p"
	}
	s.log.Add(batch.Record{Chain: c, Pool: pool, Index: index, Seq: s.seq, Body: body,
		Time: noon.Add(time.Duration(s.seq) * time.Second)})
}

// planned plans calls of these tools, in the groups.
func (s *story) planned(tools []string, groups ...events.Group) {
	p := events.Planned{Owner: "d", Session: "s", Workspace: "w", Surface: "hash", Groups: groups,
		OnError: toolyard.CancelGroup}
	for i, name := range tools {
		c := events.PlannedCall{ID: fmt.Sprintf("call_%d", i+1), Tool: name, AbortsSiblings: true,
			Judgement: tool.Judgement{Class: toolyard.ReadOnly}}
		if !strings.HasPrefix(name, "made-up-") {
			c.Pool, c.Declaration = "p", "declaration"
		}
		p.Calls = append(p.Calls, c)
	}
	s.add(batch.ChainBatch, 0, p)
}

func result(i int, tool string, code toolyard.Code, ms float64, phases ...toolyard.Fact) toolyard.Result {
	return toolyard.Result{Index: i, CallID: fmt.Sprintf("call_%d", i+1), Tool: tool, IsError: code != "", Code: code,
		Worker: "w", Attempts: 1, QueueMS: 2, DurationMS: ms, Phases: phases}
}

func (s *story) finish(r toolyard.Result) {
	s.add(batch.ChainItem, r.Index, events.Finish(events.End{Result: r}))
}

func executed(ms float64) toolyard.Fact {
	return toolyard.Fact{Phase: toolyard.PhaseExecute, Outcome: toolyard.OutcomeOK, MS: ms}
}

// TestReport adds up batches with one of everything.
func TestReport(t *testing.T) {
	b := New()

	tools := []string{"read", "read", "read", "write"}
	s := begin("aborted", tools...)
	s.planned(tools, events.Group{Safe: true, Ticket: true, Calls: []int{0, 1, 2}},
		events.Group{Ticket: true, Calls: []int{3}}) // 2 s
	s.add(batch.ChainBatch, 0, events.Started{Ticket: 1}) // 3 s: it has waited for a second
	s.finish(result(0, "read", "", 10, executed(8)))
	s.finish(result(1, "read", toolyard.ExecutionFailed, 30,
		toolyard.Fact{Phase: toolyard.PhaseExecute, Outcome: toolyard.OutcomeFailed, MS: 20})) // 5 s
	s.finish(result(2, "read", toolyard.SiblingCanceled, 20))       // 6 s
	s.add(batch.ChainControl, 0, events.Canceled{Calls: []int{9}})  // 7 s
	s.add(batch.ChainBatch, 0, events.Started{Group: 1, Ticket: 2}) // 8 s: two seconds
	s.add(batch.ChainItem, 3, events.Waiting{Call: 3, Worker: "w", Remember: "write(./a)", InputSHA256: "x"})
	s.add(batch.ChainItem, 3, events.Decided{Call: 3, Decision: events.Approve, InputSHA256: "x"})
	again := result(3, "write", "", 100)
	again.Attempts = 2
	s.finish(again)
	b.Add(s.log)

	tools = []string{"write", "write"}
	s = begin("denied", tools...)
	s.planned(tools, events.Group{Calls: []int{0}}, events.Group{Calls: []int{1}})
	s.add(batch.ChainBatch, 0, events.Adopted{Owner: "e", Takeover: 1})
	s.add(batch.ChainBatch, 0, events.Started{})
	s.finish(result(0, "write", toolyard.PermissionDenied, 1, toolyard.Fact{Phase: toolyard.PhasePermission,
		Outcome: toolyard.OutcomeFailed, Code: toolyard.PermissionDenied, Detail: "denied: rule deny write"}))
	s.add(batch.ChainBatch, 0, events.Started{Group: 1})
	s.add(batch.ChainItem, 1, events.Waiting{Call: 1, Worker: "w", Remember: "write with exactly this input"})
	b.Add(s.log)

	s = begin("refused", "read")
	s.add(batch.ChainBatch, 0, events.Refused{Status: 429})
	b.Add(s.log)

	s = begin("contradicts", "read")
	s.add(batch.ChainBatch, 0, events.Started{})
	b.Add(s.log)

	if got := b.Surfaces(); !cmp.Equal(got, []string{"hash"}) {
		t.Errorf("surfaces %q", got)
	}
	b.Offered("hash", map[string]int{"read": 400, "write": 400, "glob": 41})
	got := b.Report()
	if b.Batches() != 4 || b.Calls() != 7 {
		t.Errorf("%d batches and %d calls", b.Batches(), b.Calls())
	}
	of := func(n int64, p50, p99, most float64) Times { return Times{n, p50, p99, most} }
	want := Report{
		Batches: Batches{Total: 4, Refused: 1, UnderWay: 2, Unreadable: 1, TakenOver: 1},
		Calls:   Calls{Total: 7, Failed: 3, UnderWay: 2, Retried: 1, RetriesHelped: 1},
		Tools: []Tool{
			{Tool: "read", Calls: 4, Failed: 2, Times: of(3, 20, 30, 30)},
			{Tool: "write", Calls: 3, Failed: 1, Retried: 1, RetriesHelped: 1, Times: of(2, 1, 100, 100)},
		},
		Codes: []Code{
			{toolyard.ExecutionFailed, 1, []Count{{"read", 1}}},
			{toolyard.PermissionDenied, 1, []Count{{"write", 1}}},
			{toolyard.SiblingCanceled, 1, []Count{{"read", 1}}},
		},
		Phases: []Phase{
			{toolyard.PhasePermission, 1, of(1, 0, 0, 0)},
			{toolyard.PhaseExecute, 1, of(2, 8, 20, 20)},
		},
		Waits:  Waits{Queue: of(5, 2, 2, 2), Ticket: of(2, 1000, 2000, 2000), Approval: of(1, 1000, 1000, 1000)},
		Aborts: []Abort{{"read", 1, 1}},
		Denied: []Count{{"denied: rule deny write", 1}},
		Questions: Questions{Asked: 2, Allowed: 1, Open: 1,
			Rules: []Count{{"write(./a)", 1}}},
		NeverCalled: []Unused{{"glob", 2, 11}},
	}
	near := cmp.Comparer(func(a, b float64) bool { return a-b <= 0.02*max(a, b) && b-a <= 0.02*max(a, b) })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("the report (-want +got):\n%s", diff)
	}
}

// TestGivenUp counts the results of a batch whose owner could only reply.
func TestGivenUp(t *testing.T) {
	b := New()
	s := begin("b", "read", "read")
	s.planned([]string{"read", "read"}, events.Group{Safe: true, Calls: []int{0, 1}})
	s.add(batch.ChainBatch, 0, events.Started{})
	s.finish(result(0, "read", "", 1))
	lost := result(1, "read", toolyard.OutcomeUnknown, 0)
	lost.Worker = ""
	s.add(batch.ChainReply, 0, events.Reply{Completed: true,
		Results: []toolyard.Result{result(0, "read", "", 1), lost}})
	b.Add(s.log)
	r := b.Report()
	if r.Calls != (Calls{Total: 2, Failed: 1}) || len(r.Codes) != 1 || r.Codes[0].Code != toolyard.OutcomeUnknown {
		t.Errorf("%+v, %+v", r.Calls, r.Codes)
	}
}

// TestCallsWithoutAPlan: the calls of a batch that is not planned yet are under way, and so are appended ones that its
// plan has not taken in. Those of a batch that was given up before it had a plan ended as its reply says.
func TestCallsWithoutAPlan(t *testing.T) {
	t.Parallel()
	b := New()
	b.Add(begin("waits", "read", "write").log)

	s := begin("open", "read")
	s.planned([]string{"read"}, events.Group{Calls: []int{0}})
	s.add(batch.ChainInput, 0, events.Appended{Calls: []toolyard.Call{{Tool: "write"}, {Tool: "made-up-1"}}})
	b.Add(s.log)

	s = begin("given up", "read", "read")
	lost := []toolyard.Result{result(0, "read", toolyard.InternalError, 0),
		result(1, "read", toolyard.InternalError, 0)}
	for i := range lost {
		lost[i].Worker, lost[i].Attempts = "", 0
	}
	s.add(batch.ChainReply, 0, events.Reply{Completed: true, Results: lost})
	b.Add(s.log)

	r := b.Report()
	if r.Calls != (Calls{Total: 7, Failed: 2, UnderWay: 5}) || r.Batches != (Batches{Total: 3, Completed: 1,
		UnderWay: 2}) {
		t.Errorf("%+v, %+v", r.Calls, r.Batches)
	}
	want := []Count{{"made-up-1", 1}, {"read", 4}, {"write", 2}}
	for _, w := range want {
		if !slices.ContainsFunc(r.Tools, func(got Tool) bool { return got.Tool == w.Name && got.Calls == w.Count }) {
			t.Errorf("%s does not have %d calls: %+v", w.Name, w.Count, r.Tools)
		}
	}
	if len(r.Codes) != 1 || r.Codes[0].Code != toolyard.InternalError || r.Codes[0].Calls != 2 {
		t.Errorf("%+v", r.Codes)
	}
}

// TestACallThatNoWorkerFinished: a call whose worker was lost has no time on it, and makes the others look no faster.
// It has waited in the queue.
func TestACallThatNoWorkerFinished(t *testing.T) {
	t.Parallel()
	b := New()
	s := begin("b", "read", "read", "read")
	s.planned([]string{"read", "read", "read"}, events.Group{Safe: true, Calls: []int{0, 1, 2}})
	s.add(batch.ChainBatch, 0, events.Started{})
	s.finish(result(0, "read", "", 100))
	s.finish(result(1, "read", toolyard.OutcomeUnknown, 0))
	s.finish(result(2, "read", toolyard.Canceled, 0))
	b.Add(s.log)
	r := b.Report()
	if got := r.Tools[0].Times; got.Count != 1 || got.P50MS < 99 || r.Waits.Queue.Count != 3 {
		t.Errorf("%+v, %+v", got, r.Waits.Queue)
	}
}

// TestAskedAgain: a tool may ask about a call that a person has allowed already. The call is open until that is
// answered too, and unanswered if it ends before: the first answer is not one to the second question.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	s := begin("b", "write")
	s.planned([]string{"write"}, events.Group{Calls: []int{0}})
	s.add(batch.ChainBatch, 0, events.Started{})
	says := func(when string, want Questions, approvals int64) {
		t.Helper()
		b := New()
		b.Add(s.log)
		got := b.Report()
		if want.Rules = []Count{}; approvals > 0 {
			want.Rules = []Count{{"write(./a)", 1}} // which would have spared the first question
		}
		if diff := cmp.Diff(want, got.Questions); diff != "" || got.Waits.Approval.Count != approvals {
			t.Errorf("%s: %d waits; (-want +got):\n%s", when, got.Waits.Approval.Count, diff)
		}
	}
	asks := func(form *events.Form) {
		w := events.Waiting{Call: 0, Worker: "w", InputSHA256: "x", Form: form}
		if form == nil {
			w.Remember = "write(./a)"
		}
		s.add(batch.ChainItem, 0, w)
	}
	allow := func(answers bool) {
		s.add(batch.ChainItem, 0, events.Decided{Call: 0, Decision: events.Approve, Answers: answers,
			InputSHA256: "x"})
	}
	asks(nil)
	says("asked", Questions{Asked: 1, Open: 1}, 0)
	allow(false)
	says("allowed", Questions{Asked: 1, Allowed: 1}, 1)
	s.add(batch.ChainItem, 0, events.Claimed{Call: 0, Worker: "w", Attempt: 1})
	asks(&events.Form{})
	says("asked again", Questions{Asked: 1, Open: 1}, 1)
	allow(true)
	s.add(batch.ChainItem, 0, events.Claimed{Call: 0, Worker: "w", Attempt: 1})
	asks(&events.Form{})
	s.finish(result(0, "write", toolyard.Canceled, 0))
	says("over without the third answer", Questions{Asked: 1, Unanswered: 1}, 1)
}

// TestManyNames: a model may name any tool, and the report does not grow with it. Those that exist keep their room:
// they are counted apart, and none that was called counts as never called.
func TestManyNames(t *testing.T) {
	b := New()
	call := func(name string, code toolyard.Code) {
		s := begin("b", name)
		s.planned([]string{name}, events.Group{Calls: []int{0}})
		s.add(batch.ChainBatch, 0, events.Settled{Results: []toolyard.Result{result(0, name, code, 0)}})
		b.Add(s.log)
	}
	const more = 10
	for n := range MaxNames + more {
		code := toolyard.UnknownTool
		if n%2 > 0 {
			code = toolyard.Canceled // before anything looked for the tool
		}
		call(fmt.Sprint("made-up-", n), code)
	}
	offered := map[string]int{"idle": 4}
	for n := range MaxNames + more {
		name := fmt.Sprint("tool-", n)
		offered[name] = 4
		call(name, "")
	}
	b.Offered("hash", offered)
	r := b.Report()
	if others := MaxNames - MaxMadeUp + 2*more; len(r.Tools) != MaxMadeUp+MaxNames+1 || r.Tools[0].Tool != Others ||
		r.Tools[0].Calls != others || r.Codes[0].Calls+r.Codes[1].Calls != MaxNames+more {
		t.Errorf("%d tools, first %+v; %+v", len(r.Tools), r.Tools[0], r.Codes)
	}
	exist := 0
	for _, tool := range r.Tools {
		if strings.HasPrefix(tool.Tool, "tool-") {
			exist++
		}
	}
	if exist != MaxNames {
		t.Errorf("%d tools that exist are counted apart", exist)
	}
	if len(r.NeverCalled) != 1 || r.NeverCalled[0].Tool != "idle" {
		t.Errorf("%d tools count as never called, first %+v", len(r.NeverCalled), r.NeverCalled[0])
	}
}

// TestManyCodes: a worker may end calls with any code, and announce any tools.
func TestManyCodes(t *testing.T) {
	t.Parallel()
	b := New()
	const calls = 3 * MaxNames
	for n := range calls {
		s := begin("b", "read")
		s.planned([]string{"read"}, events.Group{Calls: []int{0}})
		s.add(batch.ChainBatch, 0, events.Settled{Results: []toolyard.Result{
			result(0, "read", toolyard.Code(fmt.Sprint("made-up-", n)), 0)}})
		b.Add(s.log)
		b.Offered(fmt.Sprint("hash-", n), map[string]int{fmt.Sprint("tool-", n): 4, "read": 4})
	}
	r := b.Report()
	if len(r.Codes) != MaxCodes+1 || r.Codes[0].Code != Others || r.Codes[0].Calls != calls-MaxCodes {
		t.Errorf("%d codes, first %+v", len(r.Codes), r.Codes[0])
	}
	if len(r.NeverCalled) != MaxNames+1 {
		t.Errorf("%d tools count as never called", len(r.NeverCalled))
	}
}

// TestParked: a batch that was parked goes on with an owner that has taken it from nobody.
func TestParked(t *testing.T) {
	b := New()
	s := begin("b", "write")
	s.planned([]string{"write"}, events.Group{Calls: []int{0}})
	s.add(batch.ChainBatch, 0, events.Started{})
	s.add(batch.ChainItem, 0, events.Waiting{Call: 0, Worker: "w", InputSHA256: "x"})
	s.add(batch.ChainBatch, 0, events.Parked{RemainingMS: 1000})
	s.add(batch.ChainItem, 0, events.Decided{Call: 0, Decision: events.Approve, InputSHA256: "x"})
	s.add(batch.ChainBatch, 0, events.Adopted{Owner: "e", Takeover: 1})
	b.Add(s.log)
	if n := b.Report().Batches; n.UnderWay != 1 || n.TakenOver != 0 {
		t.Errorf("woken: %+v", n)
	}
	s.add(batch.ChainBatch, 0, events.Adopted{Owner: "f", Takeover: 2})
	b.Add(s.log)
	if n := b.Report().Batches; n.UnderWay != 2 || n.TakenOver != 1 {
		t.Errorf("taken from a dispatcher: %+v", n)
	}
}
