package strictjson

import (
	"bytes"
	"encoding/json"
)

// The inputs of calls are read in the same way in every form, so that a batch means the same when it is written in
// native form and read again, as between a client and a dispatcher. An input that is a string with one JSON object,
// valid by the rules of [Valid] and at most [MaxInputDepth] levels deep, becomes that object. Any other value is
// unchanged, also a string with half of a surrogate pair: decoded, it would have U+FFFD there, and the tool would get
// another text than the model wrote. So a mistake in an input is never an error of the document: it becomes the result
// of that one call.

// Name reads a required string that is not empty: the id that pairs a call with its result. The name of a tool may be
// any string: a name that no tool has ends the call as unknown_tool.
func (o Object) Name(name string) (string, error) {
	text, err := o.String(name)
	if err == nil && text == "" {
		err = Errorf(o.At(name), "is empty; a call needs it")
	}
	return text, err
}

// Missing is the input of a call without one, if its form requires one: no tool accepts it.
func Missing() json.RawMessage { return json.RawMessage(`""`) }

// Input reads a field with the input of a call as a JSON value; nil if it is absent.
func (o Object) Input(name string) json.RawMessage { return unwrap(o.Value(name)) }

// FreeText reads a field with the input of a call that is any text, as [Object.Input] does; an absent one is [Missing].
// If whole is false, the model did not finish the call: text that is no object is [Cut].
func (o Object) FreeText(name string, whole bool) json.RawMessage {
	if !o.Has(name) {
		return Missing()
	}
	value := o.Input(name)
	if !whole && Kind(value) == "string" {
		return Cut(value)
	}
	return value
}

// Arguments reads a field with the input of a call as JSON inside a string, as in the OpenAI forms. Text that is one
// valid JSON value by the rules of [Check] becomes that value, and the empty string becomes {}. Anything else (cut or
// broken JSON, a key twice, nesting past [MaxInputDepth], half of a surrogate pair) stays the same string. If whole is
// false, the model did not finish the call: the empty string stays too, since a call that was cut before its first
// argument must not run without arguments, and other text is [Cut]. Some servers send the value itself, which is
// unchanged; absent arguments are [Missing].
func (o Object) Arguments(name string, whole bool) (json.RawMessage, error) {
	switch o.Kind(name) {
	case "string":
	case "nothing", "null":
		return Missing(), nil
	default:
		return o.Value(name), nil
	}
	text, err := o.String(name)
	if err != nil {
		return nil, err
	}
	if text == "" && whole {
		return json.RawMessage("{}"), nil
	}
	if value := trimSpace([]byte(text)); Valid(value, MaxInputDepth) && !HalfSurrogate(o.fields[name]) {
		return unwrap(value), nil
	}
	if !whole {
		return Cut(o.Value(name)), nil
	}
	return o.Value(name), nil
}

// Cut is the input of a call that the model did not finish: the text of a value that looks complete, without its last
// byte, or the text that a string holds, as a JSON string. No tool's schema accepts that as its object, and no later
// reading turns it into one: behind a complete member it ends with a comma, since a repair would take the brackets for
// all that is missing.
func Cut(value json.RawMessage) json.RawMessage {
	text := []byte(value[:max(0, len(value)-1)])
	if Kind(value) == "string" {
		var held string
		if err := json.Unmarshal(value, &held); err == nil {
			text = []byte(held)
		}
	}
	if end := trimSpace(text); len(end) > 0 && bytes.IndexByte([]byte("{[,:"), end[len(end)-1]) < 0 {
		text = append(bytes.Clone(text), ',')
	}
	return quoted(text)
}

func unwrap(value json.RawMessage) json.RawMessage {
	if Kind(value) != "string" || HalfSurrogate(value) {
		return value
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return value
	}
	if inner := trimSpace([]byte(text)); Kind(inner) == "object" && Valid(inner, MaxInputDepth) {
		return inner
	}
	return value
}
