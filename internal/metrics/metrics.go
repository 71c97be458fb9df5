// Package metrics counts what dispatchers and workers do, for Prometheus. No label has a value that an agent or a model
// chooses: their number is bounded.
package metrics

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/toolyard/toolyard/internal/version"
)

// ContentType is that of [Metrics.Write].
var ContentType = string(expfmt.NewFormat(expfmt.TypeTextPlain))

// Metrics are one process's. They are safe for concurrent use.
type Metrics struct{ registry *prometheus.Registry }

// New makes the metrics of a process. They have what every Go process has; connected reports whether it is connected to
// NATS.
func New(connected func() bool) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
		readings(func(read reader) {
			v := version.Read()
			read(natsConnected, truth(connected()))
			read(buildInfo, 1, v.Release, v.Commit, v.Go, strconv.Itoa(v.Wire))
		}))
	return m
}

// Write writes all metrics as text of [ContentType].
func (m *Metrics) Write(w io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil {
		return fmt.Errorf("gather metrics: %w", err)
	}
	for _, f := range families { // not by an expfmt.Encoder, which links the forms in protobuf too
		_, writeErr := expfmt.MetricFamilyToText(w, f)
		err = errors.Join(err, writeErr)
	}
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// reader takes the value that a metric has now, with the values of its labels.
type reader func(m *Metric, value float64, labels ...string)

// readings is a collector of values that stand somewhere already. It reads them at each scrape.
type readings func(reader)

// Describe sends nothing: which metrics there are depends on what is read.
func (r readings) Describe(chan<- *prometheus.Desc) {}

func (r readings) Collect(to chan<- prometheus.Metric) {
	r(func(m *Metric, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if m.Kind == counter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.Name, m.Help, m.Labels, nil), kind, value, labels...)
	})
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
