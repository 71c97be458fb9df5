package server

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestProgressAlwaysIncreases: whatever a tool reports, and each status is told as long as there is room.
func TestProgressAlwaysIncreases(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2_000 {
		var b bar
		last, told := -1.0, 0
		for range 50 {
			p := tool.Progress{Fraction: []float64{-1, 0, r.Float64(), 1, 2, math.NaN(), math.Inf(1)}[r.IntN(7)]}
			if r.IntN(2) == 0 {
				p.Status = "works"
			}
			n, ok := b.next(p)
			if !ok {
				if p.Status != "" && last < 0.9 {
					t.Fatalf("a status was not told at %v", last)
				}
				continue
			}
			told++
			if !(n.Progress > last) || n.Progress > 1 || n.Total != 0 && n.Total != 1 {
				t.Fatalf("after %v comes %+v", last, n)
			}
			last = n.Progress
		}
		if told == 0 {
			t.Fatal("nothing was told")
		}
	}
}

func TestMessagesOfProgress(t *testing.T) {
	for _, tt := range []struct {
		p    tool.Progress
		want string
	}{
		{tool.Progress{Status: "reads", Output: "a\nb"}, "reads"},
		{tool.Progress{Output: "a\nb\n"}, "b"},
		{tool.Progress{Output: "\xff"}, "\uFFFD"},
		{tool.Progress{Status: strings.Repeat("ä", maxMessageBytes)}, strings.Repeat("ä", maxMessageBytes/2) + "…"},
		{tool.Progress{}, ""},
	} {
		if got := message(tt.p); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.p, got, tt.want)
		}
	}
}

// TestResultsOfOlderRevisions have no data that is no object.
func TestResultsOfOlderRevisions(t *testing.T) {
	for data, older := range map[string]bool{`{"a":1}`: true, `[1]`: false, `"x"`: false, `1`: false} {
		r := &toolyard.Result{CallID: "c", Output: data, Structured: []byte(data)}
		for _, anyData := range []bool{true, false} {
			out, err := render(r, nil, wish{anyData: anyData})
			must.OK(t, err)
			if there := out.StructuredContent != nil; there != (anyData || older) {
				t.Errorf("%s with anyData %t: told %t", data, anyData, there)
			}
		}
	}
}

// TestWhatIsStoredIsLinked: a part that is elsewhere, and the whole of an output, each once, for clients that ask for
// links. Others get what was fetched, and words.
func TestWhatIsStoredIsLinked(t *testing.T) {
	r := &toolyard.Result{CallID: "c", Output: "…", Truncated: true, Blob: "result-1", Content: []toolyard.Content{
		{Type: toolyard.ContentText, Text: "a preview", Blob: "result-1", Size: 10},
		{Type: toolyard.ContentImage, MIMEType: "image/png", Blob: "result-2", Size: 20},
	}}
	plain, err := render(r, nil, wish{})
	if err != nil || len(plain.Content) != 2 {
		t.Fatalf("got %d parts (%v)", len(plain.Content), err)
	}
	for i, want := range []string{"a preview", `read_result and ref "result-2"`} {
		if c, ok := plain.Content[i].(*mcp.TextContent); !ok || !strings.Contains(c.Text, want) {
			t.Errorf("part %d is %+v, want a text with %q", i, plain.Content[i], want)
		}
	}
	long, err := render(&toolyard.Result{CallID: "c", Output: "…", Truncated: true, Blob: "result-1"}, nil, wish{})
	if err != nil || len(long.Content) != 1 {
		t.Errorf("a long text has %d parts (%v)", len(long.Content), err)
	}
	fetched := *r
	fetched.Content = append([]toolyard.Content{}, r.Content...)
	fetched.Content[1].Data = []byte("png")
	if out, err := render(&fetched, nil, wish{}); err != nil || len(out.Content) != 2 {
		t.Errorf("got %d parts (%v)", len(out.Content), err)
	} else if c, ok := out.Content[1].(*mcp.ImageContent); !ok || string(c.Data) != "png" {
		t.Errorf("what was fetched is %+v", out.Content[1])
	}
	out, err := render(r, nil, wish{links: true})
	if err != nil || len(out.Content) != 3 {
		t.Fatalf("got %d parts (%v)", len(out.Content), err)
	}
	for i, want := range map[int]string{1: "toolyard://blobs/result-1",
		2: "toolyard://blobs/result-2?type=image%2Fpng"} {
		if l, ok := out.Content[i].(*mcp.ResourceLink); !ok || l.URI != want || l.Size == nil {
			t.Errorf("part %d is %+v, want a link to %s", i, out.Content[i], want)
		}
	}
}

// TestANoticeIsRead: what hooks have to say of the batch stands behind the output.
func TestANoticeIsRead(t *testing.T) {
	for name, r := range map[string]*toolyard.Result{
		"text": {CallID: "c", Output: "out"}, "parts": {CallID: "c", Output: "out",
			Content: []toolyard.Content{{Type: toolyard.ContentImage}}},
		"failure": {CallID: "c", IsError: true, Error: "no"},
	} {
		out, err := render(r, &toolyard.Notice{Context: "the build is red"}, wish{})
		must.OK(t, err)
		c, ok := out.Content[len(out.Content)-1].(*mcp.TextContent)
		if !ok || !strings.HasSuffix(c.Text, "[added by a hook] the build is red") {
			t.Errorf("%s: %+v", name, out.Content)
		}
	}
}

func TestOnlyAYesAllows(t *testing.T) {
	form := func(action string, content map[string]any) mcp.InputResponseMap {
		return mcp.InputResponseMap{questionID: &mcp.ElicitResult{Action: action, Content: content}}
	}
	for _, tt := range []struct {
		name      string
		in        mcp.InputResponseMap
		allow, ok bool
	}{
		{"allow", form("accept", map[string]any{"decision": "allow"}), true, true},
		{"allow with a reason", form("accept", map[string]any{"decision": "allow", "reason": "fine"}), true, true},
		{"deny", form("accept", map[string]any{"decision": "deny"}), false, true},
		{"declined, with a yes in it", form("decline", map[string]any{"decision": "allow"}), false, true},
		{"closed, with a yes in it", form("cancel", map[string]any{"decision": "allow"}), false, true},
		{"no decision", form("accept", nil), false, false},
		{"another word", form("accept", map[string]any{"decision": "Allow"}), false, false},
		{"no text", form("accept", map[string]any{"decision": true}), false, false},
		{"a reason that is none", form("accept", map[string]any{"decision": "allow", "reason": 1}), false, false},
		{"no action", form("", map[string]any{"decision": "allow"}), false, false},
		{"nothing", nil, false, false},
		{"a nil", mcp.InputResponseMap{questionID: (*mcp.ElicitResult)(nil)}, false, false},
	} {
		if d, ok := decisionOf(tt.in, false); ok && (d.Verdict == client.Allow) != tt.allow || ok != tt.ok {
			t.Errorf("%s: %q, %t", tt.name, d.Verdict, ok)
		}
	}
}

func TestBegins(t *testing.T) {
	for body, want := range map[string]bool{
		`{"method":"initialize"}`: true, `{"method":"tools/list"}`: false, `[{"method":"initialize"}]`: false,
		``: false, `{`: false, `null`: false,
	} {
		if got := begins([]byte(body)); got != want {
			t.Errorf("%s: %t", body, got)
		}
	}
}

// FuzzBlobURI: an address is refused, or leads to parts that together are the whole, with no character of a text cut.
func FuzzBlobURI(f *testing.F) {
	for _, seed := range []string{
		"toolyard://blobs/result-1", "toolyard://blobs/result-1?limit=3",
		"toolyard://blobs/r?offset=2&limit=1&type=image/png", "toolyard://blobs/", "x", "toolyard://blobs/a/b",
		"toolyard://blobs/%2f",
	} {
		f.Add(seed, []byte("äöü and more"))
	}
	f.Add("toolyard://blobs/r?limit=1", []byte{0xff, 0xfe})
	f.Fuzz(func(t *testing.T, uri string, all []byte) {
		b, err := parseBlobURI(uri)
		if err != nil {
			return
		}
		if b.ref == "" || b.limit < 1 || b.limit > MaxResourceBytes || b.offset < 0 {
			t.Fatalf("%q asks for %+v", uri, b)
		}
		b.offset = 0
		got := []byte{}
		for parts := 0; ; parts++ {
			if parts > len(all) {
				t.Fatalf("%q has more parts than bytes", uri)
			}
			p := b.part(uri, all)
			if !utf8.ValidString(p.Text) {
				t.Fatalf("a character is cut: %q", p.Text)
			}
			got = append(append(got, p.Text...), p.Blob...)
			next, ok := p.Meta[metaNext].(string)
			if !ok {
				break
			}
			if b, err = parseBlobURI(next); err != nil {
				t.Fatalf("the next part's address %q: %v", next, err)
			}
		}
		if string(got) != string(all) {
			t.Fatalf("the parts are %q, want %q", got, all)
		}
	})
}

// TestAnAnswerKeepsItsNumbers: an id of 64 bits that a person has filled in reaches the tool as it was sent, however it
// came. What the library has filled in stays.
func TestAnAnswerKeepsItsNumbers(t *testing.T) {
	const answer = `{"action":"accept","content":{"id":9007199254740993,"name":"Ann"}}`
	part := func(message, of string) json.RawMessage {
		var m map[string]json.RawMessage
		must.OK(t, json.Unmarshal(wire.LiftRequest([]byte(message)), &m))
		return m[of]
	}
	for what, read := range map[string]func(r *mcp.ElicitResult) error{
		"the response to a question": func(r *mcp.ElicitResult) error {
			return json.Unmarshal(part(`{"jsonrpc":"2.0","id":1,"result":`+answer+`}`, "result"), r)
		},
		"a call that comes again": func(r *mcp.ElicitResult) error {
			var params mcp.CallToolParamsRaw
			err := json.Unmarshal(part(`{"method":"tools/call","params":{"name":"a","inputResponses":{"`+
				questionID+`":`+answer+`}}}`, "params"), &params)
			if got, ok := params.InputResponses[questionID].(*mcp.ElicitResult); ok {
				*r = *got
			}
			return err
		},
		"an update of a task": func(r *mcp.ElicitResult) error {
			var params taskParams
			if err := json.Unmarshal(part(`{"method":"tasks/update","params":{"taskId":"a","inputResponses":{"q":`+
				answer+`}}}`, "params"), &params); err != nil {
				return err
			}
			return json.Unmarshal(params.InputResponses["q"], r)
		},
	} {
		r := &mcp.ElicitResult{}
		must.OK(t, read(r))
		r.Content["much"] = true
		if d, ok := decisionFrom(r, true); !ok || string(d.Input) !=
			`{"id":9007199254740993,"much":true,"name":"Ann"}` {
			t.Errorf("%s: %s", what, d.Input)
		}
	}
}

// TestFormsOfTools: what a person fills in is the answer to a tool's question, and a form that was closed is none.
func TestFormsOfTools(t *testing.T) {
	form := func(action string, content map[string]any) mcp.InputResponseMap {
		return mcp.InputResponseMap{questionID: &mcp.ElicitResult{Action: action, Content: content}}
	}
	for _, tt := range []struct {
		in    mcp.InputResponseMap
		input string
		ok    bool
	}{
		{form("accept", map[string]any{"name": "Ann"}), `{"name":"Ann"}`, true},
		{form("accept", map[string]any{"decision": "deny"}), `{"decision":"deny"}`, true},
		{form("accept", nil), `{}`, true},
		{form("decline", map[string]any{"name": "Ann"}), "", true},
		{form("cancel", map[string]any{"name": "Ann"}), "", true},
		{form("", map[string]any{"name": "Ann"}), "", false},
	} {
		d, ok := decisionOf(tt.in, true)
		if ok != tt.ok || string(d.Input) != tt.input || (d.Verdict == client.Allow) != (tt.input != "") {
			t.Errorf("%+v is read as %+v, %t", tt.in[questionID], d, ok)
		}
	}
}
