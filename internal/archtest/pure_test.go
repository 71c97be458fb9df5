package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"testing"
)

// checkPure: pure packages touch no clock, network, file, goroutine or global randomness, outside of their tests.
func checkPure(t *tree) (problems []string) {
	for _, p := range t.pkgs {
		l, ok := layerOf(p.path)
		if !ok || l > lastPure {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			for _, imp := range f.imports {
				if what := impure[imp]; what != "" && !excepted(p.path, imp) {
					problems = append(problems, fmt.Sprintf("%s imports %s (%s): %s is pure; take it as an input",
						f.name, imp, what, show(p.path)))
				}
			}
			problems = append(problems, impureSyntax(p.path, f)...)
		}
	}
	return problems
}

func excepted(path, imp string) bool {
	for _, a := range impureAllowed {
		if a.path == path && a.imports == imp {
			return true
		}
	}
	return false
}

// impureSyntax finds go statements, and mentions of clocks: a function that is passed on is as bad as one called.
func impureSyntax(pkg string, f *goFile) (problems []string) {
	names := map[string]string{} // as the file calls it -> import path
	for i, spec := range f.syntax.Imports {
		imp := f.imports[i]
		if impureCalls[imp] == nil {
			continue
		}
		name := path.Base(imp)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." {
			problems = append(problems, fmt.Sprintf("%s imports %s with a dot; then its clocks cannot be told apart",
				f.at(spec.Pos()), imp))
		}
		names[name] = imp
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			problems = append(problems, f.at(n.Pos())+
				" starts a goroutine in a pure package; return what is to be done instead")
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if ok && slices.Contains(impureCalls[names[x.Name]], n.Sel.Name) &&
				!excepted(pkg, names[x.Name]+"."+n.Sel.Name) {
				problems = append(problems, fmt.Sprintf("%s uses %s.%s in a pure package; take the time as an input",
					f.at(n.Pos()), names[x.Name], n.Sel.Name))
			}
		}
		return true
	})
	return problems
}

func TestPure(t *testing.T) {
	holds(t, checkPure)
	trials := []trial{
		{"time as a type",
			map[string]string{"tool/t.go": `package tool; import "time"; var d time.Duration = 3 * time.Second`}, ""},
		{"impure above",
			map[string]string{"internal/broker/b.go": `package broker; import ("os"; "time"); func f() { go f(); _, _ = os.Args, time.Now() }`}, ""},
		{"in a test",
			map[string]string{"tool/t_test.go": `package tool; import ("os"; "time"); func f() { go f(); _, _ = os.Args, time.Now() }`}, ""},
		{"a goroutine", map[string]string{"tool/t.go": `package tool; func f() { go f() }`},
			"tool/t.go:1 starts a goroutine"},
		{"in the root", map[string]string{"a.go": `package m; import _ "os"`}, "the root package is pure"},
		{"below a pattern", map[string]string{"internal/provider/gemini/g.go": `package gemini; import _ "os"`},
			"is pure"},
		{"passed on", map[string]string{"tool/t.go": `package tool; import "time"; var clock = time.Now`}, "time.Now"},
		{"by another name", map[string]string{"tool/t.go": `package tool; import hour "time"; var x = hour.Now()`},
			"time.Now"},
		{"with a dot", map[string]string{"tool/t.go": `package tool; import . "time"; var x = Now()`}, "with a dot"},
		{"something else called time",
			map[string]string{"tool/t.go": `package tool; import time "m/clock"; var x = time.Now()`}, ""},
		{"under a build constraint",
			map[string]string{"tool/t.go": "//go:build plan9\n\npackage tool; import _ \"os\""}, "is pure"},
		{"excepted", map[string]string{"internal/schema/s.go": `package schema; import _ "sync"`}, ""},
		{"excepted for another", map[string]string{"internal/policy/s.go": `package policy; import _ "sync"`},
			"shared state"},
	}
	for imp, what := range impure {
		trials = append(trials, trial{imp, map[string]string{"internal/ticket/t.go": "package ticket; import _ " +
			strconv.Quote(imp)}, what})
	}
	for imp, calls := range impureCalls {
		for _, c := range calls {
			text := fmt.Sprintf("package ticket; import %q; func f() { %s.%s() }", imp, path.Base(imp), c)
			trials = append(trials, trial{imp + "." + c, map[string]string{"internal/ticket/t.go": text}, imp + "." +
				c})
		}
	}
	try(t, checkPure, trials)
}
