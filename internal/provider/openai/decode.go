// Package openai reads and writes the forms of the OpenAI Responses API.
//
// Both directions use our own small types: the SDK links its whole API, and its response types read a missing field as
// empty and a field of the wrong type as absent. Tests check that we read and write the same as the SDK. The package is
// pure.
package openai

import (
	"encoding/json"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// The types of items that are calls beside function_call.
const (
	customToolCall = "custom_tool_call"
	toolSearchCall = "tool_search_call"
)

// SearchTool is the tool that a tool_search_call calls.
const SearchTool = "tool_search"

// readers read the items that are calls, by their type. cut says that the response stopped in an item that does not say
// itself whether it is complete.
var readers = map[string]func(item strictjson.Object, cut bool) (toolyard.Call, error){
	"function_call": functionCall, customToolCall: customCall, toolSearchCall: searchCall,
}

// Decode reads the function_call items of an output array, or of a whole response, in their order, from data that
// passed [strictjson.Check]. An output without any gives no calls and no error.
//
// Items of other types are skipped: messages and reasoning are not calls, and the provider runs web_search_call and the
// like. A call that the same array already answers is skipped too, because running it again could repeat its effect.
// Two more types are calls: custom_tool_call, whose text [strictjson.Object.FreeText] reads, and tool_search_call if
// the client executes the search, which is a call of [SearchTool]. Any other open item that the client must answer
// (computer_call, shell_call, ...) is an error: if it were silently left out, the provider would refuse the next
// request. Such items have a call_id, which the provider's own calls do not.
//
// [strictjson.Object.Arguments] reads the arguments; if an item is not completed, empty arguments never become {}. An
// item without a status is completed, but for the last one of a response that is incomplete.
// namespace and caller of an item become the call's echo, and so does its type if that is not function_call. Errors are
// [*toolyard.InputError] with the field's path.
func Decode(data []byte) ([]toolyard.Call, error) {
	items, at, stopped, err := output(data)
	if err != nil {
		return nil, err
	}
	objects := make([]strictjson.Object, len(items))
	kinds := make([]string, len(items))
	answered := make(map[string]bool)
	for i, raw := range items {
		if objects[i], err = strictjson.ReadObject(strictjson.Item(at, i), raw); err != nil {
			return nil, err
		}
		if kinds[i], err = objects[i].String("type"); err != nil {
			return nil, err
		}
		if strings.HasSuffix(kinds[i], "_output") {
			answered[objects[i].Text("call_id")] = true
		}
	}
	var calls []toolyard.Call
	for i, item := range objects {
		id := item.Text("call_id")
		read := readers[kinds[i]]
		if where := item.Text("execution"); kinds[i] == toolSearchCall &&
			(where == "server" || where != "client" && !item.Given("call_id")) {
			read = nil // the provider's own search
		}
		switch {
		case read != nil:
			call, err := read(item, stopped && i == len(objects)-1)
			if err != nil {
				return nil, err
			}
			if !answered[id] {
				calls = append(calls, call)
			}
		case strings.HasSuffix(kinds[i], "_call") && id != "" && !answered[id] && item.Text("execution") != "server":
			return nil, strictjson.Errorf(item.At("type"),
				"%s is answered by who receives it, which cannot be answered here; take it out",
				strictjson.Quote(kinds[i]))
		}
	}
	return calls, nil
}

// output finds the array of items, and its path. stopped says that the response is incomplete.
func output(data []byte) (items []json.RawMessage, at string, stopped bool, err error) {
	if strictjson.Kind(data) == "array" {
		items, err := strictjson.ReadArray("", data)
		return items, "", false, err
	}
	response, err := strictjson.ReadObject("", data)
	if err != nil {
		return nil, "", false, err
	}
	if err := response.Expect("object", "response"); err != nil {
		return nil, "", false, err
	}
	items, err = response.Array("output")
	return items, response.At("output"), response.Text("status") == "incomplete", err
}

// isWhole reports whether the model has finished an item.
func isWhole(item strictjson.Object, cut bool) (bool, error) {
	status, err := item.OptionalString("status")
	return status == "completed" || status == "" && !cut, err
}

func functionCall(item strictjson.Object, cut bool) (call toolyard.Call, err error) {
	if call.ID, err = item.Name("call_id"); err != nil {
		return call, err
	}
	if call.Tool, err = item.String("name"); err != nil {
		return call, err
	}
	whole, err := isWhole(item, cut)
	if err != nil {
		return call, err
	}
	if call.Input, err = item.Arguments("arguments", whole); err != nil {
		return call, err
	}
	call.Echo, err = item.Echo("namespace", "caller")
	return call, err
}

func customCall(item strictjson.Object, cut bool) (call toolyard.Call, err error) {
	if call.ID, err = item.Name("call_id"); err != nil {
		return call, err
	}
	if call.Tool, err = item.String("name"); err != nil {
		return call, err
	}
	whole, err := isWhole(item, cut)
	if err != nil {
		return call, err
	}
	call.Input = item.FreeText("input", whole)
	call.Echo, err = item.Echo("type", "namespace", "caller")
	return call, err
}

// searchCall reads a search for tools. The client's own definition of the search determines its arguments; ours is that
// of [SearchTool].
func searchCall(item strictjson.Object, cut bool) (call toolyard.Call, err error) {
	if call.ID, err = item.Name("call_id"); err != nil {
		return call, err
	}
	whole, err := isWhole(item, cut)
	if err != nil {
		return call, err
	}
	call.Tool, call.Input = SearchTool, json.RawMessage("{}")
	if item.Given("arguments") {
		call.Input = item.Input("arguments")
	}
	if !whole {
		call.Input = strictjson.Cut(call.Input)
	}
	call.Echo, err = item.Echo("type", "execution")
	return call, err
}
