package tool

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaOf derives the schema of a type. A type that is read from text is a string, whatever it is made of, and a
// [json.RawMessage] is any value: without that, the schema would accept only what the type refuses. Bytes are a string
// in base64, as JSON has them.
func schemaOf[T any]() (json.RawMessage, error) {
	known := map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[json.RawMessage](): {
		Types: []string{"null", "boolean", "object", "array", "number", "string"}},
		reflect.TypeFor[[]byte](): {Types: []string{"null", "string"}, ContentEncoding: "base64"}}
	inside(reflect.TypeFor[T](), map[reflect.Type]bool{}, func(t reflect.Type) {
		read := reflect.PointerTo(t)
		if read.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) &&
			!read.Implements(reflect.TypeFor[json.Unmarshaler]()) {
			known[t] = &jsonschema.Schema{Type: "string"}
		}
	})
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// inside calls found for the types of the fields of a type, of its elements, and of what is inside these. The fields of
// an embedded type are the type's own.
func inside(t reflect.Type, seen map[reflect.Type]bool, found func(reflect.Type)) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if seen[t] {
		return
	}
	seen[t] = true
	part := func(t reflect.Type) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		found(t)
		inside(t, seen, found)
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		part(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			switch f := t.Field(i); {
			case f.Anonymous:
				inside(f.Type, seen, found)
			case f.IsExported():
				part(f.Type)
			}
		}
	default: // nothing is inside
	}
}

// missingField says which field the declaration names for rules or for the class that no input has; empty if there is
// none. A schema that is not closed may let any in.
func (d *Declaration) missingField() string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Patterns   map[string]json.RawMessage `json:"patternProperties"`
		Additional any                        `json:"additionalProperties"`
	}
	if json.Unmarshal(d.InputSchema, &s) != nil || s.Additional != false || len(s.Patterns) > 0 {
		return ""
	}
	for _, f := range []struct{ by, name string }{
		{"Specifier.Path", d.Specifier.Path}, {"Specifier.Command", d.Specifier.Command},
		{"Specifier.URL", d.Specifier.URL}, {"Class.Shell", d.Class.Shell},
	} {
		if _, ok := s.Properties[f.name]; f.name != "" && !ok {
			return fmt.Sprintf("%s names %q, which is no field of the input; its fields are %q", f.by, f.name,
				slices.Sorted(maps.Keys(s.Properties)))
		}
	}
	return ""
}
