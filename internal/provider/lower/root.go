package lower

import (
	"fmt"
	"slices"
	"strings"
)

// objectRoot gives the root the form that every provider requires: an object, with its fields directly below it.
func (w *writer) objectRoot(root map[string]any) (map[string]any, error) {
	if list := types(root); len(list) > 0 && !slices.Contains(list, "object") {
		return nil, fmt.Errorf("want a schema of an object, got one of %s", list[0])
	}
	if w.subset.anyRoot {
		root["type"] = "object"
		return root, nil
	}
	if _, ok := root["enum"]; ok {
		delete(root, "enum")
		w.report("", "enum", Dropped, "no provider takes a fixed set of objects at the root")
	}
	if _, ok := root["anyOf"]; ok {
		if !w.flatten(root, "") {
			return nil, fmt.Errorf("the choice at the root has no alternative that is an object")
		}
	}
	root["type"] = "object"
	fields, ok := root["properties"].(map[string]any)
	if !ok {
		fields = map[string]any{}
		root["properties"] = fields
	}
	required := setOf(stringsOf(root["required"]))
	for _, name := range names(fields) {
		switch {
		case w.subset.fieldName(name):
		case required[name]:
			return nil,
				fmt.Errorf("it requires the field %q, and the provider takes names of 1 to %d letters, digits and %q "+
					"alone", name, maxFieldName, w.subset.fieldChars)
		default:
			delete(fields, name)
			for _, k := range []string{"additionalProperties", "unevaluatedProperties"} { // a closed object refuses it
				if root[k] == false {
					delete(root, k)
				}
			}
			w.openIfNamed(root)
			w.report("/properties/"+escape(name), "", Dropped,
				"the provider takes names of 1 to %d letters, digits and %q alone", maxFieldName, w.subset.fieldChars)
		}
	}
	return root, nil
}

// fieldName reports whether the name is allowed for a field of the root.
func (s *subset) fieldName(name string) bool {
	if s.fieldChars == "" {
		return true
	}
	return len(name) > 0 && len(name) <= maxFieldName && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune(s.fieldChars, r))
	})
}

// distribute moves the siblings of a choice into its alternatives, because a strict form requires each of them to be
// complete. Alternatives that are objects become one object instead, since together they may name more fields than each
// alone.
func (w *writer) distribute(node map[string]any, path string) {
	choice, ok := node["anyOf"].([]any)
	if !ok {
		return
	}
	objects := 0
	for _, b := range choice {
		if isAboutObjects(b.(map[string]any)) {
			objects++
		}
	}
	switch {
	case objects > 0 || isAboutObjects(node):
		if !w.flatten(node, path) {
			w.unstrict("a choice between objects and other values stands beside other keywords", path)
		}
	default:
		base := clone(node)
		delete(base, "anyOf")
		delete(base, "description")
		delete(base, "title")
		if len(base) == 0 {
			return
		}
		if len(text(base))*len(choice) > maxInlined {
			w.unstrict("what stands beside a choice would have to be said in each of too many alternatives", path)
			return
		}
		var written []any
		for _, b := range choice {
			one := clone(base)
			w.mergeSubschema(one, b.(map[string]any), path)
			written = append(written, one)
		}
		for k := range base {
			delete(node, k)
		}
		node["anyOf"] = written
	}
}

// isAboutObjects reports whether a schema has assertions about objects.
func isAboutObjects(node map[string]any) bool {
	_, properties := node["properties"]
	_, required := node["required"]
	_, rest := node["additionalProperties"]
	_, ref := node["$ref"]
	_, nested := node["anyOf"]
	return properties || required || rest || ref || nested || hasType(node, "object")
}

// flatten turns a choice between objects into one object: it has the fields of all alternatives, and requires what all
// of them require. It returns false, and changes nothing, if an alternative may not be an object although the node is
// not one.
func (w *writer) flatten(node map[string]any, path string) bool {
	var branches []map[string]any
	for _, b := range node["anyOf"].([]any) {
		branch := b.(map[string]any)
		if _, ok := branch["$ref"]; ok {
			w.report(path, "anyOf", Changed, "one of the alternatives refers to itself, and accepts anything now")
			branch = map[string]any{"additionalProperties": true}
		}
		list := types(branch)
		switch {
		case len(list) == 0 && (hasType(node, "object") || path == "" || branch["properties"] != nil ||
			branch["anyOf"] != nil), slices.Contains(list, "object"):
		case path == "" || slices.Equal(types(node), []string{"object"}):
			continue // an object cannot match it
		default:
			return false
		}
		if _, ok := branch["anyOf"]; ok {
			branch = clone(branch)
			if !w.flatten(branch, path) {
				return false
			}
		}
		if len(list) > 1 && path != "" && !slices.Equal(types(node), []string{"object"}) {
			return false
		}
		branches = append(branches, branch)
	}
	if len(branches) == 0 {
		return false
	}
	delete(node, "anyOf")
	w.report(path, "anyOf", Changed,
		"the alternatives are sent as one object that has the fields of all; which go together is not said")
	w.merge(node, union(node, branches), path)
	return true
}

// union is an object that accepts everything that one of the branches accepts beside base.
func union(base map[string]any, branches []map[string]any) map[string]any {
	fields := map[string]any{}
	out := map[string]any{"type": "object", "properties": fields}
	required := stringsOf(branches[0]["required"])
	closed, open := true, false
	for _, b := range branches {
		both := setOf(stringsOf(b["required"]))
		required = slices.DeleteFunc(slices.Clone(required), func(name string) bool { return !both[name] })
		rest, said := b["additionalProperties"]
		closed = closed && said && rest == false
		open = open || said && rest != false
		own, _ := b["properties"].(map[string]any)
		for name := range own {
			fields[name] = nil
		}
	}
	for name := range fields {
		fields[name] = eitherField(base, branches, name)
	}
	if len(required) > 0 {
		out["required"] = listOf(required)
	}
	if closed {
		out["additionalProperties"] = false
	} else if open {
		out["additionalProperties"] = true
	}
	return out
}

// eitherField is what one of the branches accepts in a field. A branch that does not name it refuses it, unless base
// names it or one of the two accepts any field.
func eitherField(base map[string]any, branches []map[string]any, name string) map[string]any {
	opens := func(node map[string]any) bool {
		rest, said := node["additionalProperties"]
		return said && rest != false
	}
	common, _ := base["properties"].(map[string]any)
	_, inBase := common[name]
	var choice []any
	seen := map[string]bool{}
	for _, b := range branches {
		own, _ := b["properties"].(map[string]any)
		field, named := own[name].(map[string]any)
		if !named {
			if inBase || opens(base) || opens(b) {
				return map[string]any{}
			}
			continue
		}
		if len(field) == 0 {
			return map[string]any{}
		}
		if said := text(field); !seen[said] {
			seen[said] = true
			choice = append(choice, clone(field))
		}
	}
	if len(choice) == 1 {
		return choice[0].(map[string]any)
	}
	return map[string]any{"anyOf": choice}
}
