package shell

import (
	"strings"
	"testing"
)

func TestParts(t *testing.T) {
	for command, want := range map[string]string{
		"npm test":                                "npm test",
		"cd src && ls":                            "+cd src|+ls",
		"cd src && npm test":                      "+cd src|npm test",
		"npm test | head":                         "npm test|+head",
		"npm test 2>&1 | tail -20":                "npm test|+tail -20",
		"npm test; ls src/*.ts; echo $?":          "npm test|+ls src/|+echo ",
		"timeout 60 npm test":                     "timeout 60 npm test",
		"time npm test":                           "npm test",
		"(npm test) || { npm run x; }":            "npm test|npm run x",
		"if npm test; then ls; fi":                "npm test|+ls",
		"! npm test":                              "npm test",
		"for f in a b; do cat $f; done; npm test": "+|npm test",
		"[[ -f a ]] && npm test":                  "+|npm test",
		"cd x && git status":                      "+cd x|git status",
		"npm test > out":                          "",
		"npm test $x":                             "",
		"npm test *":                              "",
		"ls $(npm test)":                          "",
		"X=1 npm test":                            "",
		"npm test &":                              "",
		"f() { ls; }; npm test":                   "",
		"for d in a b; do cd $d; done; npm test":  "",
		"for d in a b; do npm test; done":         "",
		"{ npm test; } > out":                     "",
		"export X=1; npm test":                    "",
		"npm test 'x":                             "",
		"":                                        "",
		"$cmd":                                    "",
		"npm test <<EOF\nx\nEOF":                  "",
		"cat <<EOF | npm test\nx\nEOF":            "+cat|npm test",
	} {
		parts, ok := Parts(command)
		var got []string
		for _, p := range parts {
			var words []string
			for _, w := range p.Args {
				words = append(words, w.Text)
			}
			mark := ""
			if p.Reads {
				mark = "+"
			}
			got = append(got, mark+strings.Join(words, " "))
		}
		if text := strings.Join(got, "|"); ok != (want != "") || ok && text != want {
			t.Errorf("Parts(%q) = %q, %t; want %q", command, text, ok, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	for command, want := range map[string]string{
		"grep x f": notFound, "cat f | grep x": notFound, "test -f x": falseTest, "[ -f x ]": falseTest,
		"[[ -f x ]]": falseTest,
		"diff a b":   differs, "cmp a b": differs, "git diff --exit-code": differs, "git --no-pager grep x": notFound,
		"git -C x grep y":        notFound,
		"cd src && grep -rn x .": notFound + "?", "echo a; rg x": notFound, "false || grep x f": notFound,
		"timeout 5 grep x f":         notFound,
		"if true; then grep x f; fi": notFound, "for f in *; do grep x $f; done": notFound,
		"(npm test; grep x f)": notFound,
		"grep x f && echo yes": notFound, "grep x < f": notFound + "?", "time diff a b": differs,
		// each of the programs may have determined the status
		"diff a b && grep x f":                      differs + ", or " + notFound,
		"if true; then test -f x; else cmp a b; fi": falseTest + ", or " + differs,
		"grep x f && [ -f g ] && grep y g":          notFound + ", or " + falseTest,
		// what stands behind a ! ends with 1 if it has found something
		"! grep -q x f": "", "! (cat f | grep x)": "", "grep x f && ! grep y f": "", "if true; then ! diff a b; fi": "",
		"! grep -q x f || grep y f": notFound, "if ! grep -q x f; then grep y f; fi": notFound,
		"npm test": "", "grep x f; npm test": "", "npm test && grep x f": "", "cat f && grep x f": "",
		"grep x f || exit 1": "", "set -e; grep x f": "",
		"grep x f && false": "", "grep x f | wc -l": "", "echo a": "", "exit 1": "", "x=$(grep y f)": "",
		"grep x f &": "", "$cmd": "", "grep 'x": "",
		"git diff": "", "git status": "", "": "", "cd src": "", "sh -c 'grep x f'": "", "grep x f; f() { ls; }": "",
	} {
		got, ok := Answers(command)
		text := got.Means
		if got.UnlessShell {
			text += "?"
		}
		if ok != (want != "") || ok && text != want {
			t.Errorf("Answers(%q) = %q, %t; want %q", command, text, ok, want)
		}
	}
	for want, argv := range map[string][]string{
		notFound: {"/usr/bin/grep", "-rn", "x", "."}, differs: {"bash", "-c", "diff a b"}, "": {"sh", "script"},
	} {
		if got, ok := AnswersOf(argv); ok != (want != "") || ok && got.Means != want {
			t.Errorf("AnswersOf(%q) = %+v, %t; want %q", argv, got, ok, want)
		}
	}
}
