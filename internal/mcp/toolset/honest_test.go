package toolset

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// honest is a server as it should be, on the protocol's own SDK.
func honest() *mcp.Server {
	released := make(chan struct{}, 1)
	words := make(chan string, 100) // what the tool wait has to say, and the tool heard tells
	server := mcp.NewServer(&mcp.Implementation{Name: "honest", Version: "1"}, nil)
	add := func(name string, more func(*mcp.Tool), handler mcp.ToolHandler) {
		t := &mcp.Tool{Name: name, Description: "Does " +
			name, InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}}}`)}
		if more != nil {
			more(t)
		}
		server.AddTool(t, handler)
	}
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	add("echo", func(t *mcp.Tool) { t.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true} },
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			key, _ := r.Params.Meta[idempotencyMeta].(string)
			said := string(r.Params.Arguments) + " " + key
			for _, name := range []string{"traceparent", "tracestate", "baggage"} {
				trace, _ := r.Params.Meta[name].(string)
				said += " " + trace
			}
			return text(said), nil
		})
	add("kinds", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "t"}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte{1}},
			&mcp.AudioContent{MIMEType: "audio/wav", Data: []byte{2}},
			&mcp.ResourceLink{URI: "x:l", Name: "l"}, &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x:r",
				Text: "r"}},
		}}, nil
	})
	add("structured", func(t *mcp.Tool) {
		t.OutputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := text(`{"n":7}`)
		res.StructuredContent = map[string]any{"n": 7}
		return res, nil
	})
	add("fails", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := text("no such city")
		res.IsError = true
		return res, nil
	})
	add("progress", nil, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx,
				&mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1),
					Total: 3, Message: "step"}); err != nil {
				return nil, err
			}
		}
		select { // what is told behind the result may be lost
		case <-released:
			return text("done"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	add("release", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		released <- struct{}{}
		return text("ok"), nil
	})
	add("wait", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		words <- "begun"
		<-ctx.Done()
		words <- "canceled"
		return nil, ctx.Err()
	})
	add("heard", nil, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		select {
		case word := <-words:
			return text(word), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	add("grow", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		add("grown", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult,
			error) {
			return text("grown"), nil
		})
		return text("ok"), nil
	})
	return server
}

func honestOnStdio() {
	if err := honest().Run(context.Background(), &mcp.StdioTransport{}); err != nil &&
		!errors.Is(err, context.Canceled) {
		os.Exit(1)
	}
}

// overHTTP serves an honest server, to those who have the token, in one of the two ways.
func overHTTP(t *testing.T, stateless bool) manifest.Server {
	t.Helper()
	server := honest()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: stateless})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	t.Setenv("TEST_MCP_TOKEN", "secret")
	return manifest.Server{
		Name: "s", URL: web.URL + "/mcp", Headers: map[string]string{"Authorization": "Bearer ${TEST_MCP_TOKEN}"},
		Credentials: []string{"TEST_MCP_TOKEN"},
		MaxTools:    100, MaxInFlight: 4, StartTimeoutMS: 10_000,
	}
}

// TestAServerAsItShouldBe goes through all that a server can give back, over each transport.
func TestAServerAsItShouldBe(t *testing.T) {
	for name, server := range map[string]func(t *testing.T) manifest.Server{
		"stdio":           func(*testing.T) manifest.Server { return fakeServer("honest") },
		"HTTP":            func(t *testing.T) manifest.Server { return overHTTP(t, false) },
		"HTTP, stateless": func(t *testing.T) manifest.Server { return overHTTP(t, true) },
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			s.Trusted = true
			set := start(t, s)
			if set.Down() != nil {
				t.Fatal(set.Down())
			}
			if d := find(t, set, "echo"); !d.ReadOnly || d.Class.Static != toolyard.ReadOnly ||
				d.Execution != tool.InService || d.Dependency != "mcp:s" {
				t.Errorf("echo is declared %+v", d.Declaration)
			}
			out, err := run(t, set, "echo", patience)
			if err != nil || toolyard.TextOf(out.Content) != `{"a":1} ty-1 00-a-b-01 v=1 user=ann` {
				t.Errorf("echo: %+v, %v", out, err)
			}
			out, err = run(t, set, "kinds", patience)
			want := []toolyard.Content{
				{Type: toolyard.ContentText, Text: "t"},
				{Type: toolyard.ContentImage, MIMEType: "image/png", Data: []byte{1}},
				{Type: toolyard.ContentAudio, MIMEType: "audio/wav", Data: []byte{2}},
				{Type: toolyard.ContentLink, URI: "x:l", Name: "l"},
				{Type: toolyard.ContentResource, URI: "x:r", Text: "r"},
			}
			if err != nil || !slices.EqualFunc(out.Content, want, func(a, b toolyard.Content) bool {
				return a.String() == b.String() && string(a.Data) == string(b.Data) && a.Type == b.Type
			}) {
				t.Errorf("kinds: %+v, %v", out, err)
			}
			if out, err = run(t, set, "structured", patience); err != nil || string(out.Structured) != `{"n":7}` ||
				find(t, set, "structured").OutputSchema == nil {
				t.Errorf("structured: %s, %v", out.Structured, err)
			}
			if _, err = run(t, set, "fails", patience); err == nil || err.Code != toolyard.ExecutionFailed ||
				err.Message != "no such city" {
				t.Errorf("fails: %v", err)
			}
			testProgress(t, set)
			if name != "HTTP, stateless" { // the SDK's server has nothing there by which it could say or hear it
				testCancel(t, set)
				if _, err = run(t, set, "grow", patience); err != nil {
					t.Error(err)
				}
				until(t, set, "the new tool is there", func() bool {
					return slices.Contains(names(set),
						"mcp__s__grown")
				})
			}
		})
	}
}

func testProgress(t *testing.T, set *Toolset) {
	t.Helper()
	seen := make(chan tool.Progress, 3)
	done := make(chan error, 1)
	go func() {
		_, err := find(t, set, "progress").Run(t.Context(), tool.Env{Progress: func(p tool.Progress) { seen <- p }},
			json.RawMessage(`{}`))
		done <- err
	}()
	for i := range 3 {
		select {
		case p := <-seen:
			if want := float64(i+1) / 3; p.Status != "step" || p.Fraction != want {
				t.Errorf("the progress is %+v, want %f", p, want)
			}
		case <-time.After(patience):
			t.Fatal("no progress is seen")
		}
	}
	if _, err := run(t, set, "release", patience); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// testCancel stops a call, and the server must be told.
func testCancel(t *testing.T, set *Toolset) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := find(t, set, "wait").Run(ctx, tool.Env{Progress: func(tool.Progress) {}}, json.RawMessage(`{}`))
		done <- err
	}()
	for _, want := range []string{"begun", "canceled"} {
		if out, err := run(t, set, "heard", patience); err != nil || toolyard.TextOf(out.Content) != want {
			t.Fatalf("the server has heard %q, %v; want %q", toolyard.TextOf(out.Content), err, want)
		}
		cancel()
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
}

// TestServersOverHTTPThatMisbehave: each harms only its own calls.
func TestServersOverHTTPThatMisbehave(t *testing.T) {
	events := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(text))
	}
	for name, c := range map[string]struct {
		serve func(w http.ResponseWriter, id json.RawMessage)
		code  toolyard.Code
	}{
		"the stream ends without an answer": {func(w http.ResponseWriter, _ json.RawMessage) {
			events(w, ": nothing\n\n")
		}, toolyard.OutcomeUnknown},
		"a body without end": {func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			for piece := []byte(strings.Repeat(" ", 1<<20)); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}, toolyard.OutcomeUnknown},
		"an event without end": {func(w http.ResponseWriter, id json.RawMessage) {
			events(w, "data: ")
			for piece := []byte(strings.Repeat("x", 1<<20)); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}, toolyard.OutcomeUnknown},
		"a redirect to another place": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Location", "http://127.0.0.1:9/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, toolyard.OutcomeUnknown},
		"an error of the server": {func(w http.ResponseWriter, _ json.RawMessage) {
			http.Error(w, "oh", http.StatusInternalServerError)
		}, toolyard.OutcomeUnknown},
		"no room": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Retry-After", "7")
			http.Error(w, "later", http.StatusServiceUnavailable)
		}, toolyard.DependencyUnavailable},
		"no room until a time": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
			w.Header().Set("Retry-After", "Sun, 06 Nov 1994 08:49:44 GMT")
			http.Error(w, "later", http.StatusServiceUnavailable)
		}, toolyard.DependencyUnavailable},
		"no right": {func(w http.ResponseWriter, _ json.RawMessage) {
			http.Error(w, "no", http.StatusForbidden)
		}, toolyard.SetupRequired},
		"no JSON": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("<html>"))
		}, toolyard.OutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := webServer(t, nil, nil, c.serve)
			if set.Down() != nil {
				t.Fatal(set.Down())
			}
			if _, err := run(t, set, "x", patience); err == nil || err.Code != c.code ||
				strings.HasPrefix(name, "no room") && err.RetryAfterMS != 7000 {
				t.Errorf("got %v, want %s", err, c.code)
			}
		})
	}
}

// TestACredentialThatIsMissing is an error before anything is started.
func TestACredentialThatIsMissing(t *testing.T) {
	_, err := New(Options{Server: manifest.Server{Name: "s", Credentials: []string{"NOT_THERE_X"}},
		Lookup: os.LookupEnv})
	if err == nil || !strings.Contains(err.Error(), "NOT_THERE_X") {
		t.Errorf("got %v", err)
	}
}

// FuzzReply: whatever a server sends as a result or a tool, it becomes an output, a declaration or an error.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"a"},{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"resource","resource":{"uri":"x"}}],"structuredContent":{"n":1}}`),
		[]byte(`{"name":"x","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`))
	f.Add([]byte(`{"content":null,"isError":true}`),
		[]byte(`{"name":"a/b","inputSchema":{"$ref":"#"},"outputSchema":true}`))
	f.Add([]byte(`{"content":[{"type":"resource"},{"type":"tool_use"},null],"inputRequests":{"a":{}}}`),
		[]byte(`{"name":"","inputSchema":[]}`))
	f.Fuzz(func(t *testing.T, reply, listed []byte) {
		var res mcp.CallToolResult
		if json.Unmarshal(reply, &res) == nil {
			out, err := output(&res)
			if err == nil && out.Structured != nil && !json.Valid(out.Structured) {
				t.Errorf("%s gives the structured output %s", reply, out.Structured)
			}
			_ = toolyard.TextOf(out.Content)
		}
		var l mcp.Tool
		if json.Unmarshal(listed, &l) != nil {
			return
		}
		for _, trusted := range []bool{false, true} {
			d, _, err := declaration(&manifest.Server{Name: "s", Trusted: trusted}, &l)
			if err != nil {
				continue
			}
			if j, ok := d.StaticJudgement(); !ok || !trusted &&
				(j.Class != toolyard.Unsafe || j.ReadOnly || !j.Destructive) {
				t.Errorf("%s is judged %+v", listed, j)
			}
		}
	})
}

// TestATrustedReadNeedsNoPermission: whether or not it needs the workspace, unless the operator says that it does.
func TestATrustedReadNeedsNoPermission(t *testing.T) {
	for name, c := range map[string]struct {
		manifest string
		want     policy.Behavior
	}{
		"trusted": {`{"name":"s","trusted":true}`, policy.Allow},
		"trusted, without the workspace": {`{"name":"s","trusted":true,"defaults":{"uses_workspace":false}}`,
			policy.Allow},
		"the operator wants a permission": {
			`{"name":"s","trusted":true,"defaults":{"uses_workspace":false,"requires_permission":true}}`, policy.Ask},
		"no read, says the operator": {`{"name":"s","trusted":true,"defaults":
			{"uses_workspace":false,"concurrency_class":"UNSAFE","is_read_only":false}}`, policy.Ask},
		"not trusted":                      {`{"name":"s"}`, policy.Ask},
		"not trusted, without a workspace": {`{"name":"s","defaults":{"uses_workspace":false}}`, policy.Ask},
	} {
		var server manifest.Server
		must.OK(t, json.Unmarshal([]byte(c.manifest), &server))
		d, _, err := declaration(&server, &mcp.Tool{Name: "search", InputSchema: map[string]any{"type": "object"},
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}})
		must.OK(t, err)
		j, _ := registry.Judge(d, json.RawMessage(`{}`), nil)
		if got := policy.Decide(policy.Rules{}, policy.Request{Declaration: &d, Input: json.RawMessage(`{}`),
			Judgement: j}); got.Behavior != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got.Behavior, got.Source, c.want)
		}
	}
}

// TestOpenWorld: outputs of a server's tools come from outside, unless a trusted server or the operator says otherwise.
func TestOpenWorld(t *testing.T) {
	closed := &mcp.ToolAnnotations{OpenWorldHint: new(bool)}
	for name, c := range map[string]struct {
		manifest string
		hints    *mcp.ToolAnnotations
		want     bool
	}{
		"trusted, and says nothing":     {`{"name":"s","trusted":true}`, nil, true},
		"trusted, and no":               {`{"name":"s","trusted":true}`, closed, false},
		"not trusted, and no":           {`{"name":"s"}`, closed, true},
		"the operator says no":          {`{"name":"s","defaults":{"open_world":false}}`, nil, false},
		"the operator says yes":         {`{"name":"s","trusted":true,"tools":{"x":{"open_world":true}}}`, closed, true},
		"the operator, of another tool": {`{"name":"s","tools":{"y":{"open_world":false}}}`, nil, true},
	} {
		var server manifest.Server
		must.OK(t, json.Unmarshal([]byte(c.manifest), &server))
		d, _, err := declaration(&server, &mcp.Tool{Name: "x", InputSchema: map[string]any{"type": "object"},
			Annotations: c.hints})
		if err != nil || d.ReadsOutside() != c.want || pipeline.Outside(&d, nil) != nil != c.want ||
			c.want && pipeline.Outside(&d, nil).Source != "mcp:s" {
			t.Errorf("%s: %t, %v", name, d.ReadsOutside(), err)
		}
	}
}

// TestAServerThatIsReplaced: of the revision in which each request stands alone, all that ends with a server is the
// stream on which it says that its tools have changed. The one that comes in its place has other tools.
func TestAServerThatIsReplaced(t *testing.T) {
	t.Parallel()
	var now atomic.Pointer[mcp.Server]
	now.Store(honest())
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return now.Load() },
		&mcp.StreamableHTTPOptions{Stateless: true})
	lives, end := context.WithCancel(t.Context())
	var listeners atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "subscriptions/listen" && listeners.Add(1) == 1 {
			ctx, cancel := context.WithCancel(r.Context())
			defer context.AfterFunc(lives, cancel)()
			r = r.WithContext(ctx)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	set := start(t, manifest.Server{Name: "s", URL: web.URL, MaxTools: 100, MaxInFlight: 4, StartTimeoutMS: 10_000})
	if listeners.Load() != 1 {
		t.Fatalf("%d requests listen for changes", listeners.Load())
	}
	next := mcp.NewServer(&mcp.Implementation{Name: "next", Version: "2"}, nil)
	answer := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ok"}}}, nil
	}
	add := func(name string) {
		next.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, answer)
	}
	add("late")
	now.Store(next)
	end()
	until(t, set, "the tools of the next server", func() bool {
		return slices.Equal(names(set), []string{"mcp__s__late"})
	})
	add("later")
	until(t, set, "a tool that it says is new", func() bool { return slices.Contains(names(set), "mcp__s__later") })
}
