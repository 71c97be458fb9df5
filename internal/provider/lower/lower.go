// Package lower rewrites a tool's JSON Schema (2020-12) into the subset that one provider accepts, and reports each
// loss.
//
//	raw -> read -> rewrite (refs inlined, allOf merged, keywords outside the subset dropped) -> object root -> strict -> bytes
//
// The output is only for the model. It is never narrower than the schema, so that a model can make every valid call:
// whatever is dropped makes it accept more, and calls are checked against the declared schema. A strict form has one
// exception: optional fields may come as null, which [DropNulls] removes again.
//
// Equal input gives equal bytes; fields keep the order in which the schema first names them. The package is pure.
package lower

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
)

// The limits of the rewriting itself; those of the providers are in subset.go.
const (
	maxInlined = 1 << 20 // bytes of schema that references add: a long definition may be used often
	// subschemas of one result: small definitions that use each other can grow without end
	maxNodes   = 5_000
	maxNesting = toolyard.MaxJSONDepth // objects and arrays inside each other
)

// Target is a provider's subset of JSON Schema.
type Target string

// The targets.
const (
	Anthropic       Target = "anthropic"        // Anthropic Messages, not strict
	AnthropicStrict Target = "anthropic-strict" // the same with strict: true
	OpenAI          Target = "openai"           // both OpenAI forms, not strict
	OpenAIStrict    Target = "openai-strict"    // the same with strict: true
	Gemini          Target = "gemini"           // parametersJsonSchema
	MCP             Target = "mcp"              // the whole language; the root must be an object
)

// Targets lists every target.
var Targets = []Target{Anthropic, AnthropicStrict, OpenAI, OpenAIStrict, Gemini, MCP}

// Change is one part of the declaration that the model will not see unchanged.
type Change struct {
	// Path is where, as a JSON pointer into the schema; empty for the whole. It continues after a reference.
	Path string `json:"path"`
	// Keyword is the changed keyword; empty for the whole subschema.
	Keyword string `json:"keyword,omitempty"`
	// What was done: "dropped", "moved to the description", "changed".
	What string `json:"what"`
	// Why is the reason, in words.
	Why string `json:"why"`
}

// What is done to a keyword.
const (
	Dropped = "dropped"
	Moved   = "moved to the description"
	Changed = "changed"
)

// Lowered is the schema for a provider.
type Lowered struct {
	Schema  json.RawMessage
	Changes []Change // in the order of the walk
	// Optionals and Unions count what Anthropic's strict form limits over all tools: optional fields, and fields of
	// several types.
	Optionals, Unions int
}

// ErrNotStrict is wrapped by [Lower] for a strict target if the schema has no strict form; the message says why.
var ErrNotStrict = errors.New("has no strict form")

// Lower rewrites a schema. Its errors say what the target cannot express at all. For a strict target the error is
// [ErrNotStrict], and the other form remains available.
func Lower(target Target, raw json.RawMessage) (Lowered, error) {
	s, ok := subsets[target]
	if !ok {
		return Lowered{}, fmt.Errorf("lowering a schema: %q is no target", target)
	}
	doc, order, err := read(raw)
	if err != nil {
		return Lowered{}, fmt.Errorf("lowering a schema: %w", err)
	}
	root, ok := doc.(map[string]any)
	if !ok {
		return Lowered{}, fmt.Errorf("lowering a schema: want an object, got %s", kind(doc))
	}
	w := &writer{subset: s, root: root, legacy: isLegacy(root), newer: newerThan(root),
		nestedID: hasNestedID(root, true), sizes: map[string]int{}, defs: map[string]string{},
		defined: map[string]any{}}
	var out map[string]any
	if whole := w.whole(); s.verbatim && w.plain(whole) {
		out = w.asItIs(whole)
	} else {
		w.reset()
		out = w.rewrite(root, "", nil)
	}
	if out, err = w.objectRoot(out); err != nil {
		return Lowered{}, fmt.Errorf("lowering a schema: %w", err)
	}
	w.addDefinitions(out)
	appendMoved(out)
	result := Lowered{}
	if s.strict {
		if err := w.makeStrict(out, &result); err != nil {
			return Lowered{}, fmt.Errorf("%w: %w", ErrNotStrict, err)
		}
	}
	if result.Schema, err = write(out, order); err != nil {
		return Lowered{}, fmt.Errorf("lowering a schema: %w", err)
	}
	result.Changes = w.changes
	return result, nil
}

// writer is the state of one rewriting.
type writer struct {
	subset   subset
	root     map[string]any
	legacy   bool     // a draft before 2019-09, in which $ref hides its siblings
	newer    []string // keywords that the draft does not have, and that assert something in 2020-12
	nestedID bool     // a subschema has its own address, so pointers may mean something else there
	nodes    int
	inlined  int            // bytes added by references
	sizes    map[string]int // of a reference's target, in bytes
	changes  []Change
	// defs are the names under which recursive definitions are kept, by reference; queue has those still to be written.
	defs    map[string]string
	named   int // the number of the next name
	queue   []string
	defined map[string]any
	// keepDefinitions says that a definition is referenced in a way that is not followed.
	keepDefinitions bool
	// widened says that a pattern was removed, so that a referenced schema may accept more.
	widened bool
	// noStrict is the first reason why there is no strict form.
	noStrict error
}

func (w *writer) report(path, keyword, what, format string, args ...any) {
	w.changes = append(w.changes, Change{Path: path, Keyword: keyword, What: what, Why: fmt.Sprintf(format, args...)})
}

// whole is the schema for a provider that accepts the whole language: references are followed and allOf is merged,
// unless the provider documents that it accepts those too.
func (w *writer) whole() map[string]any {
	if !w.subset.verbatim || w.subset.anyRoot || w.legacy || w.nestedID {
		return w.root
	}
	return w.inlineRoot()
}

// reset resets the writer.
func (w *writer) reset() {
	w.nodes, w.inlined, w.named, w.defs, w.queue, w.changes = 0, 0, 0, map[string]string{}, nil, nil
}

// plain reports whether a root can be sent unchanged: an object, without a choice.
func (w *writer) plain(root map[string]any) bool {
	if w.legacy || w.nestedID {
		return w.subset.anyRoot
	}
	if t, ok := root["type"]; ok && t != "object" && !w.subset.anyRoot {
		return false
	}
	if w.subset.anyRoot {
		return true
	}
	return (root["type"] == "object" || !refersToRoot(root)) &&
		!slices.ContainsFunc([]string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "enum", "const", "if"},
			func(k string) bool { _, ok := root[k]; return ok })
}

// asItIs copies the root. Below it, arrays for OpenAI get items if they have none, because OpenAI refuses them without.
// Patterns that some provider refuses move to the description.
func (w *writer) asItIs(root map[string]any) map[string]any {
	out := clone(root)
	if out["type"] != "object" && refersToRoot(out) {
		w.report("", "", Dropped, "it refers to its own root, which does not say that it is an object and is made one")
		return map[string]any{}
	}
	if w.subset.arraysNeedItems {
		addItems(out)
	}
	if !w.subset.anyRoot && w.plainPatterns(out, "") {
		w.widened = true
		w.plainPatterns(out, "")
	}
	return out
}

// refersToRoot reports whether a schema refers to its own root.
func refersToRoot(node any) bool {
	switch v := node.(type) {
	case map[string]any:
		for _, e := range v {
			if refersToRoot(e) {
				return true
			}
		}
		return v["$ref"] == "#"
	case []any:
		return slices.ContainsFunc(v, refersToRoot)
	}
	return false
}

// addItems adds an items that accepts anything to every array of a copied tree that has none.
func addItems(node any) {
	switch v := node.(type) {
	case map[string]any:
		_, items := v["items"]
		if hasType(v, "array") && !items {
			v["items"] = map[string]any{}
		}
		for _, k := range names(v) {
			switch k {
			case "enum", "const", "default", "examples", "required":
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
				if of, ok := v[k].(map[string]any); ok {
					for _, name := range names(of) {
						addItems(of[name])
					}
				}
			default:
				addItems(v[k])
			}
		}
	case []any:
		for _, e := range v {
			addItems(e)
		}
	}
}

// isLegacy reports whether a schema names a draft before 2019-09.
func isLegacy(root map[string]any) bool {
	draft, _ := root["$schema"].(string)
	return draft != "" && !strings.Contains(draft, "2019-09") && !strings.Contains(draft, "2020-12")
}

// newerThan are the keywords that a schema's draft does not have, of those that some target keeps.
func newerThan(root map[string]any) []string {
	if !isLegacy(root) {
		return nil
	}
	newer := []string{"prefixItems", "dependentRequired"}
	if draft, _ := root["$schema"].(string); strings.Contains(draft, "draft-04") {
		newer = append(newer, "const")
	}
	return newer
}

func hasNestedID(node any, top bool) bool {
	switch v := node.(type) {
	case map[string]any:
		for _, id := range []string{"$id", "id"} {
			if s, ok := v[id].(string); ok && !top && s != "" {
				return true
			}
		}
		for _, e := range v {
			if hasNestedID(e, false) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return hasNestedID(e, false) })
	}
	return false
}
