// Package answer pairs calls with their results, for the renderers of all providers. It decides what a model reads
// about one call, and a renderer only puts that into its form.
//
// The package is pure.
package answer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
)

// Answer is what one model reads about one of its calls.
type Answer struct {
	// CallID and Tool are the call's, as the model wrote them: a result may have the name behind an alias.
	CallID string
	Tool   string
	// Text is the output, or on failure the error; see [Pair].
	Text    string
	IsError bool
	Code    toolyard.Code
	// Parts are the output in parts, if a success is more than text; Text has the same content for a form that accepts
	// only text.
	Parts []toolyard.Content
	// Origin says that the text comes from outside, for the forms that have a place for it. Nil: it does not, or nobody
	// has asked for delimiters.
	Origin *toolyard.Origin
	// Echo is the call's: fields that the provider needs back.
	Echo toolyard.Echo
}

// Field reads a field of the echo as a string; "" if it is not a string.
func (a *Answer) Field(name string) string {
	var fields map[string]json.RawMessage
	var text string
	if json.Unmarshal(a.Echo, &fields) != nil || json.Unmarshal(fields[name], &text) != nil {
		return ""
	}
	return text
}

// Caller is what called the tool, if it was not the model itself: the field caller of the echo, unchanged, and its
// type. Both are empty if there is none.
func (a *Answer) Caller() (caller json.RawMessage, kind string) {
	var echo struct {
		Caller json.RawMessage `json:"caller"`
	}
	var of struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(a.Echo, &echo) != nil || json.Unmarshal(echo.Caller, &of) != nil {
		return nil, ""
	}
	return echo.Caller, of.Type
}

// Pair answers every call, in emission order. results must have exactly the result of calls[i] at each i. Anything else
// is a bug of the caller, and an error here (not a [toolyard.InputError]), because a result under another call's id
// would mislead the model without notice.
//
// The text is [toolyard.Result.Text], and never the operator's detail.
func Pair(calls []toolyard.Call, results []toolyard.Result) ([]Answer, error) {
	if len(calls) != len(results) {
		return nil, fmt.Errorf("rendering results: %d calls have %d results; every call needs exactly one", len(calls),
			len(results))
	}
	answers := make([]Answer, len(calls))
	for i := range calls {
		call, result := &calls[i], &results[i]
		if result.Index != i || result.CallID != call.ID {
			return nil,
				fmt.Errorf("rendering results: at %d want the result of call %q, got that of call %q with index %d",
					i, call.ID, result.CallID, result.Index)
		}
		a := Answer{CallID: call.ID, Tool: call.Tool, Text: result.Text(), IsError: result.IsError, Code: result.Code,
			Origin: fenced(result.Origin), Echo: result.Echo}
		if !a.IsError {
			a.Parts = result.Content
		}
		answers[i] = a
	}
	return answers, nil
}

// AddNotice adds what hooks say about a batch to the last answer that the model itself reads: every form has one place
// for each call, and no other that all providers accept. An answer that a program reads, or that has no text, is
// unchanged.
func AddNotice(answers []Answer, n *toolyard.Notice) {
	words := noticeWords(n)
	if words == "" {
		return
	}
	for i := len(answers) - 1; i >= 0; i-- {
		a := &answers[i]
		if _, kind := a.Caller(); kind != "" && kind != "direct" || a.Field("type") == "tool_search_call" ||
			a.Code == toolyard.Skipped {
			continue
		}
		if a.Text = strings.TrimRight(a.Text, "\n"); a.Text != "" {
			a.Text += "\n\n"
		}
		a.Text += words
		if a.Parts != nil {
			a.Parts = append(slices.Clone(a.Parts), toolyard.Content{Type: toolyard.ContentText, Text: words})
		}
		return
	}
}

// noticeWords is the text of a notice for the model; "" if there is none.
func noticeWords(n *toolyard.Notice) string {
	if n == nil {
		return ""
	}
	var out []string
	if n.Context != "" {
		out = append(out, "[added by a hook] "+n.Context)
	}
	if n.Stop {
		out = append(out, strings.TrimSpace("[a hook asks you to stop] "+n.Reason))
	}
	return strings.Join(out, "\n\n")
}

// fenced is an origin that the model is told of: what is sent to providers changes only for who asks for delimiters.
func fenced(o *toolyard.Origin) *toolyard.Origin {
	if o == nil || o.Fence == "" {
		return nil
	}
	return o
}
