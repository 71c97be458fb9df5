package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is where lines of Markdown end.
const maxColumns = 120

var (
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	picture    = regexp.MustCompile(`(?s)<!-- layers: from internal/archtest -->.*?<!-- end of layers -->`)
)

// documents are all Markdown files but those of tests.
func documents(t *testing.T) (names []string) {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") ||
			slices.Contains([]string{"testdata", "scratch", "bin", "node_modules"}, d.Name())):
			return fs.SkipDir
		case !d.IsDir() && filepath.Ext(name) == ".md":
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// tooLong are the numbers of the lines that go past maxColumns. Tables, targets of links, the data of server-sent
// events and the picture that package archtest draws cannot be broken.
func tooLong(text string) (lines []int) {
	text = picture.ReplaceAllStringFunc(text, func(s string) string {
		return strings.Repeat("\n",
			strings.Count(s, "\n"))
	})
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimLeft(line, " "), "|") || strings.HasPrefix(line, "data: ") {
			continue
		}
		if utf8.RuneCountInString(linkTarget.ReplaceAllString(line, "]")) > maxColumns {
			lines = append(lines, number)
		}
	}
	return lines
}

// TestLinesOfDocuments: lines of Markdown end at 120 columns.
func TestLinesOfDocuments(t *testing.T) {
	all := documents(t)
	if !slices.Contains(all, "README.md") || !slices.Contains(all, "docs/limits.md") {
		t.Fatalf("the documents are %q", all)
	}
	for _, name := range all {
		for _, n := range tooLong(read(t, name)) {
			t.Errorf("%s:%d goes past column %d", name, n, maxColumns)
		}
	}
	long := strings.Repeat("x", maxColumns+1)
	for text, want := range map[string][]int{
		long[1:]:                 nil,
		"a\n" + long:             {2},
		"```\n" + long + "\n```": {2},
		strings.Repeat("é", 120): nil,
		"| " + long + " |":       nil,
		"[a](" + long + ")":      nil,
		"[a](b) " + long:         {1},
		"data: " + long:          nil,
		"<!-- layers: from internal/archtest -->\n" + long + "\n<!-- end of layers -->\n" + long: {4},
	} {
		if got := tooLong(text); !slices.Equal(got, want) {
			t.Errorf("%.60q: %v, want %v", text, got, want)
		}
	}
}
