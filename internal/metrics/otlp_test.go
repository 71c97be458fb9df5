package metrics

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/metrics/v1"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestOTLP: OpenTelemetry gets every metric that Prometheus gets, under the same name, with the same labels and values.
func TestOTLP(t *testing.T) {
	m := whole()
	began, now := time.Unix(1, 0), time.Unix(2, 0)
	families, err := m.OTLP(began, now)
	must.OK(t, err)
	var page bytes.Buffer
	must.OK(t, m.Write(&page))
	got := map[string]*otlp.Metric{}
	for _, f := range families {
		got[f.Name] = f
	}
	for line := range strings.Lines(page.String()) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ := strings.Cut(rest, " ")
			if got[name] == nil {
				t.Errorf("%s is not sent", name)
			}
		}
	}
	for _, d := range All() {
		f := got[d.Name]
		if f == nil || f.Description != d.Help {
			t.Errorf("%s: %v", d.Name, f)
			continue
		}
		kind := map[Kind]bool{counter: f.GetSum() != nil && f.GetSum().IsMonotonic, gauge: f.GetGauge() != nil,
			histogram: f.GetHistogram() != nil}
		if !kind[d.Kind] {
			t.Errorf("%s is no %s: %v", d.Name, d.Kind, f)
		}
	}
	points := got["toolyard_calls_total"].GetSum().DataPoints
	sum := 0.0
	for _, p := range points {
		sum += p.GetAsDouble()
		if p.StartTimeUnixNano != uint64(began.UnixNano()) || p.TimeUnixNano != uint64(now.UnixNano()) {
			t.Errorf("counted from %d to %d", p.StartTimeUnixNano, p.TimeUnixNano)
		}
	}
	if sum != 1 || len(points) < 10 {
		t.Errorf("%v calls in %d lines", sum, len(points))
	}
	waits := got["toolyard_ticket_wait_seconds"].GetHistogram().DataPoints
	for _, p := range waits {
		mode := p.Attributes[0].Value.GetStringValue()
		in := uint64(0)
		for _, n := range p.BucketCounts {
			in += n
		}
		if len(p.BucketCounts) != len(p.ExplicitBounds)+1 || in != p.Count {
			t.Errorf("%s: %d buckets with %d of %d for %d bounds", mode, len(p.BucketCounts), in, p.Count,
				len(p.ExplicitBounds))
		}
		if mode == "exclusive" { // it waited for a second: above 0.256, up to 1.024
			for i, n := range p.BucketCounts {
				bound := fmt.Sprintf("%.3f", p.ExplicitBounds[min(i, len(p.ExplicitBounds)-1)])
				if (n == 1) != (bound == "1.024") {
					t.Errorf("bucket %d up to %v has %d", i, p.ExplicitBounds, n)
				}
			}
		}
	}
	if len(waits) != 3 { // shared, exclusive and named
		t.Errorf("%d modes of waits", len(waits))
	}
}
