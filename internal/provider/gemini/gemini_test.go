package gemini

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"google.golang.org/genai"

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
		{"content", `{"role":"model","parts":[{"text":"so"},` + grep + `,{"functionCall":{"id":"fc-7","name":"glob"}},{"functionCall":{"name":"glob","args":null,"id":""}}]}`,
			[]toolyard.Call{call("toolyard_call_1", "grep", `{"a": 1.0}`), call("fc-7", "glob", `{}`), call("toolyard_call_3", "glob", `{}`)}},
		{"response", `{"candidates":[{"content":{"parts":[` + grep + `],"role":"model"},"finishReason":"STOP"}]}`, []toolyard.Call{call("toolyard_call_1", "grep", `{"a": 1.0}`)}},
		{"one candidate with calls", `{"candidates":[{"finishReason":"SAFETY"},{"content":{"role":"model"},"finishReason":"STOP"},{"content":{"parts":[` + grep + `]}}]}`,
			[]toolyard.Call{call("toolyard_call_1", "grep", `{"a": 1.0}`)}},
		{"what the provider runs is skipped", `{"parts":[{"thought":true,"text":"hm"},{"executableCode":{"code":"1"}},{"codeExecutionResult":{}},{"toolCall":{"id":"1"}},` + grep + `]}`,
			[]toolyard.Call{call("toolyard_call_1", "grep", `{"a": 1.0}`)}},
		{"any args are a call", `{"parts":[{"functionCall":{"name":"t","args":"{"}},{"functionCall":{"name":"t","args":[1]}}]}`, []toolyard.Call{call("toolyard_call_1", "t", `"{"`), call("toolyard_call_2", "t", `[1]`)}},
		{"cut at the end", `{"candidates":[{"content":{"parts":[` + grep + `,` + grep + `]},"finishReason":"MAX_TOKENS"}]}`,
			[]toolyard.Call{call("toolyard_call_1", "grep", `{"a": 1.0}`), call("toolyard_call_2", "grep", `"{\"a\": 1.0"`)}},
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
		{`{"parts":[{"text":"x"},{"functionCall":{"args":{}}}]}`, `parts[1].functionCall.name: want string, got nothing`},
		{`{"parts":[{"functionCall":{"id":7,"name":"t"}}]}`, `parts[0].functionCall.id: want string, got number`},
		{`{"parts":[{"functionCall":{"id":"toolyard_call_2","name":"t"}}]}`, `parts[0].functionCall.id: begins with "toolyard_call_", which is kept for calls without an id`},
		{`{"parts":[{"functionCall":{"name":"t","willContinue":true}}]}`, `parts[0].functionCall: is one piece of a streamed call; hand in the accumulated response`},
		{`{"parts":[{"functionCall":{"name":"t","partialArgs":[]}}]}`, `parts[0].functionCall: is one piece of a streamed call; hand in the accumulated response`},
	} {
		_, err := Decode([]byte(tt.text))
		if _, ok := errors.AsType[*toolyard.InputError](err); !ok || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestRender(t *testing.T) {
	got, err := Render([]answer.Answer{
		{CallID: "toolyard_call_1", Tool: "grep", Text: "a <b>\n"},
		{CallID: "fc-7", Tool: "nope", Text: "no such tool", IsError: true},
		{CallID: "toolyard_call_3", Tool: "bash"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var c genai.Content
	if err := json.Unmarshal(got, &c); err != nil {
		t.Fatal(err)
	}
	want := genai.Content{Role: "user", Parts: []*genai.Part{
		{FunctionResponse: &genai.FunctionResponse{Name: "grep", Response: map[string]any{"output": "a <b>\n"}}},
		{FunctionResponse: &genai.FunctionResponse{ID: "fc-7", Name: "nope", Response: map[string]any{"error": "no such tool"}}},
		{FunctionResponse: &genai.FunctionResponse{Name: "bash", Response: map[string]any{"output": ""}}},
	}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("\n got %s", got)
	}

	// What the SDK would send for the same content is what we send.
	theirs, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var ourWire, theirWire any
	if err := errors.Join(json.Unmarshal(got, &ourWire), json.Unmarshal(theirs, &theirWire)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(ourWire, theirWire) {
		t.Errorf("\n ours %s\ntheirs %s", got, theirs)
	}
}

func TestRenderParts(t *testing.T) {
	got, err := Render([]answer.Answer{{CallID: "1", Tool: "shot", Text: "see\n[image: image/png, 4 bytes]", Parts: []toolyard.Content{
		{Type: toolyard.ContentText, Text: "see"}, {Type: toolyard.ContentImage, MIMEType: "image/png", Data: []byte("\x89PNG")},
		{Type: toolyard.ContentAudio, MIMEType: "audio/wav", Data: []byte("RIFF")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var c genai.Content
	if err := json.Unmarshal(got, &c); err != nil {
		t.Fatal(err)
	}
	r := c.Parts[0].FunctionResponse
	if r.Response["output"] != "see\n[image: image/png, 4 bytes]" || len(r.Parts) != 1 || r.Parts[0].InlineData.MIMEType != "image/png" || string(r.Parts[0].InlineData.Data) != "\x89PNG" {
		t.Errorf("%s", got)
	}
}
