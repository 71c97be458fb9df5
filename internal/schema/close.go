package schema

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Closing makes unknown fields fail, for the top-level object and every nested object that names its properties, unless
// the schema mentions additionalProperties or unevaluatedProperties there. An object stays open if it describes fields
// in another way: by propertyNames, by patternProperties without properties, by const, or by requiring fields that it
// does not describe.
//
// A plain object gets additionalProperties: false. One that composes others (allOf, anyOf, $ref, …) gets
// unevaluatedProperties: false, which counts the fields that its parts name, and accepts all if a part opens them; the
// parts themselves are not changed. Drafts before 2019-09 do not have that keyword: their composed objects stay open.

// Closing makes each part of a schema accept less. The whole then accepts less too, except with keywords that depend on
// what a part refuses, like oneOf: for a schema with one of those the original schema is checked as well.

// contrary reports whether a schema has a keyword with which closing could make it accept more.
func contrary(doc any) bool {
	switch v := doc.(type) {
	case map[string]any:
		for k, e := range v {
			if k == "oneOf" || k == "not" || k == "if" || k == "contains" || contrary(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, contrary)
	}
	return false
}

// annotations are the keywords that assert nothing.
var annotations = []string{
	"$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "title", "description", "default", "examples",
	"example",
	"deprecated", "readOnly", "writeOnly",
}

// only reports whether a node asserts nothing except the given keyword.
func only(node map[string]any, keyword string) bool {
	if _, ok := node[keyword]; !ok {
		return false
	}
	for k := range node {
		if k != keyword && !slices.Contains(annotations, k) {
			return false
		}
	}
	return true
}

// transparent reports whether a node is only a choice, so that each alternative is closed by itself.
func transparent(node map[string]any) bool { return only(node, "anyOf") || only(node, "oneOf") }

type closer struct {
	root   map[string]any
	legacy bool
	// mixed contains the targets of $ref beside other keywords: they are parts, and must not be closed themselves.
	mixed map[string]bool
	// asked contains the targets of $ref inside "if", "not" and "contains": closing them would invert the condition.
	asked map[string]bool
}

func closeObjects(doc any) {
	root, ok := doc.(map[string]any)
	if !ok {
		return
	}
	c := &closer{root: root, mixed: map[string]bool{}, asked: map[string]bool{}}
	if draft, _ := root["$schema"].(string); draft != "" {
		c.legacy = !strings.Contains(draft, "2019-09") && !strings.Contains(draft, "2020-12")
	}
	c.findMixed(root, false)
	c.close(root, false, true)
}

// children calls visit for each subschema of node. part says that it describes the same value as node.
func children(node map[string]any, visit func(keyword, name string, child map[string]any, part bool)) {
	one := func(keyword string, part bool) {
		if m, ok := node[keyword].(map[string]any); ok {
			visit(keyword, "", m, part)
		}
	}
	many := func(keyword string, part bool) {
		switch v := node[keyword].(type) {
		case []any:
			for _, e := range v {
				if m, ok := e.(map[string]any); ok {
					visit(keyword, "", m, part)
				}
			}
		case map[string]any:
			for name, e := range v {
				if m, ok := e.(map[string]any); ok {
					visit(keyword, name, m, part)
				}
			}
		}
	}
	for _, k := range []string{"properties", "patternProperties", "prefixItems", "$defs", "definitions"} {
		many(k, false)
	}
	for _, k := range []string{"additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems"} {
		one(k, false)
	}
	if _, ok := node["items"].([]any); ok {
		many("items", false)
	} else {
		one("items", false)
	}
	for _, k := range []string{"allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"} {
		many(k, true)
	}
	for _, k := range []string{"then", "else"} {
		one(k, true)
	}
	// "if", "not" and "contains" are conditions, not descriptions: closing inside them would invert them.
}

func (c *closer) findMixed(node map[string]any, part bool) {
	if ref, ok := node["$ref"].(string); ok && (part || !only(node, "$ref")) {
		c.mixed[ref] = true
	}
	alone := transparent(node) && !part
	children(node, func(_, _ string, child map[string]any, childPart bool) { c.findMixed(child, childPart && !alone) })
	for _, question := range []string{"if", "not", "contains"} {
		c.keepOpen(node[question])
	}
}

// keepOpen marks a condition, and everything it refers to, as unchanged.
func (c *closer) keepOpen(doc any) {
	switch v := doc.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok && !c.asked[ref] {
			c.asked[ref] = true
			c.keepOpen(c.resolve(ref))
		}
		for _, e := range v {
			c.keepOpen(e)
		}
	case []any:
		for _, e := range v {
			c.keepOpen(e)
		}
	}
}

// close walks the schema. part says that another node decides about node's unknown fields.
func (c *closer) close(node map[string]any, part, top bool) {
	alone := transparent(node) && !part
	if !part && !alone && !only(node, "$ref") {
		c.closeOne(node, top)
	}
	// A field that two parts of one object describe stays open in both, because each would refuse what the other names.
	count := map[string]int{}
	if !part {
		for _, n := range c.parts(node, false) {
			properties, _ := n["properties"].(map[string]any)
			for name := range properties {
				count[name]++
			}
		}
	}
	children(node, func(keyword, name string, child map[string]any, childPart bool) {
		switch {
		case (keyword == "$defs" || keyword == "definitions") && c.asked["#/"+keyword+"/"+name]:
		case keyword == "$defs" || keyword == "definitions":
			c.close(child, c.mixed["#/"+keyword+"/"+name], false)
		case childPart:
			c.close(child, !alone, false)
		case part:
			c.close(child, keyword == "properties" && c.shared(name), false)
		default:
			c.close(child, keyword == "properties" && count[name] > 1, false)
		}
	})
}

// shared reports whether a property of a part may also be described elsewhere. Parts do not know their owner; counting
// over the whole schema leaves too much open rather than too little.
func (c *closer) shared(name string) bool {
	n := 0
	var walk func(node map[string]any)
	walk = func(node map[string]any) {
		if properties, ok := node["properties"].(map[string]any); ok {
			if _, ok := properties[name]; ok {
				n++
			}
		}
		children(node, func(_, _ string, child map[string]any, _ bool) { walk(child) })
	}
	walk(c.root)
	return n > 1
}

func (c *closer) closeOne(node map[string]any, top bool) {
	for _, k := range []string{"additionalProperties", "unevaluatedProperties"} {
		if _, ok := node[k]; ok {
			return
		}
	}
	names, none, whole := c.fields(node)
	if !whole || (len(names) == 0 && !none && !top) || c.loose(node, names) {
		return
	}
	switch {
	case !composed(node):
		node["additionalProperties"] = false
	case !c.legacy:
		node["unevaluatedProperties"] = false
	}
}

// loose reports whether a node or a part of it describes fields in another way than by properties, so that the names
// are not all the fields that it means: by the form of their names, by whole values, by their number, or by what else
// they need.
func (c *closer) loose(node map[string]any, names []string) bool {
	described := func(list []string) bool {
		return !slices.ContainsFunc(list, func(name string) bool {
			_, ok := slices.BinarySearch(names, name)
			return !ok
		})
	}
	for _, n := range c.parts(node, true) {
		if n == nil {
			continue
		}
		if _, ok := n["propertyNames"]; ok || fixed(n) || !described(c.mentioned(n)) {
			return true
		}
		patterns, _ := n["patternProperties"].(map[string]any)
		least := int64(0)
		if number, ok := n["minProperties"].(json.Number); ok {
			least, _ = number.Int64() // 0 if it is not a number
		}
		_, most := n["maxProperties"]
		if len(names) == 0 && (len(patterns) > 0 || most) || least > int64(len(names)) {
			return true
		}
	}
	return false
}

// fixed reports whether a node lists whole objects.
func fixed(n map[string]any) bool {
	list, _ := n["enum"].([]any)
	isObject := func(v any) bool { _, ok := v.(map[string]any); return ok }
	return isObject(n["const"]) || slices.ContainsFunc(list, isObject)
}

// mentioned returns the fields that a node requires, makes others depend on, or tests.
func (c *closer) mentioned(n map[string]any) []string {
	out := texts(listOf(n["required"]))
	for _, k := range []string{"dependentRequired", "dependentSchemas", "dependencies"} {
		m, _ := n[k].(map[string]any)
		for name, needs := range m {
			out = append(append(out, name), texts(listOf(needs))...)
		}
	}
	for _, k := range []string{"if", "not"} {
		question, ok := n[k].(map[string]any)
		if !ok {
			continue
		}
		for _, part := range c.parts(question, true) {
			if part == nil {
				continue
			}
			asked, _ := part["properties"].(map[string]any)
			out = append(append(out, slices.Collect(maps.Keys(asked))...), texts(listOf(part["required"]))...)
		}
	}
	return out
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

// composed reports whether other schemas describe the same value as node.
func composed(node map[string]any) bool {
	for _, k := range []string{"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if",
		"dependentSchemas", "dependencies"} {
		if _, ok := node[k]; ok {
			return true
		}
	}
	return false
}

// parts returns node and the schemas that describe the same value. Alternatives are included only if all is set. A $ref
// that cannot be followed yields nil in its place.
func (c *closer) parts(node map[string]any, all bool) []map[string]any {
	var out []map[string]any
	seen := map[string]bool{}
	var add func(n map[string]any)
	add = func(n map[string]any) {
		out = append(out, n)
		if ref, ok := n["$ref"].(string); ok && !seen[ref] {
			seen[ref] = true
			if target := c.resolve(ref); target != nil {
				add(target)
			} else {
				out = append(out, nil)
			}
		}
		children(n, func(keyword, _ string, child map[string]any, part bool) {
			if part && (all || keyword == "allOf" || keyword == "then" || keyword == "else" ||
				keyword == "dependentSchemas") {
				add(child)
			}
		})
	}
	add(node)
	return out
}

// fields returns the names of the properties that node and its parts name. none says that one of them has empty
// properties. whole is false if a part cannot be resolved.
func (c *closer) fields(node map[string]any) (names []string, none, whole bool) {
	whole = true
	for _, n := range c.parts(node, true) {
		if n == nil || n["$dynamicRef"] != nil || n["$recursiveRef"] != nil {
			whole = false
			continue
		}
		if p, ok := n["properties"].(map[string]any); ok {
			for name := range p {
				names = append(names, name)
			}
			none = none || len(p) == 0
		}
	}
	slices.Sort(names)
	return slices.Compact(names), none, whole
}

// resolve follows a $ref inside the document; nil if it leads out or uses an anchor.
func (c *closer) resolve(ref string) map[string]any {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok || (fragment != "" && !strings.HasPrefix(fragment, "/")) {
		return nil
	}
	v, ok := lookup(c.root, fragment)
	if !ok {
		return nil
	}
	m, _ := v.(map[string]any)
	return m
}

// lookup follows a JSON pointer in the form of a URL fragment.
func lookup(doc any, pointer string) (any, bool) {
	if pointer == "" {
		return doc, true
	}
	var path []string
	for _, step := range strings.Split(pointer, "/")[1:] {
		step, err := url.PathUnescape(step)
		if err != nil {
			return nil, false
		}
		path = append(path, strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~"))
	}
	return at(doc, path)
}
