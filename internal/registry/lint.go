package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolyard/toolyard/internal/provider/toolname"
	"github.com/toolyard/toolyard/tool"
)

// The thresholds of [Lint].
const (
	shortDescription = 20 // characters
	maxFields        = 20
	maxOptional      = 8 // optional fields
	maxLintDepth     = 8 // nesting depth of the fields that are checked
	maxAlwaysLoad    = 5 // tools of a surface that are in every prompt
)

// vagueWords name neither an action nor an object: a name of nothing else says nothing.
var vagueWords = set(`do run execute exec perform process handle manage call invoke use get make apply work go
	tool helper util utils utility misc test action task job thing things stuff item items object data info information content
	input output value values request response result results function method operation command main my new`)

func set(words string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(words) {
		out[w] = true
	}
	return out
}

var camelCase = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// vague reports whether a name has only vague words. The server's part of an MCP tool's name does not count.
func vague(name string) bool {
	if rest, ok := strings.CutPrefix(name, "mcp__"); ok {
		if _, tool, ok := strings.Cut(rest, "__"); ok {
			name = tool
		}
	}
	words := strings.FieldsFunc(strings.ToLower(camelCase.ReplaceAllString(name, "${1}_$2")), func(r rune) bool {
		return !unicode.IsLetter(r)
	})
	return !slices.ContainsFunc(words, func(w string) bool { return !vagueWords[w] })
}

// Lint remarks on causes of wrong calls: vague names, fields without a description, schemas that accept anything.
// Remarks are advice for the author; nothing is refused because of them.
func Lint(d tool.Declaration) []string {
	var out []string
	if vague(d.Name) {
		out = append(out,
			fmt.Sprintf("the name %q says nothing about what the tool does; name the verb and the thing, as in "+
				"extract_csv_rows", d.Name))
	}
	if !toolname.Anthropic.Takes(d.Name) {
		out = append(out, fmt.Sprintf("the name %q is not one that every provider takes; some get it changed: use at "+
			"most %d ASCII letters, digits, _ and -",
			d.Name, toolname.Anthropic.Max))
	}
	if utf8.RuneCountInString(d.Description) < shortDescription {
		out = append(out,
			fmt.Sprintf("the description has fewer than %d characters; say when to use the tool and what comes back",
				shortDescription))
	}
	var s struct {
		Properties           map[string]json.RawMessage `json:"properties"`
		Required             []string                   `json:"required"`
		AdditionalProperties json.RawMessage            `json:"additionalProperties"`
		Examples             []json.RawMessage          `json:"examples"`
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
	optional := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.Contains(s.Required,
			name)
	})
	switch n := len(optional); {
	case n > maxOptional && d.AlwaysLoad:
		out = append(out, fmt.Sprintf("%d fields are optional, which invites a model to fill in what should be left "+
			"out, and always_load puts all of them into every prompt; "+
			"make a tool for each use, and keep always_load for what is needed on the first turn", n))
	case n > maxOptional:
		out = append(out, fmt.Sprintf("%d fields are optional, which invites a model to fill in what should be left "+
			"out; make a tool for each use", n))
	}
	if len(s.Examples) == 0 && len(names) > 0 && !slices.ContainsFunc(names,
		func(name string) bool { return hasExamples(s.Properties[name], 0) }) {
		out = append(out, "the schema has no examples; give the fields whose form a model must guess some (examples)")
	}
	if len(names) > maxFields {
		out = append(out, fmt.Sprintf("the tool has %d fields; split it, or narrow it to at most %d", len(names),
			maxFields))
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
	if d.MaxResultSizeChars == 0 {
		out = append(out, fmt.Sprintf("max_result_size_chars is not set, and so is %d; say how much of an output the "+
			"model needs, or -1 where the tool itself bounds it",
			tool.DefaultMaxResultSizeChars))
	}
	return out
}

// LintSurface remarks on what concerns all tools of a surface together.
func LintSurface(s *Surface) []string {
	var out []string
	n := 0
	for i := range s.Tools {
		if s.Tools[i].AlwaysLoad {
			n++
		}
	}
	if n > maxAlwaysLoad {
		out = append(out, fmt.Sprintf("%d tools have always_load, each of which makes every prompt longer; keep it "+
			"for what is needed on the first turn", n))
	}
	if !s.Searches() {
		for i := range s.Tools {
			if s.Tools[i].Deferred() {
				out = append(out, fmt.Sprintf("%s is deferred, and no tool_search is offered that would load it",
					s.Tools[i].Name))
			}
		}
	}
	owner := map[string]string{}
	for i := range s.Tools {
		owner[s.Tools[i].Name] = s.Tools[i].Name
	}
	for i := range s.Tools {
		e := &s.Tools[i]
		for _, alias := range e.Aliases {
			switch other := owner[alias]; {
			case !e.Origin.Base():
				out = append(out,
					fmt.Sprintf("%s: its alias %q does not count: only built-in and a program's own tools have aliases",
						e.Name, alias))
			case other != "" && other != e.Name:
				out = append(out, fmt.Sprintf("%s: its alias %q means the tool %q", e.Name, alias, other))
			default:
				owner[alias] = e.Name
			}
		}
	}
	return out
}

// hasExamples reports whether a field shows a possible value, or allows only one.
func hasExamples(raw json.RawMessage, depth int) bool {
	var field struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Items      json.RawMessage            `json:"items"`

		Examples []json.RawMessage `json:"examples"`
		Example  json.RawMessage   `json:"example"`
		Enum     []json.RawMessage `json:"enum"`
		Const    json.RawMessage   `json:"const"`
	}
	if json.Unmarshal(raw, &field) != nil {
		return false
	}
	if len(field.Examples) > 0 || field.Example != nil || len(field.Enum) > 0 || field.Const != nil {
		return true
	}
	if depth == maxLintDepth {
		return false
	}
	for _, inside := range field.Properties {
		if hasExamples(inside, depth+1) {
			return true
		}
	}
	return len(field.Items) > 0 && hasExamples(field.Items, depth+1)
}

// lintField remarks on a field and on the fields inside it.
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
