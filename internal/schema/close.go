package schema

import (
	"fmt"
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
	// open contains the nodes that are unchanged because of that.
	asked map[string]bool
	open  map[uintptr]bool
	// described is by how many nodes of the whole schema a property is described; nil before it is needed.
	described map[string]int
	// targets contains what is known of the targets of $ref.
	targets map[targetKey]*facts
	// steps is the work that is left: see [MaxClosingSteps].
	steps int
}

// newCloser returns a closer that knows nothing yet.
func newCloser(root map[string]any) *closer {
	return &closer{root: root, mixed: map[string]bool{}, asked: map[string]bool{}, open: map[uintptr]bool{},
		targets: map[targetKey]*facts{}, steps: MaxClosingSteps}
}

// closeObjects closes a schema.
func closeObjects(doc any) error {
	root, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	return newCloser(root).run()
}

func (c *closer) run() error {
	if draft, _ := c.root["$schema"].(string); draft != "" {
		c.legacy = !strings.Contains(draft, "2019-09") && !strings.Contains(draft, "2020-12")
	}
	c.findMixed(c.root, false)
	c.close(c.root, false, true)
	if c.steps < 0 {
		return fmt.Errorf("its references lead to too much: to find the fields that they describe takes more than %d "+
			"steps; use fewer or smaller definitions", MaxClosingSteps)
	}
	return nil
}

// spend counts work. It returns false if too much was done, and then the result is not used.
func (c *closer) spend(steps int) bool {
	c.steps -= steps
	return c.steps >= 0
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
		id := identity(v)
		if c.open[id] {
			return
		}
		c.open[id] = true
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
	var about []*facts
	if properties, _ := node["properties"].(map[string]any); !part && len(properties) > 0 {
		about = c.about(node, false)
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
			c.close(child, keyword == "properties" && repeated(about, name), false)
		}
	})
}

// shared reports whether a property of a part may also be described elsewhere. Parts do not know their owner; counting
// over the whole schema leaves too much open rather than too little.
func (c *closer) shared(name string) bool {
	if c.described == nil {
		c.described = map[string]int{}
		c.describe(c.root)
	}
	return c.described[name] > 1
}

// describe counts the properties of a node and of those below it.
func (c *closer) describe(node map[string]any) {
	properties, _ := node["properties"].(map[string]any)
	c.spend(1 + len(properties)) // once for the whole schema
	for name := range properties {
		c.described[name]++
	}
	children(node, func(_, _ string, child map[string]any, _ bool) { c.describe(child) })
}

func (c *closer) closeOne(node map[string]any, top bool) {
	for _, k := range []string{"additionalProperties", "unevaluatedProperties"} {
		if _, ok := node[k]; ok {
			return
		}
	}
	about := c.about(node, true)
	none, names := false, false
	for _, f := range about {
		if f.lost {
			return
		}
		none, names = none || f.none, names || len(f.names) > 0
	}
	if (!names && !none && !top) || c.loose(about, names) {
		return
	}
	switch {
	case !composed(node):
		node["additionalProperties"] = false
	case !c.legacy:
		node["unevaluatedProperties"] = false
	}
}

// loose reports whether a value's parts describe fields in another way than by properties, so that the names are not
// all the fields that they mean: by the form of their names, by whole values, by their number, or by what else they
// need.
func (c *closer) loose(about []*facts, names bool) bool {
	least := int64(0)
	for _, f := range about {
		if f.free || !names && f.counted {
			return true
		}
		least = max(least, f.least)
	}
	if least > 0 && least > c.fieldCount(about, least) {
		return true
	}
	for _, f := range about {
		for _, name := range c.missing(f) {
			if !c.spend(len(about)) || !describes(about, name) {
				return true
			}
		}
	}
	return false
}

// fieldCount is the number of fields that parts describe. It does not count past enough.
func (c *closer) fieldCount(about []*facts, enough int64) int64 {
	all := map[string]bool{}
	for _, f := range about {
		if n := int64(len(f.names)); n >= enough {
			return n
		}
	}
	for _, f := range about {
		if !c.spend(len(f.names)) {
			return 0
		}
		for name := range f.names {
			all[name] = true
		}
	}
	return int64(len(all))
}

// fixed reports whether a node lists whole objects.
func fixed(n map[string]any) bool {
	list, _ := n["enum"].([]any)
	isObject := func(v any) bool { _, ok := v.(map[string]any); return ok }
	return isObject(n["const"]) || slices.ContainsFunc(list, isObject)
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
