package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/ticket"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// Batch is the span of one batch under one owner. It is safe for concurrent use.
type Batch struct {
	t    *Tracer
	ctx  context.Context // in which its steps are its children
	span trace.Span
	bag  string // the agent's baggage
}

// Batch begins the span of a batch, or goes on with the one that a former owner has begun: from when the batch was
// submitted on.
func (t *Tracer) Batch(s *batch.State) *Batch {
	at := context.WithValue(under(context.Background(), s.Trace), idsKey{}, idsOf(s.Key, s.SubmissionSeq))
	ctx, span := t.t.Start(at, "batch", trace.WithTimestamp(s.SubmittedAt),
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String(genAgent, string(s.Key.Agent)), attribute.String(attrBatch, string(s.Key.ID)),
			attribute.String(genSession, string(s.Submission.Session)),
			attribute.String(attrWorkspace, string(s.Submission.Workspace)),
		))
	return &Batch{t, context.WithValue(ctx, idsKey{}, nil), span, s.Trace.Baggage}
}

// Trace is the trace context of what is done for the batch.
func (b *Batch) Trace() traceparent.Context { return contextOf(b.span, b.bag) }

// Recording reports whether anybody will see the span.
func (b *Batch) Recording() bool { return b.span.IsRecording() }

// Planned says that the batch is planned.
func (b *Batch) Planned(began time.Time, s *batch.State) {
	if b.Recording() {
		b.t.step(b.ctx, "plan", began, time.Now(), "", trace.WithAttributes(
			attribute.Int(attrCalls, len(s.Plan.Calls)), attribute.Int(attrGroups, len(s.Plan.Groups))))
	}
}

// Granted says that the batch has the ticket of a group. behind are the batches for which it has waited: their spans
// follow from their names.
func (b *Batch) Granted(group int, mode ticket.Mode, number uint64, asked, granted time.Time, behind []broker.Origin) {
	if !b.Recording() {
		return
	}
	var links []trace.Link
	for _, o := range behind {
		id := idsOf(o.Key, o.Seq)
		if sc := spanContext(o.TraceParent); sc.IsValid() {
			id.trace = sc.TraceID()
		}
		links = append(links, trace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: id.trace, SpanID: id.span,
				Remote: true}),
			Attributes: []attribute.KeyValue{attribute.String(attrWaits, "ticket"),
				attribute.String(attrBatch, string(o.Key.ID)), attribute.String(genAgent, string(o.Key.Agent))},
		})
	}
	b.t.step(b.ctx, "ticket", asked, granted, "", trace.WithLinks(links...), trace.WithAttributes(
		attribute.Int(attrGroup, group), attribute.String(attrMode, string(mode)),
		attribute.Int64(attrTicket, int64(number))))
}

// Replied says that results were replied, from the first on.
func (b *Batch) Replied(began time.Time, first, results int) {
	if b.Recording() {
		b.t.step(b.ctx, "reply", began, time.Now(), "", trace.WithAttributes(
			attribute.Int(attrFirst, first), attribute.Int(attrResults, results)))
	}
}

// Answered says that the owner has answered calls that no worker did.
func (b *Batch) Answered(results []toolyard.Result) {
	if !b.Recording() {
		return
	}
	now := time.Now()
	for i := range results {
		r := &results[i]
		name := executeTool
		if r.Code != toolyard.UnknownTool { // then it is whatever a model wrote
			name += " " + r.Tool
		}
		failed := ""
		if r.IsError {
			failed = string(r.Code)
		}
		b.t.step(b.ctx, name, now, now, failed, trace.WithAttributes(
			attribute.String(genOperation, executeTool), attribute.String(genTool, r.Tool),
			attribute.String(genToolType, function), attribute.String(genCallID, r.CallID),
			attribute.Int(attrIndex, r.Index), attribute.Int(attrAttempt, r.Attempts),
			attribute.String(attrClass, string(r.Class)), attribute.String(attrAnswered, "dispatcher")))
	}
}

// Completed ends the span of a batch that is over.
func (b *Batch) Completed(s *batch.State) {
	if !b.Recording() {
		return
	}
	for i := range s.Calls {
		if c := &s.Calls[i]; c.Decision != nil {
			b.t.step(b.ctx, "approval", c.AskedAt, c.AskedAt.Add(c.Waited), "", trace.WithAttributes(
				attribute.Int(attrIndex, i)))
		}
	}
	b.span.SetAttributes(attribute.String(attrStatus, string(s.Status())), attribute.Int(attrCalls, len(s.Calls)),
		attribute.Int(attrGroups, len(s.Plan.Groups)), attribute.Int(attrTakeovers, s.Takeovers),
		attribute.String(attrOwner, s.Owner))
	b.span.End()
}
