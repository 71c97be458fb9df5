package toolsets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
)

// oldVariable has this test binary be an MCP server of the revision 2025-11-25 on stdio.
const oldVariable = "TEST_OLD_MCP_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(oldVariable) == "" {
		os.Exit(m.Run())
	}
	if err := oldAsker().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

// oldAsker is a server that asks while its calls run. Its tools say how often they were started.
func oldAsker() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "old", Version: "1"}, nil)
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "server/discover" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such method"}
			}
			return next(ctx, method, req)
		}
	})
	ask := func(ctx context.Context, r *mcp.CallToolRequest, message, form string) (string, error) {
		res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Mode: "form", Message: message,
			RequestedSchema: json.RawMessage(form)})
		if err != nil {
			return "", err
		}
		if res.Action != "accept" {
			why, _ := res.Meta["dev.toolyard/reason"].(string)
			return "", errors.New(res.Action + " " + why)
		}
		content, err := json.Marshal(res.Content)
		return string(content), err
	}
	add := func(name string, h func(context.Context, *mcp.CallToolRequest) (string, error)) {
		var started atomic.Int64
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				n := started.Add(1)
				text, err := h(ctx, r)
				if err != nil {
					text = err.Error()
				}
				text += fmt.Sprintf(" start %d", n)
				said := []mcp.Content{&mcp.TextContent{Text: text}}
				return &mcp.CallToolResult{IsError: err != nil, Content: said}, nil
			})
	}
	const empty = `{"type":"object"}`
	greet := func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		return ask(ctx, r, "Who is to be greeted?", nameForm)
	}
	add("greet", greet)
	add("read", greet)
	add("effect", greet)
	add("twice", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		first, err := ask(ctx, r, "And now?", nameForm)
		if err != nil {
			return "", err
		}
		second, err := ask(ctx, r, "And then?", nameForm)
		return first + second, err
	})
	begun, release := make(chan struct{}, 8), make(chan struct{}, 8)
	wait := func(ctx context.Context, c <-chan struct{}) (string, error) {
		select {
		case <-c:
			return "over", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	add("hold", func(ctx context.Context, _ *mcp.CallToolRequest) (string, error) {
		begun <- struct{}{}
		return wait(ctx, release)
	})
	add("begun", func(ctx context.Context, _ *mcp.CallToolRequest) (string, error) { return wait(ctx, begun) })
	add("release", func(context.Context, *mcp.CallToolRequest) (string, error) {
		release <- struct{}{}
		return "released", nil
	})
	add("endless", func(ctx context.Context, r *mcp.CallToolRequest) (string, error) {
		for n := 0; ; n++ {
			if _, err := ask(ctx, r, fmt.Sprintf("Again, %d?", n), empty); err != nil {
				return "", err
			}
		}
	})
	return server
}

// oldManifest is what an operator says of it.
func oldManifest() manifest.Server {
	return manifest.Server{Name: "old", Elicitation: true, MaxInFlight: 4, Tools: map[string]manifest.Override{
		"greet": manifest.Override(`{"idempotent":true}`), "twice": manifest.Override(`{"idempotent":true}`),
		"endless": manifest.Override(`{"idempotent":true}`),
		"read":    manifest.Override(`{"concurrency_class":{"static":"READ_ONLY"},"is_read_only":true}`),
	}}
}

// eachTransport runs a test with a server that the worker starts, and with one that is reached over HTTP.
func eachTransport(t *testing.T, test func(t *testing.T, c *client.Client, transport string)) {
	t.Helper()
	for name, reach := range map[string]func(*testing.T, *manifest.Server){
		"stdio": func(_ *testing.T, s *manifest.Server) {
			s.Command, s.Env = []string{os.Args[0]}, map[string]string{oldVariable: "1", "GORACE": "atexit_sleep_ms=0"}
		},
		"HTTP": func(t *testing.T, s *manifest.Server) {
			server := oldAsker()
			handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
			web := httptest.NewServer(handler)
			t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
			s.URL = web.URL
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := oldManifest()
			reach(t, &s)
			_, c := pool(t, worker.Config{Toolsets: []worker.Toolset{set(t, s)}, ToolsetWait: patience})
			test(t, c, name)
		})
	}
}

// TestAnOldServerAsks: a tool that asks in the middle of its call is started again with the answer, if it may be made
// twice; a call waits meanwhile, without a worker. Several questions are asked one after the other.
func TestAnOldServerAsks(t *testing.T) {
	eachTransport(t, func(t *testing.T, c *client.Client, _ string) {
		for _, name := range []string{"greet", "read"} {
			b := hand(t, c, name, true, call("mcp__old__"+name, `{}`))
			a := question(t, c, name, asked("Who is to be greeted?"))
			if string(a.Input) != `{"loud":true}` || a.Form.Server != "old" {
				t.Errorf("a person is asked %+v", a)
			}
			if err := c.Decide(t.Context(), a.ID, allow(`{"name":"x"}`)); !isInput(err) {
				t.Errorf("an answer that does not fit: %v", err)
			}
			must.OK(t, c.Decide(t.Context(), a.ID, allow(`{"name":"Ann","loud":false}`)))
			r := results(t, b)[0]
			contains(t, r, `{"loud":false,"name":"Ann"} start 2`)
			if r.Attempts != 2 || r.ApprovalWaitMS <= 0 {
				t.Errorf("%d attempts, a wait of %v ms", r.Attempts, r.ApprovalWaitMS)
			}
		}
		b := hand(t, c, "t", true, call("mcp__old__twice", `{}`))
		first := question(t, c, "t", asked("And now?"))
		must.OK(t, c.Decide(t.Context(), first.ID, allow(`{"name":"Ann"}`)))
		second := question(t, c, "t", asked("And then?"))
		must.OK(t, c.Decide(t.Context(), second.ID, allow(`{"name":"Bob"}`)))
		contains(t, results(t, b)[0], `{"loud":true,"name":"Ann"}{"loud":true,"name":"Bob"} start 3`)
	})
}

// TestAnOldServersQuestionsThatAreDeclined: of a tool that may have done something before it asked, for want of a
// person, and of one that never ends asking. The server and the model are told why.
func TestAnOldServersQuestionsThatAreDeclined(t *testing.T) {
	eachTransport(t, func(t *testing.T, c *client.Client, _ string) {
		for _, tt := range []struct {
			tool, says  string
			interactive bool
		}{
			{"effect", "neither read-only nor idempotent", true},
			{"greet", "has nobody who could be asked", false},
		} {
			r := results(t, hand(t, c, "d", tt.interactive, call("mcp__old__"+tt.tool, `{}`)))[0]
			if r.Code != toolyard.ExecutionFailed || r.Attempts != 1 || !strings.Contains(r.Error, "decline") ||
				strings.Count(r.Error, tt.says) != 2 {
				t.Errorf("%s: %q %s, %d attempts", tt.tool, r.Code, r.Error, r.Attempts)
			}
		}
		b := hand(t, c, "n", true, call("mcp__old__greet", `{}`))
		a := question(t, c, "n", asked("Who is to be greeted?"))
		must.OK(t, c.Decide(t.Context(), a.ID, client.Decision{Verdict: client.Deny, By: "ann"}))
		if r := results(t, b)[0]; r.Code != toolyard.ApprovalRejected || r.Attempts != 1 {
			t.Errorf("a person declined: %q %s, %d attempts", r.Code, r.Error, r.Attempts)
		}
		b = hand(t, c, "e", true, call("mcp__old__endless", `{}`))
		for n := range 7 {
			a := question(t, c, "e", asked(fmt.Sprintf("Again, %d?", n)))
			must.OK(t, c.Decide(t.Context(), a.ID, allow("")))
		}
		if r := results(t, b)[0]; r.Code != toolyard.ExecutionFailed || r.Attempts != 8 ||
			!strings.Contains(r.Error, "at most 7 times") {
			t.Errorf("it asked for ever: %q %s, %d attempts", r.Code, r.Error, r.Attempts)
		}
		waits := 0
		for e, err := range b.Events(t.Context()) {
			must.OK(t, err)
			if strings.Contains(string(e), string(events.CallWaiting)) {
				waits++
			}
		}
		if waits != 7 {
			t.Errorf("the log has %d questions", waits)
		}
	})
}

// TestWhichCallOfAnOldServerAsks: over HTTP a question comes on the response of its call, whatever else runs. Over a
// pipe nothing says which call asks: beside another call, and after one that the server may still run, it is declined.
func TestWhichCallOfAnOldServerAsks(t *testing.T) {
	eachTransport(t, func(t *testing.T, c *client.Client, transport string) {
		greets := func(agent, declined string) {
			t.Helper()
			b := hand(t, c, agent, true, call("mcp__old__greet", `{}`))
			if transport == "stdio" && declined != "" {
				if r := results(t, b)[0]; r.Code != toolyard.ExecutionFailed || !strings.Contains(r.Error, declined) {
					t.Errorf("%s: %q %s%s; want %q", agent, r.Code, r.Output, r.Error, declined)
				}
				return
			}
			a := question(t, c, agent, asked("Who is to be greeted?"))
			must.OK(t, c.Decide(t.Context(), a.ID, allow(`{"name":"Ann"}`)))
			contains(t, results(t, b)[0], `{"loud":true,"name":"Ann"}`)
		}
		holds := func(agent string) *client.Batch {
			b := submit(t, c, agent, call("mcp__old__hold", `{}`))
			contains(t, one(t, c, agent+"-begun", call("mcp__old__begun", `{}`)), "over")
			return b
		}
		held := holds("h1")
		greets("beside", "2 calls run, and nothing says which of them asks")
		contains(t, one(t, c, "r", call("mcp__old__release", `{}`)), "released")
		contains(t, results(t, held)[0], "over")
		greets("alone", "")
		held = holds("h2")
		must.OK(t, held.Cancel(t.Context(), "not wanted"))
		if r := results(t, held)[0]; !r.IsError {
			t.Errorf("a call that was canceled: %+v", r)
		}
		greets("behind", "a call before this one was not answered")
	})
}
