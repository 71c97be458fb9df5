// Package otlp sends telemetry. Spans and metrics go to a collector, by OpenTelemetry's OTLP over HTTP with protobuf.
// Nothing is sent, and no connection made, unless the standard environment variables say so.
//
// It sends with a client of its own: OpenTelemetry's exporters link all of gRPC, also those that speak HTTP, and with
// it what keeps the linker from leaving out methods that nobody calls (docs/adr/0035). Spans and their form are the
// SDK's; so is what is sampled, and how many spans wait to be sent.
//
// Failure: what could not be sent in its time is lost, and the log says so. Nothing waits for a collector but the end
// of the process, for as long as one export may take.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"

	"github.com/toolyard/toolyard/internal/version"
)

// Options say what a process sends.
type Options struct {
	// Service names the process where OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES do not, and Instance is its own
	// id.
	Service, Instance string
	// IDs makes the ids of spans. Nil: random ones.
	IDs sdk.IDGenerator
	// Metrics reads the metrics at a time, all counted since began. Nil: there are none.
	Metrics func(began, now time.Time) ([]*metricspb.Metric, error)
	// Scope names who has made the metrics.
	Scope string
	Log   *slog.Logger
	// Env looks up environment variables. Nil: [os.Getenv]. The SDK reads its own by itself.
	Env func(string) string
}

// Telemetry is what a process sends. Close it.
type Telemetry struct {
	provider *sdk.TracerProvider // nil: no spans are sent
	stop     context.CancelFunc
	pushing  sync.WaitGroup
	timeout  time.Duration
}

// Open reads the environment, and begins to send if it says so. Its errors are [*VariableError]s, but for those of
// what the SDK reads.
func Open(ctx context.Context, o Options) (*Telemetry, error) {
	if o.Env == nil {
		o.Env = os.Getenv
	}
	e := env(o.Env)
	t := &Telemetry{stop: func() {}}
	spans, err := e.wanted(traces)
	if err != nil {
		return nil, err
	}
	counts, err := e.wanted(metrics)
	if err != nil {
		return nil, err
	}
	if !spans && !counts {
		return t, nil
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", o.Service), attribute.String("service.version", version.Build()),
		attribute.String("service.instance.id", o.Instance)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Log.Warn("telemetry was not sent", "error", err) }))
	var push *pusher
	if counts && o.Metrics != nil {
		if push, err = e.pusher(about, o); err != nil {
			return nil, err
		}
	}
	if spans {
		if err := t.sendSpans(ctx, e, about, o.IDs); err != nil {
			return nil, err
		}
	}
	if push != nil {
		pushing, stop := context.WithCancel(context.WithoutCancel(ctx))
		t.stop, t.timeout = stop, max(t.timeout, push.to.to.timeout)
		t.pushing.Go(func() { push.run(pushing) })
	}
	return t, nil
}

// sendSpans makes the provider.
func (t *Telemetry) sendSpans(ctx context.Context, e env, about *resource.Resource, ids sdk.IDGenerator) error {
	to, err := e.target(traces)
	if err != nil {
		return err
	}
	exporter, err := otlptrace.New(ctx, newSender(to))
	if err != nil {
		return fmt.Errorf("make the exporter of spans: %w", err)
	}
	opts := []sdk.TracerProviderOption{sdk.WithBatcher(exporter), sdk.WithResource(about)}
	if ids != nil {
		opts = append(opts, sdk.WithIDGenerator(ids))
	}
	t.provider, t.timeout = sdk.NewTracerProvider(opts...), to.timeout
	return nil
}

// newSender makes what posts to a collector. A redirect is not followed: headers with a token are for one server.
func newSender(to target) *sender {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if to.tls != nil {
		transport.TLSClientConfig = to.tls
	}
	return &sender{to: to, version: version.Build(), client: &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Provider makes tracers; nil when no spans are sent.
func (t *Telemetry) Provider() trace.TracerProvider {
	if t.provider == nil { // and not an interface that holds nil
		return nil
	}
	return t.provider
}

// Close sends what is left, for as long as one export may take, and ends.
func (t *Telemetry) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), max(t.timeout, defaultTimeout))
	defer cancel()
	t.stop()
	defer t.pushing.Wait() // beside the spans: it has a time limit of its own
	if t.provider == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}
