package otlp

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"

	"github.com/toolyard/toolyard/internal/version"
)

// pusher sends the metrics again and again.
type pusher struct {
	to    *sender
	every time.Duration
	began time.Time
	read  func(began, now time.Time) ([]*metricspb.Metric, error)
	about *resourcepb.Resource
	scope *commonpb.InstrumentationScope
	log   *slog.Logger
}

func (e env) pusher(about *resource.Resource, o Options) (*pusher, error) {
	to, err := e.target(metrics)
	if err != nil {
		return nil, err
	}
	every, err := duration(envMetricInterval, e(envMetricInterval), defaultInterval)
	if err != nil {
		return nil, err
	}
	if every < minInterval {
		return nil, &VariableError{envMetricInterval, e(envMetricInterval), "use 100 milliseconds or more"}
	}
	return &pusher{
		to: newSender(to), every: every, began: time.Now(), read: o.Metrics, log: o.Log, about: resourceOf(about),
		scope: &commonpb.InstrumentationScope{Name: o.Scope, Version: version.Build()},
	}, nil
}

// run sends the metrics until ctx ends, and once more then.
func (p *pusher) run(ctx context.Context) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			p.push(context.WithoutCancel(ctx))
			p.to.client.CloseIdleConnections()
			return
		case <-tick.C:
			p.push(ctx)
		}
	}
}

func (p *pusher) push(ctx context.Context) {
	read, err := p.read(p.began, time.Now())
	if err == nil {
		err = p.to.send(ctx, &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{
			Resource: p.about, ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: p.scope, Metrics: read}},
		}}})
	}
	if err != nil && ctx.Err() == nil {
		p.log.Warn("metrics were not sent", "error", err)
	}
}

// resourceOf is who sends, in OTLP's form.
func resourceOf(about *resource.Resource) *resourcepb.Resource {
	out := &resourcepb.Resource{}
	for _, kv := range about.Attributes() {
		out.Attributes = append(out.Attributes, &commonpb.KeyValue{Key: string(kv.Key), Value: valueOf(kv.Value)})
	}
	return out
}

func valueOf(v attribute.Value) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v.String()}}
}
