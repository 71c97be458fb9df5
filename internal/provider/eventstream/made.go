package eventstream

import (
	"bytes"
	"encoding/json"

	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// The decoder of whole messages reads a complete part of a stream, in a document that is made here. What the provider
// wrote stays unchanged, byte by byte.

// Text returns a text as a JSON string.
func Text(text string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic("eventstream: a string does not encode: " + err.Error())
	}
	return bytes.TrimSpace(b.Bytes())
}

// With returns an object of a stream with some of its fields set, or added.
func With(o strictjson.Object, set map[string]json.RawMessage) json.RawMessage {
	fields := map[string]json.RawMessage{}
	for _, name := range o.Names() {
		fields[name] = o.Value(name)
	}
	for name, value := range set {
		fields[name] = value
	}
	return Object(fields)
}

// Object returns an object with these fields.
func Object(fields map[string]json.RawMessage) json.RawMessage {
	b := []byte("{")
	for name, value := range fields {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, Text(name)...), ':'), value...)
	}
	return append(b, '}')
}

// Array returns an array of these items.
func Array(items ...json.RawMessage) json.RawMessage {
	return append(append([]byte("["), bytes.Join(asBytes(items), []byte(","))...), ']')
}

func asBytes(items []json.RawMessage) [][]byte {
	out := make([][]byte, len(items))
	for i, item := range items {
		out[i] = item
	}
	return out
}
