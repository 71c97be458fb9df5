package archtest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// tree is a repository as the checks see it: every Go file parsed, whatever its build constraints, and the names of
// all files that belong to it.
type tree struct {
	fsys   fs.FS
	module string
	pkgs   []*pkg
	files  []string // sorted; what git tracks or would track
}

// pkg is a directory of Go files.
type pkg struct {
	path  string // below the module's root; "" is the root itself
	files []*goFile
}

type goFile struct {
	name    string // below the repository's root
	test    bool
	lines   int
	fset    *token.FileSet
	syntax  *ast.File
	imports []string
}

func (f *goFile) at(pos token.Pos) string {
	p := f.fset.Position(pos)
	return f.name + ":" + strconv.Itoa(p.Line)
}

// show names a package for people.
func show(path string) string {
	if path == "" {
		return "the root package"
	}
	return path
}

// inside says what an import path is below the module's root, if it is there.
func (t *tree) inside(imp string) (string, bool) {
	if imp == t.module {
		return "", true
	}
	return strings.CutPrefix(imp, t.module+"/")
}

// matches reports whether path is what pattern names; "x/..." is x and all below it.
func matches(pattern, path string) bool {
	if under, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == under || strings.HasPrefix(path, under+"/")
	}
	return pattern == path
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

var moduleLine = regexp.MustCompile(`(?m)^module\s+(\S+)`)

// load parses the repository in fsys. files are its files; nil means all there are.
func load(fsys fs.FS, files []string) (*tree, error) {
	gomod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, err
	}
	m := moduleLine.FindSubmatch(gomod)
	if m == nil {
		return nil, errors.New("go.mod has no module line")
	}
	t := &tree{fsys: fsys, module: string(m[1]), files: files}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name != "." && skipDir(fsys, name) {
				return fs.SkipDir
			}
			return nil
		case path.Ext(name) != ".go" || strings.ContainsAny(path.Base(name)[:1], "._"):
			return nil
		}
		return t.add(name)
	})
	if err != nil {
		return nil, err
	}
	if files == nil {
		err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && path.Base(name) == ".git" {
				return fs.SkipDir
			}
			if err == nil && d.Type().IsRegular() {
				t.files = append(t.files, name)
			}
			return err
		})
	}
	slices.Sort(t.files)
	return t, err
}

// skipDir says which directories hold no packages of this module: as the go command sees it, and what .gitignore names.
func skipDir(fsys fs.FS, name string) bool {
	base := path.Base(name)
	if base == "testdata" || base == "vendor" || strings.ContainsAny(base[:1], "._") || name == "bin" ||
		name == "scratch" {
		return true
	}
	_, err := fs.Stat(fsys, path.Join(name, "go.mod")) // a module of its own
	return err == nil
}

func (t *tree) add(name string) error {
	text, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(text, []byte("//go:build ignore")) {
		return nil // a program beside the package
	}
	f := &goFile{name: name, test: strings.HasSuffix(name, "_test.go"), lines: bytes.Count(text, []byte("\n")),
		fset: token.NewFileSet()}
	f.syntax, err = parser.ParseFile(f.fset, name, text, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, spec := range f.syntax.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		f.imports = append(f.imports, imp)
	}
	dir := path.Dir(name)
	if dir == "." {
		dir = ""
	}
	if n := len(t.pkgs); n == 0 || t.pkgs[n-1].path != dir {
		if i := slices.IndexFunc(t.pkgs, func(p *pkg) bool { return p.path == dir }); i >= 0 {
			t.pkgs[i].files = append(t.pkgs[i].files, f)
			return nil
		}
		t.pkgs = append(t.pkgs, &pkg{path: dir})
	}
	last := t.pkgs[len(t.pkgs)-1]
	last.files = append(last.files, f)
	return nil
}

// repository is the repository that this test is in. The checks share it and change nothing.
var repository = sync.OnceValues(func() (*tree, error) {
	root := filepath.Join("..", "..")
	var files []string
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		// New files count before they are committed; deleted ones may still be listed.
		cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("git ls-files: %w", err)
		}
		for name := range strings.SplitSeq(string(out), "\x00") {
			if info, err := os.Lstat(filepath.Join(root, name)); name != "" && err == nil && info.Mode().IsRegular() {
				files = append(files, filepath.ToSlash(name))
			}
		}
		slices.Sort(files)
		files = slices.Compact(files)
	}
	return load(os.DirFS(root), files)
})

// fixture is a tree in memory, of module "m".
func fixture(t *testing.T, files map[string]string) *tree {
	t.Helper()
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module m\n")}}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	tr, err := load(fsys, nil)
	must.OK(t, err)
	return tr
}

// A check says what is wrong with a tree, a line each.
type check func(*tree) []string

// holds runs a check on the repository.
func holds(t *testing.T, c check) {
	t.Helper()
	tr, err := repository()
	must.OK(t, err)
	for _, problem := range c(tr) {
		t.Error(problem)
	}
}

// A trial is a small tree and what a check must say about it: one problem that contains want, or none when want is
// empty.
type trial struct {
	name  string
	files map[string]string
	want  string
}

func try(t *testing.T, c check, trials []trial) {
	t.Helper()
	for _, tt := range trials {
		t.Run(tt.name, func(t *testing.T) {
			got := c(fixture(t, tt.files))
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("found %q; want nothing", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("found %q; want one problem with %q", got, tt.want)
			}
		})
	}
}
