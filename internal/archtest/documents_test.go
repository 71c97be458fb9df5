package archtest

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// documents are the Markdown files, without what only tests read.
func (t *tree) documents() (names []string) {
	for _, name := range t.files {
		if path.Ext(name) == ".md" && !slices.Contains(strings.Split(name, "/"), "testdata") {
			names = append(names, name)
		}
	}
	return names
}

var (
	fenced = regexp.MustCompile("(?ms)^[ \t]*(```|~~~).*?^[ \t]*(```|~~~)[ \t]*$")
	inCode = regexp.MustCompile("`([^`\n]+)`")
	link   = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)|(?m:^\[[^\]]+\]:\s+(\S+))`)
	proof  = regexp.MustCompile(`^((?:Test|Fuzz|Benchmark|Example)[A-Z]\w*)(/\S*)?$`)
	symbol = regexp.MustCompile(`\.[A-Z]\w*(\.\w+)?$`)
	braces = regexp.MustCompile(`^(.*?)\{([^{}]*)\}(.*)$`)
)

// prose reads a document without its fenced blocks; these are checked by running them.
func (t *tree) prose(name string) string {
	text, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return ""
	}
	return fenced.ReplaceAllString(string(text), "")
}

// testName finds the tests that the Makefile names.
var testName = regexp.MustCompile(`(?:^|[^.\w])(Test[A-Z]\w*)`)

// function finds the functions of a file.
var function = regexp.MustCompile(`(?m)(?:^|; *)func (\w+)\(`)

// checkNamedPaths: a path of the repository in backticks exists, and so does a test that is named as a proof, or in the
// Makefile.
func checkNamedPaths(t *tree) (problems []string) {
	tops := map[string]bool{".ci": true, "deploy": true, "docs": true, "tools": true}
	tests := map[string]bool{}
	for _, p := range packages {
		top, _, _ := strings.Cut(p.path, "/")
		tops[top] = true
	}
	for _, name := range t.files { // those of the other modules too
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := fs.ReadFile(t.fsys, name)
		if err != nil {
			continue // gone since it was listed
		}
		for _, m := range function.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
	}
	if text, err := fs.ReadFile(t.fsys, "Makefile"); err == nil {
		for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
			if !tests[m[1]] {
				problems = append(problems, fmt.Sprintf("Makefile names the test %s, which does not exist", m[1]))
			}
		}
	}
	for _, doc := range t.documents() {
		for _, m := range inCode.FindAllStringSubmatch(t.prose(doc), -1) {
			word := m[1]
			if p := proof.FindStringSubmatch(word); p != nil && !tests[p[1]] {
				problems = append(problems, fmt.Sprintf("%s names the test %s, which does not exist", doc, word))
			}
			top, _, ok := strings.Cut(word, "/")
			if !ok || top == "" || !tops[top] || strings.ContainsAny(word, " <>$|=") ||
				slices.Contains(notPaths, word) {
				continue
			}
			for _, name := range expand(word) {
				if !t.has(name) {
					problems = append(problems,
						fmt.Sprintf("%s names `%s`, which does not exist (if it is no path, add it to notPaths)", doc,
							name))
				}
			}
		}
	}
	return problems
}

// expand writes a{b,c} out.
func expand(word string) []string {
	m := braces.FindStringSubmatch(word)
	if m == nil {
		return []string{word}
	}
	var all []string
	for alt := range strings.SplitSeq(m[2], ",") {
		all = append(all, expand(m[1]+strings.TrimSpace(alt)+m[3])...)
	}
	return all
}

// has reports whether a path as documents write it exists: with "/..." or a star, with a line or test after a colon,
// or with a symbol of a package after a dot.
func (t *tree) has(name string) bool {
	name, _, _ = strings.Cut(name, ":")
	name, _, _ = strings.Cut(name, "#")
	name = strings.TrimSuffix(strings.TrimSuffix(name, "/..."), "/")
	for _, n := range []string{name, symbol.ReplaceAllString(name, "")} {
		if found, err := fs.Glob(t.fsys, n); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

func TestNamedPaths(t *testing.T) {
	holds(t, checkNamedPaths)
	with := func(text string) map[string]string {
		return map[string]string{"docs/deep/d.md": text, "internal/batch/fold.go": "package batch",
			"internal/batch/fold_test.go": "package batch; func TestFold() {}"}
	}
	try(t, checkNamedPaths, []trial{
		{"good", with("`internal/batch`, `internal/batch/`, `internal/batch/fold.go`, `internal/...`, " +
			"`internal/batch/*.go`, `internal/batch.State`, `internal/batch.State.Apply`"), ""},
		{"good, with more", with("`internal/batch/{fold,fold_test}.go`, `internal/batch/fold.go:12`, " +
			"`docs/deep/d.md#top`, `TestFold`, `TestFold/empty`, `Testing`"), ""},
		{"no paths", with("`READ/WRITE`, `go test ./internal/x`, `docs/<name>.md`, `tools/list`, internal/gone"), ""},
		{"in a block", with("```\n`internal/gone`\n```\n"), ""},
		{"gone", with("see `internal/gone`"), "docs/deep/d.md names `internal/gone`"},
		{"gone behind a block", with("```\nx\n```\n`internal/gone`\n```\nx\n```\n"), "internal/gone"},
		{"gone file", with("see `internal/batch/gone.go`"), "gone.go"},
		{"gone pattern", with("see `internal/batch/*.txt`"), "*.txt"},
		{"gone in braces", with("see `internal/batch/{fold,gone}.go`"), "gone.go"},
		{"gone package of a symbol", with("see `internal/gone.State`"), "internal/gone.State"},
		{"gone top", with("see `deploy/compose.yaml`"), "deploy/compose.yaml"},
		{"gone test", with("proved by `TestGone/x`"), "TestGone/x"},
		{"in the README", map[string]string{"README.md": "`internal/gone`"}, "README.md names"},
		{"in the Makefile", map[string]string{"Makefile": "-run '^TestGone$$'"}, "Makefile names the test TestGone"},
		{"in testdata", map[string]string{"internal/x/testdata/a.md": "`internal/gone`"}, ""},
	})
}

// checkLinks: relative links of documents lead somewhere, to headings too.
func checkLinks(t *tree) (problems []string) {
	for _, doc := range t.documents() {
		text := inCode.ReplaceAllString(t.prose(doc), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			u, err := url.Parse(m[1] + m[2])
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s has a broken link: %v", doc, err))
				continue
			}
			if u.Scheme != "" || u.Host != "" {
				continue
			}
			target := doc
			if u.Path != "" {
				target = path.Join(path.Dir(doc), u.Path)
			}
			if _, err := fs.Stat(t.fsys, target); err != nil {
				problems = append(problems, fmt.Sprintf("%s links to %s, which does not exist", doc, u))
			} else if u.Fragment != "" && path.Ext(target) == ".md" && !slices.Contains(t.anchors(target), u.Fragment) {
				problems = append(problems, fmt.Sprintf("%s links to %s; %s has no such heading", doc, u, target))
			}
		}
	}
	return problems
}

var (
	heading = regexp.MustCompile(`(?m)^#{1,6}\s+(.*?)\s*#*\s*$`)
	marked  = regexp.MustCompile(`\b(?:id|name)="([^"]+)"`)
)

// anchors are what links into a document can name, as GitHub makes them.
func (t *tree) anchors(name string) (all []string) {
	text := t.prose(name)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		a := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, link.ReplaceAllString(m[1], "]"))
		unique := a
		for n := 1; slices.Contains(all, unique); n++ {
			unique = fmt.Sprintf("%s-%d", a, n)
		}
		all = append(all, unique)
	}
	for _, m := range marked.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

func TestLinks(t *testing.T) {
	holds(t, checkLinks)
	with := func(text string) map[string]string {
		return map[string]string{"docs/a.md": text,
			"docs/b.md": "# Two *words*, `x_y`\n## Two words, x_y\n<a id=\"here\"></a>", "c.go": "package c"}
	}
	try(t, checkLinks, []trial{
		{"good", with("[b](b.md) [c](../c.go) ![b](./b.md \"title\") [x](https://example.com/gone) " +
			"[m](mailto:a@example.com)\n\n[r]: b.md"), ""},
		{"good headings", with("# Top\n[t](#top) [b](b.md#two-words-x_y) [b](b.md#two-words-x_y-1) [h](b.md#here)"),
			""},
		{"in code", with("`[b](gone.md)`\n```\n[b](gone.md)\n```\n"), ""},
		{"gone", with("[b](gone.md)"), "docs/a.md links to gone.md"},
		{"gone reference", with("[r]: gone.md"), "gone.md"},
		{"gone heading", with("[b](b.md#gone)"), "docs/b.md has no such heading"},
		{"gone heading here", with("[b](#gone)"), "no such heading"},
		{"out of the repository", with("[b](../../b.md)"), "does not exist"},
	})
}

// checkDecisions: the table in docs/adr/README.md names every decision.
func checkDecisions(t *tree) (problems []string) {
	index := t.prose("docs/adr/README.md")
	for _, name := range t.files {
		if ok, _ := path.Match("docs/adr/[0-9]*.md", name); ok && !strings.Contains(index, "("+path.Base(name)+")") {
			problems = append(problems, name+" is not in the table of docs/adr/README.md")
		}
	}
	return problems
}

func TestDecisions(t *testing.T) {
	holds(t, checkDecisions)
	try(t, checkDecisions, []trial{
		{"named", map[string]string{"docs/adr/README.md": "[1](0001-x.md)", "docs/adr/0001-x.md": "",
			"docs/adr/template.md": ""}, ""},
		{"not named", map[string]string{"docs/adr/README.md": "[1](0001-x.md)", "docs/adr/0001-x.md": "",
			"docs/adr/0002-y.md": ""}, "0002-y.md"},
		{"no table", map[string]string{"docs/adr/0001-x.md": ""}, "0001-x.md"},
	})
}
