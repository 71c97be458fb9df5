package provider

import (
	"fmt"
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/provider/anthropic"
	"github.com/toolyard/toolyard/internal/provider/gemini"
	"github.com/toolyard/toolyard/internal/provider/native"
	"github.com/toolyard/toolyard/internal/provider/openai"
	"github.com/toolyard/toolyard/internal/provider/openaichat"
	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// CheckJSON returns a [*toolyard.InputError] if data is not one valid JSON document; see [strictjson.Check] for the
// checks. It reads no fields.
func CheckJSON(data []byte) error { return strictjson.Check(data) }

// MendJSON is [CheckJSON] for a document with calls. It returns the document to read, in which a mistake in one call's
// input stays in that call; see [strictjson.Mend].
func MendJSON(data []byte) ([]byte, error) { return strictjson.Mend(data) }

// Decode reads one document of any format into a batch, and returns its format. With an empty force it recognises the
// format by its shape; otherwise the format is force, and the errors are that format's. A provider's form has only the
// calls; the caller sets agent, session, options and the batch's id.
//
// The batch is not normalized and not validated: ids may be empty in native form and may repeat in any. Every error is
// a [*toolyard.InputError]; a document without calls is one. data is not retained.
func Decode(data []byte, force Format) (toolyard.Batch, Format, error) {
	data, err := MendJSON(data)
	if err != nil {
		return toolyard.Batch{}, force, err
	}
	format := force
	if format == "" {
		if format, err = recognise(data); err != nil {
			return toolyard.Batch{}, "", err
		}
	}
	batch, err := decodeAs(data, format)
	if err == nil && len(batch.Calls) == 0 {
		err = noCalls(format)
	}
	if err != nil {
		return toolyard.Batch{}, format, err
	}
	return batch, format, nil
}

// Unnamed reports whether calls that [Decode] has read in a format have ids that were made there.
func Unnamed(format Format, calls []toolyard.Call) bool {
	return format == Gemini && slices.ContainsFunc(calls, gemini.Unnamed)
}

// Rename replaces the ids that [Decode] has made in a format by others with a name in them: the calls are appended to a
// batch, which may have calls of these ids.
func Rename(format Format, calls []toolyard.Call, name string) {
	if format == Gemini {
		gemini.Rename(calls, name)
	}
}

func decodeAs(data []byte, format Format) (batch toolyard.Batch, err error) {
	switch format {
	case Native:
		return native.Decode(data)
	case Anthropic:
		batch.Calls, err = anthropic.Decode(data)
	case OpenAI:
		batch.Calls, err = openai.Decode(data)
	case OpenAIChat:
		batch.Calls, err = openaichat.Decode(data)
	case Gemini:
		batch.Calls, err = gemini.Decode(data)
	default:
		_, err = ParseFormat(string(format))
	}
	return batch, err
}

func noCalls(format Format) error {
	if format == Native {
		return &toolyard.InputError{Field: "calls", Problem: "has no calls; a batch needs at least one"}
	}
	block := map[Format]string{
		Anthropic: "tool_use block", OpenAI: "function_call item without an output", OpenAIChat: "tool_calls",
		Gemini: "functionCall part",
	}[format]
	return &toolyard.InputError{Problem: fmt.Sprintf(
		"the input has no calls: as %s it has no %s, so there is nothing to run", format, block)}
}
