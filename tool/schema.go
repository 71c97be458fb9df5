package tool

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaOf derives the schema of a type. A type that is read from text is a string, whatever it is made of, a
// [json.Number] is a number, a [big.Int] an integer, and a [json.RawMessage] any value, as is a type of others that
// reads JSON itself: without that, the schema would accept only what the type refuses. Bytes are a string in base64, as
// JSON has them. The fields of a struct are those that encoding/json reads into it, which are others than Go's where it
// embeds types. A field with the option "string" is refused: its schema would accept only what it refuses. So is what
// JSON cannot be read into, and a type that reads its JSON by a method of a type that it embeds: the fields beside that
// one would be lost.
func schemaOf[T any]() (json.RawMessage, error) {
	anything := &jsonschema.Schema{Types: []string{"null", "boolean", "object", "array", "number", "string"}}
	known := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[json.RawMessage](): anything, reflect.TypeFor[[]byte](): {
			Types: []string{"null", "string"}, ContentEncoding: "base64"},
		reflect.TypeFor[json.Number](): {Type: "number"}, reflect.TypeFor[big.Int](): {Type: "integer"},
		reflect.TypeFor[time.Time](): {Type: "string"}, reflect.TypeFor[slog.Level](): {Type: "string"}}
	itself := maps.Clone(known) // what reads all of its JSON
	wrong := readByAnother(reflect.TypeFor[T]())
	read := func(of reflect.Type, f reflect.StructField) {
		_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if slices.Contains(strings.Split(options, ","), "string") {
			wrong = fmt.Errorf("the field %s of %s has the option string in its JSON tag, for which no schema is "+
				"derived; remove the option, or set InputSchema", f.Name, of)
		}
	}
	found := func(t reflect.Type) (open bool) {
		switch pointer := reflect.PointerTo(t); {
		case known[t] != nil:
		case t.Kind() == reflect.Interface && t.NumMethod() > 0:
			wrong = fmt.Errorf("%s is an interface with methods, which no JSON can be read into; use another type", t)
		case pointer.Implements(reflect.TypeFor[json.Unmarshaler]()):
			known[t] = anything
		case pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
			known[t] = &jsonschema.Schema{Type: "string"}
		}
		return known[t] == nil
	}
	var embedding []reflect.Type // those inside of others first
	inside(reflect.TypeFor[T](), map[reflect.Type]bool{}, read, found, func(t reflect.Type) {
		if !plain(t) {
			embedding = append(embedding, t)
		}
		for i := range t.NumField() {
			if f := t.Field(i); f.Anonymous && itself[f.Type] != nil {
				wrong = fmt.Errorf("%s embeds %s, so that it is read in its place; give the field a name, or set "+
					"InputSchema", t, f.Type)
			}
		}
		if p := closedPointer(t); p != nil {
			wrong = fmt.Errorf("%s embeds %s, which no JSON can be read into; export the type, or embed it without "+
				"the pointer", t, p)
		}
	})
	if wrong != nil {
		return nil, wrong
	}
	for _, t := range embedding {
		s, err := jsonschema.ForType(flat(t), &jsonschema.ForOptions{TypeSchemas: known})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t, errors.Unwrap(err))
		}
		known[t] = s
	}
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// inside calls found for the types of the fields of a type, of its elements, and of what is inside those of them of
// which found returns true, and field for each field. It calls made for each struct type, after all that is inside it.
func inside(t reflect.Type, seen map[reflect.Type]bool, field func(reflect.Type, reflect.StructField),
	found func(reflect.Type) bool, made func(reflect.Type)) {
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
		if found(t) {
			inside(t, seen, field, found, made)
		}
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		part(t.Elem())
	case reflect.Struct:
		for _, f := range jsonFields(t) {
			field(f.of, f.StructField)
			part(f.Type)
		}
		made(t)
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
