package strictjson

import "encoding/json"

// The inputs of calls are read alike in every form, so that a batch means the same when it is written in native form
// and read again, as it is between a client and a dispatcher: an input that is a string holding one JSON object, by
// the rules of [Valid] and at most [MaxInputDepth] levels deep, is that object. Any other value stays as it is. What
// is wrong with an input is thus never an error of the document: it becomes the result of that one call.

// Name reads a string that must be there and not be empty: the id that a result is paired by. The name of a tool is any
// string, as the model wrote it: what no tool has ends the call as unknown_tool.
func (o Object) Name(name string) (string, error) {
	text, err := o.String(name)
	if err == nil && text == "" {
		err = Errorf(o.At(name), "is empty; a call needs it")
	}
	return text, err
}

// Missing is the input of a call that came without one, although its form wants one: no tool takes it.
func Missing() json.RawMessage { return json.RawMessage(`""`) }

// Input reads a field that holds the input of a call as a JSON value; nil when it is absent.
func (o Object) Input(name string) json.RawMessage { return unwrap(o.Value(name)) }

// Arguments reads a field that holds the input of a call as JSON inside a string, as the OpenAI forms do. Text that is
// one valid JSON value by the rules of [Check] becomes that value, the empty string becomes {}. Anything else (cut or
// broken JSON, a key twice, nesting past [MaxInputDepth]) stays the string exactly as it came. So does the empty string
// when whole is false: a call that was cut before its first argument must not run without any. Some servers give the
// value itself, which is taken as it is; no arguments at all are [Missing].
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
	if value := trimSpace([]byte(text)); Valid(value, MaxInputDepth) {
		return unwrap(value), nil
	}
	return o.Value(name), nil
}

// Cut is the input of a call that the model did not finish, although it looks whole: the text of the value without its
// last byte, as a JSON string. No tool's schema takes that for its object, and no later reading makes one of it.
func Cut(value json.RawMessage) json.RawMessage {
	return quoted(value[:max(0, len(value)-1)])
}

func unwrap(value json.RawMessage) json.RawMessage {
	if Kind(value) != "string" {
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
