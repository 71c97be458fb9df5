package toolset

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/tool"
)

// modeVariable has this test binary be an MCP server on stdio, of the kind that its value names.
const modeVariable = "TEST_MCP_SERVER"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(modeVariable); mode {
	case "":
		os.Exit(testenv.RunWaiting(m))
	case "honest":
		honestOnStdio()
	default:
		(&fake{mode: mode, out: os.Stdout}).serve(os.Stdin)
	}
}

// fake speaks just enough of the protocol to break it.
type fake struct {
	mode  string
	mu    sync.Mutex
	out   io.Writer
	lists int
	asked json.RawMessage // the id of the call that waits for what the client says
}

type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

func (f *fake) send(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = fmt.Fprintf(f.out, format+"\n", args...) // the client may be gone
}

func (f *fake) answer(id json.RawMessage, result string) {
	f.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// slowStart is how long a server of the mode slow-start takes before it reads anything.
const slowStart = 500 * time.Millisecond

func (f *fake) serve(in io.Reader) {
	if f.mode == "slow-start" {
		time.Sleep(slowStart)
	}
	if f.mode == "garbage" {
		f.send("Welcome to my server! {]")
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue
		}
		switch {
		case f.mode == "deaf" || f.mode == "slow-discover" && m.Method == "server/discover":
		case m.Method == "server/discover":
			f.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
		case m.Method == "initialize":
			f.answer(m.ID,
				`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`)
		case m.Method == "tools/list":
			f.list(m.ID)
		case m.Method == "tools/call":
			f.call(m)
		case m.Method == "" && f.asked != nil: // what the client says to a question
			f.answer(f.asked, fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, string(m.Error)))
			f.asked = nil
		}
	}
	if f.mode == "lingers" { // until it is killed
		time.Sleep(time.Hour)
	}
}

func (f *fake) list(id json.RawMessage) {
	f.lists++
	tool := func(name, more string) string {
		return `{"name":"` + name + `","inputSchema":{"type":"object"}` + more + `}`
	}
	plain := []string{tool("echo", ""), tool("hang", ""), tool("huge", ""), tool("crash", ""), tool("noise", ""),
		tool("change", ""), tool("ask", ""),
		tool("refuse", ""), tool("flood", ""), tool("wrong",
			`,"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)}
	switch f.mode {
	case "endless":
		f.answer(id, fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, f.lists))
	case "heavy": // three pages, which have too much together
		cursor := ""
		if f.lists < 3 {
			cursor = fmt.Sprintf(`,"nextCursor":"%d"`, f.lists)
		}
		f.answer(id, `{"tools":[`+tool(fmt.Sprintf("t%d", f.lists), `,"description":"`+
			strings.Repeat("d", MaxListBytes*2/5)+`"`)+`]`+cursor+`}`)
	case "many":
		f.answer(id, `{"tools":[`+strings.Repeat(tool("x", "")+",", 1000)+tool("y", "")+`]}`)
	case "odd":
		f.answer(id, `{"tools":[`+strings.Join([]string{
			tool("echo", `,"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true}`),
			tool("echo", `,"description":"the second"`),
			tool("a b", ""), tool("x(y)", ""), tool("", ""), tool(strings.Repeat("n", 200), ""), `null`,
			`{"name":"text","inputSchema":{"type":"string"}}`,
			`{"name":"broken","inputSchema":{"type":"object","properties":{"a":{"type":"nonsense"}}}}`,
			`{"name":"big","inputSchema":{"type":"object","description":"` + strings.Repeat("x", MaxSchemaBytes) +
				`"}}`,
			`{"name":"outside","inputSchema":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/schema"}}}}`,
			`{"name":"untyped","inputSchema":{"properties":{"a":{"type":"string"}}}}`, `{"name":"bare"}`,
			`{"name":"tuple","inputSchema":{"type":"object","properties":{"a":{"items":[{"type":"integer"}],"minimum":0,"exclusiveMinimum":true}}}}`,
			`{"name":"email","inputSchema":{"type":"object","properties":{"a":{"pattern":"^(?!x)a$"}}}}`,
			`{"name":"unread","inputSchema":{"type":"object","properties":{"a":{"pattern":"(a"}}}}`,
			`{"name":"bigout","inputSchema":{"type":"object"},"outputSchema":{"type":"object","description":"` +
				strings.Repeat("x", 71_000) + `"}}`,
			`{"name":"brokenout","inputSchema":{"type":"object"},"outputSchema":[]}`, tool("last", `,"description":"`+
				strings.Repeat("d", 2*MaxDescriptionBytes)+`"`),
		}, ",")+`]}`)
	case "long numbers":
		schema := `{"type":"object","properties":{"a":{"default":9007199254740993,"enum":[9007199254740993]},"b":{"type":"integer","maximum":18446744073709551615}}}`
		f.answer(id, `{"tools":[{"name":"ids","inputSchema":`+schema+`,"outputSchema":`+schema+`},`+
			`{"name":"past","inputSchema":{"type":"object","properties":{"a":{"maximum":1e400}}}},`+
			tool("echo", "")+`]}`)
	case "grow": // one more tool each time
		f.answer(id, `{"tools":[`+tool("echo", "")+`,`+tool(fmt.Sprintf("tool%d", f.lists), "")+`]}`)
		f.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	default:
		if f.mode == "busy" && f.lists == 2 {
			f.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"come again later"}}`, id)
			return
		}
		if f.lists > 1 {
			plain = []string{tool("echo", ""), tool("new", "")}
		}
		f.answer(id, `{"tools":[`+strings.Join(plain, ",")+`]}`)
	}
}

func (f *fake) call(m message) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      json.RawMessage `json:"_meta"`
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	text := func(s string) string {
		raw, _ := json.Marshal(s)
		return `{"content":[{"type":"text","text":` + string(raw) + `}]}`
	}
	if say, ok := strings.CutPrefix(f.mode, "say "); ok && p.Name == "echo" {
		f.send("%s", say)
	}
	if result, ok := strings.CutPrefix(f.mode, "result "); ok && p.Name == "echo" {
		f.answer(m.ID, result)
		return
	}
	if f.mode == "cannot read" && p.Name == "echo" {
		f.send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"too long"}}`)
		return
	}
	if refuse, ok := strings.CutPrefix(f.mode, "refuse "); ok && p.Name == "echo" {
		f.send(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, refuse)
		return
	}
	switch p.Name {
	case "hang":
	case "huge":
		f.answer(m.ID, text(strings.Repeat("x", MaxMessageBytes+1)))
	case "crash":
		fmt.Fprintln(os.Stderr, "segmentation fault")
		os.Exit(3)
	case "noise":
		f.send("Traceback (most recent call last):")
	case "change":
		f.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		go func(id json.RawMessage) { // after the list was taken again
			for done := false; !done; {
				f.mu.Lock()
				done = f.lists > 1
				f.mu.Unlock()
			}
			f.answer(id, text("changed"))
		}(m.ID)
	case "ask":
		f.asked = m.ID
		f.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"mode":"form","message":"your password?","requestedSchema":{"type":"object","properties":{}}}}`)
	case "refuse":
		f.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"not like this"}}`, m.ID)
	case "flood":
		go func() {
			for {
				f.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":1}}`)
			}
		}()
	case "wrong":
		f.answer(m.ID, `{"content":[],"structuredContent":{"n":"many"}}`)
	default:
		f.answer(m.ID, text(string(p.Arguments)+" "+string(p.Meta)))
	}
}

// TestAMessageHarmsItsOwnCalls: what the library panics at ends a call at most, and not the worker.
func TestAMessageHarmsItsOwnCalls(t *testing.T) {
	t.Parallel()
	for _, elicits := range []bool{false, true} {
		for _, say := range []string{
			`{"jsonrpc":"2.0","method":"notifications/elicitation/complete"}`,
			`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":null}`,
			`{"jsonrpc":"2.0","id":"q","method":"elicitation/create"}`,
			`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":null}`,
			`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"x","requestedSchema":` +
				`{"type":"object","properties":{"a":{"type":"string","oneOf":[null]}}}}}`,
			`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"x","requestedSchema":` +
				`{"type":"object","properties":{"a":{"type":"array","items":{"anyOf":[null]}}}}}}`,
		} {
			s := fakeServer("say " + say)
			s.Elicitation = elicits
			set := start(t, s)
			for range 2 { // the message is read beside the first call, and before the answer to the second
				if _, err := run(t, set, "echo", patience); err != nil {
					t.Logf("%t, %s: %v", elicits, say, err)
				}
			}
		}
	}
}

// TestAMessageThatCannotBeReadIsNoRefusal: the call that it meets may have taken effect. What the server itself answers
// with the same code is one.
func TestAMessageThatCannotBeReadIsNoRefusal(t *testing.T) {
	for mode, want := range map[string]toolyard.Code{
		`say {"jsonrpc":"2.0","id":{},"method":"ping"}`:    toolyard.OutcomeUnknown,
		`say {"jsonrpc":"2.0","id":null,"result":{}}`:      toolyard.OutcomeUnknown,
		`refuse {"code":-32600,"message":"not like this"}`: toolyard.ExecutionFailed,
		`refuse {"code":-32700,"message":"not like this"}`: toolyard.ExecutionFailed,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			_, err := run(t, start(t, fakeServer(mode)), "echo", patience)
			if err == nil || err.Code != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// TestAnErrorWithoutAnIDEndsNothing: some servers answer notifications so.
func TestAnErrorWithoutAnIDEndsNothing(t *testing.T) {
	for _, id := range []string{`"id":null,`, ``} {
		set := start(t, fakeServer(`say {"jsonrpc":"2.0",`+id+`"error":{"code":-32601,"message":"no such method"}}`))
		first := life(set)
		for range 2 { // the error is read before the answer to the second call at the latest
			if _, err := run(t, set, "echo", patience); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		if first.Err() != nil {
			t.Errorf("%s: the session has ended: %v", id, context.Cause(first))
		}
	}
}

// TestACallThatTheServerCannotReadDoesNotWaitForItsAnswer: the server cannot name the call, and answers nothing else.
func TestACallThatTheServerCannotReadDoesNotWaitForItsAnswer(t *testing.T) {
	t.Parallel()
	set := start(t, fakeServer("cannot read"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	echo, ends := find(t, set, "echo"), make(chan error, 1)
	go func() {
		_, err := echo.Run(ctx, tool.Env{Progress: func(tool.Progress) {}}, json.RawMessage(`{}`))
		ends <- err
	}()
	select {
	case err := <-ends:
		if e := tool.AsError(err); err == nil || e.Code != toolyard.OutcomeUnknown {
			t.Errorf("got %v, want %s", err, toolyard.OutcomeUnknown)
		}
	case <-time.After(patience):
		t.Error("the call still waits")
	}
}

// TestAResultHarmsItsOwnCall: nor do results that cannot be read.
func TestAResultHarmsItsOwnCall(t *testing.T) {
	for _, result := range []string{`{"inputRequests":{"a":null}}`,
		`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":null}}}`,
		`{"content":[null]}`, `null`, `[]`, `{"content":[{"type":"tool_result","content":[null]}]}`} {
		t.Run(result, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, start(t, fakeServer("result "+result)), "echo", patience)
			if err == nil && out.Text == "" && len(out.Content) == 0 && out.Structured == nil {
				t.Log("it is an empty result")
			}
		})
	}
}

// TestAResultThatCannotBeRead: the tool ran, whatever may run twice, and the server does not count as broken.
func TestAResultThatCannotBeRead(t *testing.T) {
	o := manifest.Override{}
	if err := json.Unmarshal([]byte(`{"concurrency_class":"READ_ONLY","is_read_only":true}`), &o); err != nil {
		t.Fatal(err)
	}
	for name, result := range map[string]string{
		"no base64":       `{"content":[{"type":"image","mimeType":"image/png","data":"!!!"}]}`,
		"a number":        `{"content":[{"type":"text","text":5}]}`,
		"no list":         `{"content":"done"}`,
		"an unknown part": `{"content":[{"type":"hologram"}]}`,
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, again %t", name, again), func(t *testing.T) {
				t.Parallel()
				s := fakeServer("result " + result)
				if again {
					s.Tools = map[string]manifest.Override{"echo": o}
				}
				set := start(t, s)
				if _, err := run(t, set, "echo", patience); err == nil || err.Code != toolyard.ResultMappingFailed {
					t.Errorf("got %v", err)
				}
				if set.Down() != nil {
					t.Errorf("the server is down: %v", set.Down())
				}
			})
		}
	}
}
