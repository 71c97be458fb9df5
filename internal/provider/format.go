// Package provider turns what a model emitted into a [toolyard.Batch], and results into what goes back to that model.
// Only this package distinguishes the forms. Each form has a package with Decode and Render. Below them are strictjson
// (how untrusted JSON is read) and answer (what a model reads about a call).
//
//	document -> MendJSON -> recognise -> leaf Decode -> calls        (the caller goes on with Normalize, Validate)
//	results  -> answer.Pair -> leaf Render -> message
//
// A mistake in a document is a [*toolyard.InputError]; a mistake in one call, such as broken arguments, stays in that
// call and becomes its result. The packages are pure.
package provider

import (
	"fmt"
	"strings"

	"github.com/toolyard/toolyard"
)

// Format names a wire form, as flags and the HTTP API do. The empty Format means that the form is recognised.
type Format string

// The formats.
const (
	Native     Format = "native"      // the project's own batch
	Anthropic  Format = "anthropic"   // Anthropic Messages
	OpenAI     Format = "openai"      // OpenAI Responses
	OpenAIChat Format = "openai-chat" // OpenAI Chat Completions
	Gemini     Format = "gemini"      // Gemini generateContent
)

// Formats lists every format.
var Formats = []Format{Native, Anthropic, OpenAI, OpenAIChat, Gemini}

// ParseFormat reads a format's name; the empty name is the empty Format. For any other the error is a
// [*toolyard.InputError] that lists the formats.
func ParseFormat(name string) (Format, error) {
	if name == "" {
		return "", nil
	}
	for _, f := range Formats {
		if name == string(f) {
			return f, nil
		}
	}
	return "", &toolyard.InputError{Problem: fmt.Sprintf("%q is not a format; use one of %s", name, names(", "))}
}

func names(separator string) string {
	list := make([]string, len(Formats))
	for i, f := range Formats {
		list[i] = string(f)
	}
	return strings.Join(list, separator)
}
