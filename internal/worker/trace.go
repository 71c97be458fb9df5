package worker

import (
	"context"
	"errors"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// CallSpan is one attempt of a call as those see it who watch: its phases, and that what came of it was stored. Its
// methods return at once.
type CallSpan interface {
	// Trace is the trace context of what the call's tool does.
	Trace() traceparent.Context
	// Waits says that the attempt has ended with a question to a person.
	Waits()
	// Ran has the facts of the phases that ran, and why the attempt failed; "" when it did not.
	Ran(facts []toolyard.Fact, failed, isolation string)
	// Stored ends the span.
	Stored(error)
}

// lost is why an attempt failed that came to no result, since the right to the call was lost.
const lost = "lost"

// callTrace is what is followed of a call. The zero value follows nothing.
type callTrace struct{ span CallSpan }

// follow begins the span of an attempt, and returns the context for what it does.
func (w *Worker) follow(ctx context.Context, r *running) (context.Context, callTrace) {
	if w.cfg.Trace == nil { // then the tool goes on with the trace of the batch
		return ctx, callTrace{}
	}
	ctx, span := w.cfg.Trace(ctx, r.d.Trace, &r.d.Requested, &r.call, w.cfg.ID)
	return traceparent.With(ctx, span.Trace()), callTrace{span}
}

// ran follows what came out of the pipeline.
func (t callTrace) ran(res *toolyard.Result, err error) {
	if t.span == nil {
		return
	}
	if waiting, ok := errors.AsType[*pipeline.WaitingError](err); ok {
		t.span.Waits()
		t.span.Ran(waiting.Facts, "", "")
		return
	}
	failed := ""
	switch {
	case err != nil:
		failed = lost
	case res.IsError:
		failed = string(res.Code)
	}
	t.span.Ran(res.Phases, failed, res.Isolation)
}

// stored follows that what came of the attempt was stored, or was not.
func (t callTrace) stored(err error) {
	if t.span != nil {
		t.span.Stored(err)
	}
}
