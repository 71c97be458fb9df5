package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// Call is the span of one attempt of one call, on its worker.
type Call struct {
	t     *Tracer
	ctx   context.Context // in which its phases are its children
	span  trace.Span
	bag   string // the agent's baggage
	began time.Time
	ran   time.Time
}

// Call begins the span of an attempt that begins now, and makes that of its wait in the queue. The context that it
// returns carries the span, for the tool's own.
func (t *Tracer) Call(ctx context.Context, parent traceparent.Context, req *events.Requested,
	call *events.RequestedCall, worker string) (context.Context, *Call) {
	began := time.Now()
	at := under(ctx, parent)
	of := []attribute.KeyValue{
		attribute.String(genTool, call.Tool), attribute.String(genCallID, call.ID),
		attribute.Int(attrIndex, call.Index), attribute.Int(attrAttempt, call.Attempt),
		attribute.String(attrClass, string(call.Judgement.Class)),
	}
	ctx, span := t.t.Start(at, executeTool+" "+call.Tool, trace.WithTimestamp(began), trace.WithAttributes(
		attribute.String(genOperation, executeTool), attribute.String(genToolType, function),
		attribute.String(genAgent, string(req.Agent)), attribute.String(genSession, string(req.Session)),
		attribute.String(attrBatch, string(req.Batch)), attribute.String(attrWorkspace, string(req.Workspace)),
		attribute.String(attrWorker, worker)), trace.WithAttributes(of...))
	if span.IsRecording() && !req.QueuedAt.IsZero() && req.QueuedAt.Before(began) {
		t.step(at, "queue", req.QueuedAt, began, "", trace.WithAttributes(of...))
	}
	return ctx, &Call{t: t, ctx: ctx, span: span, bag: parent.Baggage, began: began}
}

// Trace is the trace context of what the call does.
func (c *Call) Trace() traceparent.Context { return contextOf(c.span, c.bag) }

// Waits says that the call waits for a person now.
func (c *Call) Waits() { c.span.SetAttributes(attribute.String(attrWaits, "approval")) }

// Ran says what came out of the pipeline: the facts of the phases, and the code with which the attempt failed, or "".
func (c *Call) Ran(facts []toolyard.Fact, failed, isolation string) {
	if !c.span.IsRecording() {
		return
	}
	c.ran = time.Now()
	if failed != "" {
		fails(c.span, failed)
	}
	if isolation != "" {
		c.span.SetAttributes(attribute.String(attrIsolation, isolation))
	}
	began := c.began
	for _, f := range facts {
		ended := began.Add(time.Duration(f.MS * float64(time.Millisecond)))
		failed := ""
		if f.Outcome == toolyard.OutcomeFailed {
			failed = string(f.Code)
		}
		c.t.step(c.ctx, string(f.Phase), began, ended, failed,
			trace.WithAttributes(attribute.String(attrPhase, string(f.Outcome))))
		began = ended
	}
}

// Hook begins the span of a hook, which runs for the call or the batch that ctx is about; there is none where ctx has
// no trace. name says which hook it is. end ends it: the hook has answered, or is broken.
func (t *Tracer) Hook(ctx context.Context, event, name string) (end func(error)) {
	parent := traceparent.From(ctx)
	if parent.Parent == "" {
		return func(error) {}
	}
	_, s := t.t.Start(under(ctx, parent), "hook "+event, trace.WithAttributes(attribute.String(attrHook, name)))
	return func(err error) {
		if err != nil {
			fails(s, "broken")
		}
		s.End()
	}
}

// Stored ends the span: what came of the attempt is in the log, or could not be stored.
func (c *Call) Stored(err error) {
	if !c.span.IsRecording() {
		return
	}
	now := time.Now()
	failed := ""
	if err != nil {
		failed = "not_stored"
	}
	c.t.step(c.ctx, "store", c.ran, now, failed)
	c.span.End(trace.WithTimestamp(now))
}
