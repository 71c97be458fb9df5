//go:build unix

package builtin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard"
)

func searchBench(t *testing.T) *bench {
	b := newBench(t)
	b.put("main.go", "package main\n\nfunc main() {\n\tprintln(\"Hello\")\n}\n")
	b.put("lib/a.go", "package lib\n\nvar A = 1\n")
	b.put("lib/deep/b.go", "package deep\nvar hello = 2\n")
	b.put("lib/deep/b.txt", "hello text\r\n")
	b.put("odd\nname.go", "hello odd\n")
	b.put("bin.dat", "hello\x00")
	b.put(".git/config", "hello git\n")
	b.put(".gitignore", "hello ignore\n")
	b.link("lib", "linked")
	b.link(b.outside, "out-dir")
	b.must(syscall.Mkfifo(b.at("lib/fifo"), 0o644))
	return b
}

func TestGlob(t *testing.T) {
	b := searchBench(t)
	for _, c := range []struct{ pattern, path, want string }{
		{"*.go", "", "main.go\n\"odd\\nname.go\""},
		{"**/*.go", "", "lib/a.go\nlib/deep/b.go\nmain.go\n\"odd\\nname.go\""},
		{"**/*.go", "lib", "lib/a.go\nlib/deep/b.go"},
		{"lib/*", "", "lib/a.go\nlib/deep/\nlib/fifo"},
		{"lib/*/", "", "lib/deep/"},
		{"*.go", "lib/deep", "lib/deep/b.go"},
		{"./lib/**/b.{go,txt}", ".", "lib/deep/b.go\nlib/deep/b.txt"},
		{"lib/deep/../*.go", "", "lib/a.go"},
		{"linked/*.go", "", "linked/a.go"},
		{"*.go", "linked", "linked/a.go"},
		{"{lib,linked}/a.go", "", "lib/a.go\nlinked/a.go"},
		{b.at("lib") + "/*.go", "", "lib/a.go"},
		{b.at("lib") + "/*.go", "lib/deep", "lib/a.go"},
		{"main.go", "", "main.go"},
		{"main.go/", "", "[no file matches main.go/]"},
		{"lib/", "", "lib/"},
		{"nothing/*", "", "[no file matches nothing/*]"},
		{"main.go/*", "", "[no file matches main.go/*]"},
		{"*.rs", "", "[no file matches *.rs]"},
		{"**/config", "", "[no file matches **/config]"},
		{".git/*", "", ".git/config"},
		{"**/.git/*", "", ".git/config"},
		{".git*", "", ".gitignore"},
		{"out-d*", "", "out-dir"},
		{"{out-dir,lib}/secret", "", "[no file matches {out-dir,lib}/secret]"},
		{"?ain.[a-h]o", "", "main.go"},
	} {
		if got := b.ok("glob", in{"pattern": c.pattern, "path": c.path}); got != c.want {
			t.Errorf("%s in %q:\n%s\nwant\n%s", c.pattern, c.path, got, c.want)
		}
	}
	for _, pattern := range []string{"", "[", "a{b", "a}", "a\x00b", "\\", strings.Repeat("a", MaxPatternBytes+1),
		strings.Repeat("{a,b}", 20)} {
		b.refused(toolyard.InvalidArguments, "glob", in{"pattern": pattern})
	}
	b.contains(b.refused(toolyard.InvalidArguments, "glob", in{"pattern": "*", "path": "main.go"}), "give a directory")
	b.contains(b.refused(toolyard.InvalidArguments, "glob", in{"pattern": "*", "path": "libb"}), "did you mean lib?")
}

func TestGlobIsBounded(t *testing.T) {
	b := newBench(t)
	for i := range MaxGlobResults + 7 {
		b.put(fmt.Sprintf("many/%05d", i), "")
	}
	out := b.ok("glob", in{"pattern": "many/*"})
	b.contains(out, "many/00000\n", "many/00999\n", "[the first 1000 of 1007;")
	if strings.Contains(out, "many/01000") {
		t.Error("more than the limit is shown")
	}
	w, err := openWorkspace(b.env)
	b.must(err)
	defer w.close()
	files := &countedFS{ctx: t.Context(), w: w, base: "many", left: 100, progress: b.env.Progress}
	if _, err := files.ReadDir("."); err != nil {
		t.Errorf("a directory larger than what is left: %v", err)
	}
	if _, err := files.ReadDir("."); !errors.Is(err, errWalkLimit) {
		t.Errorf("past the limit: %v", err)
	}
	deep := strings.Repeat("d/", MaxWalkDepth+5)
	b.must(os.MkdirAll(b.at("deep/"+deep), 0o755))
	b.contains(b.ok("grep", in{"pattern": "x", "path": "deep"}), "1 not readable")
	gone := errors.New("the worker drains")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for _, name := range []string{"glob", "grep"} {
		if _, err := b.tools[name].Run(ctx, b.env, encode(in{"pattern": "x.*"})); !errors.Is(err, gone) {
			t.Errorf("a canceled %s: %v", name, err)
		}
	}
}

func TestGrep(t *testing.T) {
	b := searchBench(t)
	for _, c := range []struct {
		input in
		want  string
	}{
		{in{"pattern": "hello"}, ".gitignore:1:hello ignore\nlib/deep/b.go:2:var hello = 2\nlib/deep/b.txt:1:hello " +
			"text\n\"odd\\nname.go\":1:hello odd\n[skipped: 1 binary]"},
		{in{"pattern": "HELLO", "ignore_case": true, "glob": "*.go"},
			"lib/deep/b.go:2:var hello = 2\nmain.go:4:\tprintln(\"Hello\")\n\"odd\\nname.go\":1:hello odd"},
		{in{"pattern": "^var|^x", "path": "lib"}, "lib/a.go:3:var A = 1\nlib/deep/b.go:2:var hello = 2"},
		{in{"pattern": "^VAR|^X", "path": "lib", "ignore_case": true},
			"lib/a.go:3:var A = 1\nlib/deep/b.go:2:var hello = 2"},
		{in{"pattern": "hello", "path": "lib", "glob": "deep/*.txt"}, "lib/deep/b.txt:1:hello text"},
		{in{"pattern": "text$", "path": b.at("lib/deep/b.txt")}, "lib/deep/b.txt:1:hello text"},
		{in{"pattern": "func", "path": "main.go", "context": 1},
			"main.go-2-\nmain.go:3:func main() {\nmain.go-4-\tprintln(\"Hello\")"},
		{in{"pattern": "hello", "path": ".git"}, ".git/config:1:hello git"},
		{in{"pattern": "hello", "path": "linked/deep", "glob": "*.txt"}, "linked/deep/b.txt:1:hello text"},
		{in{"pattern": "nothing", "path": "lib"}, "[no line matches nothing in 3 files]"},
		{in{"pattern": "hello", "path": "bin.dat"}, "[no line matches hello in 0 files]\n[skipped: 1 binary]"},
	} {
		if got := b.ok("grep", c.input); got != c.want {
			t.Errorf("%v:\n%s\nwant\n%s", c.input, got, c.want)
		}
	}
	for _, input := range []in{
		{"pattern": ""}, {"pattern": "("}, {"pattern": "a(?=b)"}, {"pattern": `(a)\1`},
		{"pattern": "a)(b", "ignore_case": true},
		{"pattern": strings.Repeat("a", MaxPatternBytes+1)}, {"pattern": "(((a{999}){999}){999})"},
		{"pattern": "x", "glob": "["}, {"pattern": "x", "path": "nothing"}, {"pattern": "x", "path": "lib/fifo"},
		{"pattern": "x", "context": 21},
	} {
		b.refused(toolyard.InvalidArguments, "grep", input)
	}
}

// TestAGrepOfNoFileSaysThatItIsTheGlob: a search that has looked at nothing has not found that nothing matches.
func TestAGrepOfNoFileSaysThatItIsTheGlob(t *testing.T) {
	b := newBench(t)
	b.put("src/a.go", "hit\n")
	for glob, fits := range map[string]bool{"*.go": true, "**/*.go": true, "src/*.go": false, "src/**": false,
		"*.md": false} {
		if input := (in{"pattern": "hit", "path": "src/a.go", "glob": glob}); fits {
			if got := b.ok("grep", input); got != "src/a.go:1:hit" {
				t.Errorf("%s: %s", glob, got)
			}
		} else {
			b.contains(b.refused(toolyard.InvalidArguments, "grep", input), "glob", glob, "src/a.go", "leave glob out")
		}
	}
	for glob, want := range map[string]string{"src/*.go": "path below path", "*.md": "no file matches the glob"} {
		b.contains(b.ok("grep", in{"pattern": "hit", "path": "src", "glob": glob}), want, glob)
	}
	if got := b.ok("grep", in{"pattern": "none", "glob": "*.go"}); got != "[no line matches none in 1 file]" {
		t.Error(got)
	}
}

// TestGrepSearchesWhereLinksLead: a file that the search comes to by a symbolic link alone is searched under the link's
// name, and no file is searched twice. What is hidden or outside is not.
func TestGrepSearchesWhereLinksLead(t *testing.T) {
	b := newBench(t)
	b.put("README.md", "hit\n")
	b.put("docs/own.md", "hit\n")
	b.put("docs/plain.txt", "hit\n")
	b.put("docs/.git/config", "hit\n")
	b.put("secret.md", "hit\n")
	for name, to := range map[string]string{
		"docs/up.md": "../README.md", "docs/again.md": b.at("docs/up.md"), "docs/beside.md": "own.md",
		"docs/text.md": "plain.txt", "docs/git.md": ".git/config", "docs/hidden.md": "../secret.md",
		"docs/none.md": "none", "docs/round.md": "round.md", "docs/dir.md": "..",
		"docs/out.md": filepath.Join(b.outside, "secret"), "docs/out2.md": "../../outside/secret",
	} {
		b.link(to, name)
	}
	b.env.Hidden = func(path string) bool { return path == "secret.md" }
	for _, c := range []struct{ path, glob, want string }{
		{"docs", "", "again.md git.md own.md plain.txt up.md"},
		{"docs", "*.md", "again.md git.md own.md text.md up.md"},
		{".", "", "README.md docs/git.md docs/own.md docs/plain.txt"},
	} {
		var want strings.Builder
		for name := range strings.FieldsSeq(c.want) {
			fmt.Fprintf(&want, "%s:1:hit\n", path.Join(c.path, name))
		}
		if got := b.ok("grep", in{"pattern": "hit|SECRET", "path": c.path, "glob": c.glob}); got+"\n" != want.String() {
			t.Errorf("%s in %s:\n%s\nwant\n%s", c.glob, c.path, got, want.String())
		}
	}
}

// TestGrepSearchesWhatReadFileShows: the byte order mark of a file is no part of its first line.
func TestGrepSearchesWhatReadFileShows(t *testing.T) {
	b := newBench(t)
	b.put("a.cs", "\ufeffusing System;\r\nusing \ufeffX;\r\n")
	want := "a.cs:1:using System;\na.cs:2:using \ufeffX;"
	if got := b.ok("grep", in{"pattern": "^using|^$"}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.contains(b.ok("read_file", in{"file_path": "a.cs"}), "1\tusing System;\n2\tusing \ufeffX;\n")
}

func TestGrepContextAgreesWithADumbTwin(t *testing.T) {
	b := newBench(t)
	for bits := range 1 << 9 {
		var text strings.Builder
		var lines []string
		for i := range 9 {
			line := fmt.Sprintf("l%d", i+1)
			if bits>>i&1 == 1 {
				line += "X"
			}
			lines = append(lines, line)
			text.WriteString(line + "\n")
		}
		for around := range 3 {
			var want strings.Builder
			last := -1
			for i, line := range lines {
				shown := false
				for j := max(0, i-around); j <= min(len(lines)-1, i+around); j++ {
					shown = shown || strings.HasSuffix(lines[j], "X")
				}
				if !shown {
					continue
				}
				if around > 0 && last >= 0 && i > last+1 {
					want.WriteString("--\n")
				}
				sep := "-"
				if strings.HasSuffix(line, "X") {
					sep = ":"
				}
				fmt.Fprintf(&want, "f%s%d%s%s\n", sep, i+1, sep, line)
				last = i
			}
			p, err := compile("X$", false)
			b.must(err)
			s := &search{grepPlan: grepPlan{re: p, context: around}}
			b.must(s.text(t.Context(), []byte(text.String()), "f"))
			if s.out.String() != want.String() {
				t.Fatalf("%09b, %d lines around:\n%s\nwant\n%s", bits, around, s.out.String(), want.String())
			}
		}
	}
}

func TestGrepIsBounded(t *testing.T) {
	b := newBench(t)
	b.put("many", strings.Repeat("hit\n", MaxGrepMatches+1))
	b.contains(b.ok("grep", in{"pattern": "hit"}), "many:1000:hit\n[stopped at 1000 matching lines")
	b.put("exact", strings.Repeat("hit\n", MaxGrepMatches))
	if out := b.ok("grep", in{"pattern": "hit", "path": "exact"}); strings.Contains(out, "stopped") {
		t.Errorf("exactly the limit is said to be more: %s", out[len(out)-80:])
	}
	b.put("long", strings.Repeat("é", 100_000)+"needle"+strings.Repeat("z", 100_000)+"\n")
	out := b.ok("grep", in{"pattern": "needle", "path": "long"})
	b.contains(out, "long:1:…", "éneedlez", "z…")
	if len(out) > 4*MaxGrepLineChars {
		t.Errorf("a row of %d bytes", len(out))
	}
	b.put("wide", strings.Repeat(strings.Repeat("€", MaxGrepLineChars)+"\n", 900))
	out = b.ok("grep", in{"pattern": "€", "path": "wide"})
	if b.contains(out, "[stopped at 256 KiB of answer"); len(out) > MaxOutputBytes {
		t.Errorf("an answer of %d bytes", len(out))
	}
	b.put("large", "hit\n"+strings.Repeat("x", MaxGrepFileBytes))
	b.contains(b.ok("grep", in{"pattern": "hit", "path": "large"}), "1 over 10 MiB")
}

// TestGrepOfALongLineStops: the call's end stops a search also in the middle of a line.
func TestGrepOfALongLineStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct{ pattern, line string }{
		{"a+b", strings.Repeat("a", 1<<20)},
		{"x.*y|z", strings.Repeat("é", 1<<20)},
	} {
		s := &search{grepPlan: grepPlan{re: regexp.MustCompile(c.pattern)}}
		if err := s.text(ctx, []byte(c.line), "f"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", c.pattern, err)
		}
	}
}

// TestGrepOfManyLinesStops: the call's end stops a search between lines, also if they are few and almost long: a
// pattern may take a long time for each byte.
func TestGrepOfManyLinesStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct{ bytes, lines int }{{longLineBytes, 20}, {1, 2_000}, {0, 2_000}} {
		s := &search{grepPlan: grepPlan{re: regexp.MustCompile("a+b")}}
		text := strings.Repeat(strings.Repeat("a", c.bytes)+"\n", c.lines)
		if err := s.text(ctx, []byte(text), "f"); !errors.Is(err, context.Canceled) {
			t.Errorf("%d lines of %d bytes: %v", c.lines, c.bytes, err)
		}
	}
}

// TestGrepOfLongLinesAgreesWithShort: a match is found in a long line where it is found in a short one.
func TestGrepOfLongLinesAgreesWithShort(t *testing.T) {
	long := strings.Repeat("é \xff", longLineBytes)
	for _, pattern := range []string{"lit", "lit+", "^é", "^lit", "^lit$", "(?i)LIT", `\blit\b`, "t$", "$", "l(i|o)t|é$",
		"", "q*", "."} {
		re := regexp.MustCompile(pattern)
		for _, line := range []string{"lit" + long, long + "lit", long + " lit " + long, long} {
			s := &search{grepPlan: grepPlan{re: re}}
			if got, want := s.find(t.Context(), []byte(line)), re.FindStringIndex(line); !slices.Equal(got, want) {
				t.Errorf("%q in a line of %d bytes: %v, want %v", pattern, len(line), got, want)
			}
		}
	}
}
