package manifest

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestOneDocument: a file has one document that says something. Programs write others around it that say nothing.
func TestOneDocument(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"a: 1\n":                     true,
		"a: 1\n---\n":                true,
		"a: 1\n---\n# the end\n":     true,
		"---\na: 1\n...\n---\n...\n": true,
		"a: 1\n---\nb: 2\n":          false,
		"a: 1\n---\n---\nb: 2\n":     false,
		"---\n---\nb: 2\n":           false,
		"a: 1\n---\n\"\"\n":          false,
		"a: 1\n---\n[\n":             false,
	} {
		var to map[string]yaml.Node
		if err := OnlyDocument(yaml.NewDecoder(strings.NewReader(text)), &to); (err == nil) != want {
			t.Errorf("%q: got %v, want it taken: %t", text, err, want)
		}
	}
	if _, err := Decode([]byte("tools: []\n---\n")); err != nil {
		t.Error(err)
	}
}
