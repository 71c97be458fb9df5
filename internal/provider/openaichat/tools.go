package openaichat

import (
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// MaxTools bounds the tools of a request; see docs/providers.md.
const MaxTools = 128

// chatTool and function are one tool of a request, with fields in the order of the SDK.
type chatTool struct {
	Function function `json:"function"`
	Type     string   `json:"type"`
}

type function struct {
	Name        string                     `json:"name"`
	Strict      bool                       `json:"strict"`
	Description string                     `json:"description,omitempty"`
	Parameters  map[string]json.RawMessage `json:"parameters"`
}

// Tools writes the array tools of a request, in the given order.
func Tools(tools []definition.Tool) ([]byte, error) {
	list := make([]chatTool, len(tools))
	for i, t := range tools {
		parameters, err := definition.Parameters(t.Schema)
		if err != nil {
			return nil, fmt.Errorf("writing the Chat Completions tool %q: %w", t.Name, err)
		}
		list[i] = chatTool{
			Function: function{Name: t.Name, Strict: t.Strict, Description: t.Description, Parameters: parameters},
			Type:     "function",
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("writing Chat Completions tools: %w", err)
	}
	return data, nil
}
