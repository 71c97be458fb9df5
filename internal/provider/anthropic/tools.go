package anthropic

import (
	"encoding/json"
	"fmt"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// The limits of strict tools over a whole request; see docs/providers.md.
const (
	MaxStrictTools     = 20 // tools with strict
	MaxStrictOptionals = 24 // fields of them that may be left out
	MaxStrictUnions    = 16 // fields of them that have several types
)

// Tools writes the array tools of a request, in the given order.
func Tools(tools []definition.Tool) ([]byte, error) {
	list := make([]sdk.ToolUnionParam, len(tools))
	for i, t := range tools {
		// As it is: the SDK writes the further fields of its own schema type in an order that changes from call to call, and the
		// provider's prompt cache would miss.
		p := sdk.ToolParam{Name: t.Name, InputSchema: param.Override[sdk.ToolInputSchemaParam](t.Schema)}
		if t.Description != "" {
			p.Description = param.NewOpt(t.Description)
		}
		if t.Strict {
			p.Strict = param.NewOpt(true)
		}
		if t.Deferred {
			p.DeferLoading = param.NewOpt(true)
		}
		list[i].OfTool = &p
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("writing Anthropic tools: %w", err)
	}
	return data, nil
}
