package openai

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// MaxTools bounds the tools of a request; see docs/providers.md.
const MaxTools = 128

// functionTool and searchTool are one tool of a request, with fields in the order of the SDK.
type functionTool struct {
	Strict       bool                       `json:"strict"`
	Parameters   map[string]json.RawMessage `json:"parameters"`
	Name         string                     `json:"name"`
	Description  string                     `json:"description,omitempty"`
	DeferLoading bool                       `json:"defer_loading,omitempty"`
	Type         string                     `json:"type"`
}

type searchTool struct {
	Description string                     `json:"description,omitempty"`
	Parameters  map[string]json.RawMessage `json:"parameters"`
	Execution   string                     `json:"execution"`
	Type        string                     `json:"type"`
}

// Tools writes the array tools of a request, in the given order. strict is always present: without it the API makes the
// schema strict, and optional fields become required. If there are deferred tools, [SearchTool] is sent as the API's
// own type for a search that the client runs: its output loads them.
func Tools(tools []definition.Tool) ([]byte, error) {
	list := make([]any, len(tools))
	search := slices.ContainsFunc(tools, func(t definition.Tool) bool { return t.Deferred })
	for i, t := range tools {
		parameters, err := definition.Parameters(t.Schema)
		if err != nil {
			return nil, fmt.Errorf("writing the OpenAI tool %q: %w", t.Name, err)
		}
		if search && t.Name == SearchTool {
			list[i] = searchTool{Description: t.Description, Parameters: parameters, Execution: "client",
				Type: "tool_search"}
			continue
		}
		list[i] = functionTool{
			Strict: t.Strict, Parameters: parameters, Name: t.Name, Description: t.Description,
			DeferLoading: t.Deferred,
			Type:         "function",
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("writing OpenAI tools: %w", err)
	}
	return data, nil
}
