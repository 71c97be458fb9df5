package openai

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// MaxTools is how many tools a request may have; see docs/providers.md.
const MaxTools = 128

// Tools writes the array tools of a request, in the given order. strict is always there: a request without it has the
// schema made strict by the API, and optional fields become required. Beside deferred tools, [SearchTool] goes out as the API's
// own kind of tool for a search that the client runs: its output is what loads them.
func Tools(tools []definition.Tool) ([]byte, error) {
	list := make([]responses.ToolUnionParam, len(tools))
	search := slices.ContainsFunc(tools, func(t definition.Tool) bool { return t.Deferred })
	for i, t := range tools {
		parameters, err := definition.Parameters(t.Schema)
		if err != nil {
			return nil, fmt.Errorf("writing the OpenAI tool %q: %w", t.Name, err)
		}
		if search && t.Name == SearchTool {
			s := responses.ToolSearchToolParam{Execution: responses.ToolSearchToolExecutionClient, Parameters: parameters}
			if t.Description != "" {
				s.Description = param.NewOpt(t.Description)
			}
			list[i].OfToolSearch = &s
			continue
		}
		p := responses.FunctionToolParam{Name: t.Name, Parameters: parameters, Strict: param.NewOpt(t.Strict)}
		if t.Description != "" {
			p.Description = param.NewOpt(t.Description)
		}
		if t.Deferred {
			p.DeferLoading = param.NewOpt(true)
		}
		list[i].OfFunction = &p
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("writing OpenAI tools: %w", err)
	}
	return data, nil
}
