// Package elicit has what running tools ask people.
//
// That is elicitation of the Model Context Protocol, in form mode.
// A tool that asks ends its run with a [Question]. The call then waits for a person as one that needs permission does,
// and runs again with the [Answer]. The package decides which questions are taken, which answers fit, and which answer
// a tool gets that asks in the middle of its run ([Replay]).
//
// Authority: none. A question is written by a server that the operator has not made. It is bounded here, and shown to a
// person as the server's words.
package elicit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/schema"
)

// The limits of a question.
const (
	MaxMessageBytes = 2 << 10  // of its words
	MaxSchemaBytes  = 16 << 10 // of its form
	MaxFields       = 32       // of its form
	MaxStateBytes   = 16 << 10 // of what the server wants back
	MaxKeyBytes     = 256      // of its name among those of the server
	MaxAnswerBytes  = 16 << 10 // of an answer
	// MaxRounds is how often one call asks.
	MaxRounds = 8
	// MaxKeptBytes is how long a state of our own is, which has the answers so far. Nobody answers in vain: there is
	// room for all answers but the last, each as long as may be, beside what else is kept of questions that are asked
	// at once.
	MaxKeptBytes = (MaxRounds-2)*(MaxAnswerBytes+MaxKeyBytes*6) + 2*MaxStateBytes
)

// Question is the error of a tool that asks a person before it goes on. The tool has ended with it: it runs again with
// the answer, and only then.
type Question struct {
	toolyard.Form
	// Key names the question among those of its server, and State is what the server wants back with the answer.
	Key, State string
	// Filled is the answer as far as the form fills it in.
	Filled schema.Value
}

// Error implements the error interface.
func (q *Question) Error() string {
	return fmt.Sprintf("the MCP server %q asks a person: %s", q.Server, q.Message)
}

// Answer is a person's answer.
type Answer struct {
	Key, State string
	Content    json.RawMessage
}

// Session says what a running call may ask, and what was answered.
type Session struct {
	// Mute says why nobody can be asked; empty: a person can.
	Mute string
	// Answer is the answer to the call's last question; nil if it has asked none.
	Answer *Answer
}

type key struct{}

// With returns a context for a tool's run that knows what the tool may ask.
func With(ctx context.Context, s Session) context.Context { return context.WithValue(ctx, key{}, s) }

// From returns what the tool of a context may ask. A context that does not know allows nothing.
func From(ctx context.Context) Session {
	s, ok := ctx.Value(key{}).(Session)
	if !ok {
		s.Mute = "this call has nobody who could be asked"
	}
	return s
}

// New makes a question. The error says why it is not asked.
func New(form toolyard.Form, key, state string) (*Question, error) {
	if len(state) > MaxStateBytes {
		return nil, fmt.Errorf("its state is %d bytes; at most %d are kept", len(state), MaxStateBytes)
	}
	return newQuestion(form, key, state)
}

// newQuestion is [New] for any state that may be kept.
func newQuestion(form toolyard.Form, key, state string) (*Question, error) {
	switch {
	case form.Message == "" || len(form.Message) > MaxMessageBytes || !utf8.ValidString(form.Message):
		return nil, fmt.Errorf("its words are %d bytes; 1 to %d of UTF-8 are asked", len(form.Message), MaxMessageBytes)
	case len(form.Schema) > MaxSchemaBytes:
		return nil, fmt.Errorf("its form is %d bytes; at most %d are asked", len(form.Schema), MaxSchemaBytes)
	case key == "" || len(key) > MaxKeyBytes || !utf8.ValidString(key):
		return nil, fmt.Errorf("its key is %d bytes; 1 to %d of UTF-8 are taken", len(key), MaxKeyBytes)
	case len(state) > MaxKeptBytes || !utf8.ValidString(state):
		return nil, fmt.Errorf("its state is %d bytes; at most %d of UTF-8 are kept", len(state), MaxKeptBytes)
	}
	fields, err := fieldsOf(form.Schema)
	if err != nil {
		return nil, err
	}
	filled := map[string]json.RawMessage{}
	for name, f := range fields {
		if f.Default != nil {
			filled[name] = f.Default
		}
	}
	raw, err := json.Marshal(filled)
	if err != nil {
		return nil, fmt.Errorf("its form cannot be filled in: %w", err)
	}
	q := &Question{Form: form, Key: key, State: state}
	if q.Filled, err = schema.Parse(raw); err != nil {
		return nil, fmt.Errorf("its form cannot be filled in: %w", err)
	}
	return q, nil
}

// kept writes what a state of our own has, each character in as few bytes as may be.
func kept(v any) (string, error) {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// field is a field of a form.
type field struct {
	Type    string          `json:"type"`
	Default json.RawMessage `json:"default"`
	Items   *field          `json:"items"`
}

// The types of the protocol's fields. A list has items of a single one.
var single = []string{"string", "number", "integer", "boolean"}

// fieldsOf reads a form: an object whose fields are single values, or lists of them.
func fieldsOf(raw json.RawMessage) (map[string]field, error) {
	if _, err := schema.CompileInput(raw); err != nil {
		return nil, fmt.Errorf("its form is no JSON Schema that can be checked: %w", err)
	}
	var form struct {
		Type       string           `json:"type"`
		Properties map[string]field `json:"properties"`
	}
	switch err := json.Unmarshal(raw, &form); {
	case err != nil:
		return nil, fmt.Errorf("its form cannot be read: %w", err)
	case form.Type != "object":
		return nil, errors.New("its form is not that of an object")
	case len(form.Properties) > MaxFields:
		return nil, fmt.Errorf("its form has %d fields; at most %d are asked", len(form.Properties), MaxFields)
	}
	for name, f := range form.Properties {
		if list := f.Type == "array" && f.Items != nil && f.Items.isSingle(); !list && !f.isSingle() {
			return nil, fmt.Errorf("the field %.100q of its form is no single value and no list of them", name)
		}
	}
	return form.Properties, nil
}

// isSingle reports whether a field is one value. An enumeration with titles has no type of its own in some servers'
// forms, and the items of a list need none: what fits is up to the schema.
func (f *field) isSingle() bool { return f.Type == "" || slices.Contains(single, f.Type) }

// Fits reads an answer, and checks that it fits its form. The error is for the person who has answered.
func Fits(form, answer json.RawMessage) (schema.Value, error) {
	s, err := schema.CompileInput(form)
	if err != nil {
		return schema.Value{}, fmt.Errorf("the form cannot be checked: %w", err)
	}
	v, err := schema.Parse(answer)
	if err != nil {
		return v, err
	}
	return v.Hashed(), s.Check(v)
}
