package toolsets

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/command"
	"github.com/toolyard/toolyard/internal/endpoint"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// server is an MCP server over HTTP, with a tool that answers and one that does not.
type server struct {
	mcp  *mcp.Server
	web  *httptest.Server
	hung chan struct{} // has something in it for each call that has begun to hang
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{mcp: mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil),
		hung: make(chan struct{}, 100)}
	over := make(chan struct{})
	s.add("echo", func(_ context.Context, r *mcp.CallToolRequest) string {
		key, _ := r.Params.Meta["dev.toolyard/idempotency-key"].(string)
		return string(r.Params.Arguments) + " " + key
	})
	s.add("hang", func(ctx context.Context, _ *mcp.CallToolRequest) string {
		s.hung <- struct{}{}
		select {
		case <-ctx.Done():
		case <-over:
		}
		return "too late"
	})
	s.web = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp }, nil))
	t.Cleanup(func() { close(over); s.web.CloseClientConnections(); s.web.Close() })
	return s
}

func (s *server) add(name string, says func(context.Context, *mcp.CallToolRequest) string) {
	s.mcp.AddTool(&mcp.Tool{Name: name,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}}}`)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: says(ctx, r)}}}, nil
		})
}

// TestAServerThatHangsHoldsUpNothingElse: its calls take none of the worker's slots, of which there is one of each
// kind.
func TestAServerThatHangsHoldsUpNothingElse(t *testing.T) {
	bad, good := serve(t), serve(t)
	one1 := map[toolyard.Class]int{toolyard.ReadOnly: 1, toolyard.WriteExclusive: 1, toolyard.Unsafe: 1}
	_, c := pool(t, worker.Config{
		Tools: []tool.Tool{inWorker(t, tool.Declaration{Name: "local",
			Class: tool.ClassRule{Static: toolyard.WriteExclusive}}, "local says")},
		Toolsets: []worker.Toolset{
			set(t, manifest.Server{Name: "bad", URL: bad.web.URL, MaxInFlight: 3}),
			set(t, manifest.Server{Name: "good", URL: good.web.URL}),
			set(t, manifest.Server{Name: "never", Command: []string{"sleep", "1000"}}),
		},
		ToolsetWait: time.Second, Slots: one1,
	})
	eventually(t, c, "warm", call("mcp__bad__echo", `{}`), func(r toolyard.Result) bool { return !r.IsError })
	for _, agent := range []string{"h1", "h2", "h3", "h4", "h5"} { // more than there are places on it
		submit(t, c, agent, call("mcp__bad__hang", `{}`))
	}
	for range 3 {
		testenv.Within(t, "the server hangs", bad.hung)
	}
	began := time.Now()
	for range 5 {
		rs := results(t, submit(t, c, "other", call("local", `{}`), call("mcp__good__echo", `{"a":1}`)))
		contains(t, rs[0], "local says")
		contains(t, rs[1], `{"a":1} ty-`)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("calls beside a server that hangs took %s", took)
	}
}

// TestANewToolIsOfferedToTheNextBatch: list_changed becomes a new surface.
func TestANewToolIsOfferedToTheNextBatch(t *testing.T) {
	s := serve(t)
	_, c := pool(t, worker.Config{Toolsets: []worker.Toolset{set(t, manifest.Server{Name: "s", URL: s.web.URL})},
		ToolsetWait: patience})
	if r := one(t, c, "a", call("mcp__s__new", `{}`)); r.Code != toolyard.UnknownTool {
		t.Errorf("a tool that is not there: %q %s", r.Code, r.Error)
	}
	s.add("new", func(context.Context, *mcp.CallToolRequest) string { return "new says" })
	r := eventually(t, c, "a", call("mcp__s__new", `{}`),
		func(r toolyard.Result) bool { return r.Code != toolyard.UnknownTool })
	contains(t, r, "new says")
	if r.Class != toolyard.Unsafe {
		t.Errorf("the call was %s", r.Class)
	}
	s.mcp.RemoveTools("new")
	eventually(t, c, "a", call("mcp__s__new", `{}`),
		func(r toolyard.Result) bool { return r.Code == toolyard.UnknownTool })
	contains(t, one(t, c, "a", call("mcp__s__echo", `{}`)), "{}")
}

// TestAToolThatIsWithdrawnInMidBatch: its calls that have not begun are calls of a tool that there is not, at once.
// While another worker of the pool has the tool, they run there.
func TestAToolThatIsWithdrawnInMidBatch(t *testing.T) {
	s := serve(t)
	held, release := make(chan struct{}, 2), make(chan struct{})
	hold := func(context.Context, *mcp.CallToolRequest) string {
		held <- struct{}{}
		<-release
		return "held"
	}
	s.add("hold", hold)
	says := func(context.Context, *mcp.CallToolRequest) string { return "new says" }
	s.add("new", says)
	system, c := pool(t, worker.Config{Toolsets: []worker.Toolset{set(t, manifest.Server{Name: "s", URL: s.web.URL})},
		ToolsetWait: patience})
	during := func(agent string, withdraw func()) []toolyard.Result {
		b := submit(t, c, agent, call("mcp__s__hold", `{}`), call("mcp__s__new", `{}`))
		testenv.Within(t, "the first call begins", held)
		withdraw()
		release <- struct{}{}
		return results(t, b)
	}
	rs := during("a", func() {
		s.mcp.RemoveTools("new")
		for { // until its worker knows
			b, err := c.Submit(t.Context(), toolyard.Batch{Agent: "b", Workspace: "other",
				Calls: []toolyard.Call{call("mcp__s__new", `{}`)}})
			must.OK(t, err)
			if results(t, b)[0].Code == toolyard.UnknownTool {
				return
			}
		}
	})
	if r := rs[1]; rs[0].IsError || r.Code != toolyard.UnknownTool || r.Phases[0].Phase != toolyard.PhaseResolveTool ||
		r.Retryable {
		t.Errorf("the withdrawn tool's call ended as %q %q, %+v", r.Code, r.Error, r.Phases)
	}
	// It is offered again, and withdrawn by one of two workers.
	second := serve(t)
	second.add("hold", hold)
	second.add("new", says)
	kept := set(t, manifest.Server{Name: "s", URL: second.web.URL})
	s.add("new", says)
	eventually(t, c, "c", call("mcp__s__new", `{}`), func(r toolyard.Result) bool { return !r.IsError })
	join(t, system, worker.Config{Toolsets: []worker.Toolset{kept}, ToolsetWait: patience})
	b := testenv.Broker(t, system, "/dispatcher/looks")
	until := func(what string, good func(ws []broker.Worker) bool) {
		t.Helper()
		testenv.Until(t, what, func() bool {
			ws, err := b.Workers(t.Context())
			must.OK(t, err)
			return len(ws) == 2 && good(ws)
		})
	}
	until("both workers have the tool", func(ws []broker.Worker) bool { return ws[0].Tools == ws[1].Tools })
	rs = during("d", func() {
		s.mcp.RemoveTools("new")
		until("its worker knows", func(ws []broker.Worker) bool { return ws[0].Tools != ws[1].Tools })
	})
	if rs[1].IsError {
		t.Errorf("another worker has the tool, and its call ended as %q %q", rs[1].Code, rs[1].Error)
	}
}

// TestAServerThatIsGone: its calls fail at once and open its breaker; other toolsets' calls go on, and its own when it
// is back.
func TestAServerThatIsGone(t *testing.T) {
	gone, good := serve(t), serve(t)
	_, c := pool(t, worker.Config{Toolsets: []worker.Toolset{
		set(t, manifest.Server{Name: "gone", URL: gone.web.URL}),
		set(t, manifest.Server{Name: "good", URL: good.web.URL}),
	}, ToolsetWait: patience})
	contains(t, one(t, c, "a", call("mcp__gone__echo", `{}`)), "{}")
	gone.web.CloseClientConnections()
	must.OK(t, gone.web.Listener.Close())
	r := eventually(t, c, "a", call("mcp__gone__echo", `{}`),
		func(r toolyard.Result) bool { return r.Code == toolyard.DependencyUnavailable })
	if !r.Retryable {
		t.Errorf("it may be there later: %+v", r)
	}
	eventually(t, c, "a", call("mcp__gone__hang", `{}`),
		func(r toolyard.Result) bool { return strings.Contains(r.Error, "is down; it was not tried") })
	contains(t, one(t, c, "a", call("mcp__good__echo", `{}`)), "{}")
}

// fixed is a toolset of one tool that never changes.
type fixed struct {
	origin registry.Origin
	tools  []tool.Tool
}

func (f fixed) Name() string               { return "fixed" }
func (f fixed) Origin() registry.Origin    { return f.origin }
func (f fixed) Slots() int                 { return 1 }
func (f fixed) Run(ctx context.Context)    { <-ctx.Done() }
func (f fixed) Tools() []tool.Tool         { return f.tools }
func (f fixed) Changed() <-chan struct{}   { return nil }
func (f fixed) Remarks() []registry.Remark { return nil }
func (f fixed) Settled() <-chan struct{}   { c := make(chan struct{}); close(c); return c }

// TestABuiltInToolWins over one of a server that has its name, and one that cannot be used harms no other.
func TestABuiltInToolWins(t *testing.T) {
	d := tool.Declaration{Name: "read_file", Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true}
	fake, other, broken := inWorker(t, d, "the server's"), d, inWorker(t, tool.Declaration{Name: "broken"}, "")
	other.Name = "other"
	broken.InputSchema = json.RawMessage(`{"type":"nonsense"}`)
	_, c := pool(t, worker.Config{
		Tools:    []tool.Tool{inWorker(t, d, "the built-in one")},
		Toolsets: []worker.Toolset{fixed{registry.MCP, []tool.Tool{fake, broken, inWorker(t, other, "other says")}}},
	})
	contains(t, one(t, c, "a", call("read_file", `{}`)), "the built-in one")
	contains(t, one(t, c, "a", call("other", `{}`)), "other says")
	if r := one(t, c, "a", call("broken", `{}`)); r.Code != toolyard.UnknownTool {
		t.Errorf("a tool that cannot be used: %q", r.Code)
	}
}

// TestTwoServersOfOneName: the first keeps its tools, also where the second declares them alike; the log names what is
// left out.
func TestTwoServersOfOneName(t *testing.T) {
	d := tool.Declaration{Name: "mcp__s__find", Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true}
	first, second := inWorker(t, d, "the first"), inWorker(t, d, "the second")
	_, c := pool(t, worker.Config{Toolsets: []worker.Toolset{fixed{registry.MCP, []tool.Tool{first}},
		fixed{registry.MCP, []tool.Tool{second}}}})
	contains(t, one(t, c, "a", call("mcp__s__find", `{}`)), "the first")
}

// TestAPoolOffersWhatAnyOfItsWorkersHas: a worker that cannot reach a server takes its tools from nobody else.
func TestAPoolOffersWhatAnyOfItsWorkersHas(t *testing.T) {
	s := serve(t)
	plain := inWorker(t, tool.Declaration{Name: "plain", Class: tool.ClassRule{Static: toolyard.ReadOnly},
		ReadOnly: true}, "plain says")
	server, c := pool(t, worker.Config{Tools: []tool.Tool{plain},
		Toolsets: []worker.Toolset{set(t, manifest.Server{Name: "s", URL: s.web.URL})}, ToolsetWait: patience})
	contains(t, one(t, c, "a", call("mcp__s__echo", `{}`)), "{}")
	join(t, server, worker.Config{Tools: []tool.Tool{plain},
		Toolsets: []worker.Toolset{set(t, manifest.Server{Name: "s", Command: []string{"false"}})}})
	for range 10 {
		rs := results(t, submit(t, c, "a", call("mcp__s__echo", `{"a":2}`), call("plain", `{}`)))
		contains(t, rs[0], `{"a":2}`)
		contains(t, rs[1], "plain says")
	}
}

// TestDeclaredToolsThroughThePool runs a command and an endpoint; where nothing can isolate commands, the call says so.
func TestDeclaredToolsThroughThePool(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"path": r.URL.Path, "key": r.Header.Get("Idempotency-Key"),
			"token": r.Header.Get("Authorization")})
	}))
	t.Cleanup(web.Close)
	f, err := manifest.Decode([]byte(`
tools:
  - name: say
    description: Says what it is told.
    uses_workspace: false
    concurrency_class: READ_ONLY
    input_schema: {type: object, required: [what], properties: {what: {type: string}}}
    command: {argv: [sh, -c, 'echo "$1 $TOOLYARD_IDEMPOTENCY_KEY"', sh, "{what}"]}
  - name: ask
    description: Asks a service.
    concurrency_class: WRITE_EXCLUSIVE
    input_schema: {type: object, required: [what], properties: {what: {type: string}}}
    http: {url: "` + web.URL + `/x/{what}", headers: {Authorization: "Bearer ${KEY}"}}
`))
	must.OK(t, err)
	box, err := sandbox.Open(sandbox.Options{})
	must.OK(t, err)
	caps, unable := box.Probe(t.Context())
	say, err := command.New(f.Tools[0], box, sandbox.Policy{})
	must.OK(t, err)
	ask, err := endpoint.New(f.Tools[1])
	must.OK(t, err)
	_, c := pool(t, worker.Config{Declared: []tool.Tool{say, ask}, Isolation: caps.Isolation(),
		Credentials: map[string]map[string]string{"ask": {"KEY": "a-secret-key"}}})
	r := one(t, c, "a", call("say", `{"what":"$(id); x"}`))
	if unable != nil {
		if r.Code != toolyard.SetupRequired {
			t.Errorf("without isolation: %q %s", r.Code, r.Error)
		}
	} else {
		contains(t, r, "$(id); x ty-")
		if r.Isolation == "none" {
			t.Error("the command was not isolated")
		}
	}
	r = one(t, c, "a", call("ask", `{"what":"a?b"}`))
	contains(t, r, `"path":"/x/a?b"`)
	contains(t, r, `"key":"ty-`)
	contains(t, r, "Bearer a-secret-key")
	if r = one(t, c, "a", call("ask", `{"what":"a/b"}`)); r.Code != toolyard.InvalidArguments {
		t.Errorf("a slash in an address: %q %s", r.Code, r.Error)
	}
}
