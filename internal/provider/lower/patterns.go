package lower

import (
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
)

// apart are constructs that some engines refuse, or read in another way than others.
var apart = regexp.MustCompile(`\\[pPAzZQEGkRXKNHCa]|\(\?[^:]|\[\[|\[\^?\]`)

// portable reports whether every engine that a provider may use accepts a pattern. OpenAI refuses a whole request
// because of a look-ahead or \p{…} in one field, and all providers refuse an invalid expression.
func portable(pattern string) bool {
	_, err := syntax.Parse(pattern, syntax.Perl)
	return err == nil && !apart.MatchString(pattern)
}

// plainPatterns removes from a copied tree the patterns that are not portable, and moves them to the description. It
// reports whether the node now accepts more: below a condition that would invert the result, so the condition is
// removed too.
func (w *writer) plainPatterns(schema any, path string) (wider bool) {
	node, ok := schema.(map[string]any)
	if !ok {
		return false
	}
	const why = "some engines that providers check patterns with refuse it"
	if source, ok := node["pattern"].(string); ok && !portable(source) {
		delete(node, "pattern")
		words, _ := node["description"].(string)
		if words != "" {
			words += " "
		}
		node["description"] = words + "(pattern: " + text(source) + ")"
		w.report(path, "pattern", Moved, why)
		wider = true
	}
	if named, ok := node["patternProperties"].(map[string]any); ok {
		for _, source := range names(named) {
			if !portable(source) { // any field may match it
				delete(named, source)
				delete(node, "unevaluatedProperties")
				node["additionalProperties"] = true
				w.report(path, "patternProperties", Dropped, "%s: %s", brief(source), why)
				wider = true
			}
		}
	}
	asked := map[string]bool{}
	for _, k := range names(node) {
		for _, below := range subschemas(k, node[k]) {
			if w.plainPatterns(below.schema, path+"/"+k+below.at) {
				asked[k], wider = true, true
			}
		}
	}
	if asked["not"] {
		delete(node, "not")
		w.report(path, "not", Dropped, "what it excludes was widened")
	}
	if asked["if"] {
		for _, k := range []string{"if", "then", "else"} {
			delete(node, k)
		}
		w.report(path, "if", Dropped, "what it asks was widened")
	}
	if asked["oneOf"] {
		if _, both := node["anyOf"]; !both {
			node["anyOf"] = node["oneOf"]
		}
		delete(node, "oneOf")
		w.report(path, "oneOf", Changed, "an alternative was widened: that no second one fits is not said")
	}
	return wider
}

// placed is a schema and its path below its keyword.
type placed struct {
	at     string
	schema any
}

// subschemas returns the schemas directly below a keyword.
func subschemas(k string, v any) (out []placed) {
	switch of := v.(type) {
	case []any:
		if slices.Contains([]string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}, k) {
			for _, e := range of {
				out = append(out, placed{"", e})
			}
		}
	case map[string]any:
		switch k {
		case "properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions":
			for _, name := range slices.Sorted(maps.Keys(of)) {
				out = append(out, placed{"/" + escape(name), of[name]})
			}
		case "additionalProperties", "unevaluatedProperties", "propertyNames", "items", "unevaluatedItems",
			"additionalItems", "contains", "contentSchema", "not", "if", "then", "else":
			out = append(out, placed{"", of})
		}
	}
	return out
}
