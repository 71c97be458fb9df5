package policy

import (
	"encoding/json"
	"testing"

	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/tool"
)

// TestWhatBashRunsIsWhatRulesSee: a command that Bash runs and the parser does not see is allowed by no rule, read-only
// for nobody, and denied by a rule for it.
func TestWhatBashRunsIsWhatRulesSee(t *testing.T) {
	d := &tool.Declaration{Name: "bash", Class: tool.ClassRule{Shell: "command"},
		Specifier: tool.Specifier{Command: "command"}}
	for _, hidden := range []string{
		"%s # done \\\nrm -rf x",                        // Bash ends a comment at its line's end
		"%s; cat <<EOF\nE\\\nOF\nrm -rf x\nEOF\n",       // Bash joins the lines, and ends the document
		"%s; cat <<EOF\n${x:-\nEOF\nrm -rf x\n}\nEOF\n", // Bash ends it at the first EOF
		"%s; echo \"${x:-'$(rm -rf x)'}\"",              // quotes between double quotes are letters
		"%s; echo a<<'EOF'#; rm -rf x\nEOF\n",           // the document ends at EOF#
		"%s; echo ${x:-<(rm -rf x)}",                    // a process substitution
		"%s >&'$(rm -rf x)'",                            // Bash expands the word once more
		"%s 1>&'`rm -rf x`'",
		"%s; echo >&'<(rm -rf x)'",
		"%s; echo >&\\$\\(rm\\ -rf\\ x\\)",
		"%s; x='$(rm -rf x)'; echo >&\"$x\"",
		"%s; [[ x == @($(rm -rf x)) ]]", // a list of patterns, which the parser keeps as text
		"%s; [[ x == a+(b|`rm -rf x`) ]]",
		"%s; [[ x != !(\"$(rm -rf x)\") ]]",
		"%s; shopt -s extglob\necho @($(rm -rf x))",
		"%s; shopt -s extglob\ncase x in @(<(rm -rf x))) ;; esac",
	} {
		line := func(first string) string {
			return first + hidden[len("%s"):]
		}
		ask := func(rules Rules, command string) Decision {
			class, _ := shell.Classify(command)
			in, _ := json.Marshal(map[string]string{"command": command})
			return Decide(rules, Request{Declaration: d, Input: in, Judgement: tool.Judgement{ReadOnly: class.Safe()},
				WorkspaceDir: "/ws"})
		}
		rule := func(s string) Rule {
			r, err := ParseRule(s)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if got := ask(Rules{}, line("ls")); got.Behavior == Allow {
			t.Errorf("%q: no rule, and %s (%s)", line("ls"), got.Behavior, got.Source)
		}
		if got := ask(Rules{Allow: []Rule{rule("bash(npm test:*)")}}, line("npm test")); got.Behavior == Allow {
			t.Errorf("%q: %s (%s)", line("npm test"), got.Behavior, got.Source)
		}
		if got := ask(Rules{Deny: []Rule{rule("bash(rm:*)")}}, line("ls")); got.Behavior != Deny {
			t.Errorf("%q: rm is denied, and it is %s (%s)", line("ls"), got.Behavior, got.Source)
		}
	}
}

// TestWrappersBehindOthers: a wrapper that find or git bisect runs hides nothing either.
func TestWrappersBehindOthers(t *testing.T) {
	d := &tool.Declaration{Name: "bash", Class: tool.ClassRule{Shell: "command"},
		Specifier: tool.Specifier{Command: "command"}}
	deny, err := ParseRule("bash(rm:*)")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{
		`find . -exec timeout 5 rm {} \;`, `find . -exec sudo rm {} +`, `fd -x nice rm`, `git bisect run timeout 5 rm x`,
		`find . -exec nice sh -c 'rm x' \;`,
	} {
		in, _ := json.Marshal(map[string]string{"command": c})
		if got := Decide(Rules{Deny: []Rule{deny}},
			Request{Declaration: d, Input: in, Mode: Bypass}); got.Behavior != Deny {
			t.Errorf("%s: %s (%s)", c, got.Behavior, got.Source)
		}
	}
}
