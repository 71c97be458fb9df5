package scan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/schema"
)

// The limits of what is said about an input.
const (
	maxFieldBytes = 200 // bytes of a field's path; of a longer one only the call is named
	maxIDBytes    = toolyard.MaxNameBytes
)

// Inputs refuses calls in whose inputs there is a secret. from is the index of the first call in its batch, secrets
// takes secrets out of a text. The error is a [*toolyard.InputError], which names call and field and not the secret.
// An input that cannot be read is looked through as a text.
func Inputs(from int, calls []toolyard.Call, secrets func(string) string) error {
	for i := range calls {
		at := fmt.Sprintf("calls[%d].input", from+i)
		field, has := secretIn(calls[i].Input, secrets)
		if !has {
			continue
		}
		if at += field; len(at) > maxFieldBytes {
			at = fmt.Sprintf("calls[%d].input", from+i)
		}
		which := ""
		if id := calls[i].ID; id != "" && len(id) <= maxIDBytes && secrets(id) == id {
			which = fmt.Sprintf("call %q ", id)
		}
		return &toolyard.InputError{Field: at, Problem: which + "has a secret, and this system stores no input with " +
			"one: write it without; tools get secrets as credentials"}
	}
	return nil
}

// secretIn finds the first field with a secret, in the order of the names.
func secretIn(raw json.RawMessage, secrets func(string) string) (path string, has bool) {
	if v, err := schema.Parse(raw); err == nil {
		if path, has = secretAt(v.Doc(), "", secrets); has {
			return path, true
		}
	}
	text := string(raw) // what stands in several fields, or in what is no value that can be read
	return "", secrets(text) != text
}

func secretAt(doc any, path string, secrets func(string) string) (string, bool) {
	switch v := doc.(type) {
	case string:
		return path, secrets(v) != v
	case json.Number:
		return path, secrets(string(v)) != string(v)
	case []any:
		for i, e := range v {
			if at, has := secretAt(e, fmt.Sprintf("%s[%d]", path, i), secrets); has {
				return at, true
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if secrets(name) != name {
				return path, true
			}
			if at, has := secretAt(v[name], path+"."+strings.ToValidUTF8(name, "\uFFFD"), secrets); has {
				return at, true
			}
		}
	}
	return "", false
}
