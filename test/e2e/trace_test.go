//go:build unix

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// seen is a span as a collector got it.
type seen struct {
	*tracepb.Span
	service string
}

func (s seen) id() string     { return hex.EncodeToString(s.SpanId) }
func (s seen) parent() string { return hex.EncodeToString(s.ParentSpanId) }

// attr is an attribute as text; "" if there is none.
func attr(of []*commonpb.KeyValue, key string) string {
	for _, kv := range of {
		switch v := kv.Value.GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			if kv.Key == key {
				return v.StringValue
			}
		case *commonpb.AnyValue_IntValue:
			if kv.Key == key {
				return fmt.Sprint(v.IntValue)
			}
		}
	}
	return ""
}

func (s seen) is(key string) string { return attr(s.Attributes, key) }

// collector is a receiver of OTLP over HTTP. It takes the first request of each signal for one that it has no room for.
type collector struct {
	*httptest.Server
	refused  sync.Map
	requests atomic.Int64

	mu      sync.Mutex
	spans   []seen
	metrics map[string]map[string]bool // the names, by service
}

func startCollector(t *testing.T) *collector {
	c := &collector{metrics: map[string]map[string]bool{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.requests.Add(1)
		if _, again := c.refused.LoadOrStore(r.URL.Path+r.Header.Get("X-Of"), true); !again {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if err := c.take(r); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(r *http.Request) error {
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-protobuf" ||
		r.Header.Get("X-Key") != "a key" {
		return fmt.Errorf("headers %v", r.Header)
	}
	unpacked, err := gzip.NewReader(r.Body)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(unpacked)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.URL.Path {
	case "/v1/traces":
		var got tracepb.TracesData
		if err := proto.Unmarshal(data, &got); err != nil {
			return err
		}
		for _, rs := range got.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					c.spans = append(c.spans, seen{s, attr(rs.Resource.Attributes, "service.name")})
				}
			}
		}
	case "/v1/metrics":
		var got metricspb.MetricsData
		if err := proto.Unmarshal(data, &got); err != nil {
			return err
		}
		for _, rm := range got.ResourceMetrics {
			service := attr(rm.Resource.Attributes, "service.name")
			if c.metrics[service] == nil {
				c.metrics[service] = map[string]bool{}
			}
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					c.metrics[service][m.Name] = true
				}
			}
		}
	default:
		return fmt.Errorf("nobody sends that here")
	}
	return nil
}

// of are the spans of a trace, by when they began.
func (c *collector) of(trace string) (out []seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b seen) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	return out
}

// has waits until a trace has so many spans of a name, and returns them.
func (c *collector) has(t *testing.T, trace, name string, n int) (out []seen) {
	t.Helper()
	testenv.Until(t, fmt.Sprintf("the trace has %d spans %q", n, name), func() bool {
		out = slices.DeleteFunc(c.of(trace), func(s seen) bool { return s.Name != name })
		return len(out) == n
	})
	return out
}

// env is what has a command send to the collector, soon.
func (c *collector) env(args ...string) []string {
	return append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_EXPORTER_OTLP_HEADERS=x-key=a%20key",
		"OTEL_EXPORTER_OTLP_COMPRESSION=gzip", "OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_METRIC_EXPORT_INTERVAL=200"},
		reach(args)...)
}

// draw is a trace as a tree: what is done for the batch in the order of its life, the calls in theirs, and the phases
// of each as they came. What is done more or less often from run to run is one line.
func draw(spans []seen, root string) string {
	var b strings.Builder
	order := func(s seen) string {
		rank := slices.Index([]string{"plan", "ticket", "", "reply"}, s.Name)
		if s.is("toolyard.call.index") != "" {
			rank = 2
		}
		return fmt.Sprint(rank, s.is("toolyard.call.index"), s.is("toolyard.call.attempt"), s.Name != "queue")
	}
	var under func(parent, indent string)
	under = func(parent, indent string) {
		children := slices.DeleteFunc(slices.Clone(spans), func(s seen) bool { return s.parent() != parent })
		slices.SortStableFunc(children, func(a, b seen) int { return strings.Compare(order(a), order(b)) })
		drawn, phases := map[string]bool{}, ""
		for _, s := range children {
			line := s.Name
			if s.Name == "store" || slices.Contains(toolyard.Phases, toolyard.Phase(s.Name)) {
				if len(phases)+len(line) > 80 {
					fmt.Fprintln(&b, indent+phases)
					phases = ""
				}
				phases += line + "  "
				if s.Name == "store" {
					fmt.Fprintln(&b, indent+strings.TrimSpace(phases))
				}
				continue
			}
			if v := s.is("toolyard.call.attempt"); v > "1" {
				line += ", attempt " + v
			}
			if v := s.is("error.type"); v != "" {
				line += ": " + v
			}
			if drawn[line] && s.Name == "reply" {
				continue
			}
			drawn[line] = true
			where := strings.TrimPrefix(s.service, "toolyard-")
			if len(s.Links) > 0 {
				where += ", with a link to the batch that it waited for"
			}
			fmt.Fprintf(&b, "%-52s %s\n", indent+line, where)
			under(s.id(), indent+"  ")
		}
	}
	under(root, "")
	return strings.ReplaceAll(b.String(), "  \n", "\n")
}

const (
	agentsTrace = "0af7651916cd43dd8448eb211c80319c"
	agentsSpan  = "b7ad6b7169203331"
	agentsState = "vendor=t61rcWkgMzE,other@sys=a b"
)

// TestTrace: one trace leads from the agent's span to what a tool asks in turn, and back to the reply, over real
// processes and through a real collector's protocol. A call that is repeated has a span for each attempt, and a batch
// that waits for a workspace is linked to the one that had it.
func TestTrace(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	var asked atomic.Int64
	parents := make(chan string, 8)
	let, held := make(chan struct{}), make(chan struct{}, 1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/flaky":
			parents <- r.Header.Get("Traceparent")
			if asked.Add(1) == 1 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		case "/hold":
			held <- struct{}{}
			<-let
		}
	}))
	t.Cleanup(web.Close)
	file := must.File(t, "tools.yaml", `tools:
  - name: flaky
    description: Fails at first.
    concurrency_class: READ_ONLY
    is_read_only: true
    input_schema: {type: object}
    http: {url: "`+web.URL+`/flaky", method: GET}
  - name: hold
    description: Holds the workspace.
    concurrency_class: WRITE_EXCLUSIVE
    input_schema: {type: object}
    http: {url: "`+web.URL+`/hold", method: GET}
`)
	dir := workspace(t, map[string]string{"a.txt": "one\n"})
	data := testenv.StoreDir(t)
	d := startIn(t, 5, c.env(), "dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
		"--metrics-listen", "127.0.0.1:0", "--data", data)
	serve := []string{"serve", "--nats", d.says["nats"], "--workspace", "default=" + dir, "--metrics-listen",
		"127.0.0.1:0", "--permission-mode", "bypass", "--tools", file}
	w := startIn(t, 4, c.env(serve...), "worker", serve...)

	handIn := func(parent string, b toolyard.Batch, wait bool) {
		t.Helper()
		body := must.JSON(t, b)
		url := d.says["http"] + "/v1/batches"
		if wait {
			url += "?wait=60"
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
		must.OK(t, err)
		r.Header.Set("traceparent", parent)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		must.OK(t, err)
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil || wait && resp.StatusCode != http.StatusOK || resp.StatusCode > 202 {
			t.Fatalf("%s: %s %v", resp.Status, text, err)
		}
	}
	// One that holds the workspace, under a trace of its own.
	const others = "11111111111111111111111111111111"
	handIn("00-"+others+"-2222222222222222-01", toolyard.Batch{ID: "holder",
		Calls: []toolyard.Call{{ID: "h", Tool: "hold"}}}, false)
	<-held
	handIn("00-"+agentsTrace+"-"+agentsSpan+"-01", toolyard.Batch{ID: "b", Session: "s-1", Calls: []toolyard.Call{
		{ID: "c1", Tool: "read_file", Input: input(map[string]any{"file_path": "a.txt"})},
		{ID: "c2", Tool: "flaky"},
		{ID: "c3", Tool: "no_such_tool"},
	}}, false)
	tickets, err := newAgent(t, d.says["nats"]).js.KeyValue(t.Context(), "ty_ticket")
	must.OK(t, err)
	testenv.Until(t, "the second batch waits for the workspace", func() bool {
		e, err := tickets.Get(t.Context(), "default")
		return err == nil && bytes.Contains(e.Value(), []byte(`"batch":"b"`))
	})
	close(let)

	batch := c.has(t, agentsTrace, "batch", 1)[0]
	// The worker exports its spans by itself, perhaps after the dispatcher.
	read, flaky := c.has(t, agentsTrace, "execute_tool read_file", 1)[0], c.has(t, agentsTrace, "execute_tool flaky", 2)
	c.has(t, agentsTrace, "queue", 3)
	spans := c.of(agentsTrace)
	byName := map[string][]seen{}
	for _, s := range spans {
		byName[s.Name] = append(byName[s.Name], s)
	}
	one := func(name string) seen {
		t.Helper()
		if len(byName[name]) != 1 {
			t.Fatalf("%d spans %q:\n%s", len(byName[name]), name, draw(spans, agentsSpan))
		}
		return byName[name][0]
	}
	submit, unknown := one("submit"), one("execute_tool")
	for _, p := range []struct {
		is        seen
		under     string
		byWhom    string
		key, want string
	}{
		{submit, agentsSpan, "toolyard-dispatcher", "toolyard.door", "http"},
		{batch, submit.id(), "toolyard-dispatcher", "toolyard.batch.status", "completed"},
		{one("plan"), batch.id(), "toolyard-dispatcher", "toolyard.batch.calls", "3"},
		{read, batch.id(), "toolyard-worker", "gen_ai.tool.name", "read_file"},
		{read, batch.id(), "toolyard-worker", "gen_ai.operation.name", "execute_tool"},
		{read, batch.id(), "toolyard-worker", "gen_ai.tool.call.id", "c1"},
		{read, batch.id(), "toolyard-worker", "gen_ai.tool.type", "function"},
		{read, batch.id(), "toolyard-worker", "gen_ai.conversation.id", "s-1"},
		{read, batch.id(), "toolyard-worker", "error.type", ""},
		{flaky[0], batch.id(), "toolyard-worker", "error.type", "dependency_unavailable"},
		{flaky[0], batch.id(), "toolyard-worker", "toolyard.call.attempt", "1"},
		{flaky[1], batch.id(), "toolyard-worker", "error.type", ""},
		{flaky[1], batch.id(), "toolyard-worker", "toolyard.call.attempt", "2"},
		{unknown, batch.id(), "toolyard-dispatcher", "error.type", "unknown_tool"},
	} {
		if p.is.parent() != p.under || p.is.service != p.byWhom || p.is.is(p.key) != p.want {
			t.Errorf("%s of %s is under %s with %s %q; want %s, %s and %q", p.is.Name, p.is.service, p.is.parent(),
				p.key, p.is.is(p.key), p.byWhom, p.under, p.want)
		}
	}
	// What the tool was told is the span of its attempt.
	for n, s := range flaky {
		if got, want := <-parents, "00-"+agentsTrace+"-"+s.id()+"-01"; got != want {
			t.Errorf("attempt %d of the tool got the trace context %q; want %q", n+1, got, want)
		}
	}
	var phases []string
	for _, s := range spans {
		if s.parent() == read.id() {
			phases = append(phases, s.Name)
		}
	}
	want := []string{"store"}
	for _, p := range toolyard.Phases {
		want = append(want, string(p))
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(phases)); !slices.Equal(got, want) {
		t.Errorf("under the call are %q; want %q", got, want)
	}
	if n := len(byName["queue"]); n != 3 {
		t.Errorf("%d waits in the queue; want 3", n)
	}
	if len(byName["reply"]) == 0 {
		t.Error("no span of a reply")
	}
	// The batch waited for the other's ticket, and names its span.
	holder := c.has(t, others, "batch", 1)[0]
	links := 0
	for _, s := range byName["ticket"] {
		for _, l := range s.Links {
			if links++; hex.EncodeToString(l.TraceId) != others || !bytes.Equal(l.SpanId, holder.SpanId) {
				t.Errorf("the wait is linked to %x of %x; want %s of %s", l.SpanId, l.TraceId, holder.id(), others)
			}
		}
	}
	if links != 1 {
		t.Errorf("%d links to batches that held the workspace; want 1", links)
	}
	for _, s := range spans {
		if s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%s ends before it begins", s.Name)
		}
		if s.Name != "submit" && s.Name != "batch" && s.StartTimeUnixNano < submit.StartTimeUnixNano {
			t.Errorf("%s begins before its batch was handed in", s.Name)
		}
	}

	// The picture in the documents is this trace.
	page := must.Read(t, filepath.Join("..", "..", "docs", "traces.md"))
	if picture := draw(spans, agentsSpan); !strings.Contains(string(page), picture) {
		t.Errorf("docs/traces.md does not show this trace:\n%s", picture)
	}

	// Metrics have the names that /metrics has.
	for _, p := range []*process{d, w} {
		service := "toolyard-dispatcher"
		if p == w {
			service = "toolyard-worker"
		}
		_, text := got(t, p.says["metrics"], "/metrics")
		testenv.Until(t, service+" has sent the metrics that it shows", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			for line := range strings.Lines(text) {
				name, ok := strings.CutPrefix(line, "# TYPE ")
				if name, _, _ = strings.Cut(name, " "); ok && !c.metrics[service][name] {
					return false
				}
			}
			return strings.Count(text, "# TYPE toolyard_") >= 8
		})
	}
	// What is left is sent at the end.
	for _, p := range []*process{w, d} {
		if status := p.stop(syscall.SIGTERM); status != 0 {
			t.Errorf("it ended with status %d", status)
		}
	}
}

// TestNoTraceByDefault: without the variables nothing connects to a collector, not even where collectors are by
// default, and one that says none wins over an endpoint. The agent's trace context still comes to the tool.
func TestNoTraceByDefault(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	parents := make(chan string, 4)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		parents <- strings.Join([]string{r.Header.Get("Traceparent"), r.Header.Get("Tracestate"),
			r.Header.Get("Baggage")}, "|")
	}))
	t.Cleanup(web.Close)
	file := must.File(t, "tools.yaml", `tools:
  - name: ask
    description: Asks.
    concurrency_class: READ_ONLY
    is_read_only: true
    input_schema: {type: object}
    http: {url: "`+web.URL+`/", method: GET}
`)
	for name, env := range map[string][]string{
		"no variable":   nil,
		"none":          {"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none"},
		"the SDK's own": {"OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=otlp"},
	} {
		if env != nil {
			env = append(env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_METRIC_EXPORT_INTERVAL=100")
		}
		d := startIn(t, 4, env, "dispatcher", "serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
			"--data", t.TempDir(), "--with-worker", "--tools", file, "--permission-mode", "bypass")
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.says["http"]+"/v1/batches?wait=60",
			strings.NewReader(`{"calls":[{"id":"c","tool":"ask"}]}`))
		must.OK(t, err)
		parent := "00-" + agentsTrace + "-" + agentsSpan + "-01"
		r.Header.Set("traceparent", parent)
		r.Header["Tracestate"] = strings.Split(agentsState, ",")
		r.Header.Set("baggage", "user = ann")
		want := parent + "|" + agentsState + "|user=ann"
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		must.OK(t, err)
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %v", name, resp.Status, err)
		}
		if got := <-parents; got != want {
			t.Errorf("%s: the tool got the trace context %q; want the agent's", name, got)
		}
		submit := []string{"submit", "--nats", d.says["nats"],
			batchFile(t, toolyard.Batch{ID: "by-command", Calls: []toolyard.Call{{ID: "c", Tool: "ask"}}})}
		if _, stderr, status := runIn(t, nil, append(reach(submit), "TRACEPARENT="+parent,
			"TRACESTATE="+agentsState, "BAGGAGE=user=ann"), "dispatcher", submit...); status != 0 {
			t.Errorf("%s: submit: status %d\n%s", name, status, stderr)
		} else if got := <-parents; got != want {
			t.Errorf("%s: the tool of a submitted file got the trace context %q; want the agent's", name, got)
		}
		if status := d.stop(syscall.SIGTERM); status != 0 {
			t.Errorf("%s: it ended with status %d", name, status)
		}
	}
	if n := c.requests.Load(); n != 0 {
		t.Errorf("the collector had %d requests", n)
	}
}

// TestBadTelemetryVariables are usage errors that name the variable, and never show what may be a secret.
func TestBadTelemetryVariables(t *testing.T) {
	t.Parallel()
	for variable, value := range map[string]string{
		"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_METRICS_EXPORTER": "statsd",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_COMPRESSION": "zip",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "ftp://user:hush@collector", "OTEL_EXPORTER_OTLP_HEADERS": "hush",
		"OTEL_EXPORTER_OTLP_TIMEOUT": "soon", "OTEL_METRIC_EXPORT_INTERVAL": "1",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/such/file",
	} {
		env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9", variable + "=" + value}
		for name, args := range map[string][]string{
			"worker":     {"serve", "--nats", "nats://127.0.0.1:9"},
			"dispatcher": {"serve", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--data", t.TempDir()},
		} {
			_, stderr, status := runIn(t, nil, env, name, args...)
			if status != 2 || !strings.Contains(stderr, variable) || strings.Contains(stderr, "hush") {
				t.Errorf("%s with %s=%s: status %d\n%s", name, variable, value, status, stderr)
			}
		}
	}
}
