package lower

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard/internal/clip"
)

// merge adds to out the assertions of part about the same value. If two keywords cannot be merged, one of them is kept,
// because each alone accepts more than both.
func (w *writer) merge(out, part map[string]any, path string) {
	// Assertions about other fields are merged with both lists of fields known.
	w.mergeFields(out, part, path)
	outPrefix, inPrefix := out["prefixItems"], part["prefixItems"]
	for _, k := range names(part) {
		theirs := part[k]
		ours, both := out[k]
		switch {
		case k == "properties" || k == "additionalProperties":
		case k == "items" && outPrefix != nil && inPrefix != nil:
			// the first items of one are among the later items of the other
		case k == "prefixItems" && both:
			w.report(path, k, Dropped, "two tuples of allOf cannot be merged; the first is kept")
		case !both:
			out[k] = cloneValue(theirs)
		case equal(ours, theirs):
		default:
			w.mergeBoth(out, k, ours, theirs, path)
		}
	}
}

// mergeFields merges properties and additionalProperties: what one refuses, both refuse.
func (w *writer) mergeFields(out, part map[string]any, path string) {
	theirs, _ := part["properties"].(map[string]any)
	if len(theirs) > 0 || part["properties"] != nil && out["properties"] == nil {
		ours, _ := out["properties"].(map[string]any)
		if ours == nil {
			ours = map[string]any{}
			out["properties"] = ours
		}
		for _, name := range names(theirs) {
			field := theirs[name].(map[string]any)
			if mine, ok := ours[name].(map[string]any); ok {
				w.mergeSubschema(mine, field, path+"/properties/"+escape(name))
			} else {
				ours[name] = cloneValue(field)
			}
		}
	}
	rest, said := part["additionalProperties"]
	if !said {
		return
	}
	mine, both := out["additionalProperties"]
	switch {
	case !both || mine == true:
		out["additionalProperties"] = cloneValue(rest)
	case mine == false || rest == true:
	case rest == false:
		out["additionalProperties"] = false
	default:
		w.mergeSubschema(mine.(map[string]any), rest.(map[string]any), path+"/additionalProperties")
	}
}

// mergeSubschema merges two whole subschemas; nothing can be beside a reference.
func (w *writer) mergeSubschema(out, part map[string]any, path string) {
	_, a := out["$ref"]
	_, b := part["$ref"]
	if (a || b) && !equal(out, part) {
		if len(out) == 0 {
			out["$ref"] = part["$ref"]
			return
		}
		w.report(path, "$ref", Dropped, "a recursive reference cannot be merged; the other description is kept")
		if a {
			delete(out, "$ref")
			w.merge(out, part, path)
		}
		w.openIfNamed(out)
		return
	}
	w.merge(out, part, path)
}

func (w *writer) mergeBoth(out map[string]any, k string, ours, theirs any, path string) {
	switch k {
	case "title", "description", "default", "examples", "deprecated": // annotations: the outer one counts
		return
	case movedKey:
		for _, words := range theirs.(movedWords) {
			if mine := out[k].(movedWords); !slices.Contains(mine, words) {
				out[k] = append(slices.Clip(mine), words)
			}
		}
		return
	case "required":
		out[k] = listOf(stringsOf(append(slices.Clone(ours.([]any)), theirs.([]any)...)))
		return
	case "type":
		if list := commonTypes(types(out), types(map[string]any{k: theirs})); len(list) > 0 {
			setTypes(out, list)
			return
		}
	case "enum":
		allowed := map[string]bool{}
		for _, v := range theirs.([]any) {
			allowed[text(v)] = true
		}
		var list []any
		for _, v := range ours.([]any) {
			if allowed[text(v)] {
				list = append(list, v)
			}
		}
		if len(list) > 0 {
			out[k] = list
			return
		}
	case "items":
		w.mergeSubschema(ours.(map[string]any), theirs.(map[string]any), path+"/items")
		return
	case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
		out[k] = bound(ours, theirs, 1)
		return
	case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
		out[k] = bound(ours, theirs, -1)
		return
	case "uniqueItems":
		out[k] = true
		return
	case "anyOf":
		w.openIfNamed(out)
	}
	w.report(path, k, Dropped, "two of allOf cannot be merged: %s is kept, %s is not", brief(text(ours)),
		brief(text(theirs)))
}

// brief shortens a value for a message.
func brief(s string) string {
	const most = 80 // bytes
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%q…", clip.Bytes(s, most))
}

// bound is the stricter of two limits: the larger for sign 1, the smaller for -1.
func bound(a, b any, sign float64) any {
	x, okX := a.(json.Number)
	y, okY := b.(json.Number)
	if !okX || !okY {
		return a
	}
	fx, errX := x.Float64()
	fy, errY := y.Float64()
	if errX == nil && errY == nil && (fy-fx)*sign > 0 {
		return b
	}
	return a
}

// commonTypes are the types that both lists allow; an integer is a number.
func commonTypes(a, b []string) (list []string) {
	for _, t := range []string{"null", "boolean", "integer", "number", "string", "array", "object"} {
		has := func(l []string) bool { return slices.Contains(l, t) || t == "integer" && slices.Contains(l, "number") }
		if has(a) && has(b) && !(t == "integer" && slices.Contains(a, "number") && slices.Contains(b, "number")) {
			list = append(list, t)
		}
	}
	return list
}
