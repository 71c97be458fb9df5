package schema

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/toolyard/toolyard/internal/suggest"
)

// misplaced begins the text about a field that the schema names, but does not accept here.
const misplaced = "is not allowed together with the other fields"

// explainer turns the validator's tree of errors into a flat list of problems.
type explainer struct {
	schema *Schema
	doc    any
	known  map[string][]*facts // of object schemas, by their addresses: what they say about fields
	closer *closer             // nil before it is needed
}

func (e *explainer) collect(err *jsonschema.ValidationError) []problem {
	path := err.InstanceLocation
	one := func(format string, args ...any) []problem {
		return []problem{{path: path, text: fmt.Sprintf(format, args...)}}
	}
	value, _ := at(e.doc, path)
	got := ", got " + describe(value)
	switch k := err.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		return e.all(err.Causes)
	case *kind.AnyOf:
		return e.alternatives(path, err.Causes)
	case *kind.OneOf:
		if len(k.Subschemas) > 1 {
			return one("fits alternatives %d and %d of the schema; it must fit exactly one", k.Subschemas[0]+
				1, k.Subschemas[1]+1)
		}
		return e.alternatives(path, err.Causes)
	case *kind.Type:
		return []problem{{path: path, wanted: k.Want, text: "expected " + join(k.Want, "or") + got}}
	case *kind.Enum:
		p := problem{path: path, choice: k.Want, text: "expected one of " + literals(k.Want) + got}
		if s, ok := value.(string); ok {
			p.hint = func() string { return didYouMean(s, texts(k.Want)) }
		}
		return []problem{p}
	case *kind.Const:
		return []problem{{path: path, choice: []any{k.Want}, text: "expected " + literal(k.Want) + got}}
	case *kind.Required:
		return e.missing(path, k.Missing, "is required and missing")
	case *kind.DependentRequired:
		return e.missing(path, k.Missing, fmt.Sprintf("is required when %s is given, and missing", quote(k.Prop)))
	case *kind.Dependency:
		return e.missing(path, k.Missing, fmt.Sprintf("is required when %s is given, and missing", quote(k.Prop)))
	case *kind.AdditionalProperties:
		var out []problem
		for _, name := range k.Properties {
			out = append(out, e.unknown(append(slices.Clone(path), name), err.SchemaURL))
		}
		return out
	case *kind.FalseSchema:
		if owner, ok := strings.CutSuffix(err.SchemaURL, "/unevaluatedProperties"); ok && len(path) > 0 {
			return []problem{e.unknown(path, owner)}
		}
		return one("is not allowed here")
	case *kind.PropertyNames:
		return one("the field name %s is not allowed%s", quote(k.Property), e.because(err.Causes))
	}
	return one("%s", keyword(err.ErrorKind, got))
}

// keyword explains the kinds of error about one value.
func keyword(k jsonschema.ErrorKind, got string) string {
	switch k := k.(type) {
	case *kind.Pattern:
		return fmt.Sprintf("expected text that matches the pattern %s%s", shorten(k.Want), got)
	case *kind.MinLength:
		return fmt.Sprintf("expected at least %d characters, got %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("expected at most %d characters, got %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("expected at least %d items, got %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("expected at most %d items, got %d", k.Want, k.Got)
	case *kind.MinProperties:
		return fmt.Sprintf("expected at least %d fields, got %d", k.Want, k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("expected at most %d fields, got %d", k.Want, k.Got)
	case *kind.Minimum:
		return "expected at least " + number(k.Want) + got
	case *kind.Maximum:
		return "expected at most " + number(k.Want) + got
	case *kind.ExclusiveMinimum:
		return "expected more than " + number(k.Want) + got
	case *kind.ExclusiveMaximum:
		return "expected less than " + number(k.Want) + got
	case *kind.MultipleOf:
		return "expected a multiple of " + number(k.Want) + got
	case *kind.UniqueItems:
		return fmt.Sprintf("expected items that differ, got the same at %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *kind.AdditionalItems:
		return fmt.Sprintf("has %d items too many", k.Count)
	case *kind.Contains:
		return "expected at least one item that fits the schema's \"contains\"; none does"
	case *kind.MinContains:
		return fmt.Sprintf("expected at least %d items that fit the schema's \"contains\", got %d", k.Want, len(k.Got))
	case *kind.MaxContains:
		return fmt.Sprintf("expected at most %d items that fit the schema's \"contains\", got %d", k.Want, len(k.Got))
	case *kind.Not:
		return "is what the schema's \"not\" excludes" + got
	}
	return fmt.Sprintf("does not fit the schema's %q%s", strings.Join(k.KeywordPath(), "/"), got)
}

func (e *explainer) all(causes []*jsonschema.ValidationError) []problem {
	var out []problem
	for _, c := range causes {
		if found := e.collect(c); out == nil {
			out = found // not copied at each level
		} else {
			out = append(out, found...)
		}
	}
	return out
}

func (e *explainer) because(causes []*jsonschema.ValidationError) string {
	const lookedAt = 1
	for _, c := range causes[:min(len(causes), lookedAt)] {
		if p := e.collect(c); len(p) > 0 {
			return ": " + p[0].words()
		}
	}
	return ""
}

func (e *explainer) missing(path, names []string, text string) []problem {
	var out []problem
	for _, name := range names {
		out = append(out, problem{path: append(slices.Clone(path), name), text: text})
	}
	return out
}

// unknown explains a field that the object schema at the address owner refuses.
func (e *explainer) unknown(path []string, owner string) problem {
	p := problem{path: path, unknown: true, text: "unknown field"}
	about, ok := e.fields(owner)
	if !ok {
		return p
	}
	name := path[len(path)-1]
	if describes(about, name) {
		p.text = misplaced
		return p
	}
	p.hint = func() string {
		known := fieldNames(about)
		if hint := didYouMean(name, known); hint != "" {
			return hint
		}
		if len(known) == 0 {
			return "; no fields are allowed here"
		}
		var list []string
		for _, k := range known[:min(len(known), shownEntries)] {
			list = append(list, shorten(k))
		}
		text := "; the fields are " + strings.Join(list, ", ")
		if len(known) > shownEntries {
			text += fmt.Sprintf(", … (%d in all)", len(known))
		}
		return text
	}
	return p
}

// fields returns what the object schema at the address owner says about fields; ok is false if that is not known.
func (e *explainer) fields(owner string) (about []*facts, ok bool) {
	if about, ok = e.known[owner]; ok {
		return about, true
	}
	_, pointer, _ := strings.Cut(owner, "#")
	node, _ := lookup(e.schema.doc, pointer)
	object, ok := node.(map[string]any)
	root, isObject := e.schema.doc.(map[string]any)
	if !ok || !isObject {
		return nil, false
	}
	if e.closer == nil {
		e.closer = newCloser(root)
	}
	if about = e.closer.about(object, true); e.closer.steps < 0 {
		return nil, false
	}
	e.known[owner] = about
	return about, true
}

// alternatives explains that none of several schemas fits: by all of them if they differ only in a type or a value,
// otherwise by the closest one.
func (e *explainer) alternatives(path []string, causes []*jsonschema.ValidationError) []problem {
	var branches [][]problem
	for _, c := range causes {
		if b := tidy(e.collect(c)); len(b) > 0 {
			branches = append(branches, b)
		}
	}
	value, _ := at(e.doc, path)
	if len(branches) == 0 {
		return []problem{{path: path, text: "fits none of the schema's alternatives, got " + describe(value)}}
	}
	var types []string
	var values []any
	best, bestScore, simple := 0, math.MaxInt, true
	for i, b := range branches {
		here := len(b) == 1 && slices.Equal(b[0].path, path)
		switch {
		case here && b[0].wanted != nil:
			types = append(types, b[0].wanted...)
		case here && b[0].choice != nil:
			values = append(values, b[0].choice...)
		default:
			simple = false
		}
		if s := score(b, path); s < bestScore {
			best, bestScore = i, s
		}
	}
	if !simple {
		closest := fewer(branches[best])
		if len(branches) > 1 {
			for i := range closest {
				closest[i].wanted, closest[i].choice = nil, nil
				if closest[i].note == "" { // of alternatives inside each other, the innermost are named
					closest[i].note = fmt.Sprintf(" (in the closest of %d alternatives)", len(branches))
				}
			}
		}
		return closest
	}
	var want []string
	if len(values) > 0 {
		want = append(want, "one of "+literals(values))
	}
	slices.Sort(types)
	want = append(want, slices.Compact(types)...)
	p := problem{path: path, text: "expected " + join(want, "or") + ", got " + describe(value)}
	if len(values) == 0 {
		p.wanted = types
	} else if len(types) == 0 {
		p.choice = values
	}
	return []problem{p}
}

// fewer returns of sorted problems those that a message may show. The last one stands for the others: they would only
// be compared and copied again for each choice that surrounds this one.
func fewer(found []problem) []problem {
	out := slices.Clone(found[:min(len(found), MaxProblems)])
	out[len(out)-1].rest += weight(found[len(out):])
	return out
}

// weight is the number of problems, with those that others stand for.
func weight(found []problem) int {
	n := len(found)
	for _, p := range found {
		n += p.rest
	}
	return n
}

// score is the distance of a value from an alternative: a wrong type at the top is farthest, then a wrong constant (it
// selects another alternative), then the number of problems.
func score(b []problem, path []string) int {
	total := weight(b)
	for _, p := range b {
		if p.wanted != nil && slices.Equal(p.path, path) {
			total += 10_000
		}
		if p.choice != nil {
			total += 100
		}
	}
	return total
}

func didYouMean(name string, known []string) string {
	if near := suggest.Names(name, known, 1); len(near) == 1 && near[0] != name {
		return fmt.Sprintf("; did you mean %q?", near[0])
	}
	return ""
}

func texts(vs []any) []string {
	var out []string
	for _, v := range vs {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func join(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " " + last + " " + words[len(words)-1]
}
