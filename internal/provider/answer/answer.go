// Package answer pairs calls with their results, for the renderers of all providers: what each says to its model
// about one call is decided here once, and a renderer only puts it into its form.
//
// The package is pure.
package answer

import (
	"fmt"

	"github.com/toolyard/toolyard"
)

// Answer is what one model reads about one of its calls.
type Answer struct {
	// CallID and Tool are the call's, as the model wrote them: a result may carry the name behind an alias.
	CallID string
	Tool   string
	// Text is the output, or on failure the error; see [Pair].
	Text    string
	IsError bool
}

// Pair answers every call, in emission order. results must hold exactly the result of calls[i] at each i: anything
// else is a bug of the caller, and an error here (not a [toolyard.InputError]), since a result under another call's
// id would mislead the model without any sign.
//
// The text of a success is its output, that of a failure its error, and never the operator's detail. Two cases are
// mended: a failure without a message says its code, and one with the code post_hook_failed has its output below the
// message, because the tool itself succeeded and its output was kept.
func Pair(calls []toolyard.Call, results []toolyard.Result) ([]Answer, error) {
	if len(calls) != len(results) {
		return nil, fmt.Errorf("rendering results: %d calls have %d results; every call needs exactly one", len(calls), len(results))
	}
	answers := make([]Answer, len(calls))
	for i := range calls {
		call, result := &calls[i], &results[i]
		if result.Index != i || result.CallID != call.ID {
			return nil, fmt.Errorf("rendering results: at %d want the result of call %q, got that of call %q with index %d",
				i, call.ID, result.CallID, result.Index)
		}
		answers[i] = Answer{CallID: call.ID, Tool: call.Tool, Text: text(result), IsError: result.IsError}
	}
	return answers, nil
}

func text(r *toolyard.Result) string {
	if !r.IsError {
		return r.Output
	}
	message := r.Error
	if message == "" {
		message = "the call failed"
		if r.Code != toolyard.OK {
			message += ": " + string(r.Code)
		}
	}
	if r.Code == toolyard.PostHookFailed && r.Output != "" {
		message += "\n\n" + r.Output
	}
	return message
}
