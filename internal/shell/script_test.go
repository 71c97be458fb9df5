package shell

import (
	"fmt"
	"strings"
	"testing"
)

// render writes a script as text: words joined by "·", an open word as its known start and "…", a glob as "*…"; then
// the flags.
func render(s Script) string {
	var out []string
	for _, c := range s.Commands {
		var words []string
		for _, w := range c.Args {
			switch {
			case w.Literal:
				words = append(words, w.Text)
			case w.Glob:
				words = append(words, w.Text+"*…")
			default:
				words = append(words, w.Text+"…")
			}
		}
		out = append(out, strings.Join(words, "·")+renderFlags(c.Flags))
	}
	all := renderFlags(s.Flags)
	if s.Functions {
		all += "+functions"
	}
	if s.Other {
		all += "+other"
	}
	return strings.Join(out, " | ") + " ||" + all
}

func renderFlags(f Flags) string {
	var s string
	for _, f := range []struct {
		on   bool
		name string
	}{{f.Assigns, "assigns"}, {f.Redirects, "redirects"}, {f.Substitutes, "substitutes"}, {f.Expands, "expands"},
		{f.Background, "background"}} {
		if f.on {
			s += "+" + f.name
		}
	}
	return s
}

func TestParse(t *testing.T) {
	for _, tc := range []struct{ command, want string }{
		{"git status", "git·status ||"},
		{"git  add a && git commit -m 'x y' # c", "git·add·a | git·commit·-m·x y ||"},
		{"ls 2>&1 >/dev/null </dev/null", "ls ||"},
		{`g"i"t 'st'at\us`, "git·status ||"},
		{`echo "a\"b\$c\d" 'e\f' g\ h`, `echo·a"b$c\d·e\f·g h ||`},
		{"ls > f", "ls+redirects ||+redirects"},
		{"(ls) > f", "ls ||+redirects"},
		{"ls < f", "ls+redirects ||+redirects"},
		{"X=1 ls", "ls+assigns ||+assigns"},
		{"X=1", "+assigns ||+assigns"},
		{"export X=1 $y -n", "export·…·-n+assigns+expands ||+assigns+expands"},
		{"rm $x", "rm·…+expands ||+expands"},
		{"$cmd x", "…·x+expands ||+expands"},
		{"rm a$x*.go b*.go *", "rm·a…·b*…·*…+expands ||+expands"},
		{"rm x{a,b}y ~/z $'q' a\\*b {a} HEAD@{1}", "rm·x…·…·…·a*b·{a}·HEAD@{1}+expands ||+expands"},
		{"rm {a..c} a~b x=~/y", "rm·…·a~b·x=…+expands ||+expands"},
		{"ls $(rm x)", "ls·…+substitutes+expands | rm·x ||+substitutes+expands"},
		{"diff <(ls) `pwd`", "diff·…·…+substitutes+expands | ls | pwd ||+substitutes+expands"},
		{"ls & wait", "ls+background | wait ||+background"},
		{"{ ls; } &", "ls ||+background"},
		{"coproc ls", "ls ||+background"},
		{"f() { rm x; }; f", "rm·x | f ||+functions"},
		{"for f in a; do rm $f; done", "rm·…+expands ||+assigns+expands"},
		{"if a; then b; else c; fi", "a | b | c ||"},
		{"[ -f x ] && y", "[·-f·x·] | y ||"},
		{"[[ -f x ]] && y", "y ||+other"},
		{"((x++)); echo $((1))", "echo·…+expands ||+expands+other"},
		{"let x=1", "let·…+assigns ||+assigns+other"},
		{"cat <<EOF\n$(rm x)\nEOF", "cat+redirects | rm·x ||+redirects+substitutes"},
		{"case x in $(a)) b;; esac", "a | b ||+substitutes"},
		{"! time rm x", "rm·x ||"},
		{"\"\"", " ||"},
	} {
		s, err := Parse(tc.command)
		if err != nil {
			t.Errorf("Parse(%q): %v", tc.command, err)
			continue
		}
		if got := render(s); got != tc.want {
			t.Errorf("Parse(%q)\n got %s\nwant %s", tc.command, got, tc.want)
		}
		if s.Plain() != strings.HasSuffix(tc.want, "||") {
			t.Errorf("Parse(%q).Plain() = %v", tc.command, s.Plain())
		}
	}
	for _, command := range []string{"", "# x", "ls 'x", "ls \x00", "ls\r\n", "ls \xff", "cat <<\"a b\"\nx\na b\n",
		"echo $(cat <<E\nE)\nE\n)"} {
		if s, err := Parse(command); err == nil {
			t.Errorf("Parse(%q) = %s, want an error", command, render(s))
		}
	}
}

func ExampleClassify() {
	for _, command := range []string{"ls -la | head", "ls > files.txt", "git status && git push"} {
		class, why := Classify(command)
		fmt.Printf("%s: %s\n", class, why)
	}
	// Output:
	// READ_ONLY: only reads: head, ls
	// UNSAFE: the redirection > may write a file
	// UNSAFE: git: push is not known to only read
}
