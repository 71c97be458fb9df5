package lower

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rewrite writes one subschema without references and allOf, in the keywords of the subset. Each step keeps or widens
// what is accepted.
func (w *writer) rewrite(schema any, path string, stack []string) map[string]any {
	w.nodes++
	in, ok := schema.(map[string]any)
	if !ok {
		if schema == false {
			w.report(path, "", Changed, "nothing is accepted here, which the provider cannot be told; anything is")
		}
		return map[string]any{}
	}
	in = maps.Clone(in)
	w.modernize(in, path)
	transparent := isTransparent(in)
	parts := w.parts(in, path, stack)
	out := map[string]any{}
	for _, k := range names(in) {
		w.keyword(out, in, k, path, stack)
	}
	w.tuple(out, in, path)
	for _, part := range parts {
		w.merge(out, part, path)
	}
	w.describe(out, in, path)
	if w.subset.strict && !transparent && path != "" {
		w.distribute(out, path)
	}
	return out
}

// isTransparent reports whether a schema has one assertion, so that its parts can declare their own fields.
func isTransparent(in map[string]any) bool {
	n := 0
	for k := range in {
		if !slices.Contains(silent, k) && k != "title" && k != "description" {
			n++
		}
	}
	return n <= 1 && in["allOf"] == nil
}

// modernize translates older drafts into 2020-12.
func (w *writer) modernize(in map[string]any, path string) {
	for _, k := range w.newer {
		if _, ok := in[k]; ok {
			delete(in, k)
			w.report(path, k, Dropped, "the draft that the schema names does not have it")
		}
	}
	if list, ok := in["items"].([]any); ok {
		in["prefixItems"] = list
		delete(in, "items")
		if rest, ok := in["additionalItems"]; ok {
			in["items"] = rest
		}
	}
	delete(in, "additionalItems")
	for _, k := range []string{"exclusiveMinimum", "exclusiveMaximum"} {
		if exclusive, ok := in[k].(bool); ok {
			delete(in, k)
			if exclusive {
				w.report(path, k, Dropped, "as a boolean it belongs to an older draft")
			}
		}
	}
	if _, ok := in["$ref"]; ok && w.legacy {
		for _, k := range names(in) { // a validator of that draft ignores them
			if k != "$ref" && k != "description" && k != "title" {
				delete(in, k)
			}
		}
	}
}

// parts removes from in, and writes, the schemas that apply to the same value: references and allOf.
func (w *writer) parts(in map[string]any, path string, stack []string) (parts []map[string]any) {
	all, _ := in["allOf"].([]any)
	delete(in, "allOf")
	if ref, ok := in["$ref"].(string); ok {
		delete(in, "$ref")
		part := w.reference(ref, path, stack)
		alone := len(all) == 0 && !slices.ContainsFunc(names(in), func(k string) bool {
			return !slices.Contains(silent, k) && k != "title" && k != "description"
		})
		if at, ok := part["$ref"]; ok && (!alone || path == "") {
			w.report(path, "$ref", Dropped,
				"%q is recursive and stands beside other keywords; what it adds is not seen", at)
			part = map[string]any{}
		} else if ok {
			for _, k := range names(in) { // nothing can be beside a reference
				delete(in, k)
			}
		}
		parts = append(parts, part)
	}
	for i, branch := range all {
		at := fmt.Sprintf("%s/allOf/%d", path, i)
		part := w.rewrite(branch, at, stack)
		if _, ok := part["$ref"]; ok {
			w.report(at, "$ref", Dropped, "a recursive reference cannot be merged; what it adds is not seen")
			part = map[string]any{}
		}
		parts = append(parts, part)
	}
	return parts
}

// keyword writes one keyword of in.
func (w *writer) keyword(out, in map[string]any, k, path string, stack []string) {
	at := path + "/" + k
	switch k {
	case "properties":
		w.properties(out, in, path, stack)
	case "items", "prefixItems": // tuple, below, puts them together
		if k == "items" {
			if in[k] != false {
				out[k] = w.rewrite(in[k], at, stack)
			}
			return
		}
		list, _ := in[k].([]any)
		written := make([]any, len(list))
		for i, e := range list {
			written[i] = w.rewrite(e, fmt.Sprintf("%s/%d", at, i), stack)
		}
		if len(written) > 0 {
			out[k] = written
		}
	case "anyOf", "oneOf":
		w.choice(out, in, k, path, stack)
	case "additionalProperties":
		switch v := in[k].(type) {
		case bool:
			out[k] = v
		default:
			out[k] = w.rewrite(v, at, stack)
		}
		w.widenAdditional(out, in)
	case "const", "enum":
		w.enum(out, in, k, path)
	case "type", "title":
		out[k] = cloneValue(in[k])
	case "description": // by describe
	case "required":
		if list := stringsOf(in[k]); len(list) > 0 {
			out[k] = listOf(list)
		}
	case "nullable": // OpenAPI's, and no assertion of JSON Schema
	case "patternProperties", "unevaluatedProperties":
		w.widenAdditional(out, in)
		if in[k] != false && text(in[k]) != "{}" {
			w.report(path, k, Dropped,
				"the provider's subset does not have it; such fields are accepted whatever they hold")
		}
	case "pattern":
		if source, ok := in[k].(string); ok && w.subset.keeps(k) && portable(source) {
			out[k] = source
		}
	case "format":
		if f, ok := in[k].(string); ok && w.subset.keeps(k) &&
			(w.subset.formats == nil || slices.Contains(w.subset.formats, f)) {
			out[k] = f
		}
	default:
		switch {
		case w.subset.keeps(k):
			out[k] = cloneValue(in[k])
		case slices.Contains(silent, k), slices.Contains(told, k): // nothing to tell, or told by describe
		case in["if"] == nil && (k == "then" || k == "else"):
		case strings.HasPrefix(k, "x-"):
			w.report(path, k, Dropped, "it is an extension that the provider does not know")
		default:
			w.report(path, k, Dropped,
				"the provider's subset does not have it; the call itself is still checked against it")
			if slices.Contains(naming, k) {
				w.openIfNamed(out)
			}
		}
	}
}

// widenAdditional widens additionalProperties if fields may come that properties does not name.
func (w *writer) widenAdditional(out, in map[string]any) {
	patterns, _ := in["patternProperties"].(map[string]any)
	rest, unevaluated := in["unevaluatedProperties"]
	if len(patterns) > 0 || unevaluated && rest != false {
		out["additionalProperties"] = true
	}
}

// naming are keywords that are always dropped and may name fields.
var naming = []string{"if", "then", "else", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"}

// openIfNamed opens an object if a dropped keyword may have named fields of it, which a strict form would refuse.
func (w *writer) openIfNamed(out map[string]any) {
	if _, said := out["additionalProperties"]; !said && w.subset.strict {
		out["additionalProperties"] = true
	}
}

func (w *writer) properties(out, in map[string]any, path string, stack []string) {
	fields, _ := in["properties"].(map[string]any)
	written := make(map[string]any, len(fields))
	for _, name := range names(fields) {
		at := path + "/properties/" + escape(name)
		if fields[name] == false {
			w.report(at, "", Dropped, "no value fits the field")
			continue
		}
		written[name] = w.rewrite(fields[name], at, stack)
	}
	out["properties"] = written
}

func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// choice writes anyOf and oneOf, both as anyOf.
func (w *writer) choice(out, in map[string]any, k, path string, stack []string) {
	if k == "oneOf" {
		if _, both := in["anyOf"]; both {
			w.report(path, k, Dropped, "it stands beside anyOf, and the provider takes one choice at a place")
			w.openIfNamed(out)
			return
		}
		w.report(path, k, Changed, "it is sent as anyOf: that no second alternative fits is not said")
	}
	list, _ := in[k].([]any)
	var written []any
	for i, branch := range list {
		if branch == false {
			continue
		}
		one := w.rewrite(branch, fmt.Sprintf("%s/%s/%d", path, k, i), stack)
		if len(one) == 0 { // anything fits, so the choice asserts nothing
			w.report(path, k, Dropped, "one of its alternatives accepts anything")
			w.openIfNamed(out)
			return
		}
		written = append(written, one)
	}
	if len(written) > 0 {
		out["anyOf"] = written
	}
}

// enum writes enum, and const as an enum of one.
func (w *writer) enum(out, in map[string]any, k, path string) {
	var list []any
	if k == "const" {
		list = []any{in[k]}
	} else if list, _ = in[k].([]any); len(list) == 0 {
		return
	} else if _, given := in["const"]; given {
		return // the constant asserts more
	}
	if w.subset.scalarEnums && slices.ContainsFunc(list, func(v any) bool {
		t := kind(v)
		return t != "string" &&
			t != "number" && t != "integer"
	}) {
		return // describe reports it
	}
	out["enum"] = cloneValue(list)
}

// tuple translates items and prefixItems into the keywords of the subset.
func (w *writer) tuple(out, in map[string]any, path string) {
	prefix, _ := out["prefixItems"].([]any)
	closed := in["items"] == false
	if closed {
		if w.subset.keeps("prefixItems") && w.subset.keeps("maxItems") && len(prefix) > 0 {
			if _, given := out["maxItems"]; !given {
				out["maxItems"] = json.Number(fmt.Sprint(len(prefix)))
			}
		}
		if len(prefix) == 0 {
			w.report(path, "items", Dropped, "it says that the array is empty")
		}
	}
	if len(prefix) > 0 && !w.subset.keeps("prefixItems") {
		delete(out, "prefixItems")
		rest, hasRest := out["items"].(map[string]any)
		switch {
		case !closed && (!hasRest || len(rest) == 0):
			delete(out, "items")
			w.report(path, "prefixItems", Dropped,
				"the provider has no tuples, and what follows the first items is free")
		default:
			var choice []any
			seen := map[string]bool{}
			for _, one := range append(prefix, anyOrNone(out["items"])...) {
				if said := text(one); !seen[said] {
					seen[said] = true
					choice = append(choice, one)
				}
			}
			out["items"] = map[string]any{"anyOf": choice}
			if len(choice) == 1 {
				out["items"] = choice[0]
			} else if seen["{}"] {
				out["items"] = map[string]any{}
			}
			w.report(path, "prefixItems", Changed,
				"the provider has no tuples: each item may be what any of them may be")
		}
	}
	if _, ok := out["items"]; !ok && w.subset.arraysNeedItems && hasType(out, "array") {
		out["items"] = map[string]any{}
	}
}

func anyOrNone(v any) []any {
	if v == nil {
		return nil
	}
	return []any{v}
}

// describe moves what the subset has no keyword for to the description.
func (w *writer) describe(out, in map[string]any, path string) {
	words, _ := in["description"].(string)
	var moved []string
	add := func(k string) {
		moved = append(moved, k+": "+text(in[k]))
		w.report(path, k, Moved, "the provider's subset does not have it")
	}
	for _, k := range told {
		if _, given := in[k]; !given {
			continue
		}
		if _, kept := out[k]; !kept {
			add(k)
		}
	}
	if _, ok := out["enum"]; !ok {
		for _, k := range []string{"const", "enum"} {
			if v, given := in[k]; given && text(v) != "[]" {
				add(k)
				break
			}
		}
	}
	if _, ok := out["$ref"]; ok && (words != "" || len(moved) > 0) {
		w.report(path, "description", Dropped, "a reference stands alone")
		return
	}
	if words != "" { // and not that of a part
		out["description"] = words
	}
	if parts, _ := out[movedKey].(movedWords); len(moved) > 0 {
		out[movedKey] = append(slices.Clip(parts), moved...)
	}
}

// movedWords are the texts that describe moves to a description. They are kept apart, under movedKey, until all parts
// of the field are merged: of several descriptions one is kept, but all moved texts are kept.
type movedWords []string

const movedKey = "\x00moved"

// appendMoved appends the moved texts to the descriptions, everywhere in a tree.
func appendMoved(node any) {
	switch node := node.(type) {
	case []any:
		for _, e := range node {
			appendMoved(e)
		}
	case map[string]any:
		for _, e := range node {
			appendMoved(e)
		}
		moved, ok := node[movedKey].(movedWords)
		if !ok {
			return
		}
		delete(node, movedKey)
		words, _ := node["description"].(string)
		node["description"] = strings.TrimSpace(words + " (" + strings.Join(moved, "; ") + ")")
	}
}
