package builtin

import (
	"bytes"
	"encoding/json"
)

// field is one input field of a tool. Schemas are written by hand, because each of their words is part of every prompt,
// and because their order must be the same in each build.
type field struct {
	Name        string `json:"-"`
	Required    bool   `json:"-"`
	Type        string `json:"type"`
	Description string `json:"description"`
	Minimum     *int64 `json:"minimum,omitempty"`
	Maximum     *int64 `json:"maximum,omitempty"`
	Default     any    `json:"default,omitempty"`
	Examples    []any  `json:"examples,omitempty"`
}

// text is a string field.
func text(name, description string) field {
	return field{Name: name, Type: "string", Description: description}
}

// number is an integer field with two bounds.
func number(name string, least, most int64, description string) field {
	return field{Name: name, Type: "integer", Minimum: &least, Maximum: &most, Description: description}
}

// boolean is a boolean field, which is false by default.
func boolean(name, description string) field {
	return field{Name: name, Type: "boolean", Description: description, Default: false}
}

// required makes a field required.
func (f field) required() field { f.Required = true; return f }

// withExamples adds examples.
func (f field) withExamples(examples ...any) field { f.Examples = examples; return f }

// withDefault sets the default.
func (f field) withDefault(def any) field { f.Default = def; return f }

// object is the schema of an input with these fields, in this order, and no others.
func object(fields ...field) json.RawMessage {
	var b bytes.Buffer
	required := []string{}
	b.WriteString(`{"type":"object","properties":{`)
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(mustJSON(f.Name))
		b.WriteByte(':')
		b.Write(mustJSON(f))
		if f.Required {
			required = append(required, f.Name)
		}
	}
	b.WriteString(`},"required":`)
	b.Write(mustJSON(required))
	b.WriteString(`,"additionalProperties":false}`)
	return b.Bytes()
}

// mustJSON encodes a constant of this package.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("builtin: a schema that cannot be encoded: " + err.Error())
	}
	return b
}
