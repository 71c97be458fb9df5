package provider

import (
	"errors"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

func TestRender(t *testing.T) {
	calls := []toolyard.Call{{ID: "a", Tool: "grep"}, {ID: "b", Tool: "nope"}}
	results := []toolyard.Result{{Index: 0, CallID: "a", Output: "found"},
		{Index: 1, CallID: "b", IsError: true, Code: toolyard.UnknownTool, Error: "no such tool"}}
	for format, want := range map[Format]string{
		Anthropic: `{"content":[{"tool_use_id":"a","content":[{"text":"found","type":"text"}],"type":"tool_result"},` +
			`{"tool_use_id":"b","is_error":true,"content":[{"text":"no such tool","type":"text"}],"type":"tool_result"}],"role":"user"}`,
		OpenAI:     `[{"output":"found","call_id":"a","type":"function_call_output"},{"output":"no such tool","call_id":"b","type":"function_call_output"}]`,
		OpenAIChat: `[{"content":"found","tool_call_id":"a","role":"tool"},{"content":"no such tool","tool_call_id":"b","role":"tool"}]`,
		Gemini: `{"role":"user","parts":[{"functionResponse":{"id":"a","name":"grep","response":{"output":"found"}}},` +
			`{"functionResponse":{"id":"b","name":"nope","response":{"error":"no such tool"}}}]}`,
	} {
		if got, err := Render(format, calls, results, nil); err != nil || string(got) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", format, err, got, want)
		}
	}
	if got, err := Render(Native, calls, results, nil); err != nil ||
		!strings.HasPrefix(string(got), "[\n  {\n    \"index\": 0,") {
		t.Errorf("native: %s, %v", got, err)
	}
	for _, format := range Formats {
		if _, err := Render(format, calls, results[:1], nil); err == nil {
			t.Errorf("%s: a missing result was rendered", format)
		}
		if _, err := Render(format, calls, []toolyard.Result{results[1], results[0]}, nil); err == nil {
			t.Errorf("%s: results in the wrong order were rendered", format)
		}
	}
	_, err := Render("yaml", calls, results, nil)
	if _, ok := errors.AsType[*toolyard.InputError](err); !ok {
		t.Errorf("an unknown format: %v", err)
	}
}
