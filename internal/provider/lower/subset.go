package lower

import "slices"

// The limits that OpenAI documents for strict schemas; see docs/providers.md for where and when each was read.
const (
	MaxStrictProperties  = 5_000   // properties of one schema, of all objects together
	MaxStrictDepth       = 10      // nesting depth of objects and arrays
	MaxStrictEnumValues  = 1_000   // enum values of one schema
	MaxStrictNameChars   = 120_000 // characters of all property names, definition names and enum values
	MaxStrictLongEnum    = 250     // length of an enum past which its characters are limited separately
	MaxStrictLongEnumLen = 15_000  // characters of the values of such an enum
)

// maxFieldName is Anthropic's limit for the name of a field, in characters; past it the whole request is refused.
const maxFieldName = 64

// subset is what a target accepts.
type subset struct {
	// verbatim sends a schema unchanged if its root is a plain object; anyRoot, with any root.
	verbatim, anyRoot bool
	// arraysNeedItems: an array without items is refused.
	arraysNeedItems bool
	// recursion: a definition may refer to itself.
	recursion bool
	// keep are the keywords that are kept, in addition to those of every target.
	keep []string
	// formats are the values of format that are kept; nil means all.
	formats []string
	// scalarEnums: an enum may have only strings and numbers.
	scalarEnums bool
	// fieldChars, if set, are the characters that a name in properties of the root may have beside letters and digits,
	// with at most maxFieldName characters in all.
	fieldChars string
	// strict: unknown fields are refused everywhere. allRequired: there are no optional fields; they are null instead.
	strict, allRequired bool
}

// always are the keywords that every target accepts.
var always = []string{"type", "title", "description", "enum", "properties", "required", "items", "anyOf",
	"additionalProperties"}

// silent are keywords without meaning for a model: they are dropped without a report.
var silent = []string{"$schema", "$id", "id", "$comment", "$defs", "definitions", "$anchor", "$dynamicAnchor",
	"$recursiveAnchor", "$vocabulary"}

// told are the keywords that a description can express, in this order.
var told = []string{
	"format", "pattern", "minLength", "maxLength", "contentEncoding", "contentMediaType",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	"minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "minProperties", "maxProperties",
	"dependentRequired",
	"default", "examples", "example", "deprecated",
}

var (
	numbers = []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
	lengths = []string{"minLength", "maxLength", "pattern", "format"}
	counts  = []string{"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "dependentRequired"}
	shown   = []string{"default", "examples", "deprecated", "contentEncoding", "contentMediaType"}
	whole   = slices.Concat(numbers, lengths, counts, shown, []string{"prefixItems"})
)

// subsets are the targets. A verbatim schema is rewritten only if its root is not a plain object, or it is of an older
// draft.
var subsets = map[Target]subset{
	MCP:       {verbatim: true, anyRoot: true},
	Anthropic: {verbatim: true, keep: whole, fieldChars: "_.-"},
	OpenAI:    {verbatim: true, keep: whole, arraysNeedItems: true},
	AnthropicStrict: {
		strict: true, keep: []string{"default", "format"}, fieldChars: "_.-",
		formats: []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
	},
	OpenAIStrict: {
		strict: true, allRequired: true, recursion: true, arraysNeedItems: true,
		keep:    slices.Concat(numbers, []string{"pattern", "format", "minItems", "maxItems"}),
		formats: []string{"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"},
	},
	Gemini: {
		keep:    []string{"format", "minimum", "maximum", "minItems", "maxItems", "prefixItems"},
		formats: []string{"date-time", "date", "time", "int32", "int64", "float", "double"}, scalarEnums: true,
	},
}

func (s *subset) keeps(keyword string) bool {
	return slices.Contains(always, keyword) || slices.Contains(s.keep, keyword)
}
