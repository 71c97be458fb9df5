package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/internal/schema"
)

// prepareObservableInput makes the copy of the input that approval, events and transcripts see. It is canonical,
// redacted string by string, and long strings are cut and marked. Hooks see it uncut, up to [MaxHookInputBytes]: one
// that looks for what must not run would not find it behind a cut.
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
	cut, whole, all := "", raw, observed
	if err == nil && len(raw) > MaxObservableBytes {
		cut = fmt.Sprintf(", cut from %d bytes", len(whole))
		observed = mapStrings(observed, func(s string) string { return cutString(s, MaxObservableStringBytes) })
		if raw, err = schema.Encode(observed); err == nil && len(raw) > MaxObservableBytes {
			observed = map[string]any{"_cut": display.CutMark(len(whole)), "_head": cutString(string(raw),
				MaxObservableStringBytes)}
			raw, err = schema.Encode(observed)
		}
	}
	if err != nil {
		return failed(toolyard.InputMutationFailed, "The input could not be prepared for hooks and approval.",
			err.Error())
	}
	c.observable, c.toHooks, c.seen = raw, raw, observed
	if cut != "" && c.p.Hooks != nil && len(whole) <= MaxHookInputBytes {
		c.toHooks, c.seen = whole, all
	}
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
	return clip.Bytes(s, limit) + "… " + display.CutMark(len(s))
}
