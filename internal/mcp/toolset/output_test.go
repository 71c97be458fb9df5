package toolset

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard"
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

// TestNumbersOfAResultAreAsTheServerWroteThem: ids have more digits than a float64 can keep apart.
func TestNumbersOfAResultAreAsTheServerWroteThem(t *testing.T) {
	t.Parallel()
	const structured = `{"id":9007199254740993,"list":[18446744073709551615,0.1],"big":1e400,"text":"9007199254740993"}`
	set := start(t, fakeServer(`result {"content":[{"type":"text","text":"x"}],"structuredContent":`+structured+`}`))
	out, err := run(t, set, "echo", patience)
	if err != nil || string(out.Structured) != structured || toolyard.TextOf(out.Content) != "x" {
		t.Errorf("%s, %v, %v; want %s", out.Structured, out.Content, err, structured)
	}
}
