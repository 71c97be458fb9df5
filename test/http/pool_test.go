package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/metrics"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// patience bounds what a test waits for.
const patience = 60 * time.Second

// pool is a system with HTTP in front of it.
type pool struct {
	testing.TB
	url    string
	api    *api.Server
	broker *natsbroker.Broker
	client *client.Client
	// nc is the connection of the HTTP server's broker.
	nc *nats.Conn
	// gate lets one call of the tool "wait" end each time.
	gate chan struct{}
}

type runs interface {
	Run(context.Context) error
	Ready() <-chan struct{}
}

func begin(t testing.TB, r runs) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("a part ended with %v", err)
		}
	})
	testenv.Within(t, "a part is ready", r.Ready())
}

type input struct {
	Text string `json:"text,omitempty"`
}

// tools are echo, which reads; wait and talk, which read and end when the test says so, talk with reports of progress;
// write, which must be allowed; and long, whose output is offloaded.
func (p *pool) tools() (out []tool.Tool) {
	add := func(name string, class toolyard.Class, reads bool,
		run func(context.Context, tool.Env, input) (string, error)) {
		t, err := tool.New(tool.Typed[input, string]{
			Declaration: tool.Declaration{
				Name: name, Description: "A tool of a test.", Class: tool.ClassRule{Static: class}, ReadOnly: reads,
				MaxResultSizeChars: 1_000,
			}, Run: run,
		})
		must.OK(p, err)
		out = append(out, t)
	}
	add("echo", toolyard.ReadOnly, true, func(_ context.Context, _ tool.Env, in input) (string, error) {
		return in.Text,
			nil
	})
	add("write", toolyard.WriteExclusive, false, func(_ context.Context, _ tool.Env, in input) (string,
		error) {
		return "wrote " + in.Text, nil
	})
	add("long", toolyard.ReadOnly, true, func(_ context.Context, _ tool.Env, in input) (string, error) {
		return strings.Repeat("äb", 3_000), nil
	})
	add("talk", toolyard.ReadOnly, true, func(ctx context.Context, env tool.Env, in input) (string, error) {
		again := time.NewTicker(20 * time.Millisecond) // who comes late hears it too
		defer again.Stop()
		for {
			env.Progress(tool.Progress{Fraction: 0.5, Status: "half", Output: "a line of " + in.Text + "\n"})
			select {
			case <-p.gate:
				return "talked", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-again.C:
			}
		}
	})
	add("wait", toolyard.WriteExclusive, true, func(ctx context.Context, _ tool.Env, in input) (string, error) {
		select {
		case <-p.gate:
			return "waited", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	return append(out, shot())
}

// start starts a system. change may change what the HTTP server is made of.
func start(t testing.TB, change func(*api.Config)) *pool {
	t.Helper()
	return startWith(t, dispatcher.Config{}, func(cfg *api.Config, _ *dispatcher.Dispatcher) {
		if change != nil {
			change(cfg)
		}
	})
}

// startFor starts a system that asks for these tokens, as a file has them.
func startFor(t testing.TB, file string) *pool {
	t.Helper()
	return start(t, func(c *api.Config) { c.Tokens, c.Loopback = tokensOf(t, file), false })
}

// tokensOf reads tokens.
func tokensOf(t testing.TB, file string) *api.Tokens {
	t.Helper()
	tokens, err := api.ParseTokens([]byte(file))
	must.OK(t, err)
	return tokens
}

// startWith starts a system with a dispatcher that has these limits.
func startWith(t testing.TB, limits dispatcher.Config, change func(*api.Config, *dispatcher.Dispatcher)) *pool {
	t.Helper()
	p := &pool{TB: t, gate: make(chan struct{})}
	s := testenv.Server(t)
	w, err := worker.New(testenv.Broker(t, s, "/worker/test"), worker.Config{
		Tools: p.tools(), Log: testenv.Log(t), Origin: registry.Toolset, Mode: policy.Default,
		DrainGrace: 500 * time.Millisecond,
	})
	must.OK(t, err)
	begin(t, w)
	var d *dispatcher.Dispatcher
	observed := metrics.New(func() bool { return true })
	counted := observed.Dispatcher(func() metrics.Load { return metrics.Load(d.Load()) })
	limits.Log, limits.Planner, limits.Meter = testenv.Log(t), dispatcher.Planner{Pipeline: &pipeline.Pipeline{}},
		counted
	d = dispatcher.New(testenv.Broker(t, s, "/dispatcher/test"), limits)
	begin(t, d)
	p.nc = testenv.Conn(t, s)
	if p.broker, err = natsbroker.Attach(t.Context(), p.nc, "/api/test"); err != nil {
		t.Fatal(err)
	}
	nc := testenv.Conn(t, s)
	if p.client, err = client.Connect(t.Context(), nc, client.Options{}); err != nil {
		t.Fatal(err)
	}
	cfg := api.Config{
		Client: p.client, Reader: follow.New(p.broker, follow.Options{Shared: true}),
		Loopback: true, Log: testenv.Log(t), Surface: d.Surface, Metrics: observed, Waiting: p.broker.CountApprovals,
		Ready: func() error {
			if !nc.IsConnected() {
				return errors.New("not connected to NATS")
			}
			return nil
		},
	}
	change(&cfg, d)
	if p.api, err = api.New(cfg); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p.api)
	t.Cleanup(func() {
		p.api.Stop()
		server.CloseClientConnections()
		server.Close()
	})
	p.url = server.URL
	return p
}

// reply is an answer that was read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, bytes.TrimSpace(r.body)) }

// request makes a request; headers are pairs of a name and a value. A body is JSON unless they say otherwise.
func (p *pool) request(method, path, body string, headers ...string) *http.Request {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	p.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	must.OK(p, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	return r
}

// do sends a request and reads its answer. A problem is checked for its form.
func (p *pool) do(method, path, body string, headers ...string) reply {
	p.Helper()
	res, err := http.DefaultClient.Do(p.request(method, path, body, headers...))
	must.OK(p, err)
	data, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		p.Fatal(err)
	}
	r := reply{res.StatusCode, res.Header, data}
	if r.status >= 400 {
		var problem api.Problem
		if err := json.Unmarshal(data, &problem); err != nil || problem.Status != r.status ||
			problem.Type != "about:blank" && !strings.HasPrefix(problem.Type, "urn:toolyard:problem:") ||
			problem.Title == "" ||
			problem.Detail == "" || r.header.Get("Content-Type") != "application/problem+json" {
			p.Errorf("%s %s: %s is no problem document (%s)", method, path, r, r.header.Get("Content-Type"))
		}
	}
	return r
}

// want sends a request whose status is known, and reads its answer as T.
func want[T any](p *pool, status int, method, path, body string, headers ...string) (out T) {
	p.Helper()
	r := p.do(method, path, body, headers...)
	if r.status != status {
		p.Fatalf("%s %s: %s; want %d", method, path, r, status)
	}
	if err := json.Unmarshal(r.body, &out); err != nil {
		p.Fatalf("%s %s: %s: %v", method, path, r, err)
	}
	return out
}

// event is a server-sent event.
type event struct{ id, name, data string }

// stream opens a stream of events and returns a function that reads the next; ok is false at its end.
func (p *pool) stream(path string, headers ...string) (next func() (event, bool), closeIt func()) {
	p.Helper()
	res, err := http.DefaultClient.Do(p.request(http.MethodGet, path, "",
		append([]string{"Accept", "text/event-stream"}, headers...)...))
	must.OK(p, err)
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		data, err := io.ReadAll(res.Body)
		p.Fatalf("%s: %d %s %v", path, res.StatusCode, data, err)
	}
	closeIt = func() { _ = res.Body.Close() }
	p.Cleanup(closeIt)
	return eventsOf(res.Body), closeIt
}

// all reads a stream to its end.
func all(next func() (event, bool)) (out []event) {
	for {
		e, ok := next()
		if !ok {
			return out
		}
		out = append(out, e)
	}
}

func decode[T any](p *pool, data string) (out T) {
	p.Helper()
	if err := json.Unmarshal([]byte(data), &out); err != nil {
		p.Fatalf("%s: %v", data, err)
	}
	return out
}
