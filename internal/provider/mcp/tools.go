// Package mcp writes tools as a server of the Model Context Protocol lists them. Its structs are our own: the
// protocol's SDK is for servers and clients, and a list needs neither. The package is pure.
package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// entry is a Tool of the protocol, with the fields that are used here.
type entry struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  annotations     `json:"annotations"`
}

// annotations has all four hints, because the defaults of missing ones differ.
type annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

// Tools writes the array tools of the result of tools/list, in the given order.
func Tools(tools []definition.Tool) ([]byte, error) {
	list := make([]entry, len(tools))
	for i, t := range tools {
		list[i] = entry{
			Name: t.Name, Description: t.Description, InputSchema: t.Schema, OutputSchema: t.OutputSchema,
			Annotations: annotations(t.Hints),
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(list); err != nil {
		return nil, fmt.Errorf("writing MCP tools: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
