package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"path"
	"slices"
	"testing"
)

// checkStories: in a package that is a story, functions call only those of the same file or of files behind it.
func checkStories(t *tree) (problems []string) {
	for _, p := range t.pkgs {
		if order, ok := stories[p.path]; ok {
			problems = append(problems, readStory(t, p, order)...)
		}
	}
	return problems
}

func readStory(t *tree, p *pkg, order []string) (problems []string) {
	fset := token.NewFileSet()
	files := map[string]*ast.File{}
	for _, f := range p.files {
		text, err := fs.ReadFile(t.fsys, f.name)
		if err != nil {
			return []string{err.Error()}
		}
		if !f.test {
			if files[f.name], err = parser.ParseFile(fset, f.name, text, parser.SkipObjectResolution); err != nil {
				return []string{err.Error()}
			}
		}
	}
	names := slices.Sorted(maps.Keys(files))
	info := types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: noImports{}, Error: func(error) {}} // what other packages are does not matter here
	var syntax []*ast.File
	for _, name := range names {
		syntax = append(syntax, files[name])
	}
	_, _ = conf.Check(p.path, fset, syntax, &info) // it fails for want of the imports
	place, at := map[types.Object]int{}, map[string]int{}
	eachFunc := func(do func(name string, fn *ast.FuncDecl)) {
		for _, name := range names {
			for _, d := range files[name].Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					do(name, fn)
				}
			}
		}
	}
	eachFunc(func(name string, fn *ast.FuncDecl) {
		i := slices.Index(order, path.Base(name))
		if _, seen := at[name]; i < 0 && !seen {
			problems = append(problems, name+" has no place in its package's story: give it one in stories")
		}
		at[name] = i
		if o := info.Defs[fn.Name]; o != nil {
			place[o] = i
		}
	})
	eachFunc(func(name string, fn *ast.FuncDecl) {
		ast.Inspect(fn, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			if i, ok := place[info.Uses[id]]; ok && i >= 0 && i < at[name] {
				problems = append(problems, fmt.Sprintf("%s: %s calls back to %s in %s; return what it needs instead",
					fset.Position(id.Pos()), fn.Name.Name, id.Name, order[i]))
			}
			return true
		})
	})
	return problems
}

// noImports knows no package.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not looked at") }

func TestStories(t *testing.T) {
	holds(t, checkStories)
	repo, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for pkg, order := range stories {
		for _, name := range order {
			if _, err := fs.Stat(repo.fsys, path.Join(pkg, name)); err != nil {
				t.Errorf("the story of %s names %s: %v", pkg, name, err)
			}
		}
	}
	const pkg = "internal/dispatcher/"
	try(t, checkStories, []trial{
		{"forth", map[string]string{pkg + "admit.go": "package d; func a() { b() }",
			pkg + "take.go": "package d; func b() {}"}, ""},
		{"back", map[string]string{pkg + "admit.go": "package d; func a() {}",
			pkg + "take.go": "package d; func b() { a() }"}, "b calls back to a in admit.go"},
		{"back through a method of a field, beside a package that is not looked at", map[string]string{
			pkg + "admit.go": "package d; import \"m/x\"; type q struct { x.Y }; func (q) a(x.Y) {}",
			pkg + "take.go":  "package d; type r struct { in *q }; func (r r) b() { r.in.a(r.in.Y) }"},
			"b calls back to a"},
		{"passed on", map[string]string{pkg + "admit.go": "package d; func a() {}",
			pkg + "take.go": "package d; func b() any { return a }"}, "calls back to a"},
		{"another type's method of that name", map[string]string{
			pkg + "admit.go": "package d; type q struct{}; func (q) a() {}",
			pkg + "take.go":  "package d; type r struct{}; func (r) a() {}; func b() { r{}.a() }"}, ""},
		{"a test", map[string]string{pkg + "admit.go": "package d; func a() {}",
			pkg + "take_test.go": "package d; func b() { a() }"}, ""},
		{"a file without a place", map[string]string{pkg + "x.go": "package d; func a() {}"}, "has no place"},
		{"a package that is no story", map[string]string{"x/b.go": "package x; func b() { a() }",
			"x/a.go": "package x; func a() {}"}, ""},
	})
}
