package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/mcp/server"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestTheSurfaceIsListed: sorted, with its hints and schemas, the same each time, without what a rule takes out.
func TestTheSurfaceIsListed(t *testing.T) {
	p := start(t, nil)
	inBoth(t, func(t *testing.T, way string) {
		c := p.connect(way, "token-of-a", nil)
		first, err := c.ListTools(waiting(t), nil)
		must.OK(t, err)
		byName := map[string]*sdk.Tool{}
		var names []string
		for _, tool := range first.Tools {
			byName[tool.Name] = tool
			names = append(names, tool.Name)
		}
		if want := []string{"ask", "count", "echo", "fail", "late.tool", "long", "picture", "steps", "wait",
			"write"}; !slices.Equal(names, want) {
			t.Errorf("listed are %q, want %q", names, want)
		}
		if a := byName["echo"].Annotations; a == nil || !a.ReadOnlyHint || a.DestructiveHint == nil ||
			*a.DestructiveHint {
			t.Errorf("a tool that reads has the hints %+v", a)
		}
		if a := byName["write"].Annotations; a == nil || a.ReadOnlyHint || a.DestructiveHint == nil ||
			!*a.DestructiveHint {
			t.Errorf("a tool that writes has the hints %+v", a)
		}
		if byName["count"].OutputSchema == nil || byName["echo"].OutputSchema != nil {
			t.Error("the output's schema is told of a tool that has one, and of no other")
		}
		again, err := p.connect(way, "token-of-a", nil).ListTools(waiting(t), nil)
		if err != nil || !reflect.DeepEqual(first.Tools, again.Tools) {
			t.Errorf("another client gets another list (%v)", err)
		}
		if way == alone && (first.TTLMs <= 0 || first.CacheScope != "private") {
			t.Errorf("the list may be kept %d ms, for %q", first.TTLMs, first.CacheScope)
		}
	})
}

// TestAnAgentSeesItsViewAlone: what it does not see it cannot call, and does not hear of.
func TestAnAgentSeesItsViewAlone(t *testing.T) {
	p := start(t, func(c *server.Config) {
		c.Hide = func(agent toolyard.Agent, name string, _ []string) bool {
			return agent == "agent-b" &&
				name != "echo"
		}
	})
	inBoth(t, func(t *testing.T, way string) {
		a, b := p.connect(way, "token-of-a", nil), p.connect(way, "token-of-b", nil)
		all, err := a.ListTools(waiting(t), nil)
		if err != nil || len(all.Tools) < 2 {
			t.Fatalf("one agent sees %d tools (%v)", len(all.Tools), err)
		}
		some, err := b.ListTools(waiting(t), nil)
		if err != nil || len(some.Tools) != 1 || some.Tools[0].Name != "echo" {
			t.Errorf("the other sees %d tools (%v)", len(some.Tools), err)
		}
		_, err = b.CallTool(waiting(t), &sdk.CallToolParams{Name: "count"})
		_, nobody := b.CallTool(waiting(t), &sdk.CallToolParams{Name: "nobody"})
		wantCode(t, err, jsonrpc.CodeInvalidParams, `unknown tool "count"`)
		wantCode(t, nobody, jsonrpc.CodeInvalidParams, `unknown tool "nobody"`)
		wantText(t, called(t, b, "echo", map[string]any{"text": "seen"}), false, "seen")
	})
}

// TestClientsHearOfOtherTools: when a worker with another tool joins, and when it leaves.
func TestClientsHearOfOtherTools(t *testing.T) {
	p := start(t, nil)
	inBoth(t, func(t *testing.T, way string) {
		changed := make(chan struct{}, 100)
		c := p.connect(way, "token-of-a", &sdk.ClientOptions{ToolListChangedHandler: func(context.Context,
			*sdk.ToolListChangedRequest) {
			changed <- struct{}{}
		}})
		has := func() bool {
			list, err := c.ListTools(waiting(t), nil)
			must.OK(t, err)
			return slices.ContainsFunc(list.Tools, func(tool *sdk.Tool) bool { return tool.Name == "guest" })
		}
		until := func(want bool) {
			t.Helper()
			for has() != want {
				testenv.Within(t, "somebody says that the tools have changed", changed)
			}
		}
		until(false)
		leave := p.work("guests", made(t, "guest", nil,
			func(context.Context, tool.Env, string) (tool.Output, error) { return tool.Output{Text: "hello"}, nil }))
		until(true)
		wantText(t, called(t, c, "guest", nil), false, "hello")
		leave()
		until(false)
	})
}

func TestCallsAreAnswered(t *testing.T) {
	p := start(t, nil)
	inBoth(t, func(t *testing.T, way string) {
		c := p.connect(way, "token-of-a", nil)
		r := called(t, c, "echo", map[string]any{"text": "hello"})
		wantText(t, r, false, "hello")
		if got, _ := json.Marshal(r.Meta["dev.toolyard/origin"]); string(got) != `{"source":"echo"}` {
			t.Errorf("where the output comes from: %s", got)
		}
		id, _ := r.Meta["dev.toolyard/batch"].(string)
		if view, err := p.client.Batch(toolyard.BatchKey{Agent: "agent-a",
			ID: toolyard.BatchID(id)}).View(waiting(t)); err != nil || view.Status != toolyard.StatusCompleted ||
			len(view.Results) != 1 {
			t.Errorf("the call's batch %q is %+v (%v)", id, view, err)
		}
		wantText(t, called(t, c, "echo", nil), false, "")
		r = called(t, c, "fail", nil)
		wantText(t, r, true, "it does not work")
		if r.Meta["dev.toolyard/code"] != string(toolyard.ExecutionFailed) {
			t.Errorf("a call that failed says %v", r.Meta)
		}
		wantText(t, called(t, c, "echo", map[string]any{"words": "hello"}), true, "words")
		wantText(t, called(t, c, "late.tool", nil), false, "it was loaded")

		r = called(t, c, "count", map[string]any{"text": "hello"})
		if got, _ := json.Marshal(r.StructuredContent); string(got) != `{"n":5}` || textOf(r) != `{"n":5}` {
			t.Errorf("data: %s and the text %q", got, textOf(r))
		}
		r = called(t, c, "picture", nil)
		got, err := json.Marshal(r.Content)
		if want := `[{"type":"text","text":"a picture"},{"type":"image","mimeType":"image/png","data":"iVBORw=="},` +
			`{"type":"audio","mimeType":"audio/wav","data":"UklGRg=="},{"type":"resource","resource":{"uri":"test://here","mimeType":"text/plain","text":"a document"}},` +
			`{"type":"resource_link","uri":"test://there","name":"another"}]`; err != nil || !sameJSON(t, got, want) {
			t.Errorf("the parts of an output:\n got %s\nwant %s (%v)", got, want, err)
		}
	})
}

// TestLargePictures: a picture that is stored beside its result, since it is too large, is shown all the same.
func TestLargePictures(t *testing.T) {
	p := start(t, nil)
	inBoth(t, func(t *testing.T, way string) {
		rest := strings.Repeat("x", pipeline.MaxInlineDataBytes)
		r := called(t, p.connect(way, "token-of-a", nil), "picture", map[string]any{"text": rest})
		if len(r.Content) < 2 {
			t.Fatalf("there are %d parts", len(r.Content))
		}
		if got, ok := r.Content[1].(*sdk.ImageContent); !ok || string(got.Data) != "\x89PNG"+rest {
			t.Errorf("in place of the picture stands %T: %.200q", r.Content[1], textOf(r))
		}
	})
}

func sameJSON(t *testing.T, got []byte, want string) bool {
	t.Helper()
	var a, b any
	must.OK(t, errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)))
	return reflect.DeepEqual(a, b)
}

// TestWhatIsNoCall is answered by the protocol, and not by a result.
func TestWhatIsNoCall(t *testing.T) {
	p := start(t, nil)
	inBoth(t, func(t *testing.T, way string) {
		c := p.connect(way, "token-of-a", nil)
		for _, tt := range []struct {
			name string
			call sdk.CallToolParams
			says string
		}{
			{"a tool that is not there", sdk.CallToolParams{Name: "nobody"}, "unknown tool"},
			{"a tool that a rule takes out", sdk.CallToolParams{Name: "blocked"}, "unknown tool"},
			{"an input that is no object", sdk.CallToolParams{Name: "echo", Arguments: []any{1}}, "arguments"},
			{"an id that is no name", sdk.CallToolParams{Name: "echo", Meta: sdk.Meta{"dev.toolyard/batch": "a\nb"}},
				"control character"},
			{"an id that is no text", sdk.CallToolParams{Name: "echo", Meta: sdk.Meta{"dev.toolyard/session": 1}},
				"want a text"},
			{"a state that nobody gave out", sdk.CallToolParams{Name: "echo", RequestState: "e30.AAAA"},
				"requestState"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				_, err := c.CallTool(waiting(t), &tt.call)
				wantCode(t, err, jsonrpc.CodeInvalidParams, tt.says)
			})
		}
	})
}

// TestACallWithAnIDRunsOnce: asked for again, it is answered the same; other content under the id is an error.
func TestACallWithAnIDRunsOnce(t *testing.T) {
	p := start(t, nil)
	c := p.connect(alone, "token-of-a", nil)
	call := func(input string) (*sdk.CallToolResult, error) {
		return c.CallTool(waiting(t), &sdk.CallToolParams{Name: "wait", Meta: sdk.Meta{"dev.toolyard/batch": "turn-1"},
			Arguments: map[string]any{"text": input}})
	}
	type answer struct {
		r   *sdk.CallToolResult
		err error
	}
	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			r, err := call("once")
			answers <- answer{r, err}
		}()
	}
	<-p.began
	p.gate <- struct{}{}
	for range 2 {
		if a := <-answers; a.err != nil || textOf(a.r) != "waited" {
			t.Errorf("got %+v", a)
		}
	}
	_, err := call("twice")
	wantCode(t, err, jsonrpc.CodeInvalidParams, "turn-1")
	if len(p.began) > 0 {
		t.Error("it ran twice")
	}
}

// TestProgressIsPassedOn: to the client that gave a token, with values that increase.
func TestProgressIsPassedOn(t *testing.T) {
	p := start(t, nil)
	inBoth(t, func(t *testing.T, way string) {
		told := make(chan *sdk.ProgressNotificationParams, 100)
		c := p.connect(way, "token-of-a", &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context,
			r *sdk.ProgressNotificationClientRequest) {
			told <- r.Params
		}})
		params := &sdk.CallToolParams{Name: "steps", Meta: sdk.Meta{}}
		params.SetProgressToken("bar-1")
		done := make(chan error, 1)
		go func() {
			_, err := c.CallTool(waiting(t), params)
			done <- err
		}()
		last := -1.0
		for _, status := range []string{"begins", "goes on", "is nearly done"} {
			for {
				n := testenv.Within(t, "somebody says that it "+status, told)
				if n.ProgressToken != "bar-1" || n.Progress <= last || n.Progress > 1 {
					t.Errorf("after %v comes %+v", last, n)
				}
				last = n.Progress
				if n.Message == status {
					break
				}
			}
			p.gate <- struct{}{}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestProgressIncreasesAcrossAQuestion: a request of an older revision waits again once the person has answered, and
// its call begins anew. What is told of its progress goes on from where it was, as the protocol demands.
func TestProgressIncreasesAcrossAQuestion(t *testing.T) {
	p := start(t, asking)
	told := make(chan *sdk.ProgressNotificationParams, 100)
	o := person(make(chan *sdk.ElicitParams, 10), &sdk.ElicitResult{Action: "accept",
		Content: map[string]any{"said": "yes"}}, nil)
	o.ProgressNotificationHandler = func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
		told <- r.Params
	}
	c := p.connect(session, "token-of-a", o)
	params := &sdk.CallToolParams{Name: "steps", Arguments: map[string]any{"text": "ask"}, Meta: sdk.Meta{}}
	params.SetProgressToken("bar-1")
	done := make(chan error, 1)
	go func() {
		res, err := c.CallTool(waiting(t), params)
		if err == nil && res.IsError {
			err = fmt.Errorf("the call failed: %s", textOf(res))
		}
		done <- err
	}()
	last := -1.0
	for _, status := range []string{"begins", "goes on", "begins", "goes on", "is nearly done"} {
		for {
			var n *sdk.ProgressNotificationParams
			select {
			case n = <-told:
			case err := <-done:
				t.Fatalf("it ended before it %s: %v", status, err)
			case <-time.After(patience):
				t.Fatalf("nobody said that it %s", status)
			}
			if n.Progress <= last || n.Progress > 1 {
				t.Errorf("after %v comes %+v", last, n)
			}
			last = n.Progress
			if n.Message == status {
				break
			}
		}
		p.gate <- struct{}{}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestACanceledRequestCancelsItsCall: without sessions by closing the response's stream, with them by a notification.
func TestACanceledRequestCancelsItsCall(t *testing.T) {
	p := start(t, nil)
	inBoth(t, func(t *testing.T, way string) {
		c := p.connect(way, "token-of-a", nil)
		ctx, cancel := context.WithCancel(waiting(t))
		done := make(chan error, 1)
		id := "canceled-" + way
		go func() {
			_, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "wait", Meta: sdk.Meta{"dev.toolyard/batch": id}})
			done <- err
		}()
		<-p.began
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the client's call ended with %v", err)
		}
		testenv.Within(t, "the tool ends", p.ended)
		for r, err := range p.client.Batch(toolyard.BatchKey{Agent: "agent-a",
			ID: toolyard.BatchID(id)}).Results(waiting(t)) {
			if err != nil || r.Code != toolyard.Canceled {
				t.Errorf("the call ended as %q (%v)", r.Code, err)
			}
		}
		wantText(t, called(t, c, "echo", map[string]any{"text": "still here"}), false, "still here")
	})
}

// TestTheEndOfASessionCancelsItsCalls: and no other session's; nobody else ends it.
func TestTheEndOfASessionCancelsItsCalls(t *testing.T) {
	p := start(t, nil)
	mine, other := p.connect(session, "token-of-a", nil), p.connect(session, "token-of-a", nil)
	for id, c := range map[string]*sdk.ClientSession{"mine": mine, "other": other} {
		go func() { // ends with its session, or with the test's own call
			_, _ = c.CallTool(waiting(t), &sdk.CallToolParams{Name: "wait", Meta: sdk.Meta{"dev.toolyard/batch": id}})
		}()
		<-p.began
	}
	end := func(token string) int {
		r, err := http.NewRequestWithContext(waiting(t), http.MethodDelete, p.url, nil)
		must.OK(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Mcp-Session-Id", mine.ID())
		r.Header.Set("Mcp-Protocol-Version", session)
		res, err := http.DefaultClient.Do(r)
		must.OK(t, err)
		defer res.Body.Close()
		return res.StatusCode
	}
	if status := end("token-of-b"); status != http.StatusForbidden {
		t.Errorf("somebody else ends the session: %d", status)
	}
	began := time.Now()
	if status := end("token-of-a"); status != http.StatusNoContent {
		t.Errorf("the session's end: %d", status)
	}
	testenv.Within(t, "the tool ends", p.ended)
	for r, err := range p.client.Batch(toolyard.BatchKey{Agent: "agent-a", ID: "mine"}).Results(waiting(t)) {
		if err != nil || r.Code != toolyard.Canceled || !strings.Contains(r.Error, "ended its session") {
			t.Errorf("after %s the call ended as %q: %s (%v)", time.Since(began), r.Code, r.Error, err)
		}
	}
	p.gate <- struct{}{} // the other goes on until now
	for r, err := range p.client.Batch(toolyard.BatchKey{Agent: "agent-a", ID: "other"}).Results(waiting(t)) {
		if err != nil || r.Output != "waited" {
			t.Errorf("the other session's call ended as %q: %s (%v)", r.Code, r.Error, err)
		}
	}
}

// TestAServerThatStopsCancelsNothing: its calls go on, and can be asked for again. Their requests are answered,
// although the server's door closes at once.
func TestAServerThatStopsCancelsNothing(t *testing.T) {
	inBoth(t, func(t *testing.T, way string) {
		p := start(t, nil)
		c := p.connect(way, "token-of-a", nil)
		params := &sdk.CallToolParams{Name: "wait", Meta: sdk.Meta{"dev.toolyard/batch": "outlives"}}
		done := make(chan *sdk.CallToolResult, 1)
		go func() {
			defer close(done)
			r, err := c.CallTool(waiting(t), params)
			if err != nil {
				t.Error(err)
				return
			}
			done <- r
		}()
		<-p.began
		began := time.Now()
		p.mcp.Stop()
		p.closeDoor()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the server has stopped after %v", took)
		}
		if r, ok := <-done; ok {
			wantText(t, r, true, "goes on")
		}
		p.gate <- struct{}{}
		for r, err := range p.client.Batch(toolyard.BatchKey{Agent: "agent-a", ID: "outlives"}).Results(waiting(t)) {
			if err != nil || r.Output != "waited" {
				t.Errorf("the call ended as %+v (%v)", r, err)
			}
		}
	})
}

// TestALongCallKeepsItsResponse: what is silent is closed by proxies, and closing it would cancel the call.
func TestALongCallKeepsItsResponse(t *testing.T) {
	p := start(t, func(c *server.Config) { c.KeepAlive = 20 * time.Millisecond })
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, err := http.NewRequestWithContext(waiting(t), http.MethodPost, p.url, strings.NewReader(body))
	must.OK(t, err)
	for name, value := range map[string]string{
		"Authorization": "Bearer token-of-a", "Content-Type": "application/json",
		"Accept":               "application/json, text/event-stream",
		"Mcp-Protocol-Version": alone, "Mcp-Method": "tools/call", "Mcp-Name": "wait",
	} {
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	must.OK(t, err)
	defer res.Body.Close()
	lines, beats := bufio.NewScanner(res.Body), 0
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == ": still here":
			if beats++; beats == 3 {
				p.gate <- struct{}{}
			}
		case strings.HasPrefix(line, "data: "):
			if beats < 3 || !strings.Contains(line, "waited") {
				t.Errorf("after %d signs of life came %s", beats, line)
			}
			return
		}
	}
	t.Fatalf("the response ended after %d signs of life (%v)", beats, lines.Err())
}

// TestWaitsAreBounded: what takes too long is canceled, and the model is told.
func TestWaitsAreBounded(t *testing.T) {
	p := start(t, func(c *server.Config) { c.MaxWait = 200 * time.Millisecond })
	wantText(t, called(t, p.connect(alone, "token-of-a", nil), "wait", nil), true, "canceled")
	testenv.Within(t, "the tool ends", p.ended)
}

// uncancelable is a way to the API on which cancels are lost, or come when before has returned.
type uncancelable struct{ before func() }

func (u uncancelable) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/cancel") {
		if u.before == nil {
			return nil, errors.New("the line is cut")
		}
		u.before()
	}
	return http.DefaultTransport.RoundTrip(r)
}

// lateBy calls the tool that waits, over a line to the API, and stops waiting for it soon.
func lateBy(t *testing.T, p *pool, line http.RoundTripper) *sdk.CallToolResult {
	t.Helper()
	c, err := client.ConnectHTTP(p.Context(), strings.TrimSuffix(p.url, "/mcp"), client.HTTPOptions{
		Token: "token-of-all", MaxRetries: -1, Client: &http.Client{Transport: line}})
	must.OK(t, err)
	q := p.second(server.Config{Client: c, MaxWait: 200 * time.Millisecond})
	r, err := q.connect(alone, "token-of-a", nil).CallTool(waiting(t), &sdk.CallToolParams{Name: "wait",
		Meta: sdk.Meta{"dev.toolyard/batch": "late"}})
	must.OK(t, err)
	return r
}

// ends lets the call of lateBy end.
func ends(t *testing.T, p *pool) {
	t.Helper()
	<-p.began
	p.gate <- struct{}{}
	for r, err := range p.client.Batch(toolyard.BatchKey{Agent: "agent-a", ID: "late"}).Results(waiting(t)) {
		if err != nil || r.IsError {
			t.Errorf("the call ended as %+v (%v)", r, err)
		}
	}
}

// TestACallWhoseCancelWasLostIsNotSaidToBeCanceled: it goes on, and does all of its work.
func TestACallWhoseCancelWasLostIsNotSaidToBeCanceled(t *testing.T) {
	p := start(t, nil)
	r := lateBy(t, p, uncancelable{})
	ends(t, p)
	wantText(t, r, true, "It may go on")
	if text := textOf(r); strings.Contains(text, "is canceled") {
		t.Errorf("the client was told %q", text)
	}
}

// TestACallThatEndsBeforeItsCancel is answered with its result.
func TestACallThatEndsBeforeItsCancel(t *testing.T) {
	p := start(t, nil)
	wantText(t, lateBy(t, p, uncancelable{func() { ends(t, p) }}), false, "waited")
}

// TestAnAgentHasOnlySoManyCalls: others are not held up by it.
func TestAnAgentHasOnlySoManyCalls(t *testing.T) {
	p := start(t, func(c *server.Config) { c.MaxAgentCalls = 1 })
	a, b := p.connect(alone, "token-of-a", nil), p.connect(alone, "token-of-b", nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		wantText(t, called(t, a, "wait", nil), false, "waited")
	}()
	<-p.began
	wantText(t, called(t, a, "echo", nil), true, "under way")
	wantText(t, called(t, b, "echo", map[string]any{"text": "of b"}), false, "of b")
	p.gate <- struct{}{}
	<-done
	wantText(t, called(t, a, "echo", map[string]any{"text": "again"}), false, "again")
}

// TestLongResults come as a preview that names read_result, and for clients that ask with a link, which their own agent
// can follow, whole and in parts.
func TestLongResults(t *testing.T) {
	p := start(t, nil)
	inBoth(t, func(t *testing.T, way string) {
		c := p.connect(way, "token-of-a", nil)
		if r := called(t, c, "long", nil); len(r.Content) != 1 || !strings.Contains(textOf(r), "read_result") {
			t.Errorf("without being asked: %d parts, and a text of %d bytes", len(r.Content), len(textOf(r)))
		}
		r, err := c.CallTool(waiting(t), &sdk.CallToolParams{Name: "long", Meta: sdk.Meta{"dev.toolyard/links": true}})
		must.OK(t, err)
		if len(r.Content) != 2 || len(textOf(r)) == 0 || len(textOf(r)) >= len(long) {
			t.Fatalf("got %d parts, and a text of %d bytes", len(r.Content), len(textOf(r)))
		}
		link, ok := r.Content[1].(*sdk.ResourceLink)
		if !ok || !strings.HasPrefix(link.URI, "toolyard://blobs/result-") {
			t.Fatalf("the link is %+v", r.Content[1])
		}
		read := func(c *sdk.ClientSession, uri string) (*sdk.ResourceContents, error) {
			r, err := c.ReadResource(waiting(t), &sdk.ReadResourceParams{URI: uri})
			if err != nil {
				return nil, err
			}
			return r.Contents[0], nil
		}
		if whole, err := read(c, link.URI); err != nil || whole.Text != long || whole.MIMEType != "text/plain" {
			t.Errorf("the whole has %d bytes (%v)", len(whole.Text), err)
		}
		text, uri := "", link.URI+"?limit=1000"
		for uri != "" {
			part, err := read(c, uri)
			must.OK(t, err)
			if len(part.Text) == 0 || len(part.Text) > 1000 {
				t.Fatalf("a part has %d bytes", len(part.Text))
			}
			text += part.Text
			uri, _ = part.Meta["dev.toolyard/next"].(string)
		}
		if text != long {
			t.Errorf("the parts together have %d bytes, want %d", len(text), len(long))
		}
		_, err = read(p.connect(way, "token-of-b", nil), link.URI)
		wantCode(t, err, jsonrpc.CodeInvalidParams, "")
		for _, uri := range []string{"toolyard://blobs/result-00", link.URI + "?limit=0", link.URI +
			"?offset=-1", "toolyard://elsewhere/x"} {
			if got, err := read(c, uri); err == nil {
				t.Errorf("%s: got %d bytes", uri, len(got.Text))
			}
		}
	})
}
