package schema

import (
	"fmt"
	"maps"
	"slices"
)

// annotate removes from a schema what is not checked: formats, and patterns that cannot be parsed. It returns a line
// for each such pattern. The schema then accepts more, never less: a pattern below a condition removes the whole
// condition.
func annotate(doc any) []string {
	a := &annotator{read: map[string]error{}}
	a.node(doc)
	if len(a.lines) > 0 {
		a.refs = true
		a.node(doc)
	}
	return a.lines
}

type annotator struct {
	lines []string
	read  map[string]error
	// refs says that something was removed, so that a referenced schema may accept more.
	refs bool
}

// readable reports whether a pattern can be parsed, and reports each bad pattern once.
func (a *annotator) readable(source string) bool {
	err, known := a.read[source]
	if !known {
		_, err = readPattern(source)
		a.read[source] = err
		if err != nil {
			a.lines = append(a.lines, fmt.Sprintf("the pattern %s is not checked: %v", shorten(source), err))
		}
	}
	return err == nil
}

// The keywords that contain subschemas: one, a list, or one per name. "items" and "dependencies" may have either form.
var (
	holdOne = []string{
		"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
		"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
	}
	holdMany  = []string{"allOf", "anyOf", "items", "oneOf", "prefixItems"}
	holdNamed = []string{"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)

// subschemas calls visit for each direct subschema of a node, in a fixed order.
func subschemas(node map[string]any, visit func(keyword string, path []string, child any)) {
	for _, keyword := range slices.Sorted(maps.Keys(node)) {
		switch v := node[keyword].(type) {
		case []any:
			if slices.Contains(holdMany, keyword) {
				for i, child := range v {
					visit(keyword, []string{keyword, fmt.Sprint(i)}, child)
				}
			}
		case map[string]any:
			if slices.Contains(holdNamed, keyword) {
				for _, name := range slices.Sorted(maps.Keys(v)) {
					visit(keyword, []string{keyword, name}, v[name])
				}
			} else if slices.Contains(holdOne, keyword) {
				visit(keyword, []string{keyword}, v)
			}
		}
	}
}

// node reports whether it removed a pattern, here or below.
func (a *annotator) node(doc any) (wider bool) {
	node, ok := doc.(map[string]any)
	if !ok {
		return false
	}
	if _, ok := node["$ref"]; ok && a.refs {
		wider = true
	}
	if _, ok := node["format"].(string); ok {
		delete(node, "format")
	}
	if source, ok := node["pattern"].(string); ok && !a.readable(source) {
		delete(node, "pattern")
		wider = true
	}
	if named, ok := node["patternProperties"].(map[string]any); ok {
		for _, source := range slices.Sorted(maps.Keys(named)) {
			if !a.readable(source) { // any field may match it
				delete(named, source)
				for _, k := range []string{"additionalProperties", "unevaluatedProperties"} {
					delete(node, k)
				}
				node["additionalProperties"] = true
				wider = true
			}
		}
	}
	asked := map[string]bool{}
	subschemas(node, func(keyword string, _ []string, child any) {
		if a.node(child) {
			asked[keyword], wider = true, true
		}
	})
	if asked["not"] {
		delete(node, "not")
	}
	if asked["if"] {
		for _, k := range []string{"if", "then", "else"} {
			delete(node, k)
		}
	}
	if asked["oneOf"] { // "no second alternative fits" can no longer be checked
		branches := node["oneOf"]
		delete(node, "oneOf")
		all, _ := node["allOf"].([]any)
		node["allOf"] = append(all, map[string]any{"anyOf": branches})
	}
	return wider
}
