package toolsets

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

const nameForm = `{"type":"object","properties":{"name":{"type":"string","minLength":2},` +
	`"loud":{"type":"boolean","default":true}},"required":["name"]}`

// asker is a server of the revision 2026-07-28 whose tools ask a person; rounds counts what they were called.
type asker struct {
	web    *httptest.Server
	rounds atomic.Int64
}

func serveAsker(t *testing.T) *asker {
	t.Helper()
	s := &asker{}
	server := mcp.NewServer(&mcp.Implementation{Name: "asker", Version: "1"}, nil)
	add := func(name string, h mcp.ToolHandler) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				s.rounds.Add(1)
				return h(ctx, r)
			})
	}
	says := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	asks := func(state, key string, p *mcp.ElicitParams) *mcp.CallToolResult {
		return &mcp.CallToolResult{RequestState: state, InputRequests: mcp.InputRequestMap{key: p}}
	}
	form := func(message, schema string) *mcp.ElicitParams {
		return &mcp.ElicitParams{Mode: "form", Message: message, RequestedSchema: json.RawMessage(schema)}
	}
	content := func(r *mcp.CallToolRequest, key string) map[string]any {
		if res, ok := r.Params.InputResponses[key].(*mcp.ElicitResult); ok && res.Action == "accept" {
			return maps.Collect(maps.All(res.Content)) // not nil, also where nothing was filled in
		}
		return nil
	}
	add("greet", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		raw, err := json.Marshal(content(r, "who"))
		if err != nil || string(raw) == "null" {
			return asks("first", "who", form("Who is to be greeted?", nameForm)), err
		}
		return says("state " + r.Params.RequestState + " answer " + string(raw)), nil
	})
	add("twice", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch {
		case content(r, "b") != nil:
			return says("twice " + r.Params.RequestState), nil
		case content(r, "a") != nil:
			return asks("second", "b", form("And then?", `{"type":"object"}`)), nil
		}
		return asks("first", "a", form("And now?", `{"type":"object"}`)), nil
	})
	add("several", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		who, when := content(r, "who"), content(r, "when")
		if who == nil || when == nil {
			both := asks("both", "who", form("Who is to be greeted?", nameForm))
			both.InputRequests["when"] = form("And when?", `{"type":"object","properties":{"at":{"type":"integer"}}}`)
			return both, nil
		}
		raw, err := json.Marshal([]any{who, when})
		return says("state " + r.Params.RequestState + " answers " + string(raw)), err
	})
	add("endless", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return asks("", "a", form("Again?", `{"type":"object"}`)), nil
	})
	add("address", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return asks("", "a", &mcp.ElicitParams{Mode: "url", Message: "Sign in.", URL: "https://example.com",
			ElicitationID: "1"}), nil
	})
	add("nested", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return asks("", "a", form("Deep?", `{"type":"object","properties":{"a":{"type":"object"}}}`)), nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true})
	s.web = httptest.NewServer(handler)
	t.Cleanup(s.web.Close)
	return s
}

func (s *asker) manifest(asks bool) manifest.Server {
	return manifest.Server{Name: "asker", URL: s.web.URL, Elicitation: asks}
}

// hand hands a call in whose session has a person, or none.
func hand(t *testing.T, c *client.Client, agent string, interactive bool, one toolyard.Call) *client.Batch {
	t.Helper()
	b, err := c.Submit(t.Context(), toolyard.Batch{Agent: toolyard.Agent(agent), Workspace: toolyard.Workspace(agent),
		Interactive: interactive, Calls: []toolyard.Call{one}})
	must.OK(t, err)
	return b
}

// question waits until an agent's call asks something that holds.
func question(t *testing.T, c *client.Client, agent string, holds func(client.Approval) bool) client.Approval {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		list, err := c.Approvals(ctx, toolyard.Agent(agent))
		must.OK(t, err)
		if len(list) == 1 && holds(list[0]) {
			return list[0]
		}
		if err := pause.For(ctx, 10*time.Millisecond); err != nil {
			t.Fatalf("nobody is asked: %+v", list)
		}
	}
}

func asked(message string) func(client.Approval) bool {
	return func(a client.Approval) bool { return a.Form != nil && a.Form.Message == message }
}

func allow(input string) client.Decision {
	d := client.Decision{Verdict: client.Allow, By: "ann"}
	if input != "" {
		d.Input = json.RawMessage(input)
	}
	return d
}

// TestAToolAsksAPerson: a call whose tool asks waits without a worker, and goes on with the answer. An answer that does
// not fit leaves it waiting.
func TestAToolAsksAPerson(t *testing.T) {
	s := serveAsker(t)
	_, c := pool(t, worker.Config{Toolsets: []worker.Toolset{set(t, s.manifest(true))}, ToolsetWait: patience})
	b := hand(t, c, "a", true, call("mcp__asker__greet", `{}`))
	a := question(t, c, "a", asked("Who is to be greeted?"))
	if string(a.Input) != `{"loud":true}` || a.Form.Server != "asker" || !strings.Contains(a.Reason, "Who is to be") ||
		a.Remember != "" {
		t.Errorf("a person is asked %+v", a)
	}
	for name, d := range map[string]client.Decision{
		"nothing where a name is required": allow(""), "a short name": allow(`{"name":"x"}`),
		"a field that is not asked for": allow(`{"name":"Ann","more":1}`),
		"the mark of a secret":          allow(`{"name":"Ann [redacted: TOKEN]"}`),
		"an answer to remember": {Verdict: client.Allow, By: "ann", ForSession: true,
			Input: json.RawMessage(`{"name":"Ann"}`)},
		"an answer to another question": {Verdict: client.Allow, By: "ann", InputSHA256: strings.Repeat("0", 64),
			Input: json.RawMessage(`{"name":"Ann"}`)},
	} {
		if err := c.Decide(t.Context(), a.ID, d); !isInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := allow(`{"name":"Ann","loud":false}`)
	d.InputSHA256 = a.InputSHA256
	must.OK(t, c.Decide(t.Context(), a.ID, d))
	r := results(t, b)[0]
	contains(t, r, `state first answer {"loud":false,"name":"Ann"}`)
	if n := s.rounds.Load(); n != 2 || r.Attempts != 2 || r.ApprovalWaitMS <= 0 {
		t.Errorf("the server was called %d times; %d attempts, a wait of %v ms", n, r.Attempts, r.ApprovalWaitMS)
	}
}

func isInput(err error) bool {
	_, ok := errors.AsType[*toolyard.InputError](err)
	return ok
}

// TestQuestionsOfOneCall: each round is a question of its own, the state goes along, and there are only so many.
func TestQuestionsOfOneCall(t *testing.T) {
	s := serveAsker(t)
	_, c := pool(t, worker.Config{Toolsets: []worker.Toolset{set(t, s.manifest(true))}, ToolsetWait: patience})
	b := hand(t, c, "a", true, call("mcp__asker__twice", `{}`))
	first := question(t, c, "a", asked("And now?"))
	must.OK(t, c.Decide(t.Context(), first.ID, allow("")))
	second := question(t, c, "a", asked("And then?"))
	stale := allow("")
	stale.InputSHA256 = first.InputSHA256
	if err := c.Decide(t.Context(), second.ID, stale); second.ID != first.ID || !isInput(err) {
		t.Errorf("an answer to the first question was taken for the second: %v", err)
	}
	must.OK(t, c.Decide(t.Context(), second.ID, allow("")))
	contains(t, results(t, b)[0], "twice second")

	before := s.rounds.Load()
	b = hand(t, c, "e", true, call("mcp__asker__endless", `{}`))
	done := make(chan toolyard.Result, 1)
	go func() { done <- results(t, b)[0] }()
	var r toolyard.Result
	for answers, over := 0, false; !over; {
		select {
		case r = <-done:
			over = true
		case <-time.After(10 * time.Millisecond): // between two looks
			list, err := c.Approvals(t.Context(), "e")
			must.OK(t, err)
			for _, a := range list {
				if err := c.Decide(t.Context(), a.ID, allow("")); err == nil {
					answers++
				}
			}
			if answers > 20 {
				t.Fatal("it asks for ever")
			}
		}
	}
	if n := s.rounds.Load() - before; r.Code != toolyard.ExecutionFailed || n != 8 ||
		!strings.Contains(r.Error, "at most 7 times") {
		t.Errorf("after %d rounds: %q %s", n, r.Code, r.Error)
	}
}

// TestSeveralQuestionsAtOnce: a person answers one after the other, and the server gets all answers in one call. It is
// not called between.
func TestSeveralQuestionsAtOnce(t *testing.T) {
	s := serveAsker(t)
	_, c := pool(t, worker.Config{Toolsets: []worker.Toolset{set(t, s.manifest(true))}, ToolsetWait: patience})
	b := hand(t, c, "a", true, call("mcp__asker__several", `{}`))
	when := question(t, c, "a", asked("And when?"))
	must.OK(t, c.Decide(t.Context(), when.ID, allow(`{"at":7}`)))
	who := question(t, c, "a", asked("Who is to be greeted?"))
	must.OK(t, c.Decide(t.Context(), who.ID, allow(`{"name":"Ann"}`)))
	contains(t, results(t, b)[0], `state both answers [{"name":"Ann"},{"at":7}]`)
	if n := s.rounds.Load(); n != 2 {
		t.Errorf("the server was called %d times", n)
	}
}

// TestQuestionsThatAreDeclined: by the operator, for want of a person, by the person, and for what they are.
func TestQuestionsThatAreDeclined(t *testing.T) {
	s := serveAsker(t)
	_, closed := pool(t, worker.Config{Toolsets: []worker.Toolset{set(t, s.manifest(false))}, ToolsetWait: patience})
	_, open := pool(t, worker.Config{Toolsets: []worker.Toolset{set(t, s.manifest(true))}, ToolsetWait: patience})
	for _, tt := range []struct {
		name, tool, says string
		c                *client.Client
		interactive      bool
	}{
		{"the operator does not allow it", "greet", "does not let it ask", closed, true},
		{"nobody is there", "greet", "has nobody who could be asked", open, false},
		{"an address", "address", "only forms are asked", open, true},
		{"a form with a form in it", "nested", "no single value", open, true},
	} {
		r := results(t, hand(t, tt.c, "d", tt.interactive, call("mcp__asker__"+tt.tool, `{}`)))[0]
		if r.Code != toolyard.ExecutionFailed || !strings.Contains(r.Error, tt.says) {
			t.Errorf("%s: %q %s", tt.name, r.Code, r.Error)
		}
	}
	b := hand(t, open, "n", true, call("mcp__asker__greet", `{}`))
	a := question(t, open, "n", asked("Who is to be greeted?"))
	must.OK(t, open.Decide(t.Context(), a.ID, client.Decision{Verdict: client.Deny, By: "ann",
		Reason: "none of its business"}))
	r := results(t, b)[0]
	if r.Code != toolyard.ApprovalRejected || r.Attempts != 1 ||
		!strings.Contains(r.Error, "did not answer what the tool asked: none of") ||
		!strings.Contains(r.Error, "may or may not have taken effect") {
		t.Errorf("a person declined: %q %s, %d attempts", r.Code, r.Error, r.Attempts)
	}
}

// TestAQuestionOutlivesItsWorker: the worker that asked ends, and another goes on with the answer.
func TestAQuestionOutlivesItsWorker(t *testing.T) {
	s := serveAsker(t)
	nats, c := pool(t, worker.Config{Tools: []tool.Tool{inWorker(t, tool.Declaration{Name: "local",
		Class: tool.ClassRule{Static: toolyard.ReadOnly}}, "local")}})
	ctx, stop := context.WithCancel(t.Context())
	w, err := worker.New(testenv.Broker(t, nats, "/worker/asks"), worker.Config{Mode: policy.Bypass,
		Toolsets: []worker.Toolset{set(t, s.manifest(true))}, ToolsetWait: patience, DrainGrace: 200 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler)})
	must.OK(t, err)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-w.Ready()
	b := hand(t, c, "a", true, call("mcp__asker__greet", `{}`))
	a := question(t, c, "a", asked("Who is to be greeted?"))
	stop()
	must.OK(t, <-ended)
	join(t, nats, worker.Config{Toolsets: []worker.Toolset{set(t, s.manifest(true))}, ToolsetWait: patience})
	must.OK(t, c.Decide(t.Context(), a.ID, allow(`{"name":"Ann"}`)))
	contains(t, results(t, b)[0], `state first answer {"name":"Ann"}`)
	waits, claims := 0, 0
	for e, err := range b.Events(t.Context()) {
		must.OK(t, err)
		if strings.Contains(string(e), string(events.CallWaiting)) {
			waits++
		}
		if strings.Contains(string(e), string(events.CallClaimed)) {
			claims++
		}
	}
	if waits != 1 || claims != 2 {
		t.Errorf("the log has %d questions and %d claims", waits, claims)
	}
}
