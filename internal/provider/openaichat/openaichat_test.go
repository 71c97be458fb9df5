package openaichat

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

const (
	one   = `{"id":"call_a","type":"function","function":{"name":"grep","arguments":"{\"a\": 1.0}"}}`
	empty = `{"id":"call_b","function":{"name":"glob","arguments":""}}`
)

func TestDecode(t *testing.T) {
	a := call("call_a", "grep", `{"a": 1.0}`)
	completion := func(choices string) string { return `{"object":"chat.completion","choices":[` + choices + `]}` }
	for _, tt := range []struct {
		name, text string
		want       []toolyard.Call
	}{
		{"message", `{"role":"assistant","content":null,"tool_calls":[` + one + `,` + empty +
			`]}`, []toolyard.Call{a, call("call_b", "glob", `{}`)}},
		{"completion", completion(`{"index":0,"message":{"role":"assistant","content":"so","tool_calls":[` + one +
			`]},"finish_reason":"tool_calls"}`), []toolyard.Call{a}},
		{"one choice with calls", completion(`{"message":{"content":"no"}},{"message":{"tool_calls":[` + one +
			`]}},{"message":{"tool_calls":[]}}`), []toolyard.Call{a}},
		{"broken arguments are the call's",
			`{"tool_calls":[{"id":"1","type":"function","function":{"name":"t","arguments":"{\"a\""}}]}`,
			[]toolyard.Call{call("1", "t", `"{\"a\""`)}},
		{"custom tool", `{"tool_calls":[{"id":"1","type":"custom","custom":{"name":"t","input":"*** Begin"}}]}`,
			[]toolyard.Call{call("1", "t", `"*** Begin"`)}},
		{"cut before its first argument", completion(`{"message":{"tool_calls":[` + empty + `,` + empty +
			`]},"finish_reason":"length"}`),
			[]toolyard.Call{call("call_b", "glob", `{}`), call("call_b", "glob", `""`)}},
		{"no calls", `{"role":"assistant","content":"hello"}`, nil},
		{"null calls", `{"role":"assistant","content":"hello","tool_calls":null}`, nil},
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
		{`[]`, `the input should be one JSON object, and is array`},
		{`{"object":"chat.completion.chunk","choices":[]}`,
			`object: want "chat.completion", got "chat.completion.chunk"`},
		{`{"object":"chat.completion"}`, `choices: want array, got nothing`},
		{`{"choices":[{}]}`, `choices[0].message: want object, got nothing`},
		{`{"choices":[{"message":{},"finish_reason":1}]}`, `choices[0].finish_reason: want string, got number`},
		{`{"choices":[{"message":{"tool_calls":[` + one + `]}},{"message":{}},{"message":{"tool_calls":[` + one +
			`]}}]}`,
			`choices[2]: has tool calls, and so has choices[0]; hand in the message of one choice`},
		{`{"role":"user","tool_calls":[]}`, `role: want "assistant", got "user"`},
		{`{"role":"assistant","function_call":{"name":"t","arguments":"{}"}}`,
			`function_call: is the retired form of one call without an id; ask the model with tools instead of functions`},
		{`{"tool_calls":{}}`, `tool_calls: want array, got object`},
		{`{"tool_calls":[1]}`, `tool_calls[0]: want object, got number`},
		{`{"tool_calls":[{"function":{"name":"t","arguments":""}}]}`, `tool_calls[0].id: want string, got nothing`},
		{`{"tool_calls":[{"id":"","function":{"name":"t","arguments":""}}]}`,
			`tool_calls[0].id: is empty; a call needs it`},
		{`{"tool_calls":[{"id":"1","type":"magic"}]}`, `tool_calls[0].type: want "function" or "custom", got "magic"`},
		{`{"tool_calls":[{"id":"1","type":"function"}]}`, `tool_calls[0].function: want object, got nothing`},
		{`{"choices":[{"message":{"tool_calls":[{"id":"1","function":{"arguments":""}}]}}]}`,
			`choices[0].message.tool_calls[0].function.name: want string, got nothing`},
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
	message := func(id, text string) map[string]any {
		return map[string]any{"role": "tool", "tool_call_id": id, "content": text}
	}
	if want := []any{message("call_a", "a <b>\n"), message("call_b", "no such tool"),
		message("call_c", "")}; !reflect.DeepEqual(wire, any(want)) {
		t.Errorf("\n got %v\nwant %v", wire, want)
	}
	if got, err := Render(nil); err != nil || string(got) != "[]" {
		t.Errorf("nothing: %s, %v", got, err)
	}
}
