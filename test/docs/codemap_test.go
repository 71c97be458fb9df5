package docs

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const codeMapBegin, codeMapEnd = "<!-- code map: from the package comments -->\n", "<!-- end of code map -->"

// maxArchitectureWords keeps ARCHITECTURE.md a page that is read in one sitting.
const maxArchitectureWords = 2500

// TestCodeMap: each package has a line in ARCHITECTURE.md, or in test/README.md where it only tests. The line is made
// from the package's own comment.
func TestCodeMap(t *testing.T) {
	const name = "ARCHITECTURE.md"
	code, tests := codeMap(t)
	keep(t, "test/README.md", replaceBetween(t, "test/README.md", codeMapBegin, codeMapEnd, "\n"+tests+"\n"))
	text := replaceBetween(t, name, codeMapBegin, codeMapEnd, "\n"+code+"\n")
	keep(t, name, text)
	if n := len(strings.Fields(text)); n > maxArchitectureWords {
		t.Errorf("%s has %d words, more than %d", name, n, maxArchitectureWords)
	}
}

// replaceBetween is a document with other text between two marks.
func replaceBetween(t *testing.T, name, begin, end, text string) string {
	t.Helper()
	before, rest, ok1 := strings.Cut(read(t, name), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the marks %q and %q", name, begin, end)
	}
	return before + begin + text + end + after
}

// codeMap is a list of all packages: those that make the system, and those under test.
func codeMap(t *testing.T) (code, tests string) {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	var in [2]strings.Builder
	err := fs.WalkDir(root, ".", func(dir string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case dir != "." && (strings.HasPrefix(d.Name(), ".") ||
			slices.Contains([]string{"testdata", "scratch", "bin", "tools"}, d.Name())):
			return fs.SkipDir
		}
		comment, err := packageComment(root, dir)
		if err != nil || comment == "" {
			return err
		}
		b := &in[0]
		if strings.HasPrefix(dir, "test/") {
			b = &in[1]
		}
		b.WriteString(wrapped(fmt.Sprintf("- `%s`: %s", shownAs(dir), synopsis(comment))))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return in[0].String(), in[1].String()
}

// packageComment is the comment of the package in a directory; of a package with tests only, that of a test. It is
// empty where there is no package.
func packageComment(root fs.FS, dir string) (string, error) {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return "", err
	}
	inTest := ""
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := fs.ReadFile(root, path.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		f, err := parser.ParseFile(token.NewFileSet(), e.Name(), text, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return "", err
		}
		switch isTest := strings.HasSuffix(e.Name(), "_test.go"); {
		case f.Doc == nil || !strings.HasPrefix(f.Doc.Text(), "Package ") &&
			!strings.HasPrefix(f.Doc.Text(), "Command "):
		case !isTest:
			return docText(f), nil
		case inTest == "":
			inTest = docText(f)
		}
	}
	return inTest, nil
}

func docText(f *ast.File) string { return f.Doc.Text() }

var (
	named    = regexp.MustCompile(`^(?:Package|Command) \S+ (?:is )?`)
	docLinks = regexp.MustCompile(`\[([^\]]+)\]`)
)

// synopsis is the first sentence of a package comment, up to its first colon and without the package's name.
func synopsis(comment string) string {
	text := named.ReplaceAllString(new(doc.Package).Synopsis(comment), "")
	text, _, _ = strings.Cut(strings.TrimSuffix(text, "."), ": ")
	return docLinks.ReplaceAllString(text, "$1")
}

// wrapped is a list item in lines of at most maxColumns.
func wrapped(item string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(item) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > maxColumns:
			b.WriteString("\n  ")
			column = 2
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String() + "\n"
}

// TestSynopses: a line of the code map says what a package is without repeating its name.
func TestSynopses(t *testing.T) {
	for comment, want := range map[string]string{
		"Package a is the [b.C] of all. More.":                   "the b.C of all",
		"Package a runs things: one, and another.\n\nAuthority.": "runs things",
		"Command a does it.":                                     "does it",
	} {
		if got := synopsis(comment); got != want {
			t.Errorf("%q: %q, want %q", comment, got, want)
		}
	}
	long := "- `a`: " + strings.Repeat("word ", 40)
	for line := range strings.Lines(wrapped(long)) {
		if len(line) > maxColumns+1 {
			t.Errorf("a line has %d columns", len(line)-1)
		}
	}
}
