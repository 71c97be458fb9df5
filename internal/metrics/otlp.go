package metrics

import (
	"fmt"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/metrics/v1"
)

// OTLP reads all metrics in the form of OpenTelemetry, under the names and with the labels that [Metrics.Write] gives
// them. Counters and histograms count since began.
func (m *Metrics) OTLP(began, now time.Time) ([]*otlp.Metric, error) {
	families, err := m.registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	since, at := uint64(began.UnixNano()), uint64(now.UnixNano())
	out := make([]*otlp.Metric, 0, len(families))
	for _, f := range families {
		if family := familyOf(f, since, at); family != nil {
			out = append(out, family)
		}
	}
	return out, nil
}

// familyOf is one metric in OpenTelemetry's form; nil for a kind that it has no form for.
func familyOf(f *dto.MetricFamily, since, at uint64) *otlp.Metric {
	out := &otlp.Metric{Name: f.GetName(), Description: f.GetHelp()}
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		sum := &otlp.Sum{IsMonotonic: true,
			AggregationTemporality: otlp.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}
		for _, m := range f.GetMetric() {
			sum.DataPoints = append(sum.DataPoints, pointOf(m, m.GetCounter().GetValue(), since, at))
		}
		out.Data = &otlp.Metric_Sum{Sum: sum}
	case dto.MetricType_GAUGE:
		gauge := &otlp.Gauge{}
		for _, m := range f.GetMetric() {
			gauge.DataPoints = append(gauge.DataPoints, pointOf(m, m.GetGauge().GetValue(), 0, at))
		}
		out.Data = &otlp.Metric_Gauge{Gauge: gauge}
	case dto.MetricType_HISTOGRAM:
		h := &otlp.Histogram{AggregationTemporality: otlp.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}
		for _, m := range f.GetMetric() {
			h.DataPoints = append(h.DataPoints, histogramOf(m, since, at))
		}
		out.Data = &otlp.Metric_Histogram{Histogram: h}
	case dto.MetricType_SUMMARY:
		s := &otlp.Summary{}
		for _, m := range f.GetMetric() {
			s.DataPoints = append(s.DataPoints, summaryOf(m, since, at))
		}
		out.Data = &otlp.Metric_Summary{Summary: s}
	default:
		return nil
	}
	return out
}

func pointOf(m *dto.Metric, value float64, since, at uint64) *otlp.NumberDataPoint {
	return &otlp.NumberDataPoint{Attributes: attributesOf(m), StartTimeUnixNano: since, TimeUnixNano: at,
		Value: &otlp.NumberDataPoint_AsDouble{AsDouble: value}}
}

// histogramOf has in each bucket what is in it alone; Prometheus counts what is in those below it too.
func histogramOf(m *dto.Metric, since, at uint64) *otlp.HistogramDataPoint {
	h := m.GetHistogram()
	sum := h.GetSampleSum()
	p := &otlp.HistogramDataPoint{Attributes: attributesOf(m), StartTimeUnixNano: since, TimeUnixNano: at,
		Count: h.GetSampleCount(), Sum: &sum}
	below := uint64(0)
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue
		}
		p.ExplicitBounds = append(p.ExplicitBounds, b.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	p.BucketCounts = append(p.BucketCounts, p.Count-below)
	return p
}

func summaryOf(m *dto.Metric, since, at uint64) *otlp.SummaryDataPoint {
	s := m.GetSummary()
	p := &otlp.SummaryDataPoint{Attributes: attributesOf(m), StartTimeUnixNano: since, TimeUnixNano: at,
		Count: s.GetSampleCount(), Sum: s.GetSampleSum()}
	for _, q := range s.GetQuantile() {
		p.QuantileValues = append(p.QuantileValues,
			&otlp.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
	}
	return p
}

func attributesOf(m *dto.Metric) (out []*commonpb.KeyValue) {
	for _, l := range m.GetLabel() {
		out = append(out, &commonpb.KeyValue{Key: l.GetName(),
			Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: l.GetValue()}}})
	}
	return out
}
