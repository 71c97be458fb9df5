// Package tracing makes spans. They are made of what dispatchers and workers say of batches and calls, with
// OpenTelemetry's API alone: whoever makes the provider decides what is sampled, and where spans go.
//
// Authority: the log. A batch's trace is that of its submission, or follows from the batch's name, and so does the id
// of its span: every owner of the batch goes on with the same span, and nobody has to store it.
//
// Ordering: none. A span is handed to the provider when it is over; a batch's span therefore comes last.
//
// Failure: what is not ended is not seen. An owner that dies leaves the span of the batch to the next owner, and takes
// the spans of its own steps with it.
package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/internal/version"
)

// Scope is the instrumentation scope of our spans.
const Scope = "github.com/toolyard/toolyard"

// The attributes of OpenTelemetry's semantic conventions for generative AI that we write. No input and no output of a
// tool is among them, and no text of an error.
const (
	genOperation = "gen_ai.operation.name"
	genTool      = "gen_ai.tool.name"
	genToolType  = "gen_ai.tool.type"
	genCallID    = "gen_ai.tool.call.id"
	genAgent     = "gen_ai.agent.id"
	genSession   = "gen_ai.conversation.id"
	errorType    = "error.type"

	executeTool = "execute_tool"
	function    = "function" // the tool type: it runs here, and not at the model's provider
)

// Our own attributes.
const (
	attrBatch     = "toolyard.batch.id"
	attrStatus    = "toolyard.batch.status"
	attrCalls     = "toolyard.batch.calls"
	attrGroups    = "toolyard.batch.groups"
	attrTakeovers = "toolyard.batch.takeovers"
	attrOwner     = "toolyard.batch.owner"
	attrWorkspace = "toolyard.workspace"
	attrGroup     = "toolyard.group"
	attrMode      = "toolyard.ticket.mode"
	attrTicket    = "toolyard.ticket.number"
	attrFirst     = "toolyard.reply.first"
	attrResults   = "toolyard.reply.results"
	attrIndex     = "toolyard.call.index"
	attrAttempt   = "toolyard.call.attempt"
	attrClass     = "toolyard.call.class"
	attrPhase     = "toolyard.phase.outcome"
	attrIsolation = "toolyard.isolation"
	attrWorker    = "toolyard.worker"
	attrAnswered  = "toolyard.answered_by"
	attrWaits     = "toolyard.waits_for"
	attrDoor      = "toolyard.door"
	attrHook      = "toolyard.hook"
)

// Tracer makes spans. It is safe for concurrent use.
type Tracer struct{ t trace.Tracer }

// New makes a tracer on a provider. For the spans of batches the provider must make ids with [IDs].
func New(p trace.TracerProvider) *Tracer {
	return &Tracer{p.Tracer(Scope, trace.WithInstrumentationVersion(version.Build()))}
}

// under returns a context in which spans are children of a trace context; of none if it is empty.
func under(ctx context.Context, parent traceparent.Context) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if sc := spanContext(parent.Parent); sc.IsValid() {
		if state, err := trace.ParseTraceState(parent.State); err == nil { // else it is none, as anywhere
			sc = sc.WithTraceState(state)
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return ctx
}

// spanContext reads a trace context that is valid. The zero SpanContext is none.
func spanContext(parent string) trace.SpanContext {
	if traceparent.Valid(parent) == "" {
		return trace.SpanContext{}
	}
	id, err := trace.TraceIDFromHex(parent[3:35])
	if err != nil {
		return trace.SpanContext{}
	}
	span, err := trace.SpanIDFromHex(parent[36:52])
	if err != nil {
		return trace.SpanContext{}
	}
	flags, err := hex.DecodeString(parent[53:])
	if err != nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: span, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, Remote: true,
	})
}

// contextOf is a span as a trace context. Samplers may have changed the trace state; the baggage goes along.
func contextOf(s trace.Span, baggage string) traceparent.Context {
	sc := s.SpanContext()
	if !sc.IsValid() {
		return traceparent.Context{Baggage: baggage}
	}
	return traceparent.Of(fmt.Sprintf("00-%s-%s-%02x", sc.TraceID(), sc.SpanID(), byte(sc.TraceFlags())),
		sc.TraceState().String(), baggage)
}

// fails marks a span as that of something that ended with a code.
func fails(s trace.Span, code string) {
	s.SetAttributes(attribute.String(errorType, code))
	s.SetStatus(codes.Error, code)
}

// step makes a span of something that is over. failed is the code with which it ended, or "".
func (t *Tracer) step(ctx context.Context, name string, began, ended time.Time, failed string,
	more ...trace.SpanStartOption) {
	_, s := t.t.Start(ctx, name, append(more, trace.WithTimestamp(began))...)
	if failed != "" {
		fails(s, failed)
	}
	s.End(trace.WithTimestamp(later(began, ended)))
}

// later is the end of something that began: clocks of two machines may differ.
func later(began, ended time.Time) time.Time {
	if ended.Before(began) {
		return began
	}
	return ended
}

// Submit begins the span of a batch that is handed in through a door of this process: http or mcp. The context that it
// returns carries the span, for the submission; end ends it.
func (t *Tracer) Submit(ctx context.Context, door string) (_ context.Context, end func(error)) {
	from := traceparent.From(ctx)
	_, s := t.t.Start(under(ctx, from), "submit", trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String(attrDoor, door)))
	return traceparent.With(ctx, contextOf(s, from.Baggage)), func(err error) {
		if err != nil {
			fails(s, "not_accepted")
		}
		s.End()
	}
}

// ids are those that a span is to get.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

type idsKey struct{}

// idsOf are the ids of a batch's span. Every owner of the batch comes to the same. seq tells batches apart that have
// one name at different times.
func idsOf(k toolyard.BatchKey, seq uint64) (out ids) {
	h := sha256.New()
	for _, part := range []string{Scope, string(k.Agent), string(k.ID)} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	sum := h.Sum(binary.BigEndian.AppendUint64(nil, seq))
	sum2 := sha256.Sum256(sum)
	copy(out.trace[:], sum2[:16])
	copy(out.span[:], sum2[16:])
	return out
}

// IDs makes the ids of spans: those of a batch's span follow from its name, all others are random. It is an IDGenerator
// of OpenTelemetry's SDK.
type IDs struct{}

// NewIDs makes the ids of a span that has no parent.
func (IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if set, ok := ctx.Value(idsKey{}).(ids); ok {
		return set.trace, set.span
	}
	var id trace.TraceID
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:8], rand.Uint64())
		binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, randomSpan()
}

// NewSpanID makes the id of a span in a trace.
func (IDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if set, ok := ctx.Value(idsKey{}).(ids); ok {
		return set.span
	}
	return randomSpan()
}

func randomSpan() (id trace.SpanID) {
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
