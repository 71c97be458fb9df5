package lower

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// read decodes a schema, and the order in which names first appear: a model writes fields in the order of the schema,
// so an author's order is kept.
func read(raw json.RawMessage) (doc any, order map[string]int, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	order = map[string]int{}
	if doc, err = readValue(dec, order, 0); err != nil {
		return nil, nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, nil, errors.New("there is more text after the end of the schema")
	}
	return doc, order, nil
}

func readValue(dec *json.Decoder, order map[string]int, depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("is nested more than %d deep", maxNesting)
	}
	token, err := dec.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, fmt.Errorf("is not JSON: %w", err)
			}
			name := key.(string)
			if _, seen := order[name]; !seen {
				order[name] = len(order)
			}
			if object[name], err = readValue(dec, order, depth+1); err != nil {
				return nil, err
			}
		}
		return object, closing(dec)
	case json.Delim('['):
		array := []any{}
		for dec.More() {
			e, err := readValue(dec, order, depth+1)
			if err != nil {
				return nil, err
			}
			array = append(array, e)
		}
		return array, closing(dec)
	}
	return token, nil
}

// closing reads the bracket that closes an object or array.
func closing(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("is not JSON: %w", err)
	}
	return nil
}

// write encodes a tree: names in the order of their first appearance, then new ones in alphabetical order.
func write(doc any, order map[string]int) (json.RawMessage, error) {
	var b bytes.Buffer
	err := writeValue(&b, doc, order)
	return b.Bytes(), err
}

func writeValue(b *bytes.Buffer, doc any, order map[string]int) error {
	switch v := doc.(type) {
	case map[string]any:
		rank := func(name string) int {
			if n, ok := order[name]; ok {
				return n
			}
			return len(order)
		}
		keys := slices.SortedFunc(maps.Keys(v), func(x,
			y string) int {
			return cmp.Or(rank(x)-rank(y), cmp.Compare(x, y))
		})
		b.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeScalar(b, k); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := writeValue(b, v[k], order); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeValue(b, e, order); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	}
	return writeScalar(b, doc)
}

func writeScalar(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the encoder's newline
	return nil
}

// text returns a value as compact JSON with sorted names: for descriptions, and to compare values.
func text(v any) string {
	raw, err := write(v, nil)
	if err != nil { // everything that was read can be written
		return fmt.Sprint(v)
	}
	return string(raw)
}

func equal(a, b any) bool { return text(a) == text(b) }

// clone copies a tree: the copy shares nothing that is changed later.
func clone(node map[string]any) map[string]any {
	out := make(map[string]any, len(node))
	for k, v := range node {
		out[k] = cloneValue(v)
	}
	return out
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return clone(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = cloneValue(e)
		}
		return out
	}
	return v
}

func names(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// kind names a value's type as JSON Schema does.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// types returns the type keyword as a list; nil if there is none.
func types(node map[string]any) []string {
	switch t := node["type"].(type) {
	case string:
		return []string{t}
	case []any:
		var out []string
		for _, e := range t {
			if s, ok := e.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

func hasType(node map[string]any, t string) bool { return slices.Contains(types(node), t) }

func setTypes(node map[string]any, list []string) {
	if len(list) == 1 {
		node["type"] = list[0]
		return
	}
	out := make([]any, len(list))
	for i, t := range list {
		out[i] = t
	}
	node["type"] = out
}

// stringsOf returns a list of names, such as required.
func stringsOf(v any) []string {
	list, _ := v.([]any)
	var out []string
	seen := map[string]bool{}
	for _, e := range list {
		if s, ok := e.(string); ok && !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// setOf is a list of names, to look one up.
func setOf(list []string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, s := range list {
		out[s] = true
	}
	return out
}

func listOf(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}
