// Package anthropic reads and writes the forms of the Anthropic Messages API.
//
// Both directions use our own small types: the SDK links its whole API, and its response types read a missing field as
// empty and a field of the wrong type as absent. Tests check that we read and write the same as the SDK. The package is
// pure.
package anthropic

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// Decode reads the tool_use blocks of an assistant message, or of a whole Messages response, in their order, from data
// that passed [strictjson.Check]. A message without any gives no calls and no error.
//
// Blocks of every other type are skipped: text and thinking are not calls, and server_tool_use, mcp_tool_use and their
// results are handled by the provider. [strictjson.Object.Input] reads inputs; an object is kept unchanged. If the
// response stopped at its token limit, a tool_use at its very end counts as cut: its input becomes a string that no
// repair mends, so that it ends as schema_validation_failed, and a half-written file is not written.
//
// A mistake of the model stays in its call: an invalid name ends as unknown_tool, a missing input as
// schema_validation_failed.
//
// toolset_name of a block, and its caller if that is not the model itself, become the call's echo. Errors are
// [*toolyard.InputError] with the field's path.
func Decode(data []byte) ([]toolyard.Call, error) {
	message, err := strictjson.ReadObject("", data)
	if err != nil {
		return nil, err
	}
	if err := message.Expect("type", "message"); err != nil {
		return nil, err
	}
	if err := message.Expect("role", "assistant"); err != nil {
		return nil, err
	}
	stop, err := message.OptionalString("stop_reason")
	if err != nil {
		return nil, err
	}
	if message.Kind("content") == "string" {
		return nil, nil // the short form of a message with only text
	}
	blocks, err := message.Array("content")
	if err != nil {
		return nil, err
	}
	var calls []toolyard.Call
	for i, raw := range blocks {
		block, err := strictjson.ReadObject(strictjson.Item("content", i), raw)
		if err != nil {
			return nil, err
		}
		kind, err := block.String("type")
		if err != nil {
			return nil, err
		}
		if kind != "tool_use" {
			continue
		}
		call, err := toolUse(block)
		if err != nil {
			return nil, err
		}
		if i == len(blocks)-1 && (stop == "max_tokens" || stop == "model_context_window_exceeded") {
			call.Input = strictjson.Cut(call.Input)
		}
		calls = append(calls, call)
	}
	return calls, nil
}

func toolUse(block strictjson.Object) (call toolyard.Call, err error) {
	if call.ID, err = block.Name("id"); err != nil {
		return call, err
	}
	if call.Tool, err = block.String("name"); err != nil {
		return call, err
	}
	call.Input = strictjson.Missing()
	if block.Has("input") {
		call.Input = block.Input("input")
	}
	echo := []string{"toolset_name"}
	if block.Given("caller") {
		caller, err := block.Object("caller")
		if err != nil {
			return call, err
		}
		if caller.Text("type") != "direct" {
			echo = append(echo, "caller")
		}
	}
	call.Echo, err = block.Echo(echo...)
	return call, err
}
