package archtest

import (
	"flag"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

var update = flag.Bool("update", false, "rewrite the import picture in ARCHITECTURE.md")

// layerOf looks a package up in the table.
func layerOf(path string) (layer, bool) {
	for _, p := range packages {
		if matches(p.path, path) {
			return p.layer, true
		}
	}
	return 0, false
}

// checkLayers: every package has a layer, and imports point down.
func checkLayers(t *tree) (problems []string) {
	for _, p := range t.pkgs {
		from, ok := layerOf(p.path)
		if !ok {
			problems = append(problems,
				fmt.Sprintf("%s is in no layer; add it to the layer table (packages in "+
					"internal/archtest/rules_test.go)", show(p.path)))
			continue
		}
		if from == outside {
			continue
		}
		for _, f := range p.files {
			if f.test {
				continue
			}
			for _, imp := range f.imports {
				target, ok := t.inside(imp)
				if !ok {
					continue
				}
				to, ok := layerOf(target)
				switch {
				case !ok || to < from: // a package without a layer is reported once, where it is
				case to == from && allowedBeside(p.path, target):
				case to == from:
					problems = append(problems, fmt.Sprintf("%s imports %s, both %s; declare an interface where it "+
						"is used, or add the edge and its reason to sameLayer",
						f.name, show(target), layerNotes[from].name))
				default:
					problems = append(problems, fmt.Sprintf("%s imports %s: %s must not know %s; imports point down",
						f.name, show(target), layerNotes[from].name, layerNotes[to].name))
				}
			}
		}
	}
	return problems
}

func allowedBeside(from, to string) bool {
	for _, e := range sameLayer {
		if matches(e.from, from) && matches(e.to, to) {
			return true
		}
	}
	return false
}

func TestLayers(t *testing.T) {
	holds(t, checkLayers)
	try(t, checkLayers, []trial{
		{"down", map[string]string{"a.go": "package m", "tool/t.go": `package tool; import "m"`,
			"cmd/x/x.go": `package main; import _ "m/tool"`}, ""},
		{"up", map[string]string{"a.go": `package m; import _ "m/tool"`, "tool/t.go": "package tool"},
			"imports point down"},
		{"up to a shell", map[string]string{"internal/broker/b.go": `package broker; import _ "m/internal/worker"`},
			"drivers must not know IO shells"},
		{"beside, with a reason",
			map[string]string{"internal/registry/r.go": `package registry; import _ "m/internal/schema"`}, ""},
		{"beside, pattern",
			map[string]string{"internal/provider/p.go": `package provider; import _ "m/internal/provider/gemini"`}, ""},
		{"beside, without", map[string]string{"internal/schema/s.go": `package schema; import _ "m/internal/registry"`},
			"both deciders"},
		{"two mains", map[string]string{"cmd/x/x.go": `package main; import _ "m/cmd/y"`}, "both wiring"},
		{"test support in code",
			map[string]string{"internal/worker/w.go": `package worker; import _ "m/internal/testenv"`},
			"must not know outside"},
		{"test support in a test",
			map[string]string{"internal/worker/w_test.go": `package worker; import _ "m/internal/testenv"`}, ""},
		{"test support imports all",
			map[string]string{"internal/testenv/e.go": `package testenv; import _ "m/internal/worker"`}, ""},
		{"under a build constraint",
			map[string]string{"tool/t_plan9.go": "//go:build plan9\n\npackage tool; import _ \"m/internal/worker\""},
			"imports point down"},
		{"no layer", map[string]string{"internal/novel/n.go": "package novel"}, "add it to the layer table"},
		{"a module of its own", map[string]string{"tools/go.mod": "module m/tools",
			"tools/novel/n.go": "package novel"}, ""},
	})
}

// checkStrangers: these two never import each other.
func checkStrangers(t *tree) (problems []string) {
	for _, s := range strangers {
		for _, p := range t.pkgs {
			for _, f := range p.files {
				for _, imp := range f.imports {
					target, ok := t.inside(imp)
					if !ok {
						continue
					}
					if matches(s.a+"/...", p.path) && matches(s.b+"/...", target) || matches(s.b+"/...", p.path) &&
						matches(s.a+"/...", target) {
						problems = append(problems, fmt.Sprintf("%s imports %s: %s", f.name, target, s.why))
					}
				}
			}
		}
	}
	return problems
}

func TestStrangers(t *testing.T) {
	holds(t, checkStrangers)
	try(t, checkStrangers, []trial{
		{"meet in wiring",
			map[string]string{"cmd/x/x.go": `package main; import (_ "m/internal/dispatcher"; _ "m/internal/worker")`},
			""},
		{"one way", map[string]string{"internal/dispatcher/d.go": `package dispatcher; import _ "m/internal/worker"`},
			"only through events"},
		{"other way", map[string]string{"internal/worker/w.go": `package worker; import _ "m/internal/dispatcher"`},
			"only through events"},
		{"in a test",
			map[string]string{"internal/worker/w_test.go": `package worker_test; import _ "m/internal/dispatcher"`},
			"only through events"},
	})
}

// checkNarrow: of these imports only the named symbols are used.
func checkNarrow(t *tree) (problems []string) {
	for _, n := range narrow {
		for _, p := range t.pkgs {
			if !matches(n.path, p.path) {
				continue
			}
			for _, f := range p.files {
				if f.test {
					continue
				}
				for _, spec := range f.syntax.Imports {
					imp := strings.Trim(spec.Path.Value, `"`)
					if target, ok := t.inside(imp); !ok || !matches(n.imports, target) {
						continue
					}
					name := path.Base(imp)
					if spec.Name != nil {
						name = spec.Name.Name
					}
					if name == "." || name == "_" {
						problems = append(problems, fmt.Sprintf("%s imports %s as %q: %s", f.name, imp, name, n.why))
					}
					ast.Inspect(f.syntax, func(node ast.Node) bool {
						if s, ok := node.(*ast.SelectorExpr); ok {
							if x, ok := s.X.(*ast.Ident); ok && x.Name == name && x.Obj == nil &&
								!slices.Contains(n.names, s.Sel.Name) {
								problems = append(problems, fmt.Sprintf("%s uses %s.%s: %s", f.at(s.Pos()), name,
									s.Sel.Name, n.why))
							}
						}
						return true
					})
				}
			}
		}
	}
	return problems
}

func TestNarrow(t *testing.T) {
	holds(t, checkNarrow)
	server := "internal/mcp/server/s.go"
	try(t, checkNarrow, []trial{
		{"named", map[string]string{"internal/api/a.go": `package api; import "m/internal/broker"; var _ broker.Room`},
			""},
		{"another", map[string]string{"internal/api/a.go": `package api; import "m/internal/broker"; var _ broker.Log`},
			"act through package client"},
		{"under another name",
			map[string]string{server: `package server; import b "m/internal/broker"; var _ b.Room`}, "uses b.Room"},
		{"a driver", map[string]string{server: `package server; import n "m/internal/broker/natsbroker"; var _ n.Broker`},
			"uses n.Broker"},
		{"dot", map[string]string{server: `package server; import . "m/internal/broker"`}, "act through package client"},
		{"in a test",
			map[string]string{"internal/api/a_test.go": `package api; import "m/internal/broker"; var _ broker.Log`}, ""},
	})
}

// checkReserved: these modules are imported only where the table says.
func checkReserved(t *tree) (problems []string) {
	for _, r := range reserved {
		for _, p := range t.pkgs {
			if l, ok := layerOf(p.path); ok && l == outside || matchesAny(r.by, p.path) {
				continue
			}
			for _, f := range p.files {
				if f.test && !r.tests {
					continue
				}
				for _, imp := range f.imports {
					if matches(r.module+"/...", imp) {
						problems = append(problems, fmt.Sprintf("%s imports %s, which is for %s only: %s", f.name, imp,
							strings.Join(r.by, ", "), r.why))
					}
				}
			}
		}
	}
	return problems
}

func TestReservedModules(t *testing.T) {
	holds(t, checkReserved)
	for _, r := range reserved {
		bad := fmt.Sprintf("package partition; import _ %q", r.module+"/deeper")
		owner := strings.TrimSuffix(r.by[0], "/...")
		inTest := ""
		if r.tests {
			inTest = r.module
		}
		try(t, checkReserved, []trial{
			{r.module, map[string]string{"internal/partition/p.go": bad}, r.module},
			{r.module + " in a test", map[string]string{"internal/partition/p_test.go": bad}, inTest},
			{r.module + " in its place", map[string]string{owner + "/p.go": bad}, ""},
			{r.module + " in test support", map[string]string{"internal/testenv/p.go": bad}, ""},
		})
	}
}

// TestTablesAreSound: the tables themselves hold no line that means nothing.
func TestTablesAreSound(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages {
		if seen[p.path] || p.why == "" {
			t.Errorf("packages: %q stands twice, or has no reason", p.path)
		}
		seen[p.path] = true
	}
	known := func(pattern string) (layer, bool) { return layerOf(strings.TrimSuffix(pattern, "/...")) }
	for _, e := range sameLayer {
		from, ok1 := known(e.from)
		to, ok2 := known(e.to)
		if !ok1 || !ok2 || from != to || e.why == "" {
			t.Errorf("sameLayer: %s -> %s needs two packages of one layer, and a reason", e.from, e.to)
		}
	}
	for _, r := range reserved {
		for _, by := range r.by {
			if _, ok := known(by); !ok || r.why == "" {
				t.Errorf("reserved: %s is for %s, which is in no layer, or has no reason", r.module, by)
			}
		}
	}
	for _, s := range strangers {
		_, ok1 := known(s.a)
		_, ok2 := known(s.b)
		if !ok1 || !ok2 || s.why == "" {
			t.Errorf("strangers: %s and %s need to be packages, and a reason", s.a, s.b)
		}
	}
	for _, a := range impureAllowed {
		imp, name, isCall := strings.Cut(a.imports, ".")
		bad := impure[a.imports] != "" || isCall && slices.Contains(impureCalls[imp], name)
		if l, ok := layerOf(a.path); !ok || l > lastPure || !bad || a.why == "" {
			t.Errorf("impureAllowed: %s, %s excepts nothing, or has no reason", a.path, a.imports)
		}
	}
}

// The marks in ARCHITECTURE.md around the picture that picture draws.
const pictureBegin, pictureEnd = "<!-- layers: from internal/archtest -->\n", "<!-- end of layers -->"

// picture draws the layers, the top first.
func picture() string {
	var b strings.Builder
	b.WriteString("```\n")
	for l := wiring; l >= vocabulary; l-- {
		var names []string
		for _, p := range packages {
			if p.layer == l {
				names = append(names, strings.TrimPrefix(strings.Replace(p.path, "/...", "/*", 1), "internal/"))
			}
		}
		if l == vocabulary {
			names = []string{"toolyard (root)"}
		}
		fmt.Fprintf(&b, "%-11s %s\n%-11s (%s)\n", layerNotes[l].name, strings.Join(names, "  "), "", layerNotes[l].is)
		if l > vocabulary {
			fmt.Fprintf(&b, "%-11s |\n", "")
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// checkPicture: where ARCHITECTURE.md marks a place for the picture, it is the tables' picture.
func checkPicture(t *tree) []string {
	text, err := fs.ReadFile(t.fsys, "ARCHITECTURE.md")
	if err != nil {
		return nil
	}
	_, rest, ok := strings.Cut(string(text), pictureBegin)
	if !ok {
		return nil
	}
	if got, _, ok := strings.Cut(rest, pictureEnd); !ok || got != picture() {
		return []string{"ARCHITECTURE.md: the import picture is not that of the tables; run go test " +
			"./internal/archtest -update"}
	}
	return nil
}

func TestPicture(t *testing.T) {
	if *update {
		name := filepath.Join("..", "..", "ARCHITECTURE.md")
		text := must.Read(t, name)
		before, rest, ok1 := strings.Cut(string(text), pictureBegin)
		_, after, ok2 := strings.Cut(rest, pictureEnd)
		if !ok1 || !ok2 {
			t.Fatalf("ARCHITECTURE.md lacks the lines %q and %q", pictureBegin, pictureEnd)
		}
		must.OK(t, os.WriteFile(name, []byte(before+pictureBegin+picture()+pictureEnd+after), 0o644))
	}
	holds(t, checkPicture)
	try(t, checkPicture, []trial{
		{"none", map[string]string{"ARCHITECTURE.md": "no picture"}, ""},
		{"as drawn", map[string]string{"ARCHITECTURE.md": pictureBegin + picture() + pictureEnd}, ""},
		{"stale", map[string]string{"ARCHITECTURE.md": pictureBegin + "old\n" + pictureEnd}, "-update"},
		{"not closed", map[string]string{"ARCHITECTURE.md": pictureBegin + picture()}, "-update"},
	})
	if !slices.Contains(strings.Fields(picture()), "partition") {
		t.Errorf("the picture lacks partition:\n%s", picture())
	}
}
