package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var exampleBody = regexp.MustCompile(`(?ms)^func Example\w*\(\) \{\n(.*?)^\}`)

// TestReadmeShowsTheExamples: the Go code in the README is the body of an Example, which the compiler has seen.
func TestReadmeShowsTheExamples(t *testing.T) {
	readme := read(t, "README.md")
	for _, name := range []string{"worker/example_test.go", "client/example_test.go"} {
		m := exampleBody.FindStringSubmatch(read(t, name))
		if m == nil {
			t.Fatalf("%s has no Example", name)
		}
		body, _, _ := strings.Cut(m[1], "\t// Output:")
		body = strings.ReplaceAll("\n"+body, "\n\t", "\n")[1:]
		if !strings.Contains(readme, "```go\n"+body+"```\n") {
			t.Errorf("README.md does not show the Example of %s as it stands there; it should have:\n%s", name, body)
		}
	}
}
