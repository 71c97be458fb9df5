package anthropic

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

const use = `{"type":"tool_use","id":"toolu_1","name":"grep","input":{"a": 1.0}}`

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []toolyard.Call
	}{
		{"message", `{"role":"assistant","content":[{"type":"text","text":"so"},` + use +
			`,{"type":"tool_use","id":"toolu_2","name":"glob","input":{}}]}`,
			[]toolyard.Call{call("toolu_1", "grep", `{"a": 1.0}`), call("toolu_2", "glob", `{}`)}},
		{"response", `{"id":"msg_1","type":"message","role":"assistant","content":[` + use +
			`],"stop_reason":"tool_use"}`,
			[]toolyard.Call{call("toolu_1", "grep", `{"a": 1.0}`)}},
		{"what the provider runs is skipped", `{"role":"assistant","content":[
			{"type":"thinking","thinking":"hm","signature":"x"},{"type":"redacted_thinking","data":"x"},
			{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"x"}},
			{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]},
			{"type":"mcp_tool_use","id":"mcptoolu_1","name":"x","server_name":"y","input":{}},` + use + `]}`,
			[]toolyard.Call{call("toolu_1", "grep", `{"a": 1.0}`)}},
		{"any input is a call", `{"role":"assistant","content":[
			{"type":"tool_use","id":"1","name":"t","input":"{\"a\":1}"},{"type":"tool_use","id":"2","name":"t","input":null},{"type":"tool_use","id":"3","name":"t","input":[1]}]}`,
			[]toolyard.Call{call("1", "t", `{"a":1}`), call("2", "t", `null`), call("3", "t", `[1]`)}},
		{"cut at the end", `{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"t","input":{}},` + use +
			`],"stop_reason":"max_tokens"}`,
			[]toolyard.Call{call("1", "t", `{}`), call("toolu_1", "grep", `"{\"a\": 1.0,"`)}},
		{"cut in the text after", `{"role":"assistant","content":[` + use +
			`,{"type":"text","text":"and th"}],"stop_reason":"max_tokens"}`,
			[]toolyard.Call{call("toolu_1", "grep", `{"a": 1.0}`)}},
		{"what goes back is kept", `{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"click","input":{},"toolset_name":"browser","caller":{"type":"direct"}},
			{"type":"tool_use","id":"2","name":"t","input":{},"toolset_name":null,"caller":{"type":"code_execution_20260120","tool_id":"srv<1>"}}]}`,
			[]toolyard.Call{{ID: "1", Tool: "click", Input: json.RawMessage(`{}`),
				Echo: toolyard.Echo(`{"toolset_name":"browser"}`)},
				{ID: "2", Tool: "t", Input: json.RawMessage(`{}`),
					Echo: toolyard.Echo(`{"caller":{"type":"code_execution_20260120","tool_id":"srv<1>"}}`)}}},
		{"text alone", `{"role":"assistant","content":"hello"}`, nil},
		{"no blocks", `{"role":"assistant","content":[]}`, nil},
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
		{`{"type":"error","error":{}}`, `type: want "message", got "error"`},
		{`{"role":"user","content":[]}`, `role: want "assistant", got "user"`},
		{`{"role":7,"content":[]}`, `role: want string, got number`},
		{`{"role":"assistant"}`, `content: want array, got nothing`},
		{`{"role":"assistant","content":[],"stop_reason":{}}`, `stop_reason: want string, got object`},
		{`{"content":["x"]}`, `content[0]: want object, got string`},
		{`{"content":[{}]}`, `content[0].type: want string, got nothing`},
		{`{"content":[{"type":"text"},{"type":"tool_use","name":"t","input":{}}]}`,
			`content[1].id: want string, got nothing`},
		{`{"content":[{"type":"tool_use","id":"","name":"t","input":{}}]}`, `content[0].id: is empty; a call needs it`},
		{`{"content":[{"type":"tool_use","id":"1","Name":"t","input":{}}]}`,
			`content[0].name: want string, got nothing`},
		{`{"content":[{"type":"tool_use","id":"1","name":7,"input":{}}]}`, `content[0].name: want string, got number`},
		{`{"content":[{"type":"tool_use","id":"1","name":"t","input":{},"caller":"me"}]}`,
			`content[0].caller: want object, got string`},
	} {
		_, err := Decode([]byte(tt.text))
		if _, ok := errors.AsType[*toolyard.InputError](err); !ok || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestRender(t *testing.T) {
	got, err := Render([]answer.Answer{
		{CallID: "toolu_1", Tool: "grep", Text: "a <b>\n"},
		{CallID: "toolu_2", Tool: "nope", Text: "no such tool", IsError: true},
		{CallID: "toolu_3", Tool: "bash", Text: " \n"},
	})
	must.OK(t, err)
	var wire any
	must.OK(t, json.Unmarshal(got, &wire))
	block := func(id, text string) map[string]any {
		return map[string]any{"type": "tool_result", "tool_use_id": id,
			"content": []any{map[string]any{"type": "text", "text": text}}}
	}
	failed := block("toolu_2", "no such tool")
	failed["is_error"] = true
	want := map[string]any{"role": "user", "content": []any{block("toolu_1", "a <b>\n"), failed,
		block("toolu_3", "(no output)")}}
	if !reflect.DeepEqual(wire, any(want)) {
		t.Errorf("\n got %v\nwant %v", wire, want)
	}
}
