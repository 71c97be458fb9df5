package toolset

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/tool"
)

// TestALongFailureIsAnOutput: errors are cut in their middle, outputs are not.
func TestALongFailureIsAnOutput(t *testing.T) {
	for _, c := range []struct{ words, output string }{
		{"no such row", ""}, {strings.Repeat("trace\n", 4_000), strings.Repeat("trace\n", 4_000)},
	} {
		out, err := output(&mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: c.words}}})
		if e := tool.AsError(err); out.Text != c.output || (e.Message == c.words) != (c.output == "") {
			t.Errorf("%d bytes: %d bytes of output, the error says %.60q", len(c.words), len(out.Text), e.Message)
		}
	}
}
