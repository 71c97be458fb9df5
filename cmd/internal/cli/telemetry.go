package cli

import (
	"context"
	"errors"
	"log/slog"

	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/hooks"
	"github.com/toolyard/toolyard/internal/otlp"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/internal/tracing"
	"github.com/toolyard/toolyard/internal/worker"
)

// Send begins to send spans and metrics, if OpenTelemetry's environment variables say so. What it returns sends the
// rest and ends.
func (o *Observed) Send(ctx context.Context, service, instance string, log *slog.Logger) (done func(), _ error) {
	t, err := otlp.Open(ctx, otlp.Options{Service: service, Instance: instance, IDs: tracing.IDs{},
		Scope: tracing.Scope, Metrics: o.Metrics.OTLP, Log: log})
	if _, wrong := errors.AsType[*otlp.VariableError](err); wrong {
		return nil, &UsageError{Err: err}
	}
	if err != nil {
		return nil, err
	}
	if p := t.Provider(); p != nil {
		o.tracer = tracing.New(p)
	}
	return func() {
		if err := t.Close(); err != nil { // the collector is no reason to fail
			log.Warn("telemetry was not sent", "error", err)
		}
	}, nil
}

// Tracer makes the spans of this process; nil when nobody watches.
func (o *Observed) Tracer() *tracing.Tracer { return o.tracer }

// TraceCalls has the calls of a worker traced, if anybody watches.
func (o *Observed) TraceCalls(cfg *worker.Config) {
	if o.tracer == nil {
		return
	}
	cfg.Trace = func(ctx context.Context, parent traceparent.Context, d *events.Requested,
		call *events.RequestedCall, id string,
	) (context.Context, worker.CallSpan) {
		return o.tracer.Call(ctx, parent, d, call, id)
	}
	o.TraceHooks(cfg.Hooks)
}

// TraceHooks has hooks traced, if there are any and anybody watches.
func (o *Observed) TraceHooks(set *hooks.Set) {
	if o.tracer != nil && set != nil {
		set.Watch(func(ctx context.Context, event hooks.Event, name string) func(error) {
			return o.tracer.Hook(ctx, string(event), name)
		})
	}
}
