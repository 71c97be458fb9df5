//go:build unix

package docs

import (
	"strings"
	"testing"
)

// snippet is code of a file that a document shows.
type snippet struct {
	doc, name, file string
	// from is the first line. last is the line whose closing brace ends the snippet, or toTheEnd; of a func the body
	// alone is shown.
	from, last string
}

// toTheEnd is the last of a snippet that has the rest of its file.
const toTheEnd = "the end of the file"

var snippets = []snippet{
	{"README.md", "tool", "examples/count-words/main.go", "func main() {", ""},
	{"README.md", "anthropic", "examples/anthropic-agent/main.go", "for range maxTurns {", "for range maxTurns {"},
	{"docs/agents.md", "openai", "examples/openai-agent/main.go",
		"results, err := p.execute(ctx, said.ID, json.RawMessage(said.RawJSON()))", "for _, r := range results {"},
	{"docs/agents.md", "turn-ts", "examples/turn.ts", `import Anthropic from "@anthropic-ai/sdk";`, toTheEnd},
	{"docs/agents.md", "turn-py", "examples/turn.py", "from anthropic import Anthropic", toTheEnd},
	{"docs/rates.md", "quotas", "examples/quotas.txt", "# Two fetches at a time, and five that begin in a second, " +
		"over all workers. A call waits ten seconds at most.", toTheEnd},
	{"docs/budgets.md", "budgets", "examples/budgets.txt",
		"# Each agent of ci has a thousand calls and an hour of tools' time a day.", toTheEnd},
	{"docs/cache.md", "cache", "examples/cache/tools.yaml", "tools:", toTheEnd},
	{"docs/locks.md", "locks", "examples/locks/tools.yaml", "tools:", toTheEnd},
	{"docs/locks.md", "servers", "examples/locks/servers.yaml", "servers:", toTheEnd},
	{"docs/agents.md", "client", "client/example_test.go", "func ExampleClient_Submit() {", ""},
}

// maxReadmeBytes keeps the README two or three screens.
const maxReadmeBytes = 8 << 10

// TestDocumentsShowTheExamples: code in the documents stands in examples, which tests build or run.
func TestDocumentsShowTheExamples(t *testing.T) {
	for _, s := range snippets {
		want := s.cut(t, read(t, s.file))
		keep(t, s.doc, withBlock(t, s.doc, "code", s.name, want))
		if !*update && blockOf(t, s.doc, "code", s.name) != want {
			t.Errorf("%s does not show %s", s.doc, s.file)
		}
	}
	all := 0
	for _, doc := range []string{"README.md", "docs/agents.md", "docs/rates.md", "docs/budgets.md",
		"docs/cache.md", "docs/locks.md"} {
		for _, language := range []string{"go", "ts", "python", "text", "yaml"} {
			all += strings.Count(read(t, doc), "```"+language+"\n")
		}
	}
	if all != len(snippets) {
		t.Errorf("the documents have %d blocks of code, and %d are checked", all, len(snippets))
	}
	if n := len(read(t, "README.md")); n > maxReadmeBytes {
		t.Errorf("README.md has %d bytes, more than %d", n, maxReadmeBytes)
	}
}

// cut takes the snippet out of its file, without the indentation of its first line.
func (s snippet) cut(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	isFunc := strings.HasPrefix(s.from, "func ")
	indent, inside, closing := "", false, false
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		if !inside {
			if bare == s.from {
				indent, inside, closing = line[:strings.Index(line, bare)], true, s.last == s.from || isFunc
				if isFunc {
					indent += "\t"
					continue
				}
			} else {
				continue
			}
		} else if isFunc && (line == "}\n" || strings.HasPrefix(bare, "// Output:")) {
			return b.String()
		}
		b.WriteString(strings.TrimPrefix(line, indent))
		closing = closing || bare == s.last
		if !isFunc && closing && line == indent+"}\n" {
			return b.String()
		}
	}
	if inside && s.last == toTheEnd {
		return b.String()
	}
	t.Fatalf("%s has no code from %q to the end of %q", s.file, s.from, s.last)
	return ""
}

// TestCut: a snippet is the body of a function, or what lies between a line and the end of a block.
func TestCut(t *testing.T) {
	const text = "func a() {\n\tx := 1\n\tfor x {\n\t\tif y {\n\t\t}\n\t}\n\tz()\n\t// Output: 1\n}\n"
	for _, c := range []struct {
		s    snippet
		want string
	}{
		{snippet{from: "func a() {"}, "x := 1\nfor x {\n\tif y {\n\t}\n}\nz()\n"},
		{snippet{from: "for x {", last: "for x {"}, "for x {\n\tif y {\n\t}\n}\n"},
		{snippet{from: "z()", last: toTheEnd}, "z()\n// Output: 1\n}\n"},
		{snippet{from: "x := 1", last: "for x {"}, "x := 1\nfor x {\n\tif y {\n\t}\n}\n"},
	} {
		if got := c.s.cut(t, text); got != c.want {
			t.Errorf("%+v: %q, want %q", c.s, got, c.want)
		}
	}
}
