package hooks

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAnEventHasWhatAnOutputHasBesideItsText: its data and its parts.
func TestAnEventHasWhatAnOutputHasBesideItsText(t *testing.T) {
	in := pipeline.HookInput{Tool: "mcp__a__b", Input: json.RawMessage(`{}`)}
	in.Outcome = pipeline.HookOutcome{Output: "text", Structured: json.RawMessage(`{"n":1}`),
		Content: []toolyard.Content{{Type: toolyard.ContentResource, Text: "row", URI: "db://1"}}}
	raw, err := (&Set{}).callMessage(PostToolUse, in, "/ws")
	must.OK(t, err)
	var m struct {
		Toolyard struct{ Structured, Content any }
	}
	must.OK(t, json.Unmarshal(raw, &m))
	want := []any{map[string]any{"n": 1.}, []any{map[string]any{"type": "resource", "text": "row", "uri": "db://1"}}}
	if d := cmp.Diff(want, []any{m.Toolyard.Structured, m.Toolyard.Content}); d != "" {
		t.Errorf("(-want +got):\n%s\n%s", d, raw)
	}
}
