// Package definition is what a provider is told about a tool, in a form that all providers share: the counterpart of
// package answer for outgoing tools. The package is pure.
package definition

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/toolyard/toolyard/internal/provider/lower"
	"github.com/toolyard/toolyard/tool"
)

// Tool is one definition.
type Tool struct {
	// Name is the name for the provider; see package toolname.
	Name        string
	Description string
	// Schema is the lowered input schema. Its root is an object.
	Schema json.RawMessage
	// OutputSchema is unchanged, and empty for most tools.
	OutputSchema json.RawMessage
	Strict       bool
	// Deferred leaves the definition out of the prompt until a search loads it.
	Deferred bool
	Hints    Hints
}

// Hints are MCP's annotations.
type Hints struct{ ReadOnly, Destructive, Idempotent, OpenWorld bool }

// HintsOf derives the annotations of a tool. A tool whose calls are judged one by one has the hints of its strictest
// call.
func HintsOf(d *tool.Declaration) Hints {
	j, static := d.StaticJudgement()
	if !static {
		j = d.Complete(tool.Strictest("judged call by call"), false)
	}
	return Hints{ReadOnly: j.ReadOnly, Destructive: j.Destructive, Idempotent: j.Idempotent,
		OpenWorld: d.ReadsOutside()}
}

// Note is one entry of the report: a change of a tool's declaration.
type Note struct {
	// Tool is the declared name, Sent the one that the provider gets; Sent is empty if the tool is left out.
	Tool string `json:"tool"`
	Sent string `json:"sent"`
	lower.Change
	// Deferred says that the tool is left out because the format cannot express deferral and the tool is not loaded
	// yet.
	Deferred bool `json:"deferred,omitempty"`
}

// String returns one line.
func (n Note) String() string {
	text := n.Tool + ": "
	for _, where := range []string{n.Path, n.Keyword} {
		if where != "" {
			text += where + " "
		}
	}
	return text + n.What + ": " + n.Why
}

// Parameters returns the keywords at the root of a schema, unchanged. OpenAI's forms write them in alphabetical order.
func Parameters(schema json.RawMessage) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(schema, &fields); err != nil {
		return nil, fmt.Errorf("read a lowered schema: %w", err)
	}
	return fields, nil
}

// IsObject reports whether a schema requires an object.
func IsObject(schema json.RawMessage) bool {
	own, err := Parameters(schema)
	return err == nil && slices.Equal(own["type"], []byte(`"object"`))
}
