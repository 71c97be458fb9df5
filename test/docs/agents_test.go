package docs

import (
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestReadmeShowsTheAgents: the Go code in the README's section on agents stands so in the examples, but for how far it is indented.
// The section is to be read in one go.
func TestReadmeShowsTheAgents(t *testing.T) {
	_, section, ok := strings.Cut(read(t, "README.md"), "\n## Wire your agent\n")
	section, _, end := strings.Cut(section, "\n## ")
	if !ok || !end {
		t.Fatal("README.md has no section on agents")
	}
	if n := strings.Count(section, "\n"); n > 65 {
		t.Errorf("the section has %d lines", n)
	}
	examples := flat(read(t, "examples/anthropic-agent/main.go")) + flat(read(t, "examples/openai-agent/main.go"))
	blocks := goBlock.FindAllStringSubmatch(section, -1)
	if len(blocks) < 2 {
		t.Fatalf("there are %d blocks of Go", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(examples, "\n"+strings.TrimPrefix(flat(b[1]), "\n")) {
			t.Errorf("this stands in no example:\n%s", b[1])
		}
	}
}

// flat takes the indentation out of code.
func flat(code string) string {
	var b strings.Builder
	b.WriteString("\n")
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimLeft(line, "\t"))
	}
	return b.String()
}
