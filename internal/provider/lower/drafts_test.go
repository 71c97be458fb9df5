package lower

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestOlderDraftsAreNotNarrowed: a keyword that a schema's draft does not have says nothing, also where it is sent.
func TestOlderDraftsAreNotNarrowed(t *testing.T) {
	for _, tt := range []struct{ draft, field, value string }{
		{"draft-07", `{"type":"array","prefixItems":[{"type":"string"}],"items":{}}`, `[1]`},
		{"draft-07", `{"type":"object","dependentRequired":{"a":["b"]}}`, `{"a":1}`},
		{"draft-06", `{"type":"array","prefixItems":[{"type":"string"}]}`, `[1]`},
		{"draft-04", `{"const":"a"}`, `"b"`},
		{"draft-04", `{"enum":["b"],"const":"a"}`, `"b"`},
	} {
		raw := fmt.Sprintf(`{"$schema":"http://json-schema.org/%s/schema#","type":"object","properties":{"v":%s}}`,
			tt.draft, tt.field)
		input := decoded(t, `{"v":`+tt.value+`}`)
		if fitted := holds(t, json.RawMessage(raw), []any{input}); fitted[Anthropic] == 0 || fitted[Gemini] == 0 {
			t.Errorf("%s does not take %v", raw, input)
		}
	}
}
