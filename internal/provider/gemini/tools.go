package gemini

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard/internal/provider/definition"
)

// MaxTools bounds the function declarations of a tool; see docs/providers.md.
const MaxTools = 512

// tools and declaration are the fields of genai.Tool and genai.FunctionDeclaration that are used here.
type tools struct {
	FunctionDeclarations []declaration `json:"functionDeclarations"`
}

type declaration struct {
	Name                 string          `json:"name"`
	Description          string          `json:"description,omitempty"`
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
}

// Tools writes the array tools of a request: one tool with all declarations, in the given order. Without declarations
// the array is empty, because a tool without any is refused.
func Tools(list []definition.Tool) ([]byte, error) {
	if len(list) == 0 {
		return []byte("[]"), nil
	}
	t := tools{FunctionDeclarations: make([]declaration, len(list))}
	for i, d := range list {
		t.FunctionDeclarations[i] = declaration{Name: d.Name, Description: d.Description,
			ParametersJSONSchema: d.Schema}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode([]tools{t}); err != nil {
		return nil, fmt.Errorf("writing Gemini tools: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
