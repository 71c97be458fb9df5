package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// bare is a server whose pool has nothing.
func bare(t testing.TB) *Server {
	t.Helper()
	c, err := client.ConnectHTTP(t.Context(), "http://pool.example",
		client.HTTPOptions{Client: &http.Client{Transport: nothing{}}})
	must.OK(t, err)
	s, err := New(Config{Client: c, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	must.OK(t, err)
	t.Cleanup(s.Stop)
	return s
}

// nothing is a server that is healthy and has nothing else.
type nothing struct{}

func (nothing) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.URL.Path != "/healthz" {
		http.NotFound(w, r)
	}
	return w.Result(), nil
}

func surfaceOf(t *testing.T, schemas map[string]string) registry.Surface {
	t.Helper()
	var entries []registry.Entry
	for name, schema := range schemas {
		made, err := tool.Raw(tool.Tool{
			Declaration: tool.Declaration{Name: name, Description: "A tool of a test.",
				InputSchema: json.RawMessage(schema)},
			Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
				return tool.Output{}, errors.ErrUnsupported
			},
		})
		must.OK(t, err)
		entries = append(entries, registry.Entry{Declaration: made.Declaration, Origin: registry.Toolset, Pool: "p"})
	}
	reg, err := registry.Registry{}.Register(entries...)
	must.OK(t, err)
	s, err := registry.Assemble(reg, nil)
	must.OK(t, err)
	return s
}

// TestAToolThatCannotBeListed takes no other with it, nor the server; and what was listed once goes when it is no more.
func TestAToolThatCannotBeListed(t *testing.T) {
	s := bare(t)
	here, there := mcp.NewInMemoryTransports()
	if _, err := s.mcp.Connect(t.Context(), here, nil); err != nil {
		t.Fatal(err)
	}
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), there,
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	must.OK(t, err)
	defer c.Close() //nolint:errcheck // the test is over
	const plain = `{"type":"object","properties":{"a":{"type":"string"}}}`
	for _, tt := range []struct {
		schemas map[string]string
		want    []string
	}{
		{map[string]string{"one": plain, "two": plain}, []string{"one", "two"}},
		{map[string]string{"one": plain,
			"two": `{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"A"}}}`}, []string{"one"}},
		{map[string]string{"one": plain,
			"two": `{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a b\n"}}}`}, []string{"one"}},
		{map[string]string{"two": plain}, []string{"two"}},
		{nil, nil},
	} {
		must.OK(t, s.SetSurface(surfaceOf(t, tt.schemas)))
		list, err := c.ListTools(t.Context(), nil)
		must.OK(t, err)
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		if !slices.Equal(names, tt.want) {
			t.Errorf("of %v are listed %q, want %q", tt.schemas, names, tt.want)
		}
	}
}

// FuzzServe: whatever a client sends is answered, and is never the server's fault.
func FuzzServe(f *testing.F) {
	s := bare(f)
	for _, seed := range []string{
		"", "{}", "[]",
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":"a","method":"resources/read","params":{"uri":"toolyard://blobs/result-1"}}`,
	} {
		f.Add(seed, "", "", "")
		f.Add(seed, stateless, "", "a b")
		f.Add(seed, "2025-11-25", "session", "")
	}
	f.Fuzz(func(t *testing.T, body, version, session, workspace string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // for those that listen
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", strings.NewReader(body))
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		for name, value := range map[string]string{versionHeader: version, sessionHeader: session} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		q := r.URL.Query()
		q.Set("workspace", workspace)
		r.URL.RawQuery = q.Encode()
		w := httptest.NewRecorder()
		s.Serve(w, r, "a", nil)
		if w.Code >= 500 {
			t.Errorf("%q (version %q, session %q): %d %s", body, version, session, w.Code, w.Body)
		}
	})
}

// cutting stores what is submitted, and cancels the request for it before it answers.
type cutting struct {
	cut      context.CancelFunc
	canceled chan string
	sent     chan struct{} // gets one for each batch; nil: nobody wants to know
}

func (c *cutting) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	switch {
	case r.URL.Path == "/healthz":
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		c.canceled <- r.URL.Path
		w.WriteHeader(http.StatusAccepted)
	case r.URL.Path == "/v1/batches":
		c.cut()
		if c.sent != nil {
			c.sent <- struct{}{}
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.WriteString(`{"id": "b", "agent": "default"}`) // into memory
	default: // results that never come
		<-r.Context().Done()
	}
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	return w.Result(), nil
}

// before is a server in front of a system.
func before(t *testing.T, system http.RoundTripper) *Server {
	t.Helper()
	c, err := client.ConnectHTTP(t.Context(), "http://pool.example",
		client.HTTPOptions{Client: &http.Client{Transport: system}})
	must.OK(t, err)
	s, err := New(Config{Client: c, Log: slog.New(slog.DiscardHandler)})
	must.OK(t, err)
	t.Cleanup(s.Stop)
	return s
}

// TestARequestCanceledWhileItsBatchIsStored: its batch may run by then, so that it is canceled.
func TestARequestCanceledWhileItsBatchIsStored(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	system := &cutting{cut: cancel, canceled: make(chan string, 1)}
	s := before(t, system)
	_, err := s.callTool(listed{name: "t"})(ctx, &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "t"}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
	select {
	case at := <-system.canceled:
		if at != "/v1/batches/b/cancel" {
			t.Errorf("canceled is %s", at)
		}
	default:
		t.Error("the batch goes on")
	}
}

// answering is a server whose tool waits, over HTTP. its system.sent gets one for each batch that is stored.
func answering(t *testing.T) (at string, system *cutting, s *Server) {
	t.Helper()
	system = &cutting{cut: func() {}, canceled: make(chan string, 1), sent: make(chan struct{}, 1)}
	s = before(t, system)
	must.OK(t, s.SetSurface(surfaceOf(t, map[string]string{"t": `{"type":"object"}`})))
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Serve(w, r, "a", nil)
	}))
	t.Cleanup(func() {
		s.Stop() // before the door waits for its requests
		door.Close()
	})
	return door.URL, system, s
}

// inSession begins a session, and returns what sends a request in it and returns the answer's body.
func inSession(t *testing.T, at string) func(method, body string) string {
	t.Helper()
	session := ""
	send := func(method, body string) (header http.Header, text string) {
		r, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return nil, ""
		}
		r.Header = http.Header{"Content-Type": {"application/json"},
			"Accept": {"application/json, text/event-stream"}, versionHeader: {"2025-11-25"}}
		if session != "" {
			r.Header.Set(sessionHeader, session)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return nil, ""
		}
		data, err := io.ReadAll(res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil {
			t.Error(err)
		}
		return res.Header, string(data)
	}
	begun, _ := send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+
		`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	session = begun.Get(sessionHeader)
	send(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return func(method, body string) string {
		_, text := send(method, body)
		return text
	}
}

// TestACanceledRequestOfASessionHasNoAnswer: MCP wants none. Nor has one whose session has ended.
func TestACanceledRequestOfASessionHasNoAnswer(t *testing.T) {
	for name, c := range map[string]struct{ method, body string }{
		"canceled": {http.MethodPost,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`},
		"the session ends": {http.MethodDelete, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at, system, _ := answering(t)
			send := inSession(t, at)
			answers := make(chan string, 1)
			go func() {
				answers <- send(http.MethodPost, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
			}()
			<-system.sent
			send(c.method, c.body)
			if got := <-answers; got != "" {
				t.Errorf("the answer is %q", got)
			}
		})
	}
}

// TestErrorsHaveCodes: the library would answer 0 for an error that has none.
func TestErrorsHaveCodes(t *testing.T) {
	for err, want := range map[error]int64{
		errors.New("a fault"):                jsonrpc.CodeInternalError,
		malformed("a field"):                 jsonrpc.CodeInvalidParams,
		fmt.Errorf("read: %w", busy("full")): -32000,
	} {
		s := &Server{stopping: t.Context()}
		_, got := s.coded(func(context.Context, string, mcp.Request) (mcp.Result, error) {
			return nil, err
		})(t.Context(), "tools/call", nil)
		if e, ok := errors.AsType[*jsonrpc.Error](got); !ok || e.Code != want ||
			!strings.Contains(got.Error(), err.Error()) {
			t.Errorf("%v is answered with %v, want the code %d", err, got, want)
		}
	}
}

// TestACallThatWasNotHandedInHasNotRun: what fails before a call is handed in is no doubt about whether it has run.
func TestACallThatWasNotHandedInHasNotRun(t *testing.T) {
	s := bare(t)
	for name, tt := range map[string]struct {
		deferred bool
		want     string
	}{
		"its tool was not loaded": {true, "this call was not handed in"},
		"it was handed in":        {false, "not known whether"},
	} {
		res, err := s.callTool(listed{name: "t", deferred: tt.deferred})(t.Context(),
			&mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "t"}})
		if err != nil || !res.IsError {
			t.Fatalf("%s: %+v, %v", name, res, err)
		}
		if text := res.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, tt.want) {
			t.Errorf("%s: the model reads %q", name, text)
		}
	}
}
