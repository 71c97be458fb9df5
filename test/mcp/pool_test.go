package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/elicit"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/mcp/server"
	"github.com/toolyard/toolyard/internal/natsd"
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

// The protocol's two ways.
const (
	alone   = "2026-07-28" // every request stands alone
	session = "2025-11-25" // a session begins with a handshake
)

// inBoth runs a test in both ways.
func inBoth(t *testing.T, run func(t *testing.T, way string)) {
	for _, way := range []string{alone, session} {
		t.Run(way, func(t *testing.T) { run(t, way) })
	}
}

// pool is a system with an MCP server in front of it.
type pool struct {
	*testing.T
	nats   *natsd.Server
	broker *natsbroker.Broker
	client *client.Client
	mcp    *server.Server
	url    string
	// closeDoor ends the requests over HTTP.
	closeDoor func()
	// gate lets one call of the tool "wait" end each time, began says that one has begun, and ended why one has ended.
	gate, began chan struct{}
	ended       chan error
	writes      atomic.Int64
}

type runs interface {
	Run(context.Context) error
	Ready() <-chan struct{}
}

// begin runs a part until the test ends, or the returned function is called.
func begin(t *testing.T, r runs) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	end = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("a part ended with %v", err)
		}
	})
	t.Cleanup(end)
	testenv.Within(t, "a part is ready", r.Ready())
	return end
}

// made is a tool that takes a text, and reads unless it writes.
func made(t *testing.T, name string, change func(*tool.Declaration),
	run func(context.Context, tool.Env, string) (tool.Output, error)) tool.Tool {
	t.Helper()
	no := false
	d := tool.Declaration{
		Name: name, Description: "A tool of a test.", Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true,
		MaxResultSizeChars: 1_000, UsesWorkspace: &no, RequiresPermission: &no,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"additionalProperties":false}`),
	}
	if change != nil {
		change(&d)
	}
	out, err := tool.Raw(tool.Tool{Declaration: d, Run: func(ctx context.Context, env tool.Env,
		input json.RawMessage) (tool.Output, error) {
		var in struct{ Text string }
		if err := json.Unmarshal(input, &in); err != nil {
			return tool.Output{}, err
		}
		return run(ctx, env, in.Text)
	}})
	must.OK(t, err)
	return out
}

var long = strings.Repeat("äb", 3_000)

func (p *pool) tools() []tool.Tool {
	writes := func(d *tool.Declaration) {
		d.ReadOnly, d.Class.Static, d.RequiresPermission = false, toolyard.WriteExclusive, nil
	}
	return []tool.Tool{
		made(p.T, "echo", nil, func(_ context.Context, _ tool.Env, text string) (tool.Output, error) {
			return tool.Output{Text: text}, nil
		}),
		made(p.T, "fail", nil, func(context.Context, tool.Env, string) (tool.Output, error) {
			return tool.Output{}, errors.New("it does not work")
		}),
		made(p.T, "long", nil, func(context.Context, tool.Env, string) (tool.Output,
			error) {
			return tool.Output{Text: long}, nil
		}),
		made(p.T, "count", func(d *tool.Declaration) {
			d.OutputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
		}, func(_ context.Context, _ tool.Env, text string) (tool.Output, error) {
			n, err := json.Marshal(map[string]int{"n": len(text)})
			return tool.Output{Text: string(n), Structured: n}, err
		}),
		made(p.T, "picture", nil, func(_ context.Context, _ tool.Env, rest string) (tool.Output, error) {
			return tool.Output{Content: []toolyard.Content{
				{Type: toolyard.ContentText, Text: "a picture"},
				{Type: toolyard.ContentImage, MIMEType: "image/png", Data: []byte("\x89PNG" + rest)},
				{Type: toolyard.ContentAudio, MIMEType: "audio/wav", Data: []byte("RIFF")},
				{Type: toolyard.ContentResource, URI: "test://here", MIMEType: "text/plain", Text: "a document"},
				{Type: toolyard.ContentLink, URI: "test://there", Name: "another"},
			}}, nil
		}),
		made(p.T, "steps", nil, func(ctx context.Context, env tool.Env, text string) (tool.Output, error) {
			for i, status := range []string{"begins", "goes on", "is nearly done"} {
				env.Progress(tool.Progress{Fraction: float64(i) / 4, Status: status})
				select {
				case <-p.gate:
				case <-ctx.Done():
					return tool.Output{}, context.Cause(ctx)
				}
				if i == 1 && text == "ask" && elicit.From(ctx).Answer == nil { // and begins anew with the answer
					q, err := elicit.New(toolyard.Form{Server: "s", Message: "Go on?", Schema: json.RawMessage(
						`{"type":"object","properties":{"said":{"type":"string"}}}`)}, "k", "asked")
					if err != nil {
						return tool.Output{}, err
					}
					return tool.Output{}, q
				}
			}
			return tool.Output{Text: "done"}, nil
		}),
		made(p.T, "wait", nil, func(ctx context.Context, _ tool.Env, _ string) (tool.Output, error) {
			p.began <- struct{}{}
			select {
			case <-p.gate:
				return tool.Output{Text: "waited"}, nil
			case <-ctx.Done():
				p.ended <- context.Cause(ctx)
				return tool.Output{}, context.Cause(ctx)
			}
		}),
		made(p.T, "write", writes, func(_ context.Context, _ tool.Env, text string) (tool.Output, error) {
			p.writes.Add(1)
			return tool.Output{Text: "wrote " + text}, nil
		}),
		made(p.T, "ask", nil, func(ctx context.Context, _ tool.Env, text string) (tool.Output, error) {
			in := elicit.From(ctx)
			if in.Mute != "" {
				return tool.Output{}, errors.New(in.Mute)
			}
			question, state := "Who are you?", ""
			if in.Answer != nil {
				if in.Answer.State != "" {
					return tool.Output{Text: in.Answer.State + string(in.Answer.Content)}, nil
				}
				question, state = cmp.Or(text, "And how old?"), string(in.Answer.Content)
			}
			q, err := elicit.New(toolyard.Form{Server: "s", Message: question, Schema: json.RawMessage(
				`{"type":"object","properties":{"said":{"type":"string"}},"required":["said"]}`)}, "k", state)
			if err != nil {
				return tool.Output{}, err
			}
			return tool.Output{}, q
		}),
		made(p.T, "late.tool", func(d *tool.Declaration) { d.ShouldDefer = true },
			func(context.Context, tool.Env, string) (tool.Output, error) {
				return tool.Output{Text: "it was loaded"}, nil
			}),
		made(p.T, "blocked", nil, func(context.Context, tool.Env, string) (tool.Output, error) {
			return tool.Output{}, errors.New("it ran")
		}),
	}
}

const tokens = "token-of-a agent-a interactive=yes\ntoken-of-b agent-b interactive=yes\ntoken-of-all *\n"

// start starts a system. change may change what the MCP server is made of.
func start(t *testing.T, change func(*server.Config)) *pool {
	t.Helper()
	p := &pool{T: t, gate: make(chan struct{}), began: make(chan struct{}, 10), ended: make(chan error, 10),
		nats: testenv.Server(t)}
	p.work("default", p.tools()...)
	begin(t, dispatcher.New(testenv.Broker(t, p.nats, "/dispatcher/test"),
		dispatcher.Config{Log: testenv.Log(t), Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}},
			RunCode: true}))
	p.broker = testenv.Broker(t, p.nats, "/api/test")
	var err error
	if p.client, err = client.Connect(t.Context(), testenv.Conn(t, p.nats), client.Options{}); err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{Client: p.client, Log: testenv.Log(t), Version: "test"}
	if change != nil {
		change(&cfg)
	}
	if p.mcp, err = server.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.mcp.Stop)
	p.follow()
	p.url = p.door(p.mcp)
	return p
}

// door serves an MCP server over HTTP, and returns its URL.
func (p *pool) door(m *server.Server) string {
	p.Helper()
	who, err := api.ParseTokens([]byte(tokens))
	must.OK(p, err)
	door, err := api.New(api.Config{Client: p.client, Reader: follow.New(p.broker, follow.Options{Shared: true}),
		Tokens: who, Log: testenv.Log(p.T),
		Ready: func() error { return nil }})
	must.OK(p, err)
	door.Mount("/mcp", server.MaxRequestBytes, m.Serve)
	p.closeDoor = door.Stop
	web := httptest.NewServer(door)
	p.Cleanup(func() {
		door.Stop()
		web.CloseClientConnections()
		web.Close()
	})
	return web.URL + "/mcp"
}

// work starts a worker, which ends with the test or when the returned function is called.
func (p *pool) work(name toolyard.Pool, tools ...tool.Tool) (end func()) {
	p.Helper()
	w, err := worker.New(testenv.Broker(p.T, p.nats, broker.SourceWorker+string(name)), worker.Config{
		Tools: tools, Pool: name, Log: testenv.Log(p.T), Origin: registry.Toolset, Mode: policy.Default,
		DrainGrace: 500 * time.Millisecond,
	})
	must.OK(p, err)
	return begin(p.T, w)
}

// follow has the server list what the workers offer, but for one tool.
func (p *pool) follow() {
	p.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(p.Context()))
	listed, done := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(listed) })
	go func() {
		defer close(done)
		blocks := func(name string, _ []string) bool { return name == "blocked" }
		follow.Offers{Store: p.broker, Blocked: blocks, Log: testenv.Log(p.T)}.Follow(ctx,
			func(s registry.Surface) error {
				defer first()
				return p.mcp.SetSurface(s)
			})
	}()
	p.Cleanup(func() {
		stop()
		<-done
	})
	testenv.Within(p, "tools are listed", listed)
}

// bearer sends a token with each request.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// connect connects a client of an agent. opts may be nil.
func (p *pool) connect(way, token string, opts *sdk.ClientOptions) *sdk.ClientSession {
	p.Helper()
	return connect(p.T, way, opts, &sdk.StreamableClientTransport{Endpoint: p.url,
		HTTPClient: &http.Client{Transport: bearer{token}}})
}

func connect(t *testing.T, way string, opts *sdk.ClientOptions, transport sdk.Transport) *sdk.ClientSession {
	t.Helper()
	if opts == nil {
		opts = &sdk.ClientOptions{}
	}
	opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, opts).Connect(ctx, transport,
		&sdk.ClientSessionOptions{ProtocolVersion: way})
	must.OK(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func waiting(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// called calls a tool.
func called(t *testing.T, c *sdk.ClientSession, name string, input any) *sdk.CallToolResult {
	t.Helper()
	r, err := c.CallTool(waiting(t), &sdk.CallToolParams{Name: name, Arguments: input})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

// wantText checks a result that is one text.
func wantText(t *testing.T, r *sdk.CallToolResult, isError bool, text string) {
	t.Helper()
	if r.IsError != isError || len(r.Content) != 1 || !strings.Contains(textOf(r), text) {
		t.Errorf("got %s (error: %t), want a text with %q (error: %t)", textOf(r), r.IsError, text, isError)
	}
}

// textOf is the text of the first part.
func textOf(r *sdk.CallToolResult) string {
	if len(r.Content) > 0 {
		if c, ok := r.Content[0].(*sdk.TextContent); ok {
			return c.Text
		}
	}
	return ""
}

// wantCode checks an error of the protocol.
func wantCode(t *testing.T, err error, code int64, words string) {
	t.Helper()
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, words) {
		t.Errorf("got %v, want the error %d with %q", err, code, words)
	}
}
