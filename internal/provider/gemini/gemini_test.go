package gemini

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/answer"
)

func call(id, tool, input string) toolyard.Call {
	return toolyard.Call{ID: id, Tool: tool, Input: json.RawMessage(input)}
}

const grep = `{"functionCall":{"name":"grep","args":{"a": 1.0}},"thoughtSignature":"c2ln"}`

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []toolyard.Call
	}{
		{"content", `{"role":"model","parts":[{"text":"so"},` + grep +
			`,{"functionCall":{"id":"fc-7","name":"glob"}},{"functionCall":{"name":"glob","args":null,"id":""}}]}`,
			[]toolyard.Call{call("toolyard_call_1", "grep", `{"a": 1.0}`), call("fc-7", "glob", `{}`),
				call("toolyard_call_3", "glob", `{}`)}},
		{"response", `{"candidates":[{"content":{"parts":[` + grep +
			`],"role":"model"},"finishReason":"STOP"}]}`,
			[]toolyard.Call{call("toolyard_call_1", "grep", `{"a": 1.0}`)}},
		{"one candidate with calls",
			`{"candidates":[{"finishReason":"SAFETY"},{"content":{"role":"model"},"finishReason":"STOP"},{"content":{"parts":[` + grep + `]}}]}`,
			[]toolyard.Call{call("toolyard_call_1", "grep", `{"a": 1.0}`)}},
		{"what the provider runs is skipped",
			`{"parts":[{"thought":true,"text":"hm"},{"executableCode":{"code":"1"}},{"codeExecutionResult":{}},{"toolCall":{"id":"1"}},` + grep + `]}`,
			[]toolyard.Call{call("toolyard_call_1", "grep", `{"a": 1.0}`)}},
		{"any args are a call",
			`{"parts":[{"functionCall":{"name":"t","args":"{"}},{"functionCall":{"name":"t","args":[1]}}]}`,
			[]toolyard.Call{call("toolyard_call_1", "t", `"{"`), call("toolyard_call_2", "t", `[1]`)}},
		{"cut at the end", `{"candidates":[{"content":{"parts":[` + grep + `,` + grep +
			`]},"finishReason":"MAX_TOKENS"}]}`,
			[]toolyard.Call{call("toolyard_call_1", "grep", `{"a": 1.0}`),
				call("toolyard_call_2", "grep", `"{\"a\": 1.0,"`)}},
		{"names as the SDK for Python writes them", `{"candidates":[{"content":{"parts":[{"function_call":null,"text":"so"},` +
			`{"function_call":{"id":null,"name":"grep","args":{"a": 1.0},"will_continue":null,"partial_args":null},` +
			`"functionCall":null}],"role":"model"},"finish_reason":"MAX_TOKENS"}]}`,
			[]toolyard.Call{call("toolyard_call_1", "grep", `"{\"a\": 1.0,"`)}},
		{"no parts", `{"parts":[]}`, nil},
		{"blocked", `{"candidates":[]}`, nil},
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
		{`{}`, `parts: want array, got nothing`},
		{`{"role":"user","parts":[]}`, `role: want "model", got "user"`},
		{`{"candidates":{}}`, `candidates: want array, got object`},
		{`{"candidates":[7]}`, `candidates[0]: want object, got number`},
		{`{"candidates":[{"content":[]}]}`, `candidates[0].content: want object, got array`},
		{`{"candidates":[{"content":{"parts":[7]}}]}`, `candidates[0].content.parts[0]: want object, got number`},
		{`{"candidates":[{"content":{"parts":[` + grep + `]}},{"content":{"parts":[` + grep + `]}}]}`,
			`candidates[1]: has function calls, and so has candidates[0]; hand in the content of one candidate`},
		{`{"parts":[{"functionCall":"x"}]}`, `parts[0].functionCall: want object, got string`},
		{`{"parts":[{"text":"x"},{"functionCall":{"args":{}}}]}`,
			`parts[1].functionCall.name: want string, got nothing`},
		{`{"parts":[{"functionCall":{"id":7,"name":"t"}}]}`, `parts[0].functionCall.id: want string, got number`},
		{`{"parts":[{"functionCall":{"id":"toolyard_call_2","name":"t"}}]}`,
			`parts[0].functionCall.id: begins with "toolyard_call_", which is kept for calls without an id`},
		{`{"parts":[{"functionCall":{"name":"t","willContinue":true}}]}`,
			`parts[0].functionCall: is one piece of a streamed call; hand in the accumulated response`},
		{`{"parts":[{"functionCall":{"name":"t","partialArgs":[]}}]}`,
			`parts[0].functionCall: is one piece of a streamed call; hand in the accumulated response`},
		{`{"parts":[{"function_call":{"name":"t","will_continue":true}}]}`,
			`parts[0].function_call: is one piece of a streamed call; hand in the accumulated response`},
		{`{"parts":[{"function_call":{"name":"t","partial_args":[]}}]}`,
			`parts[0].function_call: is one piece of a streamed call; hand in the accumulated response`},
		{`{"parts":[{"function_call":{"name":"t"},"functionCall":{"name":"u"}}]}`,
			`parts[0].function_call: is there beside functionCall; write one of them`},
	} {
		_, err := Decode([]byte(tt.text))
		if _, ok := errors.AsType[*toolyard.InputError](err); !ok || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

// TestRenderImages: the API refuses a request with a GIF, and would refuse the conversation from then on.
func TestRenderImages(t *testing.T) {
	const text = "[image: image/gif, 3 bytes]\n[image: image/png, 3 bytes]"
	part := func(mime string) toolyard.Content {
		return toolyard.Content{Type: toolyard.ContentImage, MIMEType: mime, Data: []byte("abc")}
	}
	got, err := Render([]answer.Answer{{CallID: "1", Tool: "shot", Text: text,
		Parts: []toolyard.Content{part("image/gif"), part("image/png")}}})
	want := `{"role":"user","parts":[{"functionResponse":{"id":"1","name":"shot","response":{"output":` +
		`"[image: image/gif, 3 bytes]\n[image: image/png, 3 bytes]"},` +
		`"parts":[{"inlineData":{"mimeType":"image/png","data":"YWJj"}}]}}]}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}
