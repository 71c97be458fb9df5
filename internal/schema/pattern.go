package schema

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Patterns are expressions of ECMA-262, as JSON Schema defines: with the flag u, or without it if they are not valid
// with it. A pattern that is valid in neither form may be Go's or Python's. A pattern that cannot be parsed is not
// checked (see mend.go).
//
// A regular expression is matched in linear time (see linear.go). The others, with look-arounds and back-references,
// are matched by a backtracking engine with a time limit. All patterns of one check together also have a time limit. A
// value that could not be checked does not fit, whatever surrounds the pattern, which may be below "not".

// The limits of patterns.
const (
	MaxPatternBytes = 8 << 10          // of one pattern; a longer one is not checked
	PatternTime     = time.Second      // of all patterns in one check of an input or output
	leastShare      = time.Millisecond // of a check whose allowance is used up
	// Applications of a part of a schema to a value: in one check, beside those for each byte of the value; in all
	// checks of an allowance; and in one whose allowance is used up.
	maxSteps     = 500_000
	stepsPerByte = 2
	sharedSteps  = 4 * maxSteps
	leastSteps   = 2_000
	maxMatchWork = 1 << 30 // instructions of a linear pattern times bytes of the value
)

// clockPeriod is the precision of the engine's timeout.
const clockPeriod = 10 * time.Millisecond

func init() { regexp2.SetTimeoutCheckPeriod(clockPeriod) }

// dialect is one way to parse a pattern.
type dialect struct {
	options       regexp2.RegexOptions
	ecma, unicode bool
}

// dialects are tried in this order.
var dialects = []dialect{
	{options: regexp2.ECMAScript | regexp2.Unicode, ecma: true, unicode: true},
	{options: regexp2.ECMAScript, ecma: true},
	{options: regexp2.RE2},
}

// foreign finds an escape or a group that has no meaning of its own in ECMA-262 without the flag u, where \A would mean
// the letter A: such a pattern is in another language.
var foreign = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*(?:\\[AaCEeGHhKLNPpQRXZz]|\(\?[^:=!<]|\(\?<?P|\[\[:)`)

var errPattern = errors.New("it is no regular expression of ECMA-262, Go or Python")

// readPattern compiles a pattern in the first language in which it is valid.
func readPattern(source string) (p *pattern, err error) {
	if len(source) > MaxPatternBytes {
		return nil, fmt.Errorf("it has %d bytes; at most %d are checked", len(source), MaxPatternBytes)
	}
	defer func() { // the parser is a foreign one, and so are the patterns
		if r := recover(); r != nil {
			p, err = nil, errPattern
		}
	}()
	for _, d := range dialects {
		if d.ecma && !d.unicode && foreign.MatchString(source) {
			continue
		}
		re, err := regexp2.Compile(source, d.options)
		if err != nil {
			continue
		}
		p := &pattern{source: source, backtracks: re}
		if d.ecma {
			p.linear, p.size, _ = linear(source, d.unicode)
		} else {
			p.linear, p.size, _ = bounded(source)
		}
		return p, nil
	}
	return nil, errPattern
}

// pattern is a compiled pattern. It belongs to one check at a time.
type pattern struct {
	source     string
	linear     *regexp.Regexp // nil if it is not regular
	size       int
	backtracks *regexp2.Regexp
	budget     *budget
}

func (p *pattern) String() string { return p.source }

// MatchString reports whether the pattern matches. It panics with [*unchecked] if that takes too long. Only the time of
// matching counts, so that a busy machine uses little of the budget.
func (p *pattern) MatchString(s string) bool {
	began := time.Now()
	defer func() { p.budget.left += time.Until(began) }() // the elapsed time, as a negative duration
	switch {
	case p.budget.left <= 0:
	case p.linear != nil:
		if len(s) <= maxMatchWork/max(1, p.size) {
			return p.linear.MatchString(s)
		}
	default:
		p.backtracks.MatchTimeout = p.budget.left
		if ok, err := p.backtracks.MatchString(s); err == nil {
			return ok
		}
	}
	panic(&unchecked{pattern: p.source, value: s, within: p.budget.share})
}

// unchecked says that a value could not be checked.
type unchecked struct {
	pattern, value string
	within         time.Duration
}

func (u *unchecked) String() string {
	if u.pattern == "" {
		return "takes too many steps to check against the schema; send a shorter or flatter value"
	}
	return fmt.Sprintf("could not be checked within %s against the pattern %s: %s; send a shorter or plainer value",
		u.within.Round(time.Millisecond), shorten(u.pattern), describe(u.value))
}

// budget is the time for the patterns of one check.
type budget struct {
	left  time.Duration
	share time.Duration // left at the start
	steps int           // left
}

// applied counts the applications of one schema to values. The validator calls it for those that have passed type,
// const and enum. The others are free for it, and each leaves an error that takes memory and time: so a schema with
// parts that are applied to the same value counts them all.
type applied struct {
	budget *budget
	parts  int // that are applied to a value
	fields int // that are applied to each field of an object
	// named says that each part notes which fields and items of its value it has named.
	named bool
}

// appliedOf counts the parts of a schema.
func appliedOf(b *budget, node map[string]any, named bool) *applied {
	a := &applied{budget: b, named: named}
	for _, name := range []string{"allOf", "anyOf", "oneOf"} {
		parts, _ := node[name].([]any)
		a.parts += len(parts)
	}
	patterns, _ := node["patternProperties"].(map[string]any)
	a.fields = len(patterns)
	return a
}

// Validate implements [jsonschema.SchemaExt]. A schema that refers to itself in two alternatives doubles its
// applications with each level of the input.
func (a *applied) Validate(_ *jsonschema.ValidatorContext, v any) {
	object, _ := v.(map[string]any)
	each := 1
	if a.named {
		list, _ := v.([]any)
		each += len(object) + len(list)
	}
	if a.budget.steps -= each*(1+a.parts) + a.fields*len(object); a.budget.steps < 0 {
		panic(&unchecked{})
	}
}

// asksForNamed reports whether a schema says something of fields or items that no part of it has named.
func asksForNamed(doc any) bool {
	switch v := doc.(type) {
	case map[string]any:
		for k, e := range v {
			if k == "unevaluatedProperties" || k == "unevaluatedItems" || asksForNamed(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, asksForNamed)
	}
	return false
}

// engine compiles the patterns of one schema.
type engine struct {
	budget *budget
	size   int // instructions of all linear patterns
	read   map[string]*pattern
}

func (e *engine) compile(source string) (jsonschema.Regexp, error) {
	if p, ok := e.read[source]; ok {
		return p, nil
	}
	p, err := readPattern(source)
	if err != nil {
		return nil, err
	}
	p.budget = e.budget
	if e.size += p.size; e.size > maxPrograms {
		p.linear = nil
	}
	e.read[source] = p
	return p, nil
}
