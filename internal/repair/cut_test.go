package repair

import (
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider"
)

// TestWhatTheModelDidNotFinishIsNotMended: at its token limit a model may have had more to say than closing brackets.
func TestWhatTheModelDidNotFinishIsNotMended(t *testing.T) {
	const (
		incomplete = `{"object":"response","status":"incomplete","output":[`
		length     = `{"choices":[{"finish_reason":"length","message":{"tool_calls":[`
		done       = "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":"
		end        = "\n\ndata: {\"type\":\"response.incomplete\"}\n\n"
		delta      = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":["

		whole = `{"path":"a","content":"half"}`
		half  = `"{\"path\":\"a\",\"content\":\"half\""`
		use   = `{"type":"tool_use","id":"1","name":"write_file","input":`
		call  = `{"type":"function_call","call_id":"1","name":"write_file","arguments":`
		chat  = `{"id":"1","type":"function","function":{"name":"write_file","arguments":`
		free  = `{"type":"custom_tool_call","call_id":"1","name":"write_file","input":`
		text  = `{"id":"1","type":"custom","custom":{"name":"write_file","input":`
	)
	for name, document := range map[string]string{
		"anthropic":              `{"type":"message","content":[` + use + whole + `}],"stop_reason":"max_tokens"}`,
		"anthropic, as a string": `{"type":"message","content":[` + use + half + `}],"stop_reason":"max_tokens"}`,
		"openai":                 `[` + call + half + `,"status":"incomplete"}]`,
		"openai, a search": `[{"type":"tool_search_call","call_id":"1","execution":"client","status":"incomplete",` +
			`"arguments":{"query":"half"}}]`,
		"openai, a response":                incomplete + call + half + `}]}`,
		"openai, before its first argument": incomplete + call + `""}]}`,
		"openai, a text":                    `[` + free + half + `,"status":"incomplete"}]`,
		"openai, a text of a response":      incomplete + free + half + `}]}`,
		"openai-chat":                       length + chat + half + `}}]}}]}`,
		"openai-chat, a text":               length + text + half + `}}]}}]}`,
		"gemini": `{"candidates":[{"finishReason":"MAX_TOKENS","content":{"parts":[{"functionCall":` +
			`{"name":"write_file","args":` + whole + `}}]}}]}`,
	} {
		batch, _, err := provider.Decode([]byte(document), "")
		if err != nil || len(batch.Calls) != 1 {
			t.Fatalf("%s: %v, %v", name, batch.Calls, err)
		}
		neverMended(t, name, batch.Calls[0])
	}
	for name, s := range map[string]struct {
		format provider.Format
		text   string
	}{
		"anthropic": {provider.Anthropic,
			"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":" + use + "{}}}\n\n" +
				"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":" +
				`{"type":"input_json_delta","partial_json":` + half + "}}\n\n" +
				"data: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
				"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"}}\n\n" +
				"data: {\"type\":\"message_stop\"}\n\n"},
		"openai": {provider.OpenAI, done + call + half + ",\"status\":\"incomplete\"}}" + end},
		"openai-chat": {provider.OpenAIChat, delta + chat +
			half + "}}]},\"finish_reason\":\"length\"}]}\n\n"},
		"openai, a text": {provider.OpenAI, done + free + half + ",\"status\":\"incomplete\"}}" + end},
		"openai-chat, a text": {provider.OpenAIChat, delta + text +
			half + "}}]},\"finish_reason\":\"length\"}]}\n\n"},
	} {
		d, err := provider.Stream(s.format)
		if err != nil {
			t.Fatal(err)
		}
		calls, err := d.Feed([]byte(s.text))
		if _, cut := d.End(); err != nil || cut != nil || len(calls) != 1 {
			t.Fatalf("%s stream: %v, %v, %v", name, calls, err, cut)
		}
		neverMended(t, name+" stream", calls[0])
	}
}

func neverMended(t *testing.T, name string, c toolyard.Call) {
	t.Helper()
	if mended, what, ok := Input(c.Input); ok || len(c.Input) == 0 || c.Input[0] != '"' {
		t.Errorf("%s: the input %s is mended to %s (%s)", name, c.Input, mended, what)
	}
}
