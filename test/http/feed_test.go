package http

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// The events of a response in Anthropic's form.
func begins(i int, id, name string) string {
	return fmt.Sprintf("event: content_block_start\ndata: "+
		"{\"type\":\"content_block_start\",\"index\":%d,\"content_block\":{\"type\":\"tool_use\",\"id\":%q,\"name\":%q,\"input\":{}}}\n\n", i, id, name)
}

func part(i int, text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("event: content_block_delta\ndata: "+
		"{\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":%s}}\n\n", i, quoted)
}

func ends(i int) string {
	return fmt.Sprintf("event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":%d}\n\n", i)
}

func use(i int, id, name, input string) string { return begins(i, id, name) + part(i, input) + ends(i) }

const over = `event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{}}

event: message_stop
data: {"type":"message_stop"}

`

// feeding is a response that is being handed in.
type feeding struct {
	*pool
	body io.WriteCloser
	// next is the next event of the answer; ok is false at its end.
	next   func() (event, bool)
	header http.Header
	// leave cuts the connection.
	leave context.CancelFunc
}

// feed begins to hand a response in. The answer is there before the response is over.
func (p *pool) feed(c *http.Client, path string) *feeding {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	p.Cleanup(cancel)
	out, in := io.Pipe()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, out)
	must.OK(p, err)
	r.Header.Set("Content-Type", "text/event-stream")
	res, err := c.Do(r)
	must.OK(p, err)
	p.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		data, err := io.ReadAll(res.Body)
		p.Fatalf("%s: %d %s %v", path, res.StatusCode, data, err)
	}
	return &feeding{pool: p, body: in, next: eventsOf(res.Body), header: res.Header, leave: cancel}
}

// eventsOf reads server-sent events.
func eventsOf(r io.Reader) func() (event, bool) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	return func() (e event, ok bool) {
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "":
				if e.name != "" {
					return e, true
				}
			}
		}
		return e, false
	}
}

func (f *feeding) write(parts ...string) {
	f.Helper()
	if _, err := io.WriteString(f.body, strings.Join(parts, "")); err != nil {
		f.Fatal(err)
	}
}

// end ends the response.
func (f *feeding) end() {
	f.Helper()
	must.OK(f, f.body.Close())
}

// want is the next event, which has a name.
func (f *feeding) want(name string) event {
	f.Helper()
	e, ok := f.next()
	if !ok || e.name != name {
		f.Fatalf("got %+v, there %t; want an event %s", e, ok, name)
	}
	return e
}

// result is the next event, the result of a call.
func (f *feeding) result(index int, code toolyard.Code) toolyard.Result {
	f.Helper()
	e := f.want("result")
	r := decode[toolyard.Result](f.pool, e.data)
	if r.Index != index || e.id != fmt.Sprint(index) || r.Code != code {
		f.Fatalf("got %+v; want the result of call %d with code %q", e, index, code)
	}
	return r
}

// TestFeed: calls run while the response still comes, over both versions of HTTP; what goes back is at the end, in the
// provider's form, and the batch is found under its id.
func TestFeed(t *testing.T) {
	p := start(t, nil)
	tls := httptest.NewUnstartedServer(p.api)
	tls.EnableHTTP2 = true
	tls.StartTLS()
	t.Cleanup(tls.Close)
	for _, c := range []struct {
		version, url string
		client       *http.Client
	}{{"1.1", p.url, http.DefaultClient}, {"2", tls.URL, tls.Client()}} {
		t.Run("HTTP/"+c.version, func(t *testing.T) {
			plain := p.url
			p := &pool{TB: t, url: c.url, gate: p.gate}
			f := p.feed(c.client, "/v1/stream/anthropic?session=s&max_concurrency=3&deny=long")
			began := decode[api.Began](p, f.want("batch").data)
			if f.header.Get("Toolyard-Batch") != began.ID || began.Agent != "default" {
				t.Errorf("it began with %+v, and the header says %q", began, f.header.Get("Toolyard-Batch"))
			}
			f.write(begins(0, "toolu_a", "echo"), part(0, `{"text": "o`))
			f.write(part(0, `ne"}`), ends(0))
			if r := f.result(0, ""); r.Output != "one" || r.CallID != "toolu_a" { // the response has not ended
				t.Errorf("the first result is %+v", r)
			}
			f.write(begins(1, "toolu_b", "wait"), begins(2, "toolu_c", "echo"), part(2, `{"text"`), part(1, `{}`),
				ends(1), part(2, `: "two"}`), ends(2))
			p.gate <- struct{}{}
			if r := f.result(1, ""); r.Output != "waited" {
				t.Errorf("the second result is %+v", r)
			}
			f.result(2, "")
			f.write(use(3, "toolu_d", "echo", `{"text":`), use(4, "toolu_e", "long", "{}"), over)
			f.result(3, toolyard.SchemaValidationFailed)
			f.result(4, toolyard.BlockedTool)
			var reply struct {
				Content []struct {
					Type      string
					ToolUseID string `json:"tool_use_id"`
				}
			}
			must.OK(t, json.Unmarshal([]byte(f.want("reply").data), &reply))
			var ids []string
			for _, b := range reply.Content {
				if b.Type == "tool_result" {
					ids = append(ids, b.ToolUseID)
				}
			}
			if fmt.Sprint(ids) != "[toolu_a toolu_b toolu_c toolu_d toolu_e]" || len(reply.Content) != 5 {
				t.Errorf("the reply answers %v with %+v", ids, reply)
			}
			last := f.want("completed")
			if done := decode[api.Completed](p, last.data); last.id != "5" || done.Results != 5 ||
				done.Status != toolyard.StatusCompleted {
				t.Errorf("the last event is %+v", last)
			}
			f.end()
			if e, ok := f.next(); ok {
				t.Errorf("behind the end there is %+v", e)
			}
			view := want[toolyard.BatchView](&pool{TB: t, url: plain}, http.StatusOK, http.MethodGet,
				strings.TrimSuffix(began.Results, "/results"), "")
			if view.Session != "s" || len(view.Results) != 5 {
				t.Errorf("the batch is %+v", view)
			}
		})
	}
}

// TestFeedForms: the streams of all providers, and the forms of the reply.
func TestFeedForms(t *testing.T) {
	p := start(t, nil)
	chat := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"echo","arguments":"{\"text\":\"x\"}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: [DONE]

`
	responses := `data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"call_a","name":"echo","arguments":"{\"text\":\"x\"}","status":"completed"}}

data: {"type":"response.completed","response":{}}

`
	for _, c := range []struct{ provider, query, body, reply string }{
		{"openai-chat", "", chat, `[{"content":"x","tool_call_id":"call_a","role":"tool"}]`},
		{"openai", "", responses, `"call_id":"call_a"`},
		{"openai", "?format=anthropic", responses, `"tool_use_id":"call_a"`},
		{"anthropic", "?format=native", use(0, "call_a", "echo", `{"text":"x"}`) + over, `"call_id":"call_a"`},
	} {
		f := p.feed(http.DefaultClient, "/v1/stream/"+c.provider+c.query)
		f.write(c.body)
		f.end()
		f.want("batch")
		if r := f.result(0, ""); r.Output != "x" {
			t.Errorf("%s%s: %+v", c.provider, c.query, r)
		}
		if e := f.want("reply"); !strings.Contains(e.data, c.reply) {
			t.Errorf("%s%s: the reply is %s", c.provider, c.query, e.data)
		}
		f.want("completed")
	}
}

// TestFeedWithoutCalls: a response of words makes no batch, and has no reply.
func TestFeedWithoutCalls(t *testing.T) {
	p := start(t, nil)
	f := p.feed(http.DefaultClient, "/v1/stream/anthropic?id=words")
	f.write("data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n", ends(0), over)
	f.want("batch") // the response is over, and its connection is still open
	if done := decode[api.Completed](p, f.want("completed").data); done.Results != 0 ||
		done.Status != toolyard.StatusCompleted {
		t.Errorf("it ends with %+v", done)
	}
	if r := p.do(http.MethodGet, batches+"/words", ""); r.status != http.StatusNotFound {
		t.Errorf("there is a batch: %s", r)
	}
}

// TestFeedIsCut: a response that ends too early, or is none, is told so; what was whole has its result, and so has what
// was not.
func TestFeedIsCut(t *testing.T) {
	p := start(t, nil)
	for name, c := range map[string]struct {
		tail   string
		status int
		says   string
	}{
		"the stream ends":    {"", 400, "cut before its end"},
		"the provider fails": {"data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", 502, "overloaded_error"},
		"no event":           {"data: nonsense\n\n", 400, "is not JSON"},
	} {
		f := p.feed(http.DefaultClient, "/v1/stream/anthropic")
		f.want("batch")
		f.write(use(0, "a", "echo", `{"text":"x"}`), begins(1, "b", "write"), part(1, `{"text": "half`), c.tail)
		f.end()
		seen := map[string]event{}
		for _, e := range all(f.next) {
			seen[e.name+e.id] = e
		}
		if problem := decode[api.Problem](p, seen["cut"].data); problem.Status != c.status ||
			!strings.Contains(problem.Detail, c.says) {
			t.Errorf("%s: cut is %+v", name, problem)
		}
		if r := decode[toolyard.Result](p, seen["result0"].data); r.Output != "x" {
			t.Errorf("%s: %+v", name, r)
		}
		if r := decode[toolyard.Result](p, seen["result1"].data); r.Code != toolyard.IncompleteCall ||
			r.CallID != "b" || r.Tool != "write" || r.Attempts != 0 || !strings.Contains(r.Error, "cut off") {
			t.Errorf("%s: %+v", name, r)
		}
		if !strings.Contains(seen["reply"].data, `"tool_use_id":"b"`) || seen["completed2"].data == "" {
			t.Errorf("%s: %+v", name, seen)
		}
	}
}

// TestFeedIsLeft: a client that goes in the middle finds its batch closed, its whole calls run, and the results where
// the first event said; the same stream again under the same id runs nothing.
func TestFeedIsLeft(t *testing.T) {
	p := start(t, nil)
	f := p.feed(http.DefaultClient, "/v1/stream/anthropic?id=left")
	began := decode[api.Began](p, f.want("batch").data)
	f.write(use(0, "a", "wait", `{}`), begins(1, "b", "write"), part(1, `{"text"`))
	testenv.Until(p, "the call is there", func() bool {
		r := p.do(http.MethodGet, batches+"/left", "")
		return r.status == http.StatusOK && len(decode[toolyard.BatchView](p, string(r.body)).Groups) == 1
	})
	f.leave()
	p.gate <- struct{}{}
	next, _ := p.stream(began.Results)
	seen := all(next)
	if len(seen) != 3 || seen[2].name != "completed" {
		t.Fatalf("there are %+v", seen)
	}
	if r := decode[toolyard.Result](p, seen[0].data); r.Output != "waited" {
		t.Errorf("the whole call is %+v", r)
	}
	if r := decode[toolyard.Result](p, seen[1].data); r.Code != toolyard.IncompleteCall {
		t.Errorf("the cut call is %+v", r)
	}
}

// TestFeedAgain: the same stream under the same id runs nothing and shows the same results; another one is refused.
func TestFeedAgain(t *testing.T) {
	p := start(t, nil)
	body := use(0, "a", "echo", `{"text":"x"}`) + use(1, "b", "echo", `{"text": "y"}`) + over
	var first []event
	for range 2 {
		f := p.feed(http.DefaultClient, "/v1/stream/anthropic?id=again")
		f.write(body)
		f.end()
		seen := all(f.next)
		if len(seen) != 5 {
			t.Fatalf("there are %+v", seen)
		}
		if first == nil {
			first = seen
		}
		if fmt.Sprint(seen) != fmt.Sprint(first) {
			t.Errorf("again there are\n%+v\nand were\n%+v", seen, first)
		}
	}
	f := p.feed(http.DefaultClient, "/v1/stream/anthropic?id=again")
	f.write(use(0, "c", "echo", `{"text":"z"}`), over)
	f.end()
	problems := 0
	for _, e := range all(f.next) {
		if e.name == "problem" && decode[api.Problem](p, e.data).Status == http.StatusConflict {
			problems++
		}
	}
	if problems != 1 {
		t.Errorf("another stream under the same id: %d problems", problems)
	}
}

// TestFeedRefuses: what is wrong before the first event is a problem document.
func TestFeedRefuses(t *testing.T) {
	p := start(t, nil)
	sse := []string{"Content-Type", "text/event-stream"}
	for path, status := range map[string]int{
		"/v1/stream/gemini": 400, "/v1/stream/anthropic?partition=x": 400, "/v1/stream/anthropic?sesion=x": 400,
		"/v1/stream/anthropic?session=" + strings.Repeat("x", 200): 400,
		"/v1/stream/anthropic?format=mcp":                          400, "/v1/stream/anthropic?max_concurrency=0": 400,
		"/v1/stream": 404,
	} {
		if r := p.do(http.MethodPost, path, over, sse...); r.status != status {
			t.Errorf("%s: %s", path, r)
		}
	}
	if r := p.do(http.MethodPost, "/v1/stream/anthropic", over, "Content-Type",
		"application/json"); r.status != http.StatusUnsupportedMediaType {
		t.Errorf("as JSON: %s", r)
	}
	// A rule that cannot be read is found when the batch is planned: the problem comes in the stream.
	f := p.feed(http.DefaultClient, "/v1/stream/anthropic?deny=bash(")
	f.write(use(0, "a", "echo", "{}"), over)
	f.end()
	seen := all(f.next)
	if len(seen) < 2 || seen[1].name != "problem" || !strings.Contains(seen[1].data, "deny") {
		t.Errorf("a bad rule: %+v", seen)
	}
	// Two calls with one id cannot be told apart: the second is refused, the first has its result.
	f = p.feed(http.DefaultClient, "/v1/stream/anthropic")
	f.write(use(0, "a", "echo", `{"text":"x"}`), use(1, "a", "echo", `{"text":"y"}`), over)
	f.end()
	names := map[string]int{}
	for _, e := range all(f.next) {
		names[e.name]++
	}
	if names["problem"] != 1 || names["result"] != 1 || names["completed"] != 1 {
		t.Errorf("one id twice: %v", names)
	}
}

// TestFeedIsSilent: a stream that says nothing more for too long is cut.
func TestFeedIsSilent(t *testing.T) {
	p := start(t, func(c *api.Config) { c.FeedIdle = 300 * time.Millisecond })
	f := p.feed(http.DefaultClient, "/v1/stream/anthropic")
	f.want("batch")
	f.write(use(0, "a", "echo", `{"text":"x"}`), begins(1, "b", "echo"))
	seen := map[string]string{}
	for _, e := range all(f.next) {
		seen[e.name+e.id] = e.data
	}
	if !strings.Contains(seen["cut"], "nothing came for 300ms") ||
		!strings.Contains(seen["result1"], "incomplete_call") || seen["completed2"] == "" {
		t.Errorf("it ends with %v", seen)
	}
}

// TestFeedLong: an input of several megabytes, in many pieces.
func TestFeedLong(t *testing.T) {
	p := start(t, nil)
	f := p.feed(http.DefaultClient, "/v1/stream/anthropic")
	f.want("batch")
	f.write(begins(0, "a", "echo"), part(0, `{"text":"`))
	piece := part(0, strings.Repeat("x", 64<<10))
	for range 48 {
		f.write(piece)
	}
	f.write(part(0, `"}`), ends(0), over)
	f.end()
	r := f.result(0, "")
	if blob := want[api.Blob](p, http.StatusOK, http.MethodGet, "/v1/blobs/"+r.Blob+
		"?offset=3145000&limit=1000", ""); !r.Truncated || blob.Size != 48*64<<10 {
		t.Errorf("%d bytes of output, of %d in all", len(r.Output), blob.Size)
	}
}

// TestFeedTokens: a token hands in its agent's responses and nobody else's.
func TestFeedTokens(t *testing.T) {
	p := startFor(t, "secret-a alice\n")
	sse := []string{"Content-Type", "text/event-stream"}
	alice := append(sse, "Authorization", "Bearer secret-a")
	if r := p.do(http.MethodPost, "/v1/stream/anthropic", over, sse...); r.status != http.StatusUnauthorized {
		t.Errorf("without a token: %s", r)
	}
	if r := p.do(http.MethodPost, "/v1/stream/anthropic?agent=bob", over, alice...); r.status != http.StatusForbidden {
		t.Errorf("in another's name: %s", r)
	}
	if r := p.do(http.MethodGet, "/v1/tools?format=mcp&agent=bob", "", alice[2:]...); r.status != http.StatusNotFound {
		t.Errorf("another's tools: %s", r)
	}
	r := p.do(http.MethodPost, "/v1/stream/anthropic?id=b", use(0, "a", "echo", `{"text":"x"}`)+over, alice...)
	if r.status != http.StatusOK || !bytes.Contains(r.body, []byte(`"agent":"alice"`)) ||
		!bytes.Contains(r.body, []byte("event: completed")) {
		t.Errorf("her own: %s", r)
	}
}

// TestFeedEndsWithTheServer: a server that stops closes the batches of the streams that come in.
func TestFeedEndsWithTheServer(t *testing.T) {
	p := start(t, nil)
	f := p.feed(http.DefaultClient, "/v1/stream/anthropic?id=b")
	f.want("batch")
	f.write(use(0, "a", "echo", `{"text":"x"}`))
	f.result(0, "")
	p.api.Stop()
	if e, ok := f.next(); ok && e.name != "cut" {
		t.Errorf("the stream goes on with %+v", e)
	}
	results, err := collect(p.client.Batch(toolyard.BatchKey{Agent: "default", ID: "b"}), t.Context())
	if err != nil || len(results) != 1 {
		t.Errorf("%v, %v", results, err)
	}
}

func collect(b *client.Batch, ctx context.Context) (out []toolyard.Result, err error) {
	for r, err := range b.Results(ctx) {
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
	return out, nil
}

// TestClientFeed: the same from Go, over NATS and over HTTP.
func TestClientFeed(t *testing.T) {
	p := start(t, nil)
	for name, c := range map[string]*client.Client{"NATS": p.client, "HTTP": overHTTP(t, p, client.HTTPOptions{})} {
		t.Run(name, func(t *testing.T) { feeds(t, c) })
	}
}

func feeds(t *testing.T, c *client.Client) {
	out, in := io.Pipe()
	fed := make(chan *client.Feed, 1)
	go func() {
		f, err := c.Feed(t.Context(), "anthropic", toolyard.Batch{Session: "s"}, out)
		if err != nil {
			t.Error(err)
		}
		fed <- f
	}()
	write := func(s string) {
		if _, err := io.WriteString(in, s); err != nil {
			t.Error(err)
		}
	}
	write(use(0, "a", "echo", `{"text":"x"}`))
	f := <-fed
	if f == nil {
		t.Fatal("no batch was opened")
	}
	for r, err := range f.Results(t.Context()) { // the response has not ended
		if err != nil || r.Output != "x" {
			t.Errorf("the first result is %+v, %v", r, err)
		}
		break
	}
	write(begins(1, "b", "echo"))
	must.OK(t, in.CloseWithError(errors.New("the wire is gone")))
	if err := f.Wait(); !errors.Is(err, client.ErrCut) || !strings.Contains(err.Error(), "the wire is gone") {
		t.Errorf("it ends with %v", err)
	}
	results, err := collect(f.Batch, t.Context())
	if err != nil || len(results) != 2 || results[1].Code != toolyard.IncompleteCall {
		t.Errorf("%+v, %v", results, err)
	}
	if f, err := c.Feed(t.Context(), "anthropic", toolyard.Batch{}, strings.NewReader(over)); f != nil ||
		err != nil {
		t.Errorf("without calls: %v, %v", f, err)
	}
	if _, err := c.Feed(t.Context(), "gemini", toolyard.Batch{}, strings.NewReader(over)); err == nil ||
		!strings.Contains(err.Error(), "openai-chat") {
		t.Errorf("another form: %v", err)
	}
}

// TestTools: the tools of the next batch, as each provider takes them, and 304 as long as nothing changes.
func TestTools(t *testing.T) {
	p := start(t, nil)
	for _, format := range []string{"anthropic", "openai", "openai-chat", "gemini", "mcp"} {
		r := p.do(http.MethodGet, "/v1/tools?format="+format, "")
		if r.status != http.StatusOK || r.header.Get("Content-Type") != "application/json" || !json.Valid(r.body) ||
			!bytes.Contains(r.body, []byte(`"echo"`)) {
			t.Fatalf("%s: %s", format, r)
		}
	}
	var tools []struct{ Name string }
	r := p.do(http.MethodGet, "/v1/tools?format=anthropic&deny=long", "")
	must.OK(t, json.Unmarshal(r.body, &tools))
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
	}
	if !slices.Contains(names, "write") || slices.Contains(names, "long") || !slices.IsSorted(names) {
		t.Errorf("the tools are %v", names)
	}
	tag := r.header.Get("ETag")
	if again := p.do(http.MethodGet, "/v1/tools?format=anthropic&deny=long", "", "If-None-Match", `"x", W/`+
		tag); tag == "" || again.status != http.StatusNotModified || len(again.body) != 0 ||
		again.header.Get("ETag") != tag {
		t.Errorf("again: %s with the tag %s, first %s", again, again.header.Get("ETag"), tag)
	}
	for _, path := range []string{"/v1/tools?format=anthropic", "/v1/tools?format=anthropic&strict=true&deny=long",
		"/v1/tools?format=openai&deny=long"} {
		if r := p.do(http.MethodGet, path, "", "If-None-Match", tag); r.status != http.StatusOK ||
			r.header.Get("ETag") == tag {
			t.Errorf("%s: %d with the tag %s", path, r.status, r.header.Get("ETag"))
		}
	}
	for path, status := range map[string]int{"/v1/tools": 400, "/v1/tools?format=none": 400,
		"/v1/tools?format=native": 200, "/v1/tools?format=mcp&deny=bash(": 400, "/v1/tools?format=mcp&session=" +
			strings.Repeat("x", 200): 400} {
		if r := p.do(http.MethodGet, path, ""); r.status != status {
			t.Errorf("%s: %s", path, r)
		}
	}
	// What a session has loaded changes the answer for it, and for it alone, where the form cannot defer; elsewhere
	// nothing changes.
	const ofSession, deferring = "/v1/tools?format=openai-chat&session=", "/v1/tools?format=anthropic&session=s"
	plain, kept := p.do(http.MethodGet, ofSession+"s", ""), p.do(http.MethodGet, deferring, "")
	if _, err := p.broker.ChangeSession(t.Context(), "default", "s",
		func(v *broker.Session) { v.Loaded = []string{"echo"} }); err != nil {
		t.Fatal(err)
	}
	if r := p.do(http.MethodGet, deferring, "", "If-None-Match",
		kept.header.Get("ETag")); r.status != http.StatusNotModified {
		t.Errorf("a load, where the definition stays deferred: %s", r)
	}
	if r := p.do(http.MethodGet, ofSession+"s", ""); r.header.Get("ETag") == plain.header.Get("ETag") {
		t.Error("a load does not change the tag")
	}
	if r := p.do(http.MethodGet, ofSession+"t", ""); r.header.Get("ETag") != plain.header.Get("ETag") {
		t.Error("another session's load changes the tag")
	}
}
