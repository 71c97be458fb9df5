package lower

import (
	"fmt"
	"maps"
	"slices"
)

// In a schema that is otherwise sent unchanged, references are still followed and allOf is merged, because few
// providers document that they accept them. This loses nothing: a definition that refers to itself stays, and parts of
// an allOf that conflict about one keyword stay in it.

// inline returns a schema with its references and allOf inlined. stack has the references that lead here.
func (w *writer) inline(schema any, stack []string) any {
	in, ok := schema.(map[string]any)
	if !ok {
		return schema
	}
	w.nodes++
	out := make(map[string]any, len(in))
	var parts []any
	for _, k := range names(in) {
		switch v := in[k]; {
		case k == "$defs" || k == "definitions": // what is still referred to comes back
		case len(stack) > 0 && (k == "$anchor" || k == "$dynamicAnchor"): // a second one of a name
		case k == "$ref":
			parts = append([]any{w.inlineReference(v, stack)}, parts...)
		case k == "allOf":
			list, _ := v.([]any)
			for _, part := range list {
				parts = append(parts, w.inline(part, stack))
			}
		default:
			w.keepDefinitions = w.keepDefinitions || k == "$dynamicRef" || k == "$recursiveRef"
			out[k] = w.inlineBelow(k, v, stack)
		}
	}
	if len(parts) == 1 && isReference(parts[0]) && in["$ref"] != nil {
		out["$ref"] = parts[0].(map[string]any)["$ref"]
		return out
	}
	var rest []any
	for _, part := range parts {
		if p, ok := part.(map[string]any); !ok || !join(out, p) {
			rest = append(rest, part)
		}
	}
	if len(rest) > 0 {
		out["allOf"] = rest
	}
	return out
}

// isReference reports whether a schema is a reference that was kept.
func isReference(schema any) bool {
	node, ok := schema.(map[string]any)
	return ok && node["$ref"] != nil
}

// inlineBelow is inline for the value of a keyword.
func (w *writer) inlineBelow(k string, v any, stack []string) any {
	switch k {
	case "properties", "patternProperties", "dependentSchemas", "dependencies":
		named, ok := v.(map[string]any)
		if !ok {
			return v
		}
		out := make(map[string]any, len(named))
		for _, name := range names(named) {
			out[name] = w.inline(named[name], stack)
		}
		return out
	case "anyOf", "oneOf", "prefixItems", "items":
		if list, ok := v.([]any); ok {
			out := make([]any, len(list))
			for i, e := range list {
				out[i] = w.inline(e, stack)
			}
			return out
		}
		return w.inline(v, stack)
	case "additionalProperties", "unevaluatedProperties", "propertyNames", "unevaluatedItems",
		"additionalItems", "contains", "contentSchema", "not", "if", "then", "else":
		return w.inline(v, stack)
	}
	return cloneValue(v)
}

// inlineReference returns the target of a reference; the reference itself if inlining has no end, or is too large.
func (w *writer) inlineReference(v any, stack []string) any {
	ref, _ := v.(string)
	target, ok := w.resolve(ref)
	switch {
	case !ok: // by an anchor, or out of the schema
		w.keepDefinitions = true
		return map[string]any{"$ref": v}
	case slices.Contains(stack, ref), ref == "#", w.nodes >= maxNodes, w.inlined+w.size(ref, target) > maxInlined:
		return map[string]any{"$ref": w.define(ref)}
	}
	w.inlined += w.size(ref, target)
	return w.inline(target, append(slices.Clip(stack), ref))
}

// inlineRoot returns the whole schema, with the definitions that are still needed.
func (w *writer) inlineRoot() map[string]any {
	out := w.inline(w.root, nil).(map[string]any)
	kept := map[string]any{}
	for len(w.queue) > 0 {
		ref := w.queue[0]
		w.queue = w.queue[1:]
		target, _ := w.resolve(ref)
		kept[w.defs[ref]] = w.inline(target, []string{ref})
	}
	if w.keepDefinitions {
		for _, k := range []string{"$defs", "definitions"} {
			if was, ok := w.root[k].(map[string]any); ok {
				out[k] = clone(was)
			}
		}
	}
	if len(kept) > 0 {
		if was, ok := out["$defs"].(map[string]any); ok {
			maps.Copy(was, kept)
		} else {
			out["$defs"] = kept
		}
	}
	return out
}

// together are keywords that depend on each other: only one of two parts may have any of them.
var together = [][]string{
	{"if", "then", "else"},
	{"contains", "minContains", "maxContains"},
	{"items", "prefixItems", "additionalItems", "unevaluatedItems"},
	{"additionalProperties", "unevaluatedProperties"},
	{"$ref"}, {"$dynamicRef"}, {"$recursiveRef"},
}

// annotations assert nothing: the one nearest to the value wins.
var annotations = []string{
	"title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "$comment",
}

// join adds to out the assertions of part about the same value. It returns false, and changes nothing, if one keyword
// cannot express both.
func join(out, part map[string]any) bool {
	for _, group := range together {
		has := func(node map[string]any) bool {
			return slices.ContainsFunc(group, func(k string) bool { _, ok := node[k]; return ok })
		}
		same := !slices.ContainsFunc(group, func(k string) bool { return !equal(out[k], part[k]) })
		if has(out) && has(part) && !same {
			return false
		}
	}
	both := map[string]any{}
	for _, k := range names(part) {
		ours, given := out[k]
		theirs := part[k]
		switch {
		case !given || equal(ours, theirs) || slices.Contains(annotations, k):
			continue
		case k == "properties":
			both[k] = joinFields(ours, theirs)
		case k == "required":
			mine, _ := ours.([]any)
			other, _ := theirs.([]any)
			both[k] = listOf(stringsOf(slices.Concat(mine, other)))
		case k == "type":
			list := commonTypes(types(out), types(part))
			if len(list) == 0 {
				return false
			}
			node := map[string]any{}
			setTypes(node, list)
			both[k] = node[k]
		case k == "minimum" || k == "exclusiveMinimum" || k == "minLength" || k == "minItems" || k == "minProperties":
			both[k] = bound(ours, theirs, 1)
		case k == "maximum" || k == "exclusiveMaximum" || k == "maxLength" || k == "maxItems" || k == "maxProperties":
			both[k] = bound(ours, theirs, -1)
		default:
			return false
		}
		if both[k] == nil {
			return false
		}
	}
	for _, k := range names(part) {
		if v, ok := both[k]; ok {
			out[k] = v
		} else if _, given := out[k]; !given {
			out[k] = part[k]
		}
	}
	return true
}

// joinFields returns the fields of both; a field that both describe must fit both. Nil if a list is not an object.
func joinFields(ours, theirs any) any {
	a, okA := ours.(map[string]any)
	b, okB := theirs.(map[string]any)
	if !okA || !okB {
		return nil
	}
	out := maps.Clone(a)
	for _, name := range names(b) {
		mine, given := a[name]
		m, isNode := mine.(map[string]any)
		n, isPart := b[name].(map[string]any)
		switch {
		case !given || mine == true:
			out[name] = b[name]
		case equal(mine, b[name]) || b[name] == true:
		default:
			if isNode && isPart {
				if joined := maps.Clone(m); join(joined, n) {
					out[name] = joined
					continue
				}
			}
			out[name] = map[string]any{"allOf": []any{mine, b[name]}}
		}
	}
	return out
}

// freeName returns a name that no definition has.
func (w *writer) freeName() string {
	for {
		name := fmt.Sprintf("d%d", w.named)
		w.named++
		if !w.subset.verbatim || !slices.ContainsFunc([]string{"$defs", "definitions"}, func(k string) bool {
			defined, _ := w.root[k].(map[string]any)
			_, ok := defined[name]
			return ok
		}) {
			return name
		}
	}
}
