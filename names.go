package toolyard

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Agent names who holds a conversation and owns its batches.
type Agent string

// BatchID names a batch among its agent's batches.
type BatchID string

// Session names a conversation.
type Session string

// Workspace names the shared state that calls act on: the domain of exclusivity.
type Workspace string

// Pool names interchangeable workers.
type Pool string

// Tag is something that a worker has and that calls may ask for: "gpu", "region=eu". It means what an operator has it
// mean; two tags are the same when their bytes are.
type Tag string

// BatchKey is a batch's identity, everywhere.
type BatchKey struct {
	Agent Agent   `json:"agent"`
	ID    BatchID `json:"id"`
}

// String renders the key for people: agent/id.
func (k BatchKey) String() string { return string(k.Agent) + "/" + string(k.ID) }

// What a batch gets when it names none.
const (
	DefaultAgent     Agent     = "default"
	DefaultSession   Session   = "default"
	DefaultWorkspace Workspace = "default"
	DefaultPool      Pool      = "default"
)

// InputError says which field of what was handed in is wrong, and how to mend it. It is the only error that
// [Batch.Validate] and the decoders of provider forms return for bad input.
type InputError struct {
	// Field is the path of the field, such as "calls[3].id"; empty for the document as a whole.
	Field string
	// Problem says what was expected and what was found.
	Problem string
	// TooLarge says that a named size or count limit was passed (HTTP 413).
	TooLarge bool
}

func (e *InputError) Error() string {
	if e.Field == "" {
		return e.Problem
	}
	return e.Field + ": " + e.Problem
}

// CheckTags says what is wrong with a list of tags of which there may be so many, or returns nil. A tag is 1 to
// [MaxTagBytes] letters, digits and any of "._/=-", and begins with a letter or a digit.
func CheckTags(field string, tags []Tag, most int) error {
	if len(tags) > most {
		return &InputError{Field: field, Problem: fmt.Sprintf("has %d tags; at most %d are allowed", len(tags), most)}
	}
	for i, t := range tags {
		bad := func(format string, args ...any) error {
			return &InputError{Field: fmt.Sprintf("%s[%d]", field, i), Problem: fmt.Sprintf(format, args...)}
		}
		switch other := strings.IndexFunc(string(t), outsideTags); {
		case t == "" || len(t) > MaxTagBytes:
			return bad("%q is no tag; give it 1 to %d bytes", t, MaxTagBytes)
		case other >= 0 || strings.ContainsRune("._/=-", rune(t[0])):
			return bad("%q is no tag; use letters, digits and any of \"._/=-\", and begin with a letter or a digit", t)
		case slices.Contains(tags[:i], t):
			return bad("%q is there already", t)
		}
	}
	return nil
}

// outsideTags reports whether a character is in no tag.
func outsideTags(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._/=-", r)
}

// CheckName says what is wrong with a name of an agent, batch, session, workspace, pool or call, or returns nil.
// Names are 1 to [MaxNameBytes] bytes of valid UTF-8 without control characters. Any other character is allowed,
// also those that mean something in a NATS subject: they are escaped where they become part of one.
func CheckName(field, name string) error {
	bad := func(format string, args ...any) error {
		return &InputError{Field: field, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case name == "":
		return bad("is empty; give it 1 to %d bytes", MaxNameBytes)
	case len(name) > MaxNameBytes:
		return bad("is %d bytes long; at most %d are allowed", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return bad("is not valid UTF-8")
	}
	if strings.ContainsRune(name, utf8.RuneError) {
		return bad("has the replacement character U+FFFD, which stands where something was no Unicode (half a " +
			"surrogate pair, say)")
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return unicode.IsControl(r) }); i >= 0 {
		r, _ := utf8.DecodeRuneInString(name[i:])
		return bad("has the control character %U at byte %d; names are printable", r, i)
	}
	return nil
}
