package anthropic

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
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
		{"message", `{"role":"assistant","content":[{"type":"text","text":"so"},` + use + `,{"type":"tool_use","id":"toolu_2","name":"glob","input":{}}]}`,
			[]toolyard.Call{call("toolu_1", "grep", `{"a": 1.0}`), call("toolu_2", "glob", `{}`)}},
		{"response", `{"id":"msg_1","type":"message","role":"assistant","content":[` + use + `],"stop_reason":"tool_use"}`,
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
		{"cut at the end", `{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"t","input":{}},` + use + `],"stop_reason":"max_tokens"}`,
			[]toolyard.Call{call("1", "t", `{}`), call("toolu_1", "grep", `"{\"a\": 1.0"`)}},
		{"cut in the text after", `{"role":"assistant","content":[` + use + `,{"type":"text","text":"and th"}],"stop_reason":"max_tokens"}`,
			[]toolyard.Call{call("toolu_1", "grep", `{"a": 1.0}`)}},
		{"what goes back is kept", `{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"click","input":{},"toolset_name":"browser","caller":{"type":"direct"}},
			{"type":"tool_use","id":"2","name":"t","input":{},"toolset_name":null,"caller":{"type":"code_execution_20260120","tool_id":"srv<1>"}}]}`,
			[]toolyard.Call{{ID: "1", Tool: "click", Input: json.RawMessage(`{}`), Echo: toolyard.Echo(`{"toolset_name":"browser"}`)},
				{ID: "2", Tool: "t", Input: json.RawMessage(`{}`), Echo: toolyard.Echo(`{"caller":{"type":"code_execution_20260120","tool_id":"srv<1>"}}`)}}},
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
		{`{"content":[{"type":"text"},{"type":"tool_use","name":"t","input":{}}]}`, `content[1].id: want string, got nothing`},
		{`{"content":[{"type":"tool_use","id":"","name":"t","input":{}}]}`, `content[0].id: is empty; a call needs it`},
		{`{"content":[{"type":"tool_use","id":"1","Name":"t","input":{}}]}`, `content[0].name: want string, got nothing`},
		{`{"content":[{"type":"tool_use","id":"1","name":7,"input":{}}]}`, `content[0].name: want string, got number`},
		{`{"content":[{"type":"tool_use","id":"1","name":"t","input":{},"caller":"me"}]}`, `content[0].caller: want object, got string`},
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
	if err != nil {
		t.Fatal(err)
	}
	var wire any
	if err := json.Unmarshal(got, &wire); err != nil {
		t.Fatal(err)
	}
	block := func(id, text string) map[string]any {
		return map[string]any{"type": "tool_result", "tool_use_id": id, "content": []any{map[string]any{"type": "text", "text": text}}}
	}
	failed := block("toolu_2", "no such tool")
	failed["is_error"] = true
	want := map[string]any{"role": "user", "content": []any{block("toolu_1", "a <b>\n"), failed, block("toolu_3", "(no output)")}}
	if !reflect.DeepEqual(wire, any(want)) {
		t.Errorf("\n got %v\nwant %v", wire, want)
	}

	var message sdk.MessageParam
	if err := json.Unmarshal(got, &message); err != nil {
		t.Fatal(err)
	}
	if message.Role != sdk.MessageParamRoleUser || len(message.Content) != 3 {
		t.Fatalf("the SDK reads %+v", message)
	}
	for i, wantError := range []bool{false, true, false} {
		r := message.Content[i].OfToolResult
		if r == nil || r.IsError.Value != wantError || len(r.Content) != 1 || r.Content[0].OfText == nil {
			t.Errorf("the SDK reads block %d as %+v", i, r)
		}
	}
}

func TestRenderParts(t *testing.T) {
	png, pdf := []byte("\x89PNG"), []byte("%PDF")
	parts := []toolyard.Content{
		{Type: toolyard.ContentText, Text: "see"}, {Type: toolyard.ContentText, Text: " "}, {Type: toolyard.ContentImage, MIMEType: "image/png", Data: png},
		{Type: toolyard.ContentResource, MIMEType: "application/pdf", Data: pdf, Title: "T"}, {Type: toolyard.ContentImage, MIMEType: "image/tiff", Data: png},
		{Type: toolyard.ContentImage, MIMEType: "image/png", Blob: "result-1", Size: 9}, {Type: toolyard.ContentTool, Name: "crm.find", Sent: "crm_find"},
		{Type: toolyard.ContentImage, MIMEType: "image/png", Data: make([]byte, answer.MaxMediaBytes)},
	}
	got, err := Render([]answer.Answer{
		{CallID: "1", Text: "all", Parts: parts, Echo: toolyard.Echo(`{"toolset_name":"browser"}`)},
		{CallID: "2", Text: "all", Parts: parts, Echo: toolyard.Echo(`{"caller":{"type":"code_execution_20260120","tool_id":"x"}}`)},
		{CallID: "3", Text: "not run: call 1 failed", IsError: true, Code: toolyard.Skipped, Echo: toolyard.Echo(`{"toolset_name":"browser"}`)},
		{CallID: "4", Text: "not run: call 1 failed", IsError: true, Code: toolyard.Skipped, Echo: toolyard.Echo(`{"toolset_name":"computer"}`)},
		{CallID: "5", Text: "not run: call 1 failed", IsError: true, Code: toolyard.Skipped},
	})
	if err != nil {
		t.Fatal(err)
	}
	var message sdk.MessageParam
	if err := json.Unmarshal(got, &message); err != nil {
		t.Fatal(err)
	}
	r := message.Content[0].OfToolResult
	if r.ToolsetName.Value != "browser" || len(r.Content) != 7 {
		t.Fatalf("the SDK reads %d blocks of %q", len(r.Content), r.ToolsetName.Value)
	}
	if c := r.Content; c[0].OfText.Text != "see" || c[1].OfImage.Source.OfBase64.Data != "iVBORw==" || c[1].OfImage.Source.OfBase64.MediaType != "image/png" ||
		c[2].OfDocument.Source.OfBase64.Data != "JVBERg==" || c[2].OfDocument.Title.Value != "T" || c[3].OfText.Text != "[image: image/tiff, 4 bytes]" ||
		c[4].OfText.Text != "[image: image/png, 9 bytes, stored as result-1]" || c[5].OfToolReference.ToolName != "crm_find" || c[6].OfText.Text != "[image: image/png, 5242880 bytes]" {
		t.Errorf("%.1000s", got)
	}
	for i, want := range []string{1: "all", 2: "Not executed: an earlier action in this turn failed.", 3: "Not executed: an earlier computer action in this turn failed.", 4: "not run: call 1 failed"} {
		if r := message.Content[i].OfToolResult; i > 0 && (len(r.Content) != 1 || r.Content[0].OfText.Text != want) {
			t.Errorf("answer %d: %+v", i, r.Content)
		}
	}
}
