package openai

import (
	"encoding/json"
	"testing"

	"github.com/openai/openai-go/v3/responses"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// TestTheSearchIsTheClients: only beside tools that it can load; otherwise it is a function like any other.
func TestTheSearchIsTheClients(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"}}}`)
	search := definition.Tool{Name: SearchTool, Description: "Finds tools.", Schema: schema, Strict: true}
	for _, rest := range [][]definition.Tool{{{Name: "a", Schema: schema, Deferred: true}}, {{Name: "a", Schema: schema}}} {
		data, err := Tools(append([]definition.Tool{search}, rest...))
		if err != nil {
			t.Fatal(err)
		}
		var list []responses.ToolUnionParam
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		if s := list[0].OfToolSearch; rest[0].Deferred != (s != nil) || rest[0].Deferred == (list[0].OfFunction != nil) {
			t.Errorf("%s", data)
		} else if s != nil && (s.Execution != responses.ToolSearchToolExecutionClient || s.Description.Value != "Finds tools." || s.Parameters == nil) {
			t.Errorf("%s", data)
		}
	}
}
