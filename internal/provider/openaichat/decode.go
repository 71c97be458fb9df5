// Package openaichat reads and writes the forms of the OpenAI Chat Completions API, which many other servers also
// implement.
//
// Both directions use our own small types: the SDK links its whole API, and its response types read a missing field as
// empty and a field of the wrong type as absent. Tests check that we read and write the same as the SDK. The package is
// pure.
package openaichat

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// Decode reads the tool_calls of an assistant message, or of a whole completion, in their order, from data that passed
// [strictjson.Check]. A message without any gives no calls and no error.
//
// Of several choices only one may have calls: they are alternatives, and it is unknown with which one the conversation
// continues. [strictjson.Object.Arguments] reads the arguments of a function, and [strictjson.Object.FreeText] the text
// of a custom tool. If the completion stopped at its length limit, its last call counts as not finished. Errors are
// [*toolyard.InputError] with the field's path.
func Decode(data []byte) ([]toolyard.Call, error) {
	o, err := strictjson.ReadObject("", data)
	if err != nil {
		return nil, err
	}
	if !o.Has("choices") && o.Text("object") == "" {
		return messageCalls(o, "")
	}
	if err := o.Expect("object", "chat.completion"); err != nil {
		return nil, err
	}
	choices, err := o.Array("choices")
	if err != nil {
		return nil, err
	}
	var calls []toolyard.Call
	first := ""
	for i, raw := range choices {
		choice, err := strictjson.ReadObject(strictjson.Item("choices", i), raw)
		if err != nil {
			return nil, err
		}
		finish, err := choice.OptionalString("finish_reason")
		if err != nil {
			return nil, err
		}
		m, err := choice.Object("message")
		if err != nil {
			return nil, err
		}
		of, err := messageCalls(m, finish)
		if err != nil {
			return nil, err
		}
		if len(of) > 0 && len(calls) > 0 {
			return nil, strictjson.Errorf(choice.Path(),
				"has tool calls, and so has %s; hand in the message of one choice", first)
		}
		if len(of) > 0 {
			calls, first = of, choice.Path()
		}
	}
	return calls, nil
}

func messageCalls(m strictjson.Object, finish string) ([]toolyard.Call, error) {
	if err := m.Expect("role", "assistant"); err != nil {
		return nil, err
	}
	if !m.Given("tool_calls") {
		if m.Given("function_call") {
			return nil, strictjson.Errorf(m.At("function_call"),
				"is the retired form of one call without an id; ask the model with tools instead of functions")
		}
		return nil, nil
	}
	items, err := m.Array("tool_calls")
	if err != nil {
		return nil, err
	}
	calls := make([]toolyard.Call, len(items))
	for i, raw := range items {
		item, err := strictjson.ReadObject(strictjson.Item(m.At("tool_calls"), i), raw)
		if err != nil {
			return nil, err
		}
		if calls[i], err = toolCall(item, finish != "length" || i < len(items)-1); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

func toolCall(item strictjson.Object, whole bool) (call toolyard.Call, err error) {
	if call.ID, err = item.Name("id"); err != nil {
		return call, err
	}
	kind, err := item.OptionalString("type")
	if err != nil {
		return call, err
	}
	switch {
	case kind == "custom":
	case kind == "", item.Given("function"): // some servers leave the type out, or have more of them
		kind = "function"
	case kind != "function":
		return call, strictjson.Errorf(item.At("type"), `want "function" or "custom", got %s`, strictjson.Quote(kind))
	}
	o, err := item.Object(kind)
	if err != nil {
		return call, err
	}
	if call.Tool, err = o.String("name"); err != nil {
		return call, err
	}
	if kind == "function" {
		call.Input, err = o.Arguments("arguments", whole)
		return call, err
	}
	call.Input = o.FreeText("input", whole)
	return call, nil
}
