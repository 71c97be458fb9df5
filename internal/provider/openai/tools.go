package openai

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// MaxTools is how many tools a request may have; see docs/providers.md.
const MaxTools = 128

// functionTool and searchTool are one tool of a request, in the order of fields in which the SDK writes them.
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

// Tools writes the array tools of a request, in the given order. strict is always there: a request without it has the
// schema made strict by the API, and optional fields become required. Beside deferred tools, [SearchTool] goes out as
// the API's own kind of tool for a search that the client runs: its output is what loads them.
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
