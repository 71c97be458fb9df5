package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/toolyard/toolyard"
)

// Object is one JSON object of a document that passed [Check], with its path. Fields are found by their exact names;
// encoding/json's structs would also accept "Calls" for "calls".
type Object struct {
	path   string
	fields map[string]json.RawMessage
}

// Errorf returns an error at a path of the document; the message begins with a verb, such as `want a string, got null`.
func Errorf(path, format string, args ...any) error {
	return &toolyard.InputError{Field: path, Problem: fmt.Sprintf(format, args...)}
}

// Kind names the JSON type of raw: object, array, string, number, boolean or null; "nothing" if raw is empty, as for an
// absent field.
func Kind(raw json.RawMessage) string {
	raw = trimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// ReadObject reads raw as the object at path; the path of the document itself is empty.
func ReadObject(path string, raw json.RawMessage) (Object, error) {
	o := Object{path: path}
	if kind := Kind(raw); kind != "object" {
		return o, wrongType(path, "object", kind)
	}
	if err := json.Unmarshal(raw, &o.fields); err != nil {
		return o, Errorf(path, "is not JSON: %v", err)
	}
	return o, nil
}

// ReadArray reads raw as the array at path.
func ReadArray(path string, raw json.RawMessage) ([]json.RawMessage, error) {
	if kind := Kind(raw); kind != "array" {
		return nil, wrongType(path, "array", kind)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, Errorf(path, "is not JSON: %v", err)
	}
	return items, nil
}

func wrongType(path, want, got string) error {
	if path == "" {
		return Errorf("", "the input should be one JSON %s, and is %s", want, got)
	}
	return Errorf(path, "want %s, got %s", want, got)
}

// Path is the path of the object in its document.
func (o Object) Path() string { return o.path }

// At is the path of one of the object's fields.
func (o Object) At(name string) string { return Join(o.path, name) }

// Names lists the object's fields, sorted.
func (o Object) Names() []string { return slices.Sorted(maps.Keys(o.fields)) }

// Has reports whether the field exists, even if it is null.
func (o Object) Has(name string) bool { _, ok := o.fields[name]; return ok }

// Value is a copy of the field's text without white space around it, or nil if it is absent.
func (o Object) Value(name string) json.RawMessage { return bytes.Clone(trimSpace(o.fields[name])) }

// Kind names the JSON type of the field; see [Kind].
func (o Object) Kind(name string) string { return Kind(o.fields[name]) }

// Given reports whether the field exists and is not null: providers write null for "not used".
func (o Object) Given(name string) bool { return o.Has(name) && o.Kind(name) != "null" }

// Text is the field if it is a string, and otherwise "". It is for recognising a shape.
func (o Object) Text(name string) string {
	text, _ := o.String(name)
	return text
}

// String reads a required string.
func (o Object) String(name string) (text string, err error) {
	if kind := o.Kind(name); kind != "string" {
		return "", wrongType(o.At(name), "string", kind)
	}
	if err := json.Unmarshal(o.fields[name], &text); err != nil {
		return "", Errorf(o.At(name), "is not JSON: %v", err)
	}
	return text, nil
}

// OptionalString reads a string that may be absent or null, which gives "".
func (o Object) OptionalString(name string) (string, error) {
	if !o.Given(name) {
		return "", nil
	}
	return o.String(name)
}

// OptionalBool reads a boolean that may be absent or null, which gives false.
func (o Object) OptionalBool(name string) (bool, error) {
	if !o.Given(name) {
		return false, nil
	}
	if kind := o.Kind(name); kind != "boolean" {
		return false, wrongType(o.At(name), "boolean", kind)
	}
	return o.Value(name)[0] == 't', nil
}

// OptionalInt reads a whole number of at most bits bits that may be absent or null, which gives 0. Numbers with a point
// or an exponent are refused: 1e3 is a number, but nobody writes a counter so.
func (o Object) OptionalInt(name string, bits int) (int64, error) {
	if !o.Given(name) {
		return 0, nil
	}
	if kind := o.Kind(name); kind != "number" {
		return 0, wrongType(o.At(name), "a whole number", kind)
	}
	text := string(o.Value(name))
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		return 0, Errorf(o.At(name), "want a whole number of at most %d bits, got %s", bits, short(text))
	}
	return n, nil
}

// OptionalStrings reads an array of strings that may be absent or null, which gives nil.
func (o Object) OptionalStrings(name string) ([]string, error) {
	if !o.Given(name) {
		return nil, nil
	}
	items, err := ReadArray(o.At(name), o.fields[name])
	if err != nil {
		return nil, err
	}
	list := make([]string, 0, len(items))
	for i, raw := range items {
		at := Item(o.At(name), i)
		if kind := Kind(raw); kind != "string" {
			return nil, wrongType(at, "string", kind)
		}
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, Errorf(at, "is not JSON: %v", err)
		}
		list = append(list, text)
	}
	return list, nil
}

// Array reads a required array.
func (o Object) Array(name string) ([]json.RawMessage, error) {
	return ReadArray(o.At(name), o.fields[name])
}

// Object reads a required object.
func (o Object) Object(name string) (Object, error) {
	return ReadObject(o.At(name), o.fields[name])
}

// Expect refuses a field that is given and is not the string want: a message of the user must not be read as one of the
// assistant.
func (o Object) Expect(name, want string) error {
	if !o.Given(name) {
		return nil
	}
	got, err := o.String(name)
	if err != nil {
		return err
	}
	if got != want {
		return Errorf(o.At(name), "want %q, got %s", want, Quote(got))
	}
	return nil
}

func short(text string) string {
	if len(text) > keyBytes {
		return text[:keyBytes] + "..."
	}
	return text
}
