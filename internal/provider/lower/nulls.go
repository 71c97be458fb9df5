package lower

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
)

// DropNulls removes from an input the fields that are null although the schema refuses null and the field is optional:
// a model that was given [OpenAIStrict] writes these. Everything else is unchanged. An input without such fields, or
// that is not JSON, is returned unchanged. schema is the declared one, not the lowered.
func DropNulls(schema, input json.RawMessage) (json.RawMessage, error) {
	doc, _, err := read(schema)
	if err != nil {
		return nil, fmt.Errorf("dropping nulls: the schema %w", err)
	}
	value, order, err := read(input)
	if err != nil {
		return input, nil // the later check refuses and explains it
	}
	root, _ := doc.(map[string]any)
	n := &nulls{w: writer{root: root, nestedID: hasNestedID(root, true)}, null: map[string]bool{},
		required: map[uintptr]map[string]bool{}}
	n.walk(value, []any{doc})
	if n.dropped == 0 {
		return input, nil
	}
	return write(value, order)
}

type nulls struct {
	w       writer
	dropped int
	null    map[string]bool // by reference, whether its target may be null
	// required is what schemas require, by their identity: one may apply to many values.
	required map[uintptr]map[string]bool
}

// requires reports whether a schema requires a field.
func (n *nulls) requires(node map[string]any, name string) bool {
	id := reflect.ValueOf(node).Pointer()
	if _, ok := n.required[id]; !ok {
		n.required[id] = setOf(stringsOf(node["required"]))
	}
	return n.required[id][name]
}

// part is a schema that applies to a value: certainly, or as one of several alternatives.
type part struct {
	node map[string]any
	sure bool
}

// parts returns the schemas that together describe one value. seen has the references that were followed, with sure.
func (n *nulls) parts(schemas []any, sure bool, seen map[string]bool) (out []part) {
	for _, s := range schemas {
		node, ok := s.(map[string]any)
		if !ok {
			continue
		}
		out = append(out, part{node, sure})
		if ref, ok := node["$ref"].(string); ok && !seen[ref+strconv.FormatBool(sure)] {
			seen[ref+strconv.FormatBool(sure)] = true
			if target, ok := n.w.resolve(ref); ok {
				out = append(out, n.parts([]any{target}, sure, seen)...)
			}
		}
		if all, ok := node["allOf"].([]any); ok {
			out = append(out, n.parts(all, sure, seen)...)
		}
		for _, k := range []string{"anyOf", "oneOf"} {
			if list, ok := node[k].([]any); ok {
				out = append(out, n.parts(list, false, seen)...)
			}
		}
	}
	return out
}

func (n *nulls) walk(value any, schemas []any) {
	switch value.(type) {
	case map[string]any, []any:
	default:
		return // most values, and there may be many
	}
	all := n.parts(schemas, true, map[string]bool{})
	switch v := value.(type) {
	case map[string]any:
		for _, name := range names(v) {
			var field []any
			required := false
			for _, p := range all {
				if properties, ok := p.node["properties"].(map[string]any); ok && properties[name] != nil {
					field = append(field, properties[name])
				}
				required = required || p.sure && v[name] == nil && n.requires(p.node, name)
			}
			if v[name] != nil {
				n.walk(v[name], field)
				continue
			}
			if len(field) > 0 && !required && !slices.ContainsFunc(field, func(f any) bool { return n.takesNull(f) }) {
				delete(v, name)
				n.dropped++
			}
		}
	case []any:
		for i, e := range v {
			var item []any
			for _, p := range all {
				if prefix, ok := p.node["prefixItems"].([]any); ok && i < len(prefix) {
					item = append(item, prefix[i])
				} else if p.node["items"] != nil {
					item = append(item, p.node["items"])
				}
				if tuple, ok := p.node["items"].([]any); ok && i < len(tuple) {
					item = append(item, tuple[i])
				}
			}
			n.walk(e, item)
		}
	}
}

// takesNull reports whether null may fit a schema: true if that is uncertain.
func (n *nulls) takesNull(schema any) bool {
	node, ok := schema.(map[string]any)
	if !ok {
		return schema != false
	}
	if list := types(node); len(list) > 0 && !slices.Contains(list, "null") {
		return false
	}
	if values, ok := node["enum"].([]any); ok && !slices.Contains(values, nil) {
		return false
	}
	if c, ok := node["const"]; ok && c != nil {
		return false
	}
	if ref, ok := node["$ref"].(string); ok {
		may, known := n.null[ref]
		if !known {
			n.null[ref], may = true, true // while it is examined, and if it leads out of the schema
			if target, ok := n.w.resolve(ref); ok {
				may = n.takesNull(target)
				n.null[ref] = may
			}
		}
		if !may {
			return false
		}
	}
	if all, ok := node["allOf"].([]any); ok && slices.ContainsFunc(all, func(b any) bool { return !n.takesNull(b) }) {
		return false
	}
	for _, k := range []string{"anyOf", "oneOf"} {
		if list, ok := node[k].([]any); ok && !slices.ContainsFunc(list, func(b any) bool { return n.takesNull(b) }) {
			return false
		}
	}
	return true
}
