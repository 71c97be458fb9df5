package provider

import (
	"fmt"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/schema"
)

// deltas are events of a stream with a call whose input comes in these pieces, each a JSON string.
var deltas = map[Format]func(first, second string) []byte{
	Anthropic: func(first, second string) []byte {
		delta := `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":%s}}`
		return events(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"t","input":{}}}`,
			fmt.Sprintf(delta, first), fmt.Sprintf(delta, second), `{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`, `{"type":"message_stop"}`)
	},
	OpenAIChat: func(first, second string) []byte {
		return events(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"t","arguments":`+
			first+`}}]}}]}`, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":`+second+
			`}}]},"finish_reason":"tool_calls"}]}`)
	},
}

// TestHalfCharacters: half of a surrogate pair in the text of an input is refused, as it is in the input itself. A pair
// that a stream has cut is one character.
func TestHalfCharacters(t *testing.T) {
	const text = `"{\"a\":\"x\ud83dy\"}"`
	for format, document := range map[Format]string{
		Native:     `{"calls":[{"tool":"t","input":` + text + `}]}`,
		Anthropic:  `{"content":[{"type":"tool_use","id":"a","name":"t","input":` + text + `}]}`,
		OpenAI:     `[{"type":"function_call","call_id":"a","name":"t","arguments":` + text + `}]`,
		OpenAIChat: `{"tool_calls":[{"id":"a","function":{"name":"t","arguments":` + text + `}}]}`,
		Gemini:     `{"parts":[{"functionCall":{"name":"t","args":` + text + `}}]}`,
	} {
		b, _, err := Decode([]byte(document), format)
		if err != nil {
			t.Fatal(err)
		}
		halfIsRefused(t, "a message of "+string(format), b.Calls)
	}
	for format, stream := range deltas {
		calls, cut := feed(t, format, stream(`"{\"a\":\"\ud83d"`, `"\ude00\"}"`), whole)
		if want := `{"a":"😀"}`; cut != nil || len(calls) != 1 || string(calls[0].Input) != want {
			t.Errorf("a stream of %s: %s, %v; want %s", format, calls, cut, want)
		}
		calls, cut = feed(t, format, stream(`"{\"a\":\"\ud83d"`, `"x\"}"`), whole)
		if cut != nil {
			t.Errorf("a stream of %s: %v", format, cut)
		}
		halfIsRefused(t, "a stream of "+string(format), calls)
	}
}

func halfIsRefused(t *testing.T, name string, calls []toolyard.Call) {
	t.Helper()
	if len(calls) != 1 {
		t.Fatalf("%s: %d calls", name, len(calls))
	}
	v, err := schema.ParseInput(calls[0].Input)
	if err == nil {
		t.Errorf("%s: the tool gets %s", name, v.Canonical())
	}
}
