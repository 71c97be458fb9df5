package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3/responses"
)

// TestOpenAIAgent: the example does what a model of OpenAI's says: calls together beside its reasoning; a wrong call
// and a right one; a search for a tool that was not in the prompt, and a call of it. The model takes no mistake from
// it.
func TestOpenAIAgent(t *testing.T) {
	t.Parallel()
	p := startPool(t)
	model := &openaiModel{T: t, turns: []openaiTurn{
		func(r *openaiRequest) []string {
			if r.items != 1 || r.tools["read_file"] != "function" || r.tools["count_words"] != "" {
				r.bad("it begins with %d items and the tools %v", r.items, r.tools)
			}
			return []string{
				`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"sealed"}`, message("I look around."),
				functionCall("call_1", "read_file", `{"file_path": "README.md"}`),
				functionCall("call_2", "glob", `{"pattern": "*.md"}`),
			}
		},
		func(r *openaiRequest) []string {
			r.outputs("call_1", "To be or not to be.", "call_2", "NOTES.md")
			p.start(0, "wordsworker", p.nats, p.creds("words"))
			p.awaitTool("count_words")
			return []string{functionCall("call_3", "read_file", `{"path": "README.md"}`)}
		},
		func(r *openaiRequest) []string {
			r.outputs("call_3", "InputValidationError")
			if r.tools["count_words"] != "deferred" || r.tools["tool_search"] != "search" {
				r.bad("a tool that came between is among the tools %v", r.tools)
			}
			return []string{
				functionCall("call_4", "read_file", `{"file_path": "README.md", "offset": 3}`),
				`{"type":"tool_search_call","id":"tsc_1","call_id":"call_5","execution":"client","status":"completed","arguments":{"query":"count the words of a text"}}`,
			}
		},
		func(r *openaiRequest) []string {
			r.outputs("call_4", "To be or not to be.", "call_5", "tools count_words")
			return []string{functionCall("call_6", "count_words", `{"text": "To be or not to be."}`)}
		},
		func(r *openaiRequest) []string {
			r.outputs("call_6", "6 words")
			return []string{message("There are six words.")}
		},
	}}
	server := httptest.NewServer(model)
	t.Cleanup(server.Close)
	out := p.run([]string{"OPENAI_BASE_URL=" + server.URL + "/v1", "OPENAI_API_KEY=a-key"},
		filepath.Join(bin, "openai-agent"), "Count", "the", "words.")
	for _, line := range []string{"I look around.", "There are six words."} {
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

func message(text string) string {
	return fmt.Sprintf(`{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":%q,"annotations":[]}]}`, text)
}

func functionCall(id, name, arguments string) string {
	return fmt.Sprintf(`{"type":"function_call","id":"fc_%s","call_id":%q,"name":%q,"arguments":%q,"status":"completed"}`, id, id, name, arguments)
}

type openaiTurn func(*openaiRequest) []string

// openaiModel is the Responses API with a model that follows a script.
type openaiModel struct {
	*testing.T
	turns []openaiTurn

	mu       sync.Mutex
	asked    int
	history  []json.RawMessage // the items that must come again, as they were
	expected []string          // the ids of calls that must be answered now
}

// openaiRequest is a request that was found in order.
type openaiRequest struct {
	responses.ResponseNewParams
	bad func(format string, args ...any)
	// tools are the kinds of the tools by name: function, deferred or search.
	tools map[string]string
	items int
	// answers are the outputs behind what was there.
	answers []responses.ResponseInputItemUnionParam
}

// outputs checks the answers: pairs of an id and a part of its text.
func (r *openaiRequest) outputs(want ...string) {
	if len(r.answers) != len(want)/2 {
		r.bad("there are %d answers, want %d", len(r.answers), len(want)/2)
		return
	}
	for i, a := range r.answers {
		id, text := "", ""
		switch {
		case a.OfFunctionCallOutput != nil:
			id, text = a.OfFunctionCallOutput.CallID.Value, a.OfFunctionCallOutput.Output.OfString.Value
		case a.OfToolSearchOutput != nil:
			id, text = a.OfToolSearchOutput.CallID.Value, "tools"
			for _, t := range a.OfToolSearchOutput.Tools {
				if t.OfFunction != nil && len(t.OfFunction.Parameters) > 0 {
					text += " " + t.OfFunction.Name
				}
			}
		}
		if id != want[2*i] || !strings.Contains(text, want[2*i+1]) {
			r.bad("answer %d, to %s, is %q; want %q", i, id, text, want[2*i+1])
		}
	}
}

func (m *openaiModel) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		m.Error(err)
	}
	refused := false
	r := &openaiRequest{tools: map[string]string{}}
	r.bad = func(format string, args ...any) {
		refused = true
		m.Errorf("request %d: %s", m.asked, fmt.Sprintf(format, args...))
	}
	if req.Method != http.MethodPost || req.URL.Path != "/v1/responses" ||
		req.Header.Get("Authorization") != "Bearer a-key" {
		r.bad("%s %s %v", req.Method, req.URL, req.Header)
	}
	if err := json.Unmarshal(body, &r.ResponseNewParams); err != nil {
		r.bad("the SDK reads nothing of it: %v", err)
	}
	m.check(r, body)
	var items []string
	if m.asked < len(m.turns) {
		items = m.turns[m.asked](r)
	} else {
		r.bad("the script is over")
	}
	m.asked++
	w.Header().Set("Content-Type", "application/json")
	if refused {
		w.WriteHeader(http.StatusBadRequest)
		items = nil
	}
	m.expected = nil
	for _, item := range items {
		var call struct {
			ID string `json:"call_id"`
		}
		if err := json.Unmarshal([]byte(item), &call); err != nil {
			m.Errorf("%s: %v", item, err)
		}
		if call.ID != "" {
			m.expected = append(m.expected, call.ID)
		}
		m.history = append(m.history, json.RawMessage(item))
	}
	if _, err := fmt.Fprintf(w,
		`{"id":"resp_%d","object":"response","status":"completed","model":"scripted","output":[%s]}`, m.asked,
		strings.Join(items, ",")); err != nil {
		m.Error(err)
	}
}

// check holds a request to the rules of the API: the items are those that were there, as they were, and behind them
// each call is answered once, in order, by an output of its kind, and there is nothing else.
func (m *openaiModel) check(r *openaiRequest, body []byte) {
	var raw struct {
		Model string
		Input []json.RawMessage
	}
	err := json.Unmarshal(body, &raw)
	if err != nil || raw.Model == "" {
		r.bad("%v: model %q", err, raw.Model)
	}
	for _, t := range r.Tools {
		switch {
		case t.OfToolSearch != nil && t.OfToolSearch.Execution == "client":
			r.tools["tool_search"] = "search"
		case t.OfFunction == nil || t.OfFunction.Name == "" || !t.OfFunction.Strict.Valid() ||
			t.OfFunction.Parameters["type"] != "object" || r.tools[t.OfFunction.Name] != "":
			r.bad("a tool is %+v", t)
		case t.OfFunction.DeferLoading.Value:
			r.tools[t.OfFunction.Name] = "deferred"
		default:
			r.tools[t.OfFunction.Name] = "function"
		}
	}
	var items responses.ResponseInputParam
	for i, one := range raw.Input {
		var item responses.ResponseInputItemUnionParam
		if i == 0 { // it has no type, which the API takes for a message; the SDK writes it so, and does not read it
			item.OfMessage = new(responses.EasyInputMessageParam)
			err = json.Unmarshal(one, item.OfMessage)
		} else {
			err = json.Unmarshal(one, &item)
		}
		if err != nil {
			r.bad("the SDK does not read item %d, %s: %v", i, one, err)
		}
		items = append(items, item)
	}
	if len(items) < len(m.history) {
		r.bad("there are %d items; there were %d", len(raw.Input), len(m.history))
		return
	}
	for i, had := range m.history {
		if !sameJSON(had, raw.Input[i]) {
			r.bad("item %d was %s and is %s", i, had, raw.Input[i])
		}
	}
	r.answers, r.items = items[len(m.history):], len(items)
	m.history = append(m.history[:0], raw.Input...)
	if m.asked == 0 {
		return
	}
	var ids []string
	for _, a := range r.answers {
		switch {
		case a.OfFunctionCallOutput != nil:
			ids = append(ids, a.OfFunctionCallOutput.CallID.Value)
		case a.OfToolSearchOutput != nil && a.OfToolSearchOutput.Execution == "client":
			ids = append(ids, a.OfToolSearchOutput.CallID.Value)
		default:
			r.bad("an item is no answer: %+v", a)
		}
	}
	if fmt.Sprint(ids) != fmt.Sprint(m.expected) {
		r.bad("the calls %v are answered as %v", m.expected, ids)
	}
}
