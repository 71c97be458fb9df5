package lower

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// unstrict records why there is no strict form; the first reason counts.
func (w *writer) unstrict(why, path string) {
	if w.noStrict == nil {
		w.noStrict = fmt.Errorf("%s: %s", at(path), why)
	}
}

func at(path string) string {
	if path == "" {
		return "the schema"
	}
	return path
}

// tally counts what a strict form limits.
type tally struct{ properties, depth, enums, chars int }

// makeStrict closes every object and, if all fields are required, makes the optional ones nullable. Its error says why
// that would change what is accepted.
func (w *writer) makeStrict(root map[string]any, result *Lowered) error {
	var t tally
	w.strictNode(root, "", 1, &t, result)
	for _, name := range names(w.defined) {
		t.chars += utf8.RuneCountInString(name)
		w.strictNode(w.defined[name].(map[string]any), "/$defs/"+name, 1, &t, result)
	}
	if w.noStrict != nil {
		return w.noStrict
	}
	if !w.subset.allRequired {
		return nil
	}
	for _, l := range []struct {
		has, most int
		of        string
	}{
		{t.properties, MaxStrictProperties, "properties"}, {t.depth, MaxStrictDepth, "levels of nesting"},
		{t.enums, MaxStrictEnumValues, "enum values"}, {t.chars, MaxStrictNameChars,
			"characters of names and enum values"},
	} {
		if l.has > l.most {
			return fmt.Errorf("the schema has %d %s; a strict one may have %d", l.has, l.of, l.most)
		}
	}
	return nil
}

var errAnything = errors.New("it accepts values of any type, which a strict form cannot say")

func (w *writer) strictNode(node map[string]any, path string, depth int, t *tally, result *Lowered) {
	if _, ok := node["$ref"]; ok {
		return
	}
	t.depth = max(t.depth, depth)
	w.strictEnum(node, path, t)
	list := types(node)
	choice, isChoice := node["anyOf"].([]any)
	if _, fields := node["properties"]; len(list) == 0 && (!isChoice || fields) {
		w.unstrict(errAnything.Error(), path)
		return
	}
	if len(list) > 1 || isChoice {
		result.Unions++
	}
	// keywords for other types violate the rules
	if len(list) > 0 && !slices.Contains(list, "object") {
		for _, k := range []string{"properties", "required", "additionalProperties"} {
			delete(node, k)
		}
	}
	if len(list) > 0 && !slices.Contains(list, "array") {
		delete(node, "items")
	}
	for i, b := range choice {
		w.strictNode(b.(map[string]any), fmt.Sprintf("%s/anyOf/%d", path, i), depth, t, result)
	}
	if slices.Contains(list, "object") {
		w.strictObject(node, path, depth, t, result)
	}
	if slices.Contains(list, "array") {
		items, _ := node["items"].(map[string]any)
		w.strictNode(items, path+"/items", depth+1, t, result)
	}
}

// strictEnum counts an enum and adds the type of its values.
func (w *writer) strictEnum(node map[string]any, path string, t *tally) {
	values, _ := node["enum"].([]any)
	chars := 0
	var list []string
	for _, v := range values {
		k := kind(v)
		if k == "object" || k == "array" {
			w.unstrict("an enum holds an "+k, path)
		}
		if !slices.Contains(list, k) {
			list = append(list, k)
		}
		if s, ok := v.(string); ok {
			chars += utf8.RuneCountInString(s)
		} else {
			chars += len(text(v))
		}
	}
	t.enums += len(values)
	t.chars += chars
	if w.subset.allRequired && len(values) > MaxStrictLongEnum && chars > MaxStrictLongEnumLen {
		w.unstrict(fmt.Sprintf("an enum of %d values has %d characters; past %d values %d are allowed", len(values),
			chars, MaxStrictLongEnum, MaxStrictLongEnumLen), path)
	}
	if len(values) > 0 && node["type"] == nil && node["anyOf"] == nil {
		setTypes(node, list)
	}
}

func (w *writer) strictObject(node map[string]any, path string, depth int, t *tally, result *Lowered) {
	fields, named := node["properties"].(map[string]any)
	rest, said := node["additionalProperties"]
	switch {
	case said && rest != false:
		w.unstrict("it takes fields that it does not name", path)
	case !said && len(fields) == 0 && path != "":
		w.unstrict("it takes any fields, since it names none", path)
	}
	if !named {
		node["properties"] = map[string]any{}
	}
	node["additionalProperties"] = false
	list := stringsOf(node["required"])
	required := setOf(list)
	for _, name := range list {
		if _, ok := fields[name]; !ok {
			w.unstrict(fmt.Sprintf("it requires %q and does not describe it", name), path)
		}
	}
	t.properties += len(fields)
	for _, name := range names(fields) {
		t.chars += utf8.RuneCountInString(name)
		field, where := fields[name].(map[string]any), path+"/properties/"+escape(name)
		w.strictNode(field, where, depth+1, t, result)
		if required[name] {
			continue
		}
		result.Optionals++
		if w.subset.allRequired {
			fields[name] = w.nullable(field, where)
		}
	}
	if w.subset.allRequired {
		node["required"] = listOf(names(fields))
	}
}

// nullable lets a field be null instead of absent.
func (w *writer) nullable(field map[string]any, path string) map[string]any {
	w.report(path, "", Changed, "it is optional; strict schemas require every field, so it may be null instead")
	if choice, ok := field["anyOf"].([]any); ok && field["type"] == nil {
		if !slices.ContainsFunc(choice, func(b any) bool { return hasType(b.(map[string]any), "null") }) {
			field["anyOf"] = append(choice, map[string]any{"type": "null"})
		}
		return field
	}
	if _, ok := field["$ref"]; ok || field["anyOf"] != nil {
		return map[string]any{"anyOf": []any{field, map[string]any{"type": "null"}}}
	}
	if list := types(field); len(list) > 0 && !slices.Contains(list, "null") {
		setTypes(field, append(list, "null"))
	}
	if values, ok := field["enum"].([]any); ok && !slices.Contains(values, nil) {
		field["enum"] = append(values, nil)
	}
	return field
}
