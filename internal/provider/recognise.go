package provider

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// shapes lists for people what is recognised.
const shapes = `a native batch {"calls": [...]}, ` +
	`an Anthropic message {"role": "assistant", "content": [...]}, ` +
	`an OpenAI Responses output [{"type": "function_call", ...}] or response {"output": [...]}, ` +
	`an OpenAI Chat Completions message {"tool_calls": [...]} or completion {"choices": [...]}, ` +
	`a Gemini content {"parts": [...]} or response {"candidates": [...]}`

// recognise finds the one format whose marks a document has. No format is an error, and so are two: a guess could run
// calls that the writer did not mean. A mark occurs in no other format at that place:
//
//	native       calls
//	anthropic    type "message", or role "assistant" with content as an array and no tool_calls
//	openai       an array with an item of a Responses type; object "response", or output as an array
//	openai-chat  object "chat.completion...", choices as an array, tool_calls, or role "assistant" with other content
//	gemini       candidates or parts as an array
func recognise(data []byte) (Format, error) {
	switch strictjson.Kind(data) {
	case "array":
		items, err := strictjson.ReadArray("", data)
		if err != nil {
			return "", err
		}
		for _, raw := range items {
			if isOutputItem(raw) {
				return OpenAI, nil
			}
		}
		return "", unknown("an array of other things")
	case "object":
	default:
		return "", unknown("a " + strictjson.Kind(data))
	}
	o, err := strictjson.ReadObject("", data)
	if err != nil {
		return "", err
	}
	var found []Format
	for _, f := range Formats {
		if bears(o, f) {
			found = append(found, f)
		}
	}
	switch len(found) {
	case 0:
		return "", unknown("an object with " + fields(o))
	case 1:
		return found[0], nil
	}
	return "", &toolyard.InputError{Problem: fmt.Sprintf(
		"the input could be %s or %s; say which with --input-format %s", found[0], found[1], names("|"))}
}

func bears(o strictjson.Object, format Format) bool {
	assistant := o.Text("role") == "assistant"
	list := func(name string) bool { return o.Kind(name) == "array" }
	switch format {
	case Native:
		return o.Has("calls")
	case Anthropic:
		return o.Text("type") == "message" || assistant && list("content") && !o.Has("tool_calls")
	case OpenAI:
		return o.Text("object") == "response" || list("output")
	case OpenAIChat:
		return strings.HasPrefix(o.Text("object"), "chat.completion") || list("choices") || o.Has("tool_calls") ||
			assistant && o.Has("content") && !list("content") && o.Text("type") == ""
	case Gemini:
		return list("candidates") || list("parts")
	}
	return false
}

func isOutputItem(raw json.RawMessage) bool {
	item, err := strictjson.ReadObject("", raw)
	if err != nil {
		return false
	}
	kind := item.Text("type")
	return kind == "message" || kind == "reasoning" || strings.HasSuffix(kind, "_call") ||
		strings.HasSuffix(kind, "_call_output")
}

// fields names some of an object's fields for a message.
func fields(o strictjson.Object) string {
	const some = 6
	list := o.Names()
	if len(list) == 0 {
		return "no fields"
	}
	quoted := make([]string, 0, some)
	for _, name := range list[:min(some, len(list))] {
		quoted = append(quoted, strictjson.Quote(name))
	}
	text := "the fields " + strings.Join(quoted, ", ")
	if len(list) > some {
		text += ", ..."
	}
	return text
}

func unknown(found string) error {
	return &toolyard.InputError{Problem: fmt.Sprintf(
		"the input is %s, which is no form known here; want %s; force one with --input-format %s", found, shapes,
		names("|"))}
}
