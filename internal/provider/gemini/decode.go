// Package gemini reads and writes the forms of the Gemini API (generateContent).
//
// The few output structs are our own: the official SDK (google.golang.org/genai) brings gRPC, Google Cloud
// authentication and OpenCensus into every binary that imports it. Tests decode our output with the SDK's types, and
// check that we read calls as they do. The package is pure.
package gemini

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// madeID begins the ids that are generated here for calls without one, which is usual for Gemini. [Render] leaves them
// out again: the API matches such answers by name and order, and refuses an unknown id.
const madeID = "toolyard_call_"

// Decode reads the functionCall parts of a content, or of a whole response, in their order, from data that passed
// [strictjson.Check]. A content without any gives no calls and no error. Fields may have the names with underscores,
// which the SDK for Python writes.
//
// Parts of other kinds (text, thoughts, executableCode, toolCall, ...) are skipped; the provider runs its own tools. Of
// several candidates only one may have calls, because they are alternatives. A call without id gets "toolyard_call_N",
// where N is its position from 1; that prefix is reserved, and refused in a given id. Absent args are {}. A part that
// says that more of its call follows is refused: submit the accumulated response. If the response stopped at its token
// limit, a call at its very end counts as cut: its input becomes a string, and it ends as schema_validation_failed.
// Errors are [*toolyard.InputError] with the field's path.
func Decode(data []byte) ([]toolyard.Call, error) {
	o, err := strictjson.ReadObject("", data)
	if err != nil {
		return nil, err
	}
	if !o.Has("candidates") {
		return callsOf(o, "")
	}
	candidates, err := o.Array("candidates")
	if err != nil {
		return nil, err
	}
	var calls []toolyard.Call
	first := ""
	for i, raw := range candidates {
		candidate, err := strictjson.ReadObject(strictjson.Item("candidates", i), raw)
		if err != nil {
			return nil, err
		}
		named, err := spelled(candidate, "finishReason", "finish_reason")
		if err != nil {
			return nil, err
		}
		finish, err := candidate.OptionalString(named)
		if err != nil {
			return nil, err
		}
		if !candidate.Given("content") {
			continue // blocked before the first token
		}
		c, err := candidate.Object("content")
		if err != nil {
			return nil, err
		}
		of, err := callsOf(c, finish)
		if err != nil {
			return nil, err
		}
		if len(of) > 0 && len(calls) > 0 {
			return nil, strictjson.Errorf(candidate.Path(),
				"has function calls, and so has %s; hand in the content of one candidate", first)
		}
		if len(of) > 0 {
			calls, first = of, candidate.Path()
		}
	}
	return calls, nil
}

// Unnamed reports whether a call that [Decode] has read came without an id.
func Unnamed(c toolyard.Call) bool { return strings.HasPrefix(c.ID, madeID) }

// Rename gives the calls that came without an id other ones, which have a name before the position.
func Rename(calls []toolyard.Call, name string) {
	for i := range calls {
		if Unnamed(calls[i]) {
			calls[i].ID = madeID + name + "_" + strconv.Itoa(i+1)
		}
	}
}

func callsOf(c strictjson.Object, finish string) ([]toolyard.Call, error) {
	if err := c.Expect("role", "model"); err != nil {
		return nil, err
	}
	if !c.Given("parts") && finish != "" {
		return nil, nil // a candidate that ended before its first part
	}
	parts, err := c.Array("parts")
	if err != nil {
		return nil, err
	}
	var calls []toolyard.Call
	for i, raw := range parts {
		part, err := strictjson.ReadObject(strictjson.Item(c.At("parts"), i), raw)
		if err != nil {
			return nil, err
		}
		named, err := spelled(part, "functionCall", "function_call")
		if err != nil {
			return nil, err
		}
		if !part.Given(named) {
			continue
		}
		call, err := functionCall(part, named, len(calls)+1)
		if err != nil {
			return nil, err
		}
		if i == len(parts)-1 && finish == "MAX_TOKENS" {
			call.Input = strictjson.Cut(call.Input)
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// spelled is the name that a field has in o. The API takes each field under both names, and answers with the first; the
// SDK for Python writes the second.
func spelled(o strictjson.Object, camel, snake string) (string, error) {
	switch {
	case !o.Given(snake):
		return camel, nil
	case o.Given(camel):
		return "", strictjson.Errorf(o.At(snake), "is there beside %s; write one of them", camel)
	}
	return snake, nil
}

// functionCall reads one call, the nth of its content, counted from 1, from the field of that name.
func functionCall(part strictjson.Object, named string, nth int) (call toolyard.Call, err error) {
	o, err := part.Object(named)
	if err != nil {
		return call, err
	}
	if call.ID, err = o.OptionalString("id"); err != nil {
		return call, err
	}
	switch {
	case call.ID == "":
		call.ID = madeID + strconv.Itoa(nth)
	case strings.HasPrefix(call.ID, madeID):
		return call, strictjson.Errorf(o.At("id"), "begins with %q, which is kept for calls without an id", madeID)
	}
	if call.Tool, err = o.String("name"); err != nil {
		return call, err
	}
	named, err = spelled(o, "willContinue", "will_continue")
	if err != nil {
		return call, err
	}
	more, err := o.OptionalBool(named)
	if err != nil {
		return call, err
	}
	if more || o.Given("partialArgs") || o.Given("partial_args") {
		return call, strictjson.Errorf(o.Path(), "is one piece of a streamed call; hand in the accumulated response")
	}
	call.Input = json.RawMessage("{}")
	if o.Given("args") {
		call.Input = o.Input("args")
	}
	return call, nil
}
