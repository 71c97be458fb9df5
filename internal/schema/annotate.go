package schema

import (
	"fmt"
	"maps"
	"slices"
)

// annotate takes out of a schema what is not checked: formats, and patterns that nobody can read, of which it returns
// a line each. The schema accepts more after it, never less: where a pattern stands below a question, the question
// goes.
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
	// refs says that something was taken out, so that whatever is referred to may accept more.
	refs bool
}

// readable reports whether a pattern can be read, and says so once where it cannot.
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

// The keywords that hold subschemas: one, a list of them, or one by each name. "items" and "dependencies" hold either.
var (
	holdOne = []string{
		"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
		"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
	}
	holdMany  = []string{"allOf", "anyOf", "items", "oneOf", "prefixItems"}
	holdNamed = []string{"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)

// subschemas calls visit for each schema right below a node, in an order that is always the same.
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

// node reports whether it took a pattern out, here or below.
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
			if !a.readable(source) { // any field may be one of these
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
	if asked["oneOf"] { // that no second alternative fits cannot be said
		branches := node["oneOf"]
		delete(node, "oneOf")
		all, _ := node["allOf"].([]any)
		node["allOf"] = append(all, map[string]any{"anyOf": branches})
	}
	return wider
}
