package pool

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/internal/tracing"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
	public "github.com/toolyard/toolyard/worker"
)

const agentsTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// anyInput lets a tool be called with any object.
func anyInput(d tool.Declaration) tool.Declaration {
	d.InputSchema = json.RawMessage(`{"type":"object"}`)
	return d
}

// agentsState and agentsBaggage go beside it.
const agentsState, agentsBaggage = "vendor=t61rcWkgMzE,other@sys=a b", "user=ann,region=eu%20west;ttl=60"

// teller is a tool that says which trace it is called in.
func teller() tool.Tool {
	return tool.Tool{Declaration: anyInput(reader("tell")),
		Run: func(_ context.Context, env tool.Env, _ json.RawMessage) (tool.Output, error) {
			said := []string{"trace " + env.TraceParent, env.TraceState, env.Baggage}
			return tool.Output{Text: strings.Join(said, "|")}, nil
		}}
}

// told hands a batch in and returns what its one call said.
func told(t *testing.T, ctx context.Context, c *client.Client, id toolyard.BatchID) string {
	t.Helper()
	b, err := c.Submit(ctx, toolyard.Batch{ID: id, Calls: []toolyard.Call{{Tool: "tell"}}})
	must.OK(t, err)
	for r, err := range b.Results(t.Context()) {
		if err != nil || r.IsError {
			t.Fatalf("%v %+v", err, r)
		}
		return strings.TrimPrefix(r.Output, "trace ")
	}
	return ""
}

// TestATraceOverNATS: a Go agent's trace comes to the tool, also where nobody watches, and every event of the batch
// carries it. What goes beside it is in the submission alone. What is no trace context goes nowhere, and a batch
// without one has none.
func TestATraceOverNATS(t *testing.T) {
	s := testenv.Server(t)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{teller()}})
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	for id, sent := range map[toolyard.BatchID][3]string{
		"with":         {agentsTrace},
		"with-all":     {agentsTrace, agentsState, agentsBaggage},
		"without":      {},
		"bad":          {"no trace context", agentsState},
		"bad-beside":   {agentsTrace, "no state", "no baggage"},
		"long":         {agentsTrace, "a=" + strings.Repeat("x", 511), "a=" + strings.Repeat("x", 2_047)},
		"only-baggage": {"", "", agentsBaggage},
	} {
		want, state, baggage := sent[0], sent[1], sent[2]
		switch id {
		case "bad":
			want, state = "", ""
		case "bad-beside", "long":
			state, baggage = "", ""
		}
		ctx := client.WithTraceState(client.WithTraceParent(t.Context(), sent[0]), sent[1])
		if got := told(t, client.WithBaggage(ctx, sent[2]), c, id); got != strings.Join([]string{want, state, baggage},
			"|") {
			t.Errorf("%s: the tool is called in the trace %q; want %q, %q and %q", id, got, want, state, baggage)
		}
		n := 0
		for text, err := range c.Batch(toolyard.BatchKey{Agent: toolyard.DefaultAgent, ID: id}).Events(t.Context()) {
			must.OK(t, err)
			meta, body, err := events.DecodeJSON(text)
			must.OK(t, err)
			if n++; meta.TraceParent != want {
				t.Errorf("%s: %s carries the trace %q; want %q", id, body.EventType(), meta.TraceParent, want)
			}
			beside := [2]string{}
			if body.EventType() == events.BatchSubmitted {
				beside = [2]string{state, baggage}
			}
			if got := [2]string{meta.TraceState, meta.Baggage}; got != beside {
				t.Errorf("%s: %s carries %q beside the trace; want %q", id, body.EventType(), got, beside)
			}
		}
		if n < 4 {
			t.Errorf("%s: %d events", id, n)
		}
	}
}

// TestASampledBatchTakenOver: when another dispatcher takes a batch over, the calls of both owners are in one span,
// which the second one ends.
func TestASampledBatchTakenOver(t *testing.T) {
	s := testenv.Server(t)
	seen := tracetest.NewInMemoryExporter()
	tracer := tracing.New(sdk.NewTracerProvider(sdk.WithSyncer(seen), sdk.WithIDGenerator(tracing.IDs{})))
	begun, goOn := make(chan struct{}), make(chan struct{})
	hold := tool.Tool{Declaration: anyInput(writer("hold")),
		Run: func(ctx context.Context, _ tool.Env, _ json.RawMessage) (tool.Output, error) {
			close(begun)
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return tool.Output{Text: "held"}, ctx.Err()
		}}
	startWorker(t, s, worker.Config{Tools: []tool.Tool{hold, teller()},
		Trace: func(ctx context.Context, parent traceparent.Context, d *events.Requested,
			call *events.RequestedCall, id string,
		) (context.Context, worker.CallSpan) {
			return tracer.Call(ctx, parent, d, call, id)
		}})
	watched := dispatcher.Config{Trace: func(s *batch.State) dispatcher.BatchSpan { return tracer.Batch(s) }}
	first := startDispatcher(t, s, watched)
	c := startClient(t, s)
	b := submit(t, c, toolyard.Batch{ID: "b", Calls: []toolyard.Call{{Tool: "hold"}, {Tool: "tell"}}})
	<-begun
	first.end(t)
	if n := len(seen.GetSpans()); n == 0 {
		t.Error("the first owner has made no span")
	}
	startDispatcher(t, s, watched)
	close(goOn)
	said := ""
	for r, err := range b.Results(t.Context()) {
		if err != nil || r.IsError {
			t.Fatalf("%v %+v", err, r)
		}
		said = r.Output
	}
	var whole tracetest.SpanStub
	// A worker ends a call's span behind its result.
	testenv.Until(t, "the batch and both calls have spans", func() bool {
		calls := 0
		for _, span := range seen.GetSpans() {
			if span.Name == "batch" {
				whole = span
			}
			if strings.HasPrefix(span.Name, "execute_tool") {
				calls++
			}
		}
		return whole.Name != "" && calls > 1
	})
	batches, calls := 0, 0
	for _, span := range seen.GetSpans() {
		switch {
		case span.Name == "batch":
			batches++
		case strings.HasPrefix(span.Name, "execute_tool"), span.Name == "plan", span.Name == "queue":
			if span.Parent.SpanID() != whole.SpanContext.SpanID() {
				t.Errorf("%s is under %v; want %v", span.Name, span.Parent, whole.SpanContext)
			}
			if strings.HasPrefix(span.Name, "execute_tool") {
				calls++
			}
		}
		if span.SpanContext.TraceID() != whole.SpanContext.TraceID() {
			t.Errorf("%s is in the trace %s; want %s", span.Name, span.SpanContext.TraceID(),
				whole.SpanContext.TraceID())
		}
		if span.Name == "execute_tool tell" && !strings.Contains(said, span.SpanContext.SpanID().String()) {
			t.Errorf("the tool was called in %q; want %s", said, span.SpanContext.SpanID())
		}
	}
	if batches != 1 || calls != 2 || whole.Parent.IsValid() {
		t.Errorf("%d spans of the batch and %d of calls; want 1 and 2", batches, calls)
	}
}

// TestAProgramsOwnProvider: a program with tools of its own gives its worker a provider, any one of OpenTelemetry's.
// The attempt's span is the agent's child there, and the tool's own span is the attempt's.
func TestAProgramsOwnProvider(t *testing.T) {
	s := testenv.Server(t)
	startDispatcher(t, s, dispatcher.Config{})
	seen := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(seen))
	deep := tool.Tool{Declaration: anyInput(reader("tell")),
		Run: func(ctx context.Context, env tool.Env, _ json.RawMessage) (tool.Output, error) {
			_, own := provider.Tracer("the program's").Start(ctx, "deeper", trace.WithSpanKind(trace.SpanKindClient))
			own.End()
			return tool.Output{Text: "trace " + env.TraceParent}, nil
		}}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	nc := testenv.Conn(t, s)
	go func() {
		ended <- public.Run(ctx, nc, public.Options{Tools: []tool.Tool{deep}, Tracing: provider, Mode: public.Bypass,
			Log: testenv.Log(t), Ready: func(string) { close(ready) }})
	}()
	<-ready
	said := told(t, client.WithTraceParent(t.Context(), agentsTrace), startClient(t, s), "b")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	by := map[string]tracetest.SpanStub{}
	for _, span := range seen.GetSpans() {
		by[span.Name] = span
	}
	call := by["execute_tool tell"]
	if call.Parent.SpanID().String() != agentsTrace[36:52] || call.SpanContext.TraceID().String() != agentsTrace[3:35] {
		t.Errorf("the attempt is %v under %v", call.SpanContext, call.Parent)
	}
	if deeper := by["deeper"]; deeper.Parent.SpanID() != call.SpanContext.SpanID() || !deeper.Parent.IsValid() ||
		!strings.Contains(said, call.SpanContext.SpanID().String()) {
		t.Errorf("the tool's span is under %v, and the tool was told %s; want %v", deeper.Parent, said, call.SpanContext)
	}
}
