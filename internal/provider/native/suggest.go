package native

import (
	"slices"
	"strings"

	"github.com/toolyard/toolyard/internal/provider/strictjson"
	"github.com/toolyard/toolyard/internal/suggest"
)

// otherNames are the names of our fields in other formats.
var otherNames = map[string]string{
	"name": "tool", "tool_name": "tool", "function": "tool",
	"arguments": "input", "args": "input", "parameters": "input", "params": "input",
	"call_id": "id", "tool_use_id": "id", "tool_call_id": "id", "batch_id": "id", "batch": "id",
	"agent_id": "agent", "session_id": "session", "tool_calls": "calls",
	"strategy": "partition", "concurrency": "max_concurrency", "timeout": "timeout_ms",
	"call_timeout": "call_timeout_ms",
}

// known refuses fields that are not in names, the first in alphabetical order, and suggests the intended name.
func known(o strictjson.Object, noun string, names []string) error {
	for _, field := range o.Names() {
		if slices.Contains(names, field) {
			continue
		}
		if near := nearest(field, names); near != "" {
			return strictjson.Errorf(o.At(field), "is not a field of %s; did you mean %q?", noun, near)
		}
		return strictjson.Errorf(o.At(field), "is not a field of %s; the fields are %s", noun,
			strings.Join(names, ", "))
	}
	return nil
}

// nearest returns the name that was probably intended, or "".
func nearest(field string, names []string) string {
	lower := strings.ToLower(strings.ReplaceAll(field, "-", "_"))
	if other := otherNames[lower]; slices.Contains(names, other) {
		return other
	}
	for _, near := range suggest.Names(field, names, 1) {
		return near
	}
	return ""
}
