package schema

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// What closing knows of a value is collected per node, and for the targets of $ref only once: many nodes may refer to
// one large definition.

// facts are what a node, and parts of the schema about the same value, say about its fields.
type facts struct {
	names    map[string]int // of properties, with how many parts describe them
	none     bool           // a part has empty properties
	lost     bool           // a part is not known: a $ref that cannot be followed, or a dynamic one
	free     bool           // a part describes fields by the form of their names, or by whole values
	counted  bool           // a part has patternProperties or maxProperties
	least    int64          // the largest minProperties
	required []string
	// mentioned are the fields that are required, or on which others depend; asked are the conditions, which test
	// others.
	mentioned []string
	asked     []map[string]any
	// missing are those of both that names does not have; known says that they were found.
	missing []string
	known   bool
}

// targetKey is a target of $ref, and whether alternatives are included.
type targetKey struct {
	node uintptr
	all  bool
}

// identity is that of a node of the schema, which lives as long as its closer.
func identity(node map[string]any) uintptr { return reflect.ValueOf(node).Pointer() }

// about returns the facts about one value: those of node and its own parts, then those of each target of $ref.
// Alternatives are included only if all is set.
func (c *closer) about(node map[string]any, all bool) []*facts {
	own := newFacts()
	out := []*facts{own}
	seen := map[uintptr]bool{}
	var add func(n map[string]any)
	add = func(n map[string]any) {
		if target := c.add(own, n); target != nil && !seen[identity(target)] {
			seen[identity(target)] = true
			out = append(out, c.target(target, all))
		}
		c.parts(n, all, add)
	}
	add(node)
	return out
}

// target returns the facts about what a $ref leads to.
func (c *closer) target(node map[string]any, all bool) *facts {
	key := targetKey{identity(node), all}
	if f := c.targets[key]; f != nil {
		return f
	}
	f := newFacts()
	c.targets[key] = f
	seen := map[uintptr]bool{key.node: true}
	var add func(n map[string]any)
	add = func(n map[string]any) {
		if target := c.add(f, n); target != nil && !seen[identity(target)] {
			seen[identity(target)] = true
			add(target)
		}
		c.parts(n, all, add)
	}
	add(node)
	return f
}

// parts calls visit for the schemas directly below a node that describe the same value.
func (c *closer) parts(node map[string]any, all bool, visit func(part map[string]any)) {
	children(node, func(keyword, _ string, child map[string]any, part bool) {
		if c.spend(1) && part && (all || keyword == "allOf" || keyword == "then" || keyword == "else" ||
			keyword == "dependentSchemas") {
			visit(child)
		}
	})
}

func newFacts() *facts { return &facts{names: map[string]int{}} }

// add adds what one node says, and returns the target of its $ref, if it has one.
func (c *closer) add(f *facts, n map[string]any) (target map[string]any) {
	properties, _ := n["properties"].(map[string]any)
	patterns, _ := n["patternProperties"].(map[string]any)
	required, values := texts(listOf(n["required"])), listOf(n["enum"])
	if !c.spend(1 + len(properties) + len(required) + len(values)) {
		return nil
	}
	for name := range properties {
		f.names[name]++
	}
	f.none = f.none || properties != nil && len(properties) == 0
	f.lost = f.lost || n["$dynamicRef"] != nil || n["$recursiveRef"] != nil
	if ref, ok := n["$ref"].(string); ok {
		target = c.resolve(ref)
		f.lost = f.lost || target == nil
	}
	_, formed := n["propertyNames"]
	f.free = f.free || formed || fixed(n)
	_, most := n["maxProperties"]
	f.counted = f.counted || most || len(patterns) > 0
	if number, ok := n["minProperties"].(json.Number); ok {
		least, _ := number.Int64() // 0 if it is not a number
		f.least = max(f.least, least)
	}
	f.required = append(f.required, required...)
	f.mentioned = append(f.mentioned, required...)
	for _, k := range []string{"dependentRequired", "dependentSchemas", "dependencies"} {
		m, _ := n[k].(map[string]any)
		for name, needs := range m {
			list := texts(listOf(needs))
			if !c.spend(1 + len(list)) {
				return nil
			}
			f.mentioned = append(append(f.mentioned, name), list...)
		}
	}
	for _, k := range []string{"if", "not"} {
		if question, ok := n[k].(map[string]any); ok {
			f.asked = append(f.asked, question)
		}
	}
	return target
}

// missing returns the fields that parts mention, or test, and that they do not describe.
func (c *closer) missing(f *facts) []string {
	if f.known {
		return f.missing
	}
	f.known = true
	mention := func(name string) {
		if f.names[name] == 0 {
			f.missing = append(f.missing, name)
		}
	}
	for _, name := range f.mentioned {
		mention(name)
	}
	for _, question := range f.asked {
		for _, q := range c.about(question, true) {
			if !c.spend(len(q.names) + len(q.required)) {
				return nil
			}
			for name := range q.names {
				mention(name)
			}
			for _, name := range q.required {
				mention(name)
			}
		}
	}
	slices.Sort(f.missing)
	f.missing = slices.Compact(f.missing)
	return f.missing
}

// describes reports whether one of the parts describes a field.
func describes(about []*facts, name string) bool {
	return slices.ContainsFunc(about, func(f *facts) bool { return f.names[name] > 0 })
}

// repeated reports whether several of the parts describe a field of the first.
func repeated(about []*facts, name string) bool {
	return len(about) > 0 && (about[0].names[name] > 1 || describes(about[1:], name))
}

// fieldNames returns the fields that the parts describe, in order.
func fieldNames(about []*facts) []string {
	var out []string
	for _, f := range about {
		out = slices.AppendSeq(out, maps.Keys(f.names))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
