package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
)

// TestAnthropicAgent: the example does what a model of Anthropic's says: calls together, which start before the
// response has ended; a wrong call and a right one; a tool that was not in the prompt. The model takes no mistake from
// it.
func TestAnthropicAgent(t *testing.T) {
	t.Parallel()
	p := startPool(t)
	joined := false
	model := &anthropicModel{T: t, turns: []anthropicTurn{
		func(r *anthropicRequest) []said {
			if len(r.Messages) != 1 || r.text != "Count the words." || r.deferral["read_file"] || r.has("count_words") {
				r.bad("it begins with %q and the tools %v", r.text, r.deferral)
			}
			return []said{
				{text: "I look around."}, {id: "toolu_1", name: "read_file", input: `{"file_path": "README.md"}`},
				{id: "toolu_2", name: "glob", input: `{"pattern": "*.md"}`},
				{wait: func() error { // the rest is not said before the first results are there
					return p.await("the first calls have results", func() (bool, error) {
						_, results, err := p.results()
						return results >= 2, err
					})
				}},
				{id: "toolu_3", name: "glob", input: ""},
			}
		},
		func(r *anthropicRequest) []said {
			r.results(t, "toolu_1", "To be or not to be.", "toolu_2", "NOTES.md", "toolu_3", "error: pattern")
			p.start(0, "wordsworker", p.nats, p.creds("words"))
			p.awaitTool("count_words")
			joined = true
			return []said{{id: "toolu_4", name: "read_file", input: `{"path": "README.md"}`}}
		},
		func(r *anthropicRequest) []said {
			r.results(t, "toolu_4", "error: file_path")
			if !joined || !r.deferral["count_words"] {
				r.bad("a tool that came between has the definitions %v", r.deferral)
			}
			return []said{
				{id: "toolu_5", name: "read_file", input: `{"file_path": "README.md", "offset": 3}`},
				{id: "toolu_6", name: "tool_search", input: `{"query": "count the words of a text"}`},
			}
		},
		func(r *anthropicRequest) []said {
			r.results(t, "toolu_5", "To be or not to be.", "toolu_6", "tool_reference count_words")
			return []said{{id: "toolu_7", name: "count_words", input: `{"text": "To be or not to be."}`}}
		},
		func(r *anthropicRequest) []said {
			r.results(t, "toolu_7", "6 words")
			return []said{{text: "There are six words."}}
		},
	}}
	server := httptest.NewServer(model)
	t.Cleanup(server.Close)
	out := p.run([]string{"ANTHROPIC_BASE_URL=" + server.URL, "ANTHROPIC_API_KEY=a-key"},
		filepath.Join(bin, "anthropic-agent"), "Count", "the", "words.")
	for _, line := range []string{"I look around.", "There are six words.", "count_words", "schema_validation_failed"} {
		if !strings.Contains(out, line) {
			t.Errorf("the agent says nothing of %q:\n%s", line, out)
		}
	}
	if model.asked != len(model.turns) {
		t.Errorf("the model was asked %d times, want %d", model.asked, len(model.turns))
	}
	if batches, _, err := p.results(); err != nil || batches != 4 {
		t.Errorf("there are %d batches, %v; a turn without calls makes none", batches, err)
	}
}

// said is a part of what a scripted model says: words, a call, or a wait before the next part.
type said struct {
	text            string
	id, name, input string
	wait            func() error
}

type anthropicTurn func(*anthropicRequest) []said

// anthropicModel is the Messages API with a model that follows a script.
type anthropicModel struct {
	*testing.T
	turns []anthropicTurn

	mu       sync.Mutex
	asked    int
	history  []json.RawMessage // the messages that must come again, as they were
	expected []string          // the ids of calls that must be answered now
}

// anthropicRequest is a request that was found in order.
type anthropicRequest struct {
	anthropic.MessageNewParams
	bad func(format string, args ...any)
	// text is the text of the first message, and deferral the tools, each with whether its definition is deferred.
	text     string
	deferral map[string]bool
	// answers are the results in the last message.
	answers []*anthropic.ToolResultBlockParam
}

func (r *anthropicRequest) has(tool string) bool { _, ok := r.deferral[tool]; return ok }

// results checks the answers: pairs of an id and a part of its text, "error: " before it if it is one.
func (r *anthropicRequest) results(t *testing.T, want ...string) {
	if len(r.answers) != len(want)/2 {
		r.bad("there are %d answers, want %d", len(r.answers), len(want)/2)
		return
	}
	for i, a := range r.answers {
		var b strings.Builder
		if a.IsError.Value {
			b.WriteString("error: ")
		}
		for _, c := range a.Content {
			switch {
			case c.OfText != nil:
				b.WriteString(c.OfText.Text)
			case c.OfToolReference != nil:
				b.WriteString("tool_reference " + c.OfToolReference.ToolName)
			}
		}
		part, isError := strings.CutPrefix(want[2*i+1], "error: ")
		if a.ToolUseID != want[2*i] || isError != a.IsError.Value || !strings.Contains(b.String(), part) {
			r.bad("answer %d, to %s, is %q; want %q", i, a.ToolUseID, b.String(), want[2*i+1])
		}
	}
}

func (m *anthropicModel) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		m.Error(err)
	}
	refused := false
	r := &anthropicRequest{deferral: map[string]bool{}}
	r.bad = func(format string, args ...any) {
		refused = true
		m.Errorf("request %d: %s", m.asked, fmt.Sprintf(format, args...))
	}
	if req.Method != http.MethodPost || req.URL.Path != "/v1/messages" || req.Header.Get("X-Api-Key") != "a-key" ||
		req.Header.Get("Anthropic-Version") == "" {
		r.bad("%s %s %v", req.Method, req.URL, req.Header)
	}
	if err := json.Unmarshal(body, &r.MessageNewParams); err != nil {
		r.bad("the SDK reads nothing of it: %v", err)
	}
	m.check(r, body)
	var parts []said
	if m.asked < len(m.turns) {
		parts = m.turns[m.asked](r)
	} else {
		r.bad("the script is over")
	}
	m.asked++
	if refused {
		http.Error(w, `{"type":"error","error":{"type":"invalid_request_error","message":"see the test"}}`,
			http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if err := m.speak(w, parts); err != nil {
		m.Error(err)
	}
}

// check holds a request to the rules of the API: it streams, the history is as it was, each call of the last message is
// answered once, in order, in one message that has nothing else.
func (m *anthropicModel) check(r *anthropicRequest, body []byte) {
	var raw struct {
		Stream   bool
		Model    string
		Messages []json.RawMessage
		MaxToken int64 `json:"max_tokens"`
	}
	if err := json.Unmarshal(body, &raw); err != nil || !raw.Stream || raw.Model == "" || raw.MaxToken < 1 {
		r.bad("%v: stream %t, model %q, max_tokens %d", err, raw.Stream, raw.Model, raw.MaxToken)
	}
	for _, t := range r.Tools {
		if t.OfTool == nil || t.OfTool.Name == "" || t.OfTool.InputSchema.Type != "object" || r.has(t.OfTool.Name) {
			r.bad("a tool is %+v", t)
			continue
		}
		r.deferral[t.OfTool.Name] = t.OfTool.DeferLoading.Value
	}
	for i, had := range m.history {
		if i >= len(raw.Messages) || !sameJSON(had, raw.Messages[i]) {
			r.bad("message %d was %s and there are now %s", i, had, raw.Messages)
		}
	}
	n := len(r.Messages)
	if n == 0 || r.Messages[n-1].Role != anthropic.MessageParamRoleUser {
		r.bad("the last message is not the user's")
		return
	}
	if len(m.history) > 0 && n != len(m.history)+1 {
		r.bad("there are %d messages behind the %d that were there; want one", n-len(m.history), len(m.history))
	}
	if len(r.Messages[0].Content) == 1 && r.Messages[0].Content[0].OfText != nil {
		r.text = r.Messages[0].Content[0].OfText.Text
	}
	m.history = append(m.history[:0], raw.Messages...)
	if m.asked == 0 {
		return
	}
	var ids []string
	for _, block := range r.Messages[n-1].Content {
		if block.OfToolResult == nil || len(block.OfToolResult.Content) == 0 {
			r.bad("the last message has a block that is no result, or an empty one: %+v", block)
			continue
		}
		r.answers = append(r.answers, block.OfToolResult)
		ids = append(ids, block.OfToolResult.ToolUseID)
	}
	if fmt.Sprint(ids) != fmt.Sprint(m.expected) {
		r.bad("the calls %v are answered as %v", m.expected, ids)
	}
}

// speak streams a message as the API does, a few bytes of an input at a time, and expects it in the next request.
func (m *anthropicModel) speak(w http.ResponseWriter, parts []said) error {
	var failed error
	send := func(kind, format string, args ...any) {
		_, err := fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, fmt.Sprintf(format, args...))
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if failed == nil {
			failed = err
		}
	}
	send("message_start",
		`,"message":{"id":"msg_%d","type":"message","role":"assistant","model":"scripted","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`, m.asked)
	send("ping", "")
	var content []map[string]any
	m.expected = nil
	i := 0
	for _, s := range parts {
		switch {
		case s.wait != nil:
			if err := s.wait(); err != nil {
				return err
			}
			continue
		case s.id == "":
			content = append(content, map[string]any{"type": "text", "text": s.text})
			send("content_block_start", `,"index":%d,"content_block":{"type":"text","text":""}`, i)
			send("content_block_delta", `,"index":%d,"delta":{"type":"text_delta","text":%q}`, i, s.text)
		default:
			input := map[string]any{}
			if s.input != "" {
				if err := json.Unmarshal([]byte(s.input), &input); err != nil {
					return err
				}
			}
			content = append(content, map[string]any{"type": "tool_use", "id": s.id, "name": s.name, "input": input})
			m.expected = append(m.expected, s.id)
			send("content_block_start", `,"index":%d,"content_block":{"type":"tool_use","id":%q,"name":%q,"input":{}}`,
				i, s.id, s.name)
			send("content_block_delta", `,"index":%d,"delta":{"type":"input_json_delta","partial_json":""}`, i)
			for text := s.input; text != ""; {
				n := min(5, len(text))
				send("content_block_delta", `,"index":%d,"delta":{"type":"input_json_delta","partial_json":%q}`, i,
					text[:n])
				text = text[n:]
			}
		}
		send("content_block_stop", `,"index":%d`, i)
		i++
	}
	reason := "end_turn"
	if len(m.expected) > 0 {
		reason = "tool_use"
	}
	send("message_delta", `,"delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":1}`, reason)
	send("message_stop", "")
	message, err := json.Marshal(map[string]any{"role": "assistant", "content": content})
	if err != nil {
		return err
	}
	m.history = append(m.history, message)
	return failed
}

// sameJSON compares two documents whatever the order of their fields.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
