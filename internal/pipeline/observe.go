package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/internal/schema"
)

// prepareObservableInput makes the copy of the input that hooks, approval, events and transcripts see. It is canonical,
// redacted string by string, and long strings are cut and marked.
func (c *call) prepareObservableInput(context.Context) finding {
	var observed any
	var raw json.RawMessage
	c.hidden = false
	err := rescue(func() (err error) {
		observed = c.value.Doc()
		if c.p.Redact != nil {
			observed = redactNames(mapStrings(observed, c.redactSeen), c.redactName)
		}
		raw, err = schema.Encode(observed)
		return err
	})
	cut := ""
	if err == nil && len(raw) > MaxObservableBytes {
		whole := len(raw)
		cut = fmt.Sprintf(", cut from %d bytes", whole)
		observed = mapStrings(observed, func(s string) string { return cutString(s, MaxObservableStringBytes) })
		if raw, err = schema.Encode(observed); err == nil && len(raw) > MaxObservableBytes {
			observed = map[string]any{"_cut": display.CutMark(whole), "_head": cutString(string(raw),
				MaxObservableStringBytes)}
			raw, err = schema.Encode(observed)
		}
	}
	if err != nil {
		return failed(toolyard.InputMutationFailed, "The input could not be prepared for hooks and approval.",
			err.Error())
	}
	c.observable, c.observed = raw, observed
	hash := c.value.Hash()
	if c.job.Observe != nil {
		c.job.Observe(bytes.Clone(raw), hash)
	}
	return finding{detail: "sha256 " + hash[:16] + ", " + strconv.Itoa(len(raw)) + " bytes" + cut, noted: cut != ""}
}

// redactSeen removes secrets from a text, and notes if it may have removed more than one secret.
func (c *call) redactSeen(text string) string {
	out := c.p.Redact(text)
	c.hidden = c.hidden || !redact.Plain(text, out)
	return out
}

// redactName removes secrets from the name of a field, and notes that it did, since another field may then have the
// same name.
func (c *call) redactName(name string) string {
	out := c.p.Redact(name)
	c.hidden = c.hidden || out != name
	return out
}

// input returns a copy of the input that runs.
func (c *call) input() json.RawMessage { return bytes.Clone(c.value.Canonical()) }

// mapStrings copies a decoded JSON value with each string replaced, except for field names.
func mapStrings(doc any, change func(string) string) any {
	switch v := doc.(type) {
	case string:
		return change(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = mapStrings(e, change)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = mapStrings(e, change)
		}
		return out
	}
	return doc
}

// redactNames removes secrets from the names of fields and changes nothing else. Fields whose names become equal become
// one field; such an input cannot be shown, and nobody may approve it.
func redactNames(doc any, redact func(string) string) any {
	switch v := doc.(type) {
	case []any:
		for i, e := range v {
			v[i] = redactNames(e, redact)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out[redact(k)] = redactNames(v[k], redact)
		}
		return out
	}
	return doc
}

// cutString keeps the beginning of a long string and marks the cut.
func cutString(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return clip(s, limit) + "… " + display.CutMark(len(s))
}

// restore puts the original back where a hook returns what it was shown: a redacted or cut string in the same place as
// in the observable copy stands for the string at that place in the input.
func restore(update, observed, original any) any {
	if s, ok := update.(string); ok {
		if s == observed {
			if o, ok := original.(string); ok {
				return o
			}
		}
		return s
	}
	switch u := update.(type) {
	case []any:
		seen, ok1 := observed.([]any)
		was, ok2 := original.([]any)
		out := make([]any, len(u))
		for i, e := range u {
			out[i] = e
			if ok1 && ok2 && i < len(seen) && i < len(was) {
				out[i] = restore(e, seen[i], was[i])
			}
		}
		return out
	case map[string]any:
		seen, ok1 := observed.(map[string]any)
		was, ok2 := original.(map[string]any)
		out := make(map[string]any, len(u))
		for k, e := range u {
			out[k] = e
			if ok1 && ok2 {
				s, in1 := seen[k]
				w, in2 := was[k]
				if in1 && in2 {
					out[k] = restore(e, s, w)
				}
			}
		}
		return out
	}
	return update
}

// hasStandIns reports whether an update has a name of the observable copy, at its place, that the original lacks. Such
// a name stands for a secret, or for an input that is shown in part, so [restore] has nothing to put back.
func hasStandIns(update, observed, original any) bool {
	switch u := update.(type) {
	case []any:
		seen, _ := observed.([]any)
		was, _ := original.([]any)
		for i := range min(len(u), len(seen), len(was)) {
			if hasStandIns(u[i], seen[i], was[i]) {
				return true
			}
		}
	case map[string]any:
		seen, _ := observed.(map[string]any)
		was, _ := original.(map[string]any)
		for k, e := range u {
			s, shown := seen[k]
			w, own := was[k]
			if shown && (!own || hasStandIns(e, s, w)) {
				return true
			}
		}
	}
	return false
}

// same reports whether two decoded JSON values are equal.
func same(a, b any) bool { return reflect.DeepEqual(a, b) }
