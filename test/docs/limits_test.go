package docs

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the tables in docs/limits.md")

const limitsBegin, limitsEnd = "<!-- limits: from the code -->\n", "<!-- end of limits -->"

// notLimits are directories whose constants bound nothing in service: tests and their support, and the exit statuses.
var notLimits = []string{"cmd/internal/cli", "internal/archtest", "internal/sim", "internal/testenv"}

// versions are numbers that bound nothing.
var versions = []string{"WireVersion", "yetToCome", "layout"}

// TestLimitsPage: docs/limits.md lists each named number and time of the code, by package, with its value.
func TestLimitsPage(t *testing.T) {
	page := read(t, "docs/limits.md")
	before, rest, ok1 := strings.Cut(page, limitsBegin)
	have, after, ok2 := strings.Cut(rest, limitsEnd)
	if !ok1 || !ok2 {
		t.Fatalf("docs/limits.md lacks the lines %q and %q", limitsBegin, limitsEnd)
	}
	want := tables(t)
	switch {
	case !strings.Contains(want, "| `MaxCallsPerBatch` | 10,000 |"):
		t.Errorf("the tables lack MaxCallsPerBatch:\n%s", want)
	case have == want:
	case *update:
		if err := os.WriteFile(filepath.Join("..", "..", "docs", "limits.md"), []byte(before+limitsBegin+want+limitsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("docs/limits.md does not say what the code says; run go test ./test/docs -update")
	}
}

// tables are the tables of all packages.
func tables(t *testing.T) string {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	var b strings.Builder
	fset := token.NewFileSet()
	onlyTime := timeImporter{importer.ForCompiler(fset, "source", nil)}
	err := fs.WalkDir(root, ".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		top, _, _ := strings.Cut(dir, "/")
		if dir != "." && !slices.Contains([]string{"tool", "client", "cmd", "internal"}, top) || d.Name() == "testdata" {
			return fs.SkipDir
		}
		if slices.Contains(notLimits, dir) {
			return nil
		}
		rows, err := rowsOf(fset, onlyTime, root, dir)
		if err != nil || len(rows) == 0 {
			return err
		}
		name := "`" + dir + "`"
		if dir == "." {
			name = "The root package"
		}
		fmt.Fprintf(&b, "\n### %s\n\n| constant | value | what it bounds |\n| --- | --- | --- |\n%s\n", name, strings.Join(rows, "\n"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String() + "\n"
}

// timeImporter imports time alone: no constant that bounds something needs more.
type timeImporter struct{ types.Importer }

func (i timeImporter) Import(path string) (*types.Package, error) {
	if path != "time" {
		return nil, errors.New("not needed")
	}
	return i.Importer.Import(path)
}

// rowsOf are the constants of one package that are plain numbers or durations, in the order of its files.
func rowsOf(fset *token.FileSet, imp types.Importer, root fs.FS, dir string) ([]string, error) {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		text, err := fs.ReadFile(root, filepath.ToSlash(filepath.Join(dir, e.Name())))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(fset, e.Name(), text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, nil
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: imp, Error: func(error) {}, IgnoreFuncBodies: true}
	_, _ = conf.Check(dir, fset, files, info) // what it imports is missing: only constants are looked at
	var rows []string
	for _, f := range files {
		for _, decl := range f.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, s := range group.Specs {
				spec := s.(*ast.ValueSpec)
				for _, id := range spec.Names {
					if c, ok := info.Defs[id].(*types.Const); ok && !slices.Contains(versions, id.Name) {
						if v, ok := shown(c); ok {
							rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", id.Name, v, about(group, spec)))
						}
					}
				}
			}
		}
	}
	return rows, nil
}

// shown is a constant's value for people; ok is false for what is neither a plain number nor a duration.
func shown(c *types.Const) (string, bool) {
	n, exact := constant.Int64Val(constant.ToInt(c.Val()))
	switch {
	case c.Type().String() == "time.Duration" && exact:
		text := time.Duration(n).String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		return strings.TrimSuffix(text, "h0m") + map[bool]string{true: "h"}[strings.HasSuffix(text, "h0m")], true
	case c.Val().Kind() != constant.Int || !exact:
		return "", false
	}
	if b, ok := c.Type().(*types.Basic); !ok || b.Info()&types.IsInteger == 0 {
		return "", false
	}
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if strings.HasSuffix(c.Name(), "Bytes") && n >= unit.size && n%unit.size == 0 {
			return fmt.Sprintf("%d %s", n/unit.size, unit.name), true
		}
	}
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits, true
}

// about is what the code says about a constant: the comment at its line, above it, or above the only one of a group.
func about(group *ast.GenDecl, spec *ast.ValueSpec) string {
	text := spec.Comment.Text()
	if text == "" {
		text = spec.Doc.Text()
	}
	if text == "" && len(group.Specs) == 1 {
		text = group.Doc.Text()
	}
	text = strings.Join(strings.Fields(text), " ")
	for _, name := range spec.Names {
		text = strings.TrimPrefix(text, name.Name+" is ")
		text = strings.TrimPrefix(text, name.Name+" ")
	}
	return strings.NewReplacer("|", "\\|", "[", "", "]", "").Replace(strings.TrimSuffix(text, "."))
}
