package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard/internal/provider/toolname"
	"github.com/toolyard/toolyard/tool"
)

// What [Lint] counts as too little for a model to go by.
const (
	shortDescription = 20 // characters
	maxFields        = 20
	maxLintDepth     = 8 // fields inside each other that are looked at
)

var vagueNames = []string{"do", "run", "execute", "tool", "helper", "util", "process", "handle", "action", "call", "misc", "test"}

// Lint remarks on what makes a model call a tool wrongly: vague names, fields without a description, schemas that take
// anything. Remarks are advice for the author; nothing is refused for them.
func Lint(d tool.Declaration) []string {
	var out []string
	if slices.Contains(vagueNames, strings.ToLower(d.Name)) {
		out = append(out, fmt.Sprintf("the name %q says nothing about what the tool does; name the verb and the thing", d.Name))
	}
	if !toolname.Anthropic.Takes(d.Name) {
		out = append(out, fmt.Sprintf("the name %q is not one that every provider takes; some get it changed: use at most %d ASCII letters, digits, _ and -",
			d.Name, toolname.Anthropic.Max))
	}
	if utf8.RuneCountInString(d.Description) < shortDescription {
		out = append(out, fmt.Sprintf("the description has fewer than %d characters; say when to use the tool and what comes back", shortDescription))
	}
	var s struct {
		Properties           map[string]json.RawMessage `json:"properties"`
		AdditionalProperties json.RawMessage            `json:"additionalProperties"`
	}
	if err := json.Unmarshal(d.InputSchema, &s); err != nil {
		return append(out, "the input schema can't be read: "+err.Error())
	}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = lintField(out, name, s.Properties[name], 0)
	}
	if len(names) > maxFields {
		out = append(out, fmt.Sprintf("the tool has %d fields; split it, or narrow it to at most %d", len(names), maxFields))
	}
	if a := string(s.AdditionalProperties); a != "" && a != "false" {
		out = append(out, "the schema is open: a misspelled field passes unnoticed")
	}
	if unchecked, err := Unchecked(&d); err != nil {
		out = append(out, err.Error())
	} else {
		for _, r := range unchecked {
			out = append(out, r.Why)
		}
	}
	if d.Class == (tool.ClassRule{}) {
		out = append(out, "the tool declares no concurrency class and so counts as UNSAFE")
	}
	return out
}

// lintField remarks on a field and on those inside it, which a model has to fill in all the same.
func lintField(out []string, name string, raw json.RawMessage, depth int) []string {
	var field map[string]json.RawMessage
	if json.Unmarshal(raw, &field) != nil {
		return append(out, fmt.Sprintf("the field %q takes anything", name))
	}
	var text string
	if json.Unmarshal(field["description"], &text) != nil || text == "" {
		out = append(out, fmt.Sprintf("the field %q has no description", name))
	}
	if depth == maxLintDepth {
		return out
	}
	var items struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	inside := map[string]json.RawMessage{}
	if json.Unmarshal(field["properties"], &inside) != nil && json.Unmarshal(field["items"], &items) == nil {
		name, inside = name+"[]", items.Properties
	}
	for _, key := range slices.Sorted(maps.Keys(inside)) {
		out = lintField(out, name+"."+key, inside[key], depth+1)
	}
	return out
}
