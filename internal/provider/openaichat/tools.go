package openaichat

import (
	"encoding/json"
	"fmt"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// MaxTools is how many tools a request may have; see docs/providers.md.
const MaxTools = 128

// Tools writes the array tools of a request, in the given order.
func Tools(tools []definition.Tool) ([]byte, error) {
	list := make([]sdk.ChatCompletionToolUnionParam, len(tools))
	for i, t := range tools {
		parameters, err := definition.Parameters(t.Schema)
		if err != nil {
			return nil, fmt.Errorf("writing the Chat Completions tool %q: %w", t.Name, err)
		}
		f := shared.FunctionDefinitionParam{Name: t.Name, Parameters: parameters, Strict: sdk.Bool(t.Strict)}
		if t.Description != "" {
			f.Description = sdk.String(t.Description)
		}
		list[i].OfFunction = &sdk.ChatCompletionFunctionToolParam{Function: f}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("writing Chat Completions tools: %w", err)
	}
	return data, nil
}
