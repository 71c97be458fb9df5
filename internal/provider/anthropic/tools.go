package anthropic

import (
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// The limits of strict tools over a whole request; see docs/providers.md.
const (
	MaxStrictTools     = 20 // tools with strict
	MaxStrictOptionals = 24 // optional fields of them
	MaxStrictUnions    = 16 // fields of them that have several types
)

// toolParam is one tool of a request, with fields in the order of the SDK. The schema is sent unchanged: the provider's
// prompt cache would miss if the bytes changed between requests.
type toolParam struct {
	InputSchema  json.RawMessage `json:"input_schema"`
	Name         string          `json:"name"`
	DeferLoading bool            `json:"defer_loading,omitempty"`
	Description  string          `json:"description,omitempty"`
	Strict       bool            `json:"strict,omitempty"`
}

// Tools writes the array tools of a request, in the given order.
func Tools(tools []definition.Tool) ([]byte, error) {
	list := make([]toolParam, len(tools))
	for i, t := range tools {
		list[i] = toolParam{
			InputSchema: t.Schema, Name: t.Name, DeferLoading: t.Deferred, Description: t.Description, Strict: t.Strict,
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("writing Anthropic tools: %w", err)
	}
	return data, nil
}
