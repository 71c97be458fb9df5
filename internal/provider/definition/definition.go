// Package definition is what a provider is told about a tool, in the words that all providers share: the counterpart of
// package answer, for the way out of tools. The package is pure.
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
	// Name is as the provider takes it; see package toolname.
	Name        string
	Description string
	// Schema is the input's, lowered. Its root is an object.
	Schema json.RawMessage
	// OutputSchema is as it was declared, empty for most.
	OutputSchema json.RawMessage
	Strict       bool
	// Deferred leaves the definition out of the prompt until a search loads it.
	Deferred bool
	Hints    Hints
}

// Hints are MCP's annotations.
type Hints struct{ ReadOnly, Destructive, Idempotent, OpenWorld bool }

// HintsOf derives the annotations of a tool. A tool whose calls are judged one by one is described by its strictest
// call. Nothing declares that a tool keeps to a closed world; it counts as one that does when a path says where it acts
// and it only reads, or changes files of the workspace alone.
func HintsOf(d *tool.Declaration) Hints {
	j, static := d.StaticJudgement()
	if !static {
		j = d.Complete(tool.Strictest("judged call by call"), false)
	}
	closed := d.Specifier.Path != "" && (j.ReadOnly || d.EditsWorkspace)
	return Hints{ReadOnly: j.ReadOnly, Destructive: j.Destructive, Idempotent: j.Idempotent, OpenWorld: !closed}
}

// Note is one entry of the report: what became of a tool's declaration on the way.
type Note struct {
	// Tool is the declared name, Sent the one that the provider gets; Sent is empty for a tool that is left out.
	Tool string `json:"tool"`
	Sent string `json:"sent"`
	lower.Change
	// Deferred says that the tool is left out for want of a place for tools that are not loaded yet.
	Deferred bool `json:"deferred,omitempty"`
}

// String is the note as one line.
func (n Note) String() string {
	text := n.Tool + ": "
	for _, where := range []string{n.Path, n.Keyword} {
		if where != "" {
			text += where + " "
		}
	}
	return text + n.What + ": " + n.Why
}

// Parameters are the keywords at the root of a schema, each as it is to be sent. OpenAI's forms write them in the order
// of their names.
func Parameters(schema json.RawMessage) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(schema, &fields); err != nil {
		return nil, fmt.Errorf("read a lowered schema: %w", err)
	}
	return fields, nil
}

// IsObject reports whether a schema says that it is of an object.
func IsObject(schema json.RawMessage) bool {
	own, err := Parameters(schema)
	return err == nil && slices.Equal(own["type"], []byte(`"object"`))
}
