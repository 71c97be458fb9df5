package anthropic

import (
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// The limits of strict tools over a whole request; see docs/providers.md.
const (
	MaxStrictTools     = 20 // tools with strict
	MaxStrictOptionals = 24 // fields of them that may be left out
	MaxStrictUnions    = 16 // fields of them that have several types
)

// toolParam is one tool of a request, in the order of fields in which the SDK writes them. The schema goes out as it
// is: the provider's prompt cache would miss if the bytes changed from one request to the next.
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
