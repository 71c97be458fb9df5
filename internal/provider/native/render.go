package native

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard"
)

// Render writes the results as an indented JSON array, completely, in the wire form.
func Render(results []toolyard.Result) ([]byte, error) {
	if results == nil {
		results = []toolyard.Result{}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // people read this form
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(results); err != nil {
		return nil, fmt.Errorf("rendering results in native form: %w", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
