package schema

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// Error says what does not fit, in words that a model can act on. It is the only error of [Parse] and
// [Schema.Validate].
type Error struct {
	// Problems are at most [MaxProblems] lines "path: expected X, got Y", ordered by path.
	Problems []string
	// More is the number of further problems.
	More int
}

func (e *Error) Error() string {
	if len(e.Problems) == 1 && e.More == 0 {
		return e.Problems[0]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems:", len(e.Problems)+e.More)
	for _, p := range e.Problems {
		b.WriteString("\n- " + p)
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n- and %d more", e.More)
	}
	return b.String()
}

// problem is one thing that does not fit.
type problem struct {
	path []string
	text string
	// hint, if there is one, returns what follows the text, and note follows the hint. A hint compares names, which
	// takes long, and there may be as many problems as values: only those that are shown get theirs.
	hint func() string
	note string
	// doc is the input, to render the path.
	doc any
	// wanted are the expected types, if only the type is wrong.
	wanted []string
	// choice are the expected values, if only the value is wrong.
	choice []any
	// rest is the number of further problems that it stands for.
	rest int
	// unknown marks a field that no part of the schema has accepted.
	unknown bool
}

func (p *problem) String() string { return renderPath(p.path, p.doc) + ": " + p.words() }

// words is the problem without its place.
func (p *problem) words() string {
	if p.hint == nil {
		return p.text + p.note
	}
	return p.text + p.hint() + p.note
}

// Validate parses an input and checks it. Nil means that it fits; the error is an [*Error].
func (s *Schema) Validate(input json.RawMessage) error {
	v, err := Parse(input)
	if err != nil {
		return err
	}
	return s.Check(v)
}

// Check is [Schema.Validate] for a parsed input.
func (s *Schema) Check(v Value) error { return s.CheckWithin(v, nil) }

// Allowance is the time for patterns, and the steps, that several checks share, such as those of one batch. Each check
// may use up to [PatternTime] of it. When it is used up, each check still has enough for patterns that are not slow,
// and for parts of a schema that do not refer to themselves. It serves one check at a time.
type Allowance struct {
	left  time.Duration
	steps int
}

// NewAllowance returns an allowance of the given time.
func NewAllowance(d time.Duration) *Allowance { return &Allowance{left: d, steps: sharedSteps} }

// CheckWithin is Check with an allowance; nil means none.
func (s *Schema) CheckWithin(v Value, a *Allowance) error {
	own := stepsPerByte * len(v.Canonical())
	within := budget{left: PatternTime, steps: maxSteps + own}
	if a != nil {
		within.left = min(PatternTime, max(leastShare, a.left))
		within.steps = min(maxSteps, max(leastSteps, a.steps)) + own
		given := within.steps
		defer func() {
			a.left -= within.share - within.left
			a.steps -= max(0, given-within.steps-own)
		}()
	}
	within.share = within.left
	return s.check(v, &within)
}

// check is Check with the time for patterns.
func (s *Schema) check(v Value, within *budget) error {
	if text, ok := v.doc.(string); ok && s.object {
		return brokenArguments(text)
	}
	err := s.run(v.doc, within)
	if err == nil {
		if s.exact != nil {
			return s.exact.check(v, within)
		}
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return &Error{Problems: []string{"input: " + err.Error()}}
	}
	e := &explainer{schema: s, doc: v.doc, known: map[string][]*facts{}}
	found := tidy(e.collect(invalid))
	out := &Error{More: weight(found) - min(len(found), MaxProblems)}
	for i := range found[:min(len(found), MaxProblems)] {
		found[i].doc = v.doc
		out.Problems = append(out.Problems, found[i].String())
	}
	return out
}

// run returns the validator's answer. A pattern that takes too long ends it with a panic, after which the validator's
// state is dropped.
func (s *Schema) run(doc any, within *budget) (err error) {
	c, ok := s.checkers.Get().(*checker)
	if !ok {
		if c, err = s.newChecker(); err != nil {
			return fmt.Errorf("could not be checked: %s", shorten(err.Error()))
		}
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *unchecked:
			err = errors.New(r.String())
		default:
			panic(r)
		}
		*within = *c.budget
		s.checkers.Put(c)
	}()
	*c.budget = *within
	err = c.compiled.Validate(doc)
	if _, ok := errors.AsType[*jsonschema.ValidationError](err); err != nil && !ok {
		return fmt.Errorf("could not be checked: %s", shorten(err.Error()))
	}
	return err
}

// brokenArguments explains a string in place of an object: what the model wrote is passed on as a string if it is not
// JSON, or nests too deep for a batch.
func brokenArguments(text string) error {
	if most := strictjson.MaxInputDepth; strictjson.TooDeep([]byte(text), most) {
		return &Error{Problems: []string{fmt.Sprintf("input: is nested more than %d deep; send something flatter",
			most)}}
	}
	if _, err := Parse(json.RawMessage(text)); err != nil {
		return err
	}
	if err := strictjson.CheckText([]byte(text)); err != nil {
		return &Error{Problems: []string{err.Error()}}
	}
	return &Error{Problems: []string{"the arguments are a JSON string that holds JSON; send the object itself, not a " +
		"string of it"}}
}

// tidy sorts problems by path and text, and removes repeats and problems that only follow from another one: a field
// that is unknown because the part of the schema that names it failed.
func tidy(found []problem) []problem {
	slices.SortStableFunc(found, func(a, b problem) int {
		if c := slices.CompareFunc(a.path, b.path, compareStep); c != 0 {
			return c
		}
		return cmp.Or(strings.Compare(a.text, b.text), strings.Compare(a.note, b.note))
	})
	found = slices.CompactFunc(found, func(a, b problem) bool {
		return slices.Equal(a.path, b.path) && a.text == b.text && a.note == b.note
	})
	follows := func(p problem) bool { return p.unknown && strings.HasPrefix(p.text, misplaced) }
	if rest := slices.DeleteFunc(slices.Clone(found), follows); len(rest) > 0 {
		return rest
	}
	return found
}

// compareStep orders indices as numbers, and all else as texts.
func compareStep(a, b string) int {
	if a == b || !mayBeIndex(a) || !mayBeIndex(b) {
		return strings.Compare(a, b)
	}
	m, errA := strconv.Atoi(a)
	n, errB := strconv.Atoi(b)
	if errA == nil && errB == nil && m != n {
		return m - n
	}
	return strings.Compare(a, b)
}

// mayBeIndex reports whether it is worth to read a step as a number: the error of one that is none is made anew.
func mayBeIndex(step string) bool { return step != "" && step[0] <= '9' }
