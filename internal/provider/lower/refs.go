package lower

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// resolve follows a reference inside the document; ok is false if it leads out, or is not a pointer.
func (w *writer) resolve(ref string) (node any, ok bool) {
	fragment, local := strings.CutPrefix(ref, "#")
	if !local || w.nestedID || fragment != "" && !strings.HasPrefix(fragment, "/") {
		return nil, false
	}
	return lookup(w.root, fragment)
}

func lookup(doc any, pointer string) (any, bool) {
	if pointer == "" {
		return doc, true
	}
	for _, step := range strings.Split(pointer, "/")[1:] {
		step, err := url.PathUnescape(step)
		if err != nil {
			return nil, false
		}
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		switch d := doc.(type) {
		case map[string]any:
			next, ok := d[step]
			if !ok {
				return nil, false
			}
			doc = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(d) {
				return nil, false
			}
			doc = d[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// reference writes the target of a $ref. stack has the references that lead here; a reference that is in it is
// recursive.
func (w *writer) reference(ref, path string, stack []string) map[string]any {
	target, ok := w.resolve(ref)
	switch {
	case !ok:
		w.report(path, "$ref", Dropped, "%q does not point into the schema; anything is accepted there", ref)
	case slices.Contains(stack, ref) || ref == "#":
		if w.subset.recursion {
			return map[string]any{"$ref": w.define(ref)}
		}
		w.report(path, "$ref", Dropped,
			"%q is recursive, which the provider does not take; anything is accepted from here on", ref)
	case w.nodes >= maxNodes:
		w.report(path, "$ref", Dropped,
			"the schema would have more than %d subschemas; anything is accepted from here on", maxNodes)
	case w.inlined+w.size(ref, target) > maxInlined:
		w.report(path, "$ref", Dropped,
			"definitions would be put in for more than %d bytes; anything is accepted from here on", maxInlined)
	default:
		w.inlined += w.size(ref, target)
		return w.rewrite(target, path, append(slices.Clip(stack), ref))
	}
	cut := map[string]any{}
	w.openIfNamed(cut)
	return cut
}

// size is the number of bytes that a reference adds, without those of further references.
func (w *writer) size(ref string, target any) int {
	n, ok := w.sizes[ref]
	if !ok {
		n = len(text(target))
		w.sizes[ref] = n
	}
	return n
}

// define keeps a recursive definition under its own name and returns the reference to it.
func (w *writer) define(ref string) string {
	if ref == "#" && (w.root["type"] == "object" || w.subset.verbatim) {
		return ref // otherwise the root becomes an object, and what refers to it may be more
	}
	name, ok := w.defs[ref]
	if !ok {
		name = w.freeName()
		w.defs[ref] = name
		w.queue = append(w.queue, ref)
	}
	return "#/$defs/" + name
}

// addDefinitions writes the definitions that are still referred to.
func (w *writer) addDefinitions(root map[string]any) {
	for len(w.queue) > 0 {
		ref := w.queue[0]
		w.queue = w.queue[1:]
		target, _ := w.resolve(ref)
		w.defined[w.defs[ref]] = w.rewrite(target, strings.TrimPrefix(ref, "#"), []string{ref})
	}
	if len(w.defined) > 0 {
		root["$defs"] = w.defined
	}
}
