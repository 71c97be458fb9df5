package registry

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard/tool"
)

// What [Lint] counts as too little for a model to go by.
const (
	shortDescription = 20 // characters
	maxFields        = 20
)

var vagueNames = []string{"do", "run", "execute", "tool", "helper", "util", "process", "handle", "action", "call", "misc", "test"}

// Lint remarks on what makes a model call a tool wrongly: vague names, fields without a description, schemas that take
// anything. Remarks are advice for the author; nothing is refused for them.
func Lint(d tool.Declaration) []string {
	var out []string
	if slices.Contains(vagueNames, strings.ToLower(d.Name)) {
		out = append(out, fmt.Sprintf("the name %q says nothing about what the tool does; name the verb and the thing", d.Name))
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
		var field map[string]any
		if json.Unmarshal(s.Properties[name], &field) != nil {
			out = append(out, fmt.Sprintf("the field %q takes anything", name))
			continue
		}
		if text, _ := field["description"].(string); text == "" {
			out = append(out, fmt.Sprintf("the field %q has no description", name))
		}
	}
	if len(names) > maxFields {
		out = append(out, fmt.Sprintf("the tool has %d fields; split it, or narrow it to at most %d", len(names), maxFields))
	}
	if a := string(s.AdditionalProperties); a != "" && a != "false" {
		out = append(out, "the schema is open: a misspelled field passes unnoticed")
	}
	if d.Class == (tool.ClassRule{}) {
		out = append(out, "the tool declares no concurrency class and so counts as UNSAFE")
	}
	return out
}
