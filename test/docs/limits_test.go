package docs

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
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
	"time"
	"unicode"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

var update = flag.Bool("update", false,
	"rewrite the list of limits, the code map and the sample output of the documents")

const (
	module     = "github.com/toolyard/toolyard"
	limitsFile = "cmd/internal/dispatchercmd/limits.json"
)

// notLimits are directories whose constants bound nothing in service: tests and their support, and the exit statuses.
var notLimits = []string{"cmd/internal/cli", "internal/archtest", "internal/testenv", "internal/broker/brokertest",
	"internal/broker/membroker"}

// numbers matches the names of constants that bound nothing.
var numbers = regexp.MustCompile(`^(` + strings.Join([]string{
	"Wire|yetToCome|layout",            // versions
	"code[A-Z].*|status[A-Z].*",        // error codes of JetStream and statuses of HTTP
	"part[A-Z].*|parts[A-Z].*|.*Parts", // shares of the store
	"rulesInPlans|items|tags|archives|slimForms|snapshots|namedLocks|background|programs|overlays|forms|outlive", // too
	"in(Name|Input|Description)", // weights of a search
	"index(Tokens|Base)|(low|middle)Bits|aboutBatch|(moves|scopes)Version",           // forms of keys and versions
	"low32|socketKind|namespaceKinds|Socket|ArgsFD|ProxyPort|streams",                // masks, descriptors and ports
	"thrift[A-Z].*|encoding[A-Z].*|kind[A-Z].*|fieldOf.*|codecZstd|utf8|microsecond", // the numbers of Parquet
	"page(Data|Dictionary)|(b|miniB)lockOf|groupOf|bytesOfValue|lengthBytes",         // its parts
	"firstPerson|DefaultUID|inside[UG]ID|Go|Stop|exit[A-Z].*|groupIOWeight",          // ids, bytes of a protocol, weights
}, "|") + `)$`)

// limit is one line of the list that "dispatcher limits" has built in.
type limit struct {
	Package string `json:"package"`
	Name    string `json:"name"`
	Value   int64  `json:"value"`
	Unit    string `json:"unit"`
	Bounds  string `json:"bounds"`
	Flag    string `json:"flag,omitempty"`
}

// TestLimitsAreListed: the list of "dispatcher limits" has each named number and time of the code, with its value.
func TestLimitsAreListed(t *testing.T) {
	all := limits(t)
	if len(all) < 100 {
		t.Fatalf("the code has %d limits", len(all))
	}
	var lines []string
	for _, l := range all {
		if l.Bounds == "" {
			t.Errorf("%s.%s has no description", l.Package, l.Name)
		}
		line := must.JSON(t, l)
		lines = append(lines, string(line))
	}
	keep(t, limitsFile, "[\n"+strings.Join(lines, ",\n")+"\n]\n")
}

// keep compares a file with what it should be, or writes it.
func keep(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		must.OK(t, os.WriteFile(filepath.Join("..", "..", name), []byte(want), 0o644))
		return
	}
	if have := read(t, name); have != want {
		have, want = firstDifference(have, want)
		t.Errorf("%s is out of date; run go test ./test/docs -update, and look at what changed\nit has    "+
			"%q\ninstead of %q", name, have, want)
	}
}

// firstDifference is the first line in which two texts differ.
func firstDifference(a, b string) (string, string) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		if i >= len(x) {
			return "", y[i]
		}
		if i >= len(y) {
			return x[i], ""
		}
		if x[i] != y[i] {
			return x[i], y[i]
		}
	}
	return "", ""
}

// limits are the limits of all packages.
func limits(t *testing.T) (all []limit) {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	fset := token.NewFileSet()
	must.OK(t, goRoot())
	onlyTime := timeImporter{importer.ForCompiler(fset, "source", nil)}
	if _, err := onlyTime.Import("time"); err != nil { // below, its constants would only be missing
		t.Fatal(err)
	}
	flags := map[string]option{}
	err := fs.WalkDir(root, ".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		top, _, _ := strings.Cut(dir, "/")
		if dir != "." && !slices.Contains([]string{"tool", "client", "worker", "cmd", "internal"}, top) ||
			d.Name() == "testdata" {
			return fs.SkipDir
		}
		files, err := parse(fset, root, dir)
		if err != nil || len(files) == 0 {
			return err
		}
		if top == "cmd" {
			for _, f := range files {
				flagsIn(f, flags)
			}
		}
		if !slices.ContainsFunc(notLimits, func(not string) bool {
			return dir == not ||
				strings.HasPrefix(dir, not+"/")
		}) {
			all = append(all, limitsIn(fset, onlyTime, dir, files)...)
		}
		return nil
	})
	must.OK(t, err)
	for i, l := range all {
		o := flags[l.Package+"."+l.Name]
		if all[i].Flag = o.name; o.help != "" {
			all[i].Bounds = o.help
		}
	}
	return all
}

// goRoot tells the importer where Go's sources are: a test that is built with -trimpath does not know.
var goRoot = sync.OnceValue(func() error {
	dir, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	build.Default.GOROOT = strings.TrimSpace(string(dir))
	return nil
})

// timeImporter imports time alone: no constant that bounds something needs more.
type timeImporter struct{ types.Importer }

func (i timeImporter) Import(path string) (*types.Package, error) {
	if path != "time" {
		return nil, errors.New("not needed")
	}
	return i.Importer.Import(path)
}

// parse reads the Go files of a directory, without tests.
func parse(fset *token.FileSet, root fs.FS, dir string) (files []*ast.File, err error) {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		text, err := fs.ReadFile(root, path.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(fset, e.Name(), text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// shownAs is the name of a package in the list.
func shownAs(dir string) string {
	if dir == "." {
		return "toolyard"
	}
	return dir
}

// limitsIn are the constants of one package that are plain numbers or durations, in the order of its files.
func limitsIn(fset *token.FileSet, imp types.Importer, dir string, files []*ast.File) (all []limit) {
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: imp, Error: func(error) {}, IgnoreFuncBodies: true}
	_, _ = conf.Check(dir, fset, files, info) // what it imports is missing: only constants are looked at
	for _, f := range files {
		for _, decl := range f.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, s := range group.Specs {
				spec := s.(*ast.ValueSpec)
				for _, id := range spec.Names {
					c, ok := info.Defs[id].(*types.Const)
					if !ok || numbers.MatchString(id.Name) {
						continue
					}
					if value, unit, ok := measure(c); ok {
						l := limit{Package: shownAs(dir), Name: id.Name, Value: value, Unit: unit}
						l.Bounds = about(group, spec, id.Name)
						all = append(all, l)
					}
				}
			}
		}
	}
	return all
}

// measure is a constant's value and unit; ok is false for what is neither a plain number nor a duration.
func measure(c *types.Const) (n int64, unit string, ok bool) {
	n, exact := constant.Int64Val(constant.ToInt(c.Val()))
	if c.Type().String() == "time.Duration" && exact {
		return time.Duration(n).Milliseconds(), "ms", time.Duration(n)%time.Millisecond == 0
	}
	if b, basic := c.Type().(*types.Basic); c.Val().Kind() != constant.Int || !exact || !basic ||
		b.Info()&types.IsInteger == 0 {
		return 0, "", false
	}
	name := c.Name()
	switch {
	case strings.HasSuffix(name, "MS"):
		return n, "ms", true
	case strings.Contains(name, "Bytes"), n >= 64<<10 && n%(64<<10) == 0: // no count is a multiple of 64 KiB
		return n, "bytes", true
	case strings.HasSuffix(name, "Chars"):
		return n, "chars", true
	case strings.HasSuffix(name, "Percent"):
		return n, "percent", true
	}
	return n, "count", true
}

// about is what the code says of a constant: in the comment at its line or above it, in that of another constant of the
// group which names it, or above the group. Where no comment says anything, its name in words has to do.
func about(group *ast.GenDecl, spec *ast.ValueSpec, name string) string {
	text := spec.Comment.Text()
	if text == "" {
		text = spec.Doc.Text()
	}
	for _, s := range group.Specs {
		other := s.(*ast.ValueSpec)
		if said := other.Doc.Text(); text == "" && regexp.MustCompile(`\b`+name+`\b`).MatchString(said) {
			text = said
		}
	}
	if text == "" {
		text = group.Doc.Text()
	}
	if text == "" || text == group.Doc.Text() && len(group.Specs) > 1 {
		text = strings.TrimSpace(words(name) + ". " + text)
	}
	text = strings.Join(strings.Fields(text), " ")
	for _, verb := range []string{" is ", " bounds ", " "} {
		text = strings.TrimPrefix(text, name+verb)
	}
	return strings.NewReplacer("[", "", "]", "").Replace(strings.TrimSuffix(text, "."))
}

// words takes a name apart: maxKeyBytes is "max key bytes".
func words(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(runes[i-1]) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// option is a flag that changes a limit. help is what the flag says of itself, where that is a plain text.
type option struct{ name, help string }

// flagsIn finds the constants that a flag changes, as "directory.Name": a flag's default value, or a constant whose
// name begins with Default in its help.
func flagsIn(f *ast.File, flags map[string]option) {
	dirs := map[string]string{}
	for _, imp := range f.Imports {
		full, err := strconv.Unquote(imp.Path.Value)
		if err != nil || !strings.HasPrefix(full, module) {
			continue
		}
		dir := strings.TrimPrefix(strings.TrimPrefix(full, module), "/")
		dirs[path.Base(full)] = shownAs(path.Clean(dir))
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 4 {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		name, isText := call.Args[1].(*ast.BasicLit)
		if !ok || !strings.HasSuffix(fun.Sel.Name, "Var") || !isText || name.Kind != token.STRING {
			return true
		}
		for i, arg := range call.Args[2:] {
			ast.Inspect(arg, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok || i == 1 && !strings.HasPrefix(sel.Sel.Name, "Default") {
					return true
				}
				if pkg, ok := sel.X.(*ast.Ident); ok && dirs[pkg.Name] != "" {
					flags[dirs[pkg.Name]+"."+sel.Sel.Name] = option{"--" +
						strings.Trim(name.Value, `"`), literal(call.Args[3])}
				}
				return true
			})
		}
		return true
	})
}

// literal is the text of a string literal, or of several that are added up; empty for anything else.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		if x, y := literal(e.X), literal(e.Y); x != "" && y != "" {
			return x + y
		}
	}
	return ""
}

// TestWords: names are taken apart at their capital letters.
func TestWords(t *testing.T) {
	for name, want := range map[string]string{"maxKeyBytes": "max key bytes",
		"DefaultStartTimeoutMS": "default start timeout ms", "limit": "limit"} {
		if got := words(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestFlagsOfLimits: a limit has the flag whose default it is, and a bound that a flag's help mentions has none.
func TestFlagsOfLimits(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
import ("fmt"; "`+module+`"; "`+module+`/internal/sandbox")
func y() {
	f.IntVar(&a, "most", toolyard.DefaultMaxConcurrency, "how many")
	f.IntVar(&b, "more", 0, fmt.Sprintf("1 to %d, or %d", toolyard.MaxConcurrency, toolyard.DefaultMore))
	f.Int64Var(&c, "memory", sandbox.DefaultMemory>>20, "how much, " + "in MiB")
	f.IntVar(&d, "port", 8080, "which")
}`, 0)
	must.OK(t, err)
	flags := map[string]option{}
	flagsIn(f, flags)
	want := map[string]option{"toolyard.DefaultMaxConcurrency": {"--most", "how many"},
		"toolyard.DefaultMore":           {"--more", ""},
		"internal/sandbox.DefaultMemory": {"--memory", "how much, in MiB"}}
	if !maps.Equal(flags, want) {
		t.Errorf("got %v, want %v", flags, want)
	}
}
