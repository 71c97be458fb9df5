package openai

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func call(id, tool, input string) toolyard.Call {
	return toolyard.Call{ID: id, Tool: tool, Input: json.RawMessage(input)}
}

const item = `{"type":"function_call","id":"fc_1","call_id":"call_a","name":"grep","arguments":"{\"a\": 1.0}","status":"completed"}`

func TestDecode(t *testing.T) {
	a := call("call_a", "grep", `{"a": 1.0}`)
	for _, tt := range []struct {
		name, text string
		want       []toolyard.Call
	}{
		{"output", `[{"type":"reasoning","id":"rs_1","summary":[]},` + item +
			`,{"type":"function_call","call_id":"call_b","name":"glob","arguments":""}]`,
			[]toolyard.Call{a, call("call_b", "glob", `{}`)}},
		{"response", `{"object":"response","status":"completed","output":[` + item + `]}`, []toolyard.Call{a}},
		{"what the provider runs is skipped", `[
			{"type":"message","role":"assistant","content":[]},{"type":"web_search_call","id":"ws_1","status":"completed"},
			{"type":"code_interpreter_call","id":"ci_1"},{"type":"mcp_call","id":"mcp_1","name":"x","arguments":"{}"},{"type":"mcp_list_tools","id":"m"},
			{"type":"tool_search_call","call_id":null,"execution":"server"},{"type":"tool_search_call","call_id":"c","execution":"server"},
			{"type":"program","call_id":"p"},{"type":"program_output","call_id":"p"},{"type":"thing_of_next_year"},` + item + `]`, []toolyard.Call{a}},
		{"what is answered already is skipped", `[{"type":"function_call","call_id":"call_0","name":"t","arguments":"{}"},
			{"type":"function_call_output","call_id":"call_0","output":"done"},
			{"type":"shell_call","call_id":"sh_1"},{"type":"shell_call_output","call_id":"sh_1"},` + item + `]`, []toolyard.Call{a}},
		{"broken arguments are the call's",
			`[{"type":"function_call","call_id":"1","name":"t","arguments":"{\"a\":"},{"type":"function_call","call_id":"2","name":"t","arguments":"[1]"}]`,
			[]toolyard.Call{call("1", "t", `"{\"a\":"`), call("2", "t", `[1]`)}},
		{"cut before its first argument",
			`[{"type":"function_call","call_id":"1","name":"t","arguments":"","status":"incomplete"}]`,
			[]toolyard.Call{call("1", "t", `""`)}},
		{"what goes back is kept",
			`[{"type":"function_call","call_id":"1","name":"t","arguments":"{}","namespace":"crm","caller":{"type":"program","caller_id":"p"}}]`,
			[]toolyard.Call{{ID: "1", Tool: "t", Input: json.RawMessage(`{}`),
				Echo: toolyard.Echo(`{"caller":{"type":"program","caller_id":"p"},"namespace":"crm"}`)}}},
		{"free text",
			`[{"type":"custom_tool_call","call_id":"1","name":"t","input":"a = 1"},{"type":"custom_tool_call","call_id":"2","name":"t","input":"{\"a\":1}"}]`,
			[]toolyard.Call{{ID: "1", Tool: "t", Input: json.RawMessage(`"a = 1"`),
				Echo: toolyard.Echo(`{"type":"custom_tool_call"}`)},
				{ID: "2", Tool: "t", Input: json.RawMessage(`{"a":1}`),
					Echo: toolyard.Echo(`{"type":"custom_tool_call"}`)}}},
		{"a search of the client", `[{"type":"tool_search_call","call_id":"1","execution":"client","status":"completed","arguments":{"query":"x"}},
			{"type":"tool_search_call","call_id":"2","execution":"client","status":"incomplete","arguments":{"query":"x"}}]`,
			[]toolyard.Call{{ID: "1", Tool: SearchTool, Input: json.RawMessage(`{"query":"x"}`),
				Echo: toolyard.Echo(`{"execution":"client","type":"tool_search_call"}`)},
				{ID: "2", Tool: SearchTool, Input: json.RawMessage(`"{\"query\":\"x\","`),
					Echo: toolyard.Echo(`{"execution":"client","type":"tool_search_call"}`)}}},
		{"nothing", `[]`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode([]byte(tt.text))
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("\n got %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`"x"`, `the input should be one JSON object, and is string`},
		{`{"object":"response"}`, `output: want array, got nothing`},
		{`{"object":"list","output":[]}`, `object: want "response", got "list"`},
		{`[7]`, `[0]: want object, got number`},
		{`{"output":[{}]}`, `output[0].type: want string, got nothing`},
		{`[{"type":"function_call","id":"fc_1","name":"t","arguments":"{}"}]`, `[0].call_id: want string, got nothing`},
		{`{"output":[{"type":"function_call","call_id":"","name":"t","arguments":"{}"}]}`,
			`output[0].call_id: is empty; a call needs it`},
		{`[{"type":"function_call","call_id":"1","name":null,"arguments":"{}"}]`, `[0].name: want string, got null`},
		{`[{"type":"function_call","call_id":"1","name":"t","arguments":"","status":1}]`,
			`[0].status: want string, got number`},
		{`{"output":[` + item + `,{"type":"computer_call","call_id":"c","actions":[]}]}`,
			`output[1].type: "computer_call" is answered by who receives it, which cannot be answered here; take it out`},
		{`[{"type":"shell_call","call_id":"c"}]`,
			`[0].type: "shell_call" is answered by who receives it, which cannot be answered here; take it out`},
	} {
		_, err := Decode([]byte(tt.text))
		if _, ok := errors.AsType[*toolyard.InputError](err); !ok || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestRender(t *testing.T) {
	answers := []answer.Answer{
		{CallID: "call_a", Text: "a <b>\n"},
		{CallID: "call_b", Text: "no such tool", IsError: true},
		{CallID: "call_c"},
	}
	got, err := Render(answers)
	must.OK(t, err)
	var wire any
	must.OK(t, json.Unmarshal(got, &wire))
	out := func(id, text string) map[string]any {
		return map[string]any{"type": "function_call_output", "call_id": id, "output": text}
	}
	if want := []any{out("call_a", "a <b>\n"), out("call_b", "no such tool"),
		out("call_c", "")}; !reflect.DeepEqual(wire, any(want)) {
		t.Errorf("\n got %v\nwant %v", wire, want)
	}
	if got, err := Render(nil); err != nil || string(got) != "[]" {
		t.Errorf("nothing: %s, %v", got, err)
	}
}
