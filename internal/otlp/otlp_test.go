package otlp

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

func vars(of map[string]string) env { return func(name string) string { return of[name] } }

// TestWanted: nothing is sent unless a variable says so, and each signal can be turned off alone.
func TestWanted(t *testing.T) {
	for _, c := range []struct {
		vars            map[string]string
		spans, counters bool
	}{
		{nil, false, false},
		{map[string]string{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, false, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, true, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, true, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, false, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_METRICS_EXPORTER": "none"}, true, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, false},
		{map[string]string{"OTEL_METRICS_EXPORTER": " otlp "}, false, true},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "TRUE"}, false, false},
	} {
		spans, err := vars(c.vars).wanted(traces)
		if err != nil {
			t.Errorf("%v: %v", c.vars, err)
		}
		counters, err := vars(c.vars).wanted(metrics)
		if err != nil || spans != c.spans || counters != c.counters {
			t.Errorf("%v: spans %t and metrics %t; want %t and %t (%v)", c.vars, spans, counters, c.spans, c.counters,
				err)
		}
	}
}

// TestTarget: the standard variables say where a signal goes, those of one signal before those of all.
func TestTarget(t *testing.T) {
	for _, c := range []struct {
		vars map[string]string
		of   signal
		url  string
	}{
		{nil, traces, "http://localhost:4318/v1/traces"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c:1/"}, metrics, "https://c:1/v1/metrics"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c/base"}, traces, "https://c/base/v1/traces"},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, traces, "http://c/"},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x",
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d"}, traces, "http://c/x"},
	} {
		if got, err := vars(c.vars).target(c.of); err != nil || got.url != c.url || got.timeout != 10*time.Second {
			t.Errorf("%v: %s within %s (%v); want %s", c.vars, got.url, got.timeout, err, c.url)
		}
	}
	got, err := vars(map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS": "a=b%20c, Authorization=Bearer%20x=y ,", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
		"OTEL_EXPORTER_OTLP_TIMEOUT": "1", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "250",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:hush@c",
	}).target(traces)
	if err != nil || got.headers["A"] != "b c" || got.headers["Authorization"] != "Bearer x=y" ||
		len(got.headers) != 2 || !got.gzip || got.timeout != 250*time.Millisecond ||
		strings.Contains(got.shown, "hush") {
		t.Errorf("%+v (%v)", got, err)
	}
	for name, value := range map[string]string{
		"ENDPOINT": "c:4318", "PROTOCOL": "grpc", "COMPRESSION": "br", "TIMEOUT": "-1", "HEADERS": "a",
		"CERTIFICATE": "/no/such", "CLIENT_KEY": "/no/such",
	} {
		of := map[string]string{"OTEL_EXPORTER_OTLP_TRACES_" + name: value}
		if _, err := vars(of).target(traces); !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_TRACES_"+name) {
			t.Errorf("%v: %v", of, err)
		}
	}
}

// answers is a collector that answers with one status after the other, and then with 200.
func answers(t *testing.T, status ...int) (*httptest.Server, *atomic.Int64) {
	asked := new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		if n := int(asked.Add(1)); n <= len(status) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status[n-1])
		}
	}))
	t.Cleanup(s.Close)
	return s, asked
}

// TestSend: what may pass is repeated, what cannot is not, and no header goes to another address.
func TestSend(t *testing.T) {
	for _, c := range []struct {
		status []int
		asked  int64
		fails  bool
	}{
		{nil, 1, false},
		{[]int{503}, 2, false},
		{[]int{400}, 1, true},
		{[]int{401}, 1, true},
		{[]int{307}, 1, true},
	} {
		s, asked := answers(t, c.status...)
		to := newSender(target{url: s.URL, shown: s.URL, timeout: 30 * time.Second})
		err := to.send(t.Context(), &metricspb.MetricsData{})
		if (err != nil) != c.fails || asked.Load() != c.asked {
			t.Errorf("%v: asked %d times (%v); want %d", c.status, asked.Load(), err, c.asked)
		}
	}
	s, _ := answers(t)
	s.Close()
	to := newSender(target{url: s.URL, shown: s.URL, timeout: 50 * time.Millisecond})
	if err := to.send(t.Context(), &metricspb.MetricsData{}); err == nil {
		t.Error("a collector that is not there took something")
	}
	for text, want := range map[string]time.Duration{"": 0, "3": 3 * time.Second, "-1": 0, "tomorrow": 0} {
		if got := retryAfter(text); got != want {
			t.Errorf("Retry-After %q is %s; want %s", text, got, want)
		}
	}
}

// TestOwnCA: a collector whose certificate a CA of the operator's has signed is trusted by its file, and by nothing
// else.
func TestOwnCA(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	must.OK(t, os.WriteFile(file, ca, 0o600))
	for _, trusted := range []bool{true, false} {
		of := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL, "OTEL_EXPORTER_OTLP_TIMEOUT": "1000"}
		if trusted {
			of["OTEL_EXPORTER_OTLP_CERTIFICATE"] = file
			of["OTEL_EXPORTER_OTLP_TIMEOUT"] = "30000"
		}
		to, err := vars(of).target(metrics)
		must.OK(t, err)
		if err := newSender(to).send(t.Context(), &metricspb.MetricsData{}); (err == nil) != trusted {
			t.Errorf("with the CA %t: %v", trusted, err)
		}
	}
	must.OK(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	if _, err := vars(map[string]string{"OTEL_EXPORTER_OTLP_CERTIFICATE": file}).target(traces); err == nil {
		t.Error("a file without a certificate was taken")
	}
}

// TestOff: without a variable there is no provider, nothing is read, and nothing runs.
func TestOff(t *testing.T) {
	tel, err := Open(t.Context(), Options{Env: vars(nil), Metrics: func(_, _ time.Time) ([]*metricspb.Metric, error) {
		t.Error("the metrics were read")
		return nil, nil
	}})
	must.OK(t, err)
	if tel.Provider() != nil {
		t.Error("there is a provider")
	}
	if err := tel.Close(); err != nil {
		t.Error(err)
	}
}

// TestPush: metrics are sent again and again, with who sends them, and once more at the end. What cannot be read or
// sent is logged.
func TestPush(t *testing.T) {
	var mu sync.Mutex
	var last *metricspb.MetricsData
	came := make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		got := &metricspb.MetricsData{}
		if err = errors.Join(err, proto.Unmarshal(data, got)); err != nil {
			t.Error(err)
		}
		mu.Lock()
		last = got
		mu.Unlock()
		came <- struct{}{}
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(s.Close)
	var log lockedBuffer
	reads := 0
	t.Setenv("OTEL_SERVICE_NAME", "ours")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=web")
	tel, err := Open(t.Context(), Options{Service: "theirs", Instance: "w-1",
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Env: vars(map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": s.URL,
			"OTEL_METRIC_EXPORT_INTERVAL": "100"}),
		Metrics: func(began, now time.Time) ([]*metricspb.Metric, error) {
			if reads++; reads == 1 {
				return nil, errors.New("the first cannot be read")
			}
			if now.Before(began) {
				t.Errorf("counted since %s at %s", began, now)
			}
			return []*metricspb.Metric{{Name: "m"}}, nil
		}})
	must.OK(t, err)
	<-came
	<-came
	if err := tel.Close(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	about := map[string]string{}
	for _, kv := range last.ResourceMetrics[0].Resource.Attributes {
		about[kv.Key] = kv.Value.GetStringValue()
	}
	if last.ResourceMetrics[0].ScopeMetrics[0].Metrics[0].Name != "m" || about["service.name"] != "ours" ||
		about["service.instance.id"] != "w-1" || about["team"] != "web" || about["telemetry.sdk.language"] != "go" {
		t.Errorf("sent %v by %v", last, about)
	}
	if !strings.Contains(log.String(), "the first cannot be read") {
		t.Errorf("the log says %q", log.String())
	}
}

// TestCloseDoesNotHang: a collector that does not answer holds the end up for the time of one export, and no longer.
func TestCloseDoesNotHang(t *testing.T) {
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(silent.Close)
	defer close(over)
	var log lockedBuffer
	tel, err := Open(t.Context(), Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Env: vars(map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": silent.URL, "OTEL_EXPORTER_OTLP_TIMEOUT": "50"}),
		Metrics: func(_, _ time.Time) ([]*metricspb.Metric, error) { return nil, nil }})
	must.OK(t, err)
	_, span := tel.Provider().Tracer("t").Start(context.Background(), "s")
	span.End()
	if err := tel.Close(); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "telemetry was not sent") || !strings.Contains(text, silent.URL) {
		t.Errorf("the log says %q", text)
	}
}

// TestSpansDoNotWaitForMetrics: a collector that does not take the last metrics costs no spans.
func TestSpansDoNotWaitForMetrics(t *testing.T) {
	spans := make(chan struct{})
	var once sync.Once
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil { // the end of a request is seen behind its body
			t.Error(err)
		}
		if r.URL.Path == traces.path {
			once.Do(func() { close(spans) })
			return
		}
		select {
		case <-spans:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000") // nothing is sent before the end
	tel, err := Open(t.Context(), Options{Log: slog.New(slog.DiscardHandler),
		Env:     vars(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL}),
		Metrics: func(_, _ time.Time) ([]*metricspb.Metric, error) { return nil, nil }})
	must.OK(t, err)
	_, span := tel.Provider().Tracer("t").Start(t.Context(), "s")
	span.End()
	if err := tel.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-spans:
	default:
		t.Error("the span was not sent")
	}
}

// lockedBuffer is a log that several goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
