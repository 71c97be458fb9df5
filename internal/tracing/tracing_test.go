package tracing

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/internal/traceparent"
)

const agents = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// recorded makes a tracer, and what returns the spans that have ended.
func recorded(t testing.TB) (*Tracer, func() tracetest.SpanStubs) {
	t.Helper()
	all := tracetest.NewInMemoryExporter()
	return New(sdk.NewTracerProvider(sdk.WithSyncer(all), sdk.WithIDGenerator(IDs{}))), all.GetSpans
}

func submitted(parent string, seq uint64) *batch.State {
	return &batch.State{
		Key: toolyard.BatchKey{Agent: "ann", ID: "b"}, SubmissionSeq: seq, Trace: traceparent.Context{Parent: parent},
		SubmittedAt: time.Unix(1, 0), Submission: &toolyard.Batch{}, Plan: &events.Planned{},
	}
}

// TestEveryOwnerHasTheSameSpan: who takes a batch over goes on with the span of the former owner, in the agent's trace
// or in one that follows from the batch. A batch of the same name at another time has another.
func TestEveryOwnerHasTheSameSpan(t *testing.T) {
	for _, parent := range []string{"", agents} {
		first, _ := recorded(t)
		second, spans := recorded(t)
		was, is := first.Batch(submitted(parent, 7)), second.Batch(submitted(parent, 7))
		if was.Trace().Parent != is.Trace().Parent || traceparent.Valid(is.Trace().Parent) == "" {
			t.Errorf("with the parent %q the owners have the spans %s and %s", parent, was.Trace().Parent,
				is.Trace().Parent)
		}
		if other := second.Batch(submitted(parent, 8)).Trace().Parent; other[36:52] == is.Trace().Parent[36:52] {
			t.Errorf("with the parent %q another batch has the same span %s", parent, other)
		}
		is.Planned(time.Unix(2, 0), submitted(parent, 7))
		is.Completed(submitted(parent, 7))
		got := spans()
		if len(got) != 2 || got[0].Name != "plan" || got[0].Parent.SpanID() != got[1].SpanContext.SpanID() ||
			got[0].SpanContext.SpanID() == got[1].SpanContext.SpanID() {
			t.Fatalf("with the parent %q: %v", parent, got)
		}
		if b := got[1]; b.Parent.IsValid() != (parent != "") || !b.StartTime.Equal(time.Unix(1, 0)) ||
			parent != "" && b.SpanContext.TraceID().String() != traceparent.TraceID(parent) {
			t.Errorf("with the parent %q the batch is %v under %v since %s", parent, b.SpanContext, b.Parent,
				b.StartTime)
		}
	}
}

// TestNamesAreToldApart: where one name ends and the next begins counts.
func TestNamesAreToldApart(t *testing.T) {
	seen := map[ids]toolyard.BatchKey{}
	for _, k := range []toolyard.BatchKey{{Agent: "a", ID: "bc"}, {Agent: "ab", ID: "c"}, {Agent: "abc"}, {ID: "abc"}} {
		id := idsOf(k, 1)
		if other, ok := seen[id]; ok || !id.trace.IsValid() || !id.span.IsValid() {
			t.Errorf("%v has the ids of %v: %v", k, other, id)
		}
		seen[id] = k
	}
}

// TestIDs: what is no batch's has ids of its own.
func TestIDs(t *testing.T) {
	seen := map[trace.SpanID]bool{}
	for range 100 {
		id, span := IDs{}.NewIDs(t.Context())
		child := IDs{}.NewSpanID(t.Context(), id)
		if seen[span] || seen[child] || span == child || !id.IsValid() || !span.IsValid() || !child.IsValid() {
			t.Fatalf("ids %s, %s and %s", id, span, child)
		}
		seen[span], seen[child] = true, true
	}
}

// TestAnAgentsTraceThatIsNotSampled: nobody sees anything, and everybody is told so.
func TestAnAgentsTraceThatIsNotSampled(t *testing.T) {
	tr, spans := recorded(t)
	b := tr.Batch(submitted(agents[:53]+"00", 7))
	if b.Recording() || !strings.HasSuffix(b.Trace().Parent, "-00") {
		t.Errorf("a batch in a trace that is not sampled is seen, as %s", b.Trace().Parent)
	}
	b.Planned(time.Now(), submitted("", 7))
	b.Granted(0, ticket.Shared, 1, time.Now(), time.Now(), nil)
	b.Replied(time.Now(), 0, 1)
	b.Answered([]toolyard.Result{{Tool: "t"}})
	ctx, c := tr.Call(t.Context(), b.Trace(), &events.Requested{QueuedAt: time.Unix(1, 0)},
		&events.RequestedCall{Tool: "t"}, "w")
	c.Ran([]toolyard.Fact{{Phase: toolyard.PhaseExecute}}, "timeout", "none")
	c.Stored(nil)
	b.Completed(submitted("", 7))
	if got := spans(); len(got) != 0 {
		t.Errorf("spans %v", got)
	}
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() || sc.TraceID().String() != traceparent.TraceID(agents) {
		t.Errorf("the tool's span is under %v", sc)
	}
}

func valueOf(attrs []attribute.KeyValue, key string) string {
	for _, a := range attrs {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// TestCall: phases follow each other under the attempt, and what they took is what the facts say.
func TestCall(t *testing.T) {
	tr, spans := recorded(t)
	queued := time.Now().Add(-time.Minute)
	ctx, c := tr.Call(t.Context(), traceparent.Context{Parent: agents},
		&events.Requested{Agent: "ann", Batch: "b", Session: "s", QueuedAt: queued},
		&events.RequestedCall{ID: "c1", Index: 3, Tool: "ask", Attempt: 2}, "w-1")
	if got, want := c.Trace().Parent, trace.SpanContextFromContext(ctx); got[36:52] != want.SpanID().String() {
		t.Errorf("the tool is told %s, and its context has %v", got, want)
	}
	c.Ran([]toolyard.Fact{
		{Phase: toolyard.PhaseResolveTool, Outcome: toolyard.OutcomeOK, MS: 0.5},
		{Phase: toolyard.PhaseExecute, Outcome: toolyard.OutcomeFailed, Code: toolyard.Timeout, MS: 2},
	}, "timeout", "native")
	c.Stored(nil)
	var names []string
	by := map[string]tracetest.SpanStub{}
	for _, s := range spans() {
		names, by[s.Name] = append(names, s.Name), s
	}
	if want := []string{"queue", "resolve_tool", "execute", "store", "execute_tool ask"}; !slices.Equal(names, want) {
		t.Fatalf("spans %q; want %q", names, want)
	}
	call, run := by["execute_tool ask"], by["execute"]
	if q := by["queue"]; !q.StartTime.Equal(queued) || !q.EndTime.Equal(call.StartTime) ||
		!q.Parent.Equal(call.Parent) {
		t.Errorf("it was in the queue from %s to %s under %v", q.StartTime, q.EndTime, q.Parent)
	}
	if first := by["resolve_tool"]; !first.StartTime.Equal(call.StartTime) || !first.EndTime.Equal(run.StartTime) ||
		run.EndTime.Sub(run.StartTime) != 2*time.Millisecond || run.Parent.SpanID() != call.SpanContext.SpanID() {
		t.Errorf("the phases lasted from %s over %s to %s", first.StartTime, run.StartTime, run.EndTime)
	}
	for key, want := range map[string]string{
		"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ask", "gen_ai.tool.call.id": "c1",
		"gen_ai.tool.type": "function", "gen_ai.agent.id": "ann", "gen_ai.conversation.id": "s",
		"error.type": "timeout", "toolyard.call.index": "3", "toolyard.call.attempt": "2", "toolyard.worker": "w-1",
		"toolyard.isolation": "native",
	} {
		if got := valueOf(call.Attributes, key); got != want {
			t.Errorf("%s is %q; want %q", key, got, want)
		}
	}
	if call.Status.Code != codes.Error || run.Status.Code != codes.Error || by["store"].Status.Code != codes.Unset {
		t.Errorf("the statuses are %v, %v and %v", call.Status, run.Status, by["store"].Status)
	}
}

// TestClocksThatDiffer: a call that was queued later than it began, by another machine's clock, has no wait.
func TestClocksThatDiffer(t *testing.T) {
	tr, spans := recorded(t)
	_, c := tr.Call(t.Context(), traceparent.Context{}, &events.Requested{QueuedAt: time.Now().Add(time.Hour)},
		&events.RequestedCall{Tool: "t"}, "w")
	c.Ran(nil, "", "")
	c.Stored(nil)
	for _, s := range spans() {
		if s.Name == "queue" || s.EndTime.Before(s.StartTime) {
			t.Errorf("%s from %s to %s", s.Name, s.StartTime, s.EndTime)
		}
	}
	if got := later(time.Unix(2, 0), time.Unix(1, 0)); !got.Equal(time.Unix(2, 0)) {
		t.Errorf("what ends before it begins ends at %s", got)
	}
}

// TestWhatAModelWroteIsNoName: a tool that is not there names no span, and a batch's wait is linked to what it names.
func TestWhatAModelWroteIsNoName(t *testing.T) {
	tr, spans := recorded(t)
	b := tr.Batch(submitted("", 7))
	b.Answered([]toolyard.Result{
		{Tool: "whatever it wrote", Code: toolyard.UnknownTool, IsError: true},
		{Tool: "ask", Code: toolyard.Canceled, IsError: true},
	})
	with, without := toolyard.BatchKey{Agent: "ann", ID: "with"}, toolyard.BatchKey{Agent: "ann", ID: "without"}
	b.Granted(1, ticket.Exclusive, 9, time.Now(), time.Now(),
		[]broker.Origin{{Key: with, Seq: 7, TraceParent: agents}, {Key: without, Seq: 8}})
	got := spans()
	if len(got) != 3 || got[0].Name != "execute_tool" || got[1].Name != "execute_tool ask" {
		t.Fatalf("spans %v", got)
	}
	for i, k := range []toolyard.BatchKey{with, without} {
		s := submitted([]string{agents, ""}[i], uint64(7+i))
		s.Key = k
		if l := got[2].Links[i].SpanContext; tr.Batch(s).Trace().Parent != "00-"+l.TraceID().String()+"-"+
			l.SpanID().String()+"-01" {
			t.Errorf("the link to %s leads to %v", k, l)
		}
	}
}

// TestSubmit: what is handed in is under the agent's span, and the batch under that.
func TestSubmit(t *testing.T) {
	tr, spans := recorded(t)
	ctx, end := tr.Submit(traceparent.With(t.Context(), traceparent.Context{Parent: agents}), "http")
	end(context.Canceled)
	s := spans()[0]
	if s.Parent.SpanID().String() != agents[36:52] || s.SpanKind != trace.SpanKindProducer ||
		s.Status.Code != codes.Error || traceparent.From(ctx).Parent[36:52] != s.SpanContext.SpanID().String() {
		t.Errorf("%v under %v, carried on as %s", s.SpanContext, s.Parent, traceparent.From(ctx).Parent)
	}
}

// TestWhatGoesBesideATrace: each span has the trace state of its parent, which comes to the tool with the baggage.
// Where there is no trace of the agent's, the baggage comes alone. What a tracing library takes for none harms nothing.
func TestWhatGoesBesideATrace(t *testing.T) {
	for _, sent := range []traceparent.Context{
		{Parent: agents, State: "vendor=1,other=2", Baggage: "user=ann"},
		{Parent: agents},
		{Baggage: "user=ann"},
	} {
		tr, spans := recorded(t)
		ctx, end := tr.Submit(traceparent.With(t.Context(), sent), "http")
		end(nil)
		s := submitted("", 7)
		s.Trace = traceparent.From(ctx)
		b := tr.Batch(s)
		_, c := tr.Call(t.Context(), b.Trace(), &events.Requested{}, &events.RequestedCall{Tool: "t"}, "w")
		tr.Hook(traceparent.With(t.Context(), b.Trace()), "PreToolUse", "h")(nil)
		c.Stored(nil)
		b.Completed(s)
		if got := c.Trace(); got.State != sent.State || got.Baggage != sent.Baggage || got.Parent == "" {
			t.Errorf("of %+v the tool gets %+v", sent, got)
		}
		if got := spans(); len(got) < 4 {
			t.Errorf("%d spans", len(got))
		}
		for _, s := range spans() {
			if got := s.SpanContext.TraceState().String(); got != sent.State {
				t.Errorf("%s has the trace state %q; want %q", s.Name, got, sent.State)
			}
		}
	}
	ctx := under(t.Context(), traceparent.Context{Parent: agents, State: "none of ours"})
	if sc := trace.SpanContextFromContext(ctx); !sc.IsValid() || sc.TraceState().Len() != 0 {
		t.Errorf("under a broken trace state is %v", sc)
	}
}

// FuzzState: OpenTelemetry reads every trace state that we pass on, as we have it.
func FuzzState(f *testing.F) {
	f.Add("vendor=t61rcWkgMzE , ,other@sys=a b")
	f.Add("1a@b=c,a=b,a=b")
	f.Fuzz(func(t *testing.T, text string) {
		ours := traceparent.State(text)
		if state, err := trace.ParseTraceState(ours); err != nil || state.String() != ours {
			t.Errorf("%q is passed on as %q, which is read as %q: %v", text, ours, state.String(), err)
		}
		if theirs, err := trace.ParseTraceState(text); err == nil && theirs.Len() > 0 && ours == "" &&
			len(text) <= traceparent.MaxStateBytes && strings.Trim(text, ", \t") == text {
			t.Errorf("%q is dropped", text)
		}
	})
}

// BenchmarkCall is what the spans of one call cost its worker, sampled and not.
func BenchmarkCall(b *testing.B) {
	facts := make([]toolyard.Fact, len(toolyard.Phases))
	for i, p := range toolyard.Phases {
		facts[i] = toolyard.Fact{Phase: p, Outcome: toolyard.OutcomeOK, MS: 0.1}
	}
	for name, parent := range map[string]string{"sampled": agents, "not_sampled": agents[:53] + "00"} {
		b.Run(name, func(b *testing.B) {
			tr := New(sdk.NewTracerProvider(sdk.WithBatcher(tracetest.NewNoopExporter()), sdk.WithIDGenerator(IDs{})))
			b.ReportAllocs()
			for b.Loop() {
				_, c := tr.Call(b.Context(), traceparent.Context{Parent: parent},
					&events.Requested{QueuedAt: time.Unix(1, 0)}, &events.RequestedCall{Tool: "t"}, "w")
				c.Ran(facts, "", "")
				c.Stored(nil)
			}
		})
	}
}
