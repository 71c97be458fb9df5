// Package schema compiles the JSON Schemas of tools and checks a model's input against them, with messages that a model
// can act on.
//
// Input schemas are closed: a field that the schema does not name is refused unless the schema opens it (see close.go).
// Nothing is ever loaded: a $ref that leads out of the schema is a compile error. Patterns are those of ECMA-262 (see
// pattern.go). Formats are annotations, as in 2020-12: authors mean more by them than any standard list, such as a
// date-time without a zone or a uuid without hyphens, so the tool's own check decides.
//
// The package is pure except for one clock, which bounds the time of patterns. A [Schema] is immutable and safe for
// concurrent use.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolyard/toolyard"
)

// The limits of this package. Exceeding one is an error that names it.
const (
	MaxSchemaBytes = 1 << 20               // encoded bytes of one schema
	MaxDepth       = toolyard.MaxJSONDepth // nesting of objects and arrays in an input
	// values in one input: the validator reports every wrong one before the list is cut
	MaxValues = 200_000
	// levels of nesting of all values in one input together: the validator keeps the path of every wrong one
	MaxLevels         = 4_000_000
	MaxNumberChars    = 1_000 // characters of one number literal
	MaxNumberExponent = 400   // exponent of one number: past it exact arithmetic has no bound
	MaxProblems       = 10    // problems that one message lists
	// steps to find which fields the parts of an object describe, where definitions refer to each other
	MaxClosingSteps = 2_000_000
)

// base is the address under which a schema is compiled. The domain is reserved and cannot exist.
const base = "https://toolyard.invalid/schema"

// Schema is a compiled JSON Schema.
type Schema struct {
	// checkers contains *checker; each check uses one exclusively.
	checkers sync.Pool
	// exact is the original schema, if closing could make it accept what it refuses; otherwise nil.
	exact *Schema
	// doc is the compiled document, after closing: messages look up field names in it.
	doc any
	// object says that the schema requires an object, so that a string means broken arguments.
	object bool
	// unchecked is what [Schema.Unchecked] returns.
	unchecked []string
}

// Unchecked lists the parts of the schema that are not checked, one line each: patterns that cannot be parsed. Formats
// are not included.
func (s *Schema) Unchecked() []string { return s.unchecked }

// checker is a compiled schema with the time budget of its patterns.
type checker struct {
	compiled *jsonschema.Schema
	budget   *budget
}

// CompileInput compiles a tool's input schema, closed against unknown fields. The error is for the tool's author or
// operator, not for a model.
func CompileInput(raw json.RawMessage) (*Schema, error) { return compile(raw, true) }

// CompileOutput compiles a tool's output schema, unchanged.
func CompileOutput(raw json.RawMessage) (*Schema, error) { return compile(raw, false) }

func compile(raw json.RawMessage, closed bool) (*Schema, error) {
	if len(raw) > MaxSchemaBytes {
		return nil, fmt.Errorf("the schema has %d bytes; at most %d are allowed", len(raw), MaxSchemaBytes)
	}
	v, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the schema is not usable JSON: %w", err)
	}
	s := &Schema{doc: v.doc}
	if closed {
		if contrary(v.doc) {
			if s.exact, err = compile(raw, false); err != nil {
				return nil, err
			}
		}
	}
	s.unchecked = annotate(v.doc)
	if closed {
		if err := closeObjects(v.doc); err != nil {
			return nil, err
		}
	}
	first, err := s.newChecker()
	if err != nil {
		return nil, err
	}
	s.checkers.Put(first)
	root, _ := v.doc.(map[string]any)
	s.object = root["type"] == "object"
	return s, nil
}

// newChecker compiles the document. It cannot fail if it succeeded before.
func (s *Schema) newChecker() (*checker, error) {
	b, named := &budget{}, asksForNamed(s.doc)
	e := &engine{budget: b, read: map[string]*pattern{}}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(e.compile)
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: base + "/steps", Schema: metaOf(s.doc),
		Compile: func(_ *jsonschema.CompilerContext, node map[string]any) (jsonschema.SchemaExt, error) {
			return appliedOf(b, node, named), nil
		}})
	c.AssertVocabs()
	if err := c.AddResource(base, s.doc); err != nil {
		return nil, fmt.Errorf("add the schema: %w", err)
	}
	compiled, err := c.Compile(base)
	if err != nil {
		return nil, fmt.Errorf("compile the schema: %w", err)
	}
	return &checker{compiled, b}, nil
}

// noLoader refuses to load anything: schemas come from tools, and a $ref must not make this process read a file or a
// URL.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("a schema must be whole: $ref and $schema can't load " + url)
}

// metas are, for the drafts that have vocabularies, what the library does not check by itself: with a vocabulary of
// ours it checks a schema against what its draft requires alone.
var metas = sync.OnceValue(func() map[string]*jsonschema.Schema {
	c := jsonschema.NewCompiler()
	doc, err := parseAny(json.RawMessage(rest2020))
	if err == nil {
		err = c.AddResource(base+"/rest", doc)
	}
	if err != nil {
		panic(err) // the text is a constant
	}
	return map[string]*jsonschema.Schema{
		"2019-09": c.MustCompile("https://json-schema.org/draft/2019-09/schema"),
		"2020-12": c.MustCompile(base + "/rest"),
	}
})

// rest2020 is the schema of 2020-12 without the vocabularies that the library checks beside ours. With the whole schema
// it would visit each subschema once for each of the two, so that each level of nesting would double the work.
const rest2020 = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema", "$dynamicAnchor": "meta",
	"allOf": [
		{"$ref": "https://json-schema.org/draft/2020-12/meta/meta-data"},
		{"$ref": "https://json-schema.org/draft/2020-12/meta/format-annotation"},
		{"$ref": "https://json-schema.org/draft/2020-12/meta/content"}
	],
	"type": ["object", "boolean"],
	"properties": {
		"definitions": {"type": "object", "additionalProperties": {"$dynamicRef": "#meta"}},
		"dependencies": {"type": "object", "additionalProperties": {"anyOf": [
			{"$dynamicRef": "#meta"},
			{"$ref": "https://json-schema.org/draft/2020-12/meta/validation#/$defs/stringArray"}
		]}},
		"$recursiveAnchor": {"$ref": "https://json-schema.org/draft/2020-12/meta/core#/$defs/anchorString"},
		"$recursiveRef": {"$ref": "https://json-schema.org/draft/2020-12/meta/core#/$defs/uriReferenceString"}
	}
}`

// metaOf is what [metas] has for a document's draft; nil for the drafts without vocabularies.
func metaOf(doc any) *jsonschema.Schema {
	root, _ := doc.(map[string]any)
	draft, _ := root["$schema"].(string)
	if draft == "" {
		return metas()["2020-12"]
	}
	for name, meta := range metas() {
		if strings.Contains(draft, name) {
			return meta
		}
	}
	return nil
}
