package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/tool"
)

func mustRules(t testing.TB, list ...string) []Rule {
	t.Helper()
	rules, err := ParseRules(list)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestParseRule(t *testing.T) {
	for _, s := range []string{"bash", "bash(git status:*)", "write_file(docs/**)", "web_fetch(domain:example.com)",
		"mcp__github__*",
		"mcp__github__create_issue", "bash(echo (x):*)", "my-tool.v2", "x(y))"} {
		r, err := ParseRule(s)
		if err != nil || r.String() != s {
			t.Errorf("ParseRule(%q) = %q, %v", s, r, err)
		}
	}
	for _, tc := range []struct{ rule, want string }{
		{"", "names no tool"}, {"(x)", "names no tool"}, {"bash(git", `does not end in ")"`},
		{"bash(git) x", `does not end in ")"`},
		{"bash()", "write just bash"}, {"bash( )", "write just bash"}, {"bash(:*)", "write just bash"},
		{"read_file, bash", "one rule for each tool"},
		{"bash (x)", "is not a tool name"}, {"bash)", "is not a tool name"},
		{"*", "mcp__server__*"}, {"read*", "mcp__server__*"}, {"mcp__*", "mcp__server__*"},
		{"mcp____*", "mcp__server__*"},
		{"mcp__*__x", "mcp__server__*"},
		{"mcp__a__*(x)", "a specifier needs one tool"}, {strings.Repeat("a", 129), "at most 128"},
		{"a\x01b", "control character"},
		{"bash(" + strings.Repeat("a", MaxRuleBytes) + ")", "at most 4096"},
	} {
		r, err := ParseRule(tc.rule)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "rule ") {
			t.Errorf("ParseRule(%.40q) = %+v, %v; want an error with %q", tc.rule, r, err, tc.want)
		}
	}
	if rules, err := ParseRules([]string{"a", "b(", "c(", "d"}); len(rules) != 2 || err == nil ||
		strings.Count(err.Error(), "does not end") != 2 {
		t.Errorf("ParseRules = %v, %v; want the two good rules and both errors", rules, err)
	}
}

func TestParseMode(t *testing.T) {
	for _, m := range Modes {
		if got, err := ParseMode(string(m)); got != m || err != nil {
			t.Errorf("ParseMode(%q) = %q, %v", m, got, err)
		}
	}
	if got, err := ParseMode(""); got != Default || err != nil {
		t.Errorf("ParseMode of nothing = %q, %v", got, err)
	}
	_, err := ParseMode("yolo")
	if err == nil || !strings.Contains(err.Error(), "default, accept_edits, plan, dont_ask, bypass") {
		t.Errorf("ParseMode(yolo): %v", err)
	}
}

// Tools of each kind, for all tests.
var (
	bashTool = &tool.Declaration{Name: "bash", Aliases: []string{"shell"},
		Specifier: tool.Specifier{Command: "command"}}
	writeTool = &tool.Declaration{Name: "write_file", EditsWorkspace: true,
		Specifier: tool.Specifier{Path: "file_path"}}
	fetchTool = &tool.Declaration{Name: "web_fetch", UsesWorkspace: new(bool), Specifier: tool.Specifier{URL: "url"}}
	plainTool = &tool.Declaration{Name: "plain"}
	oddTool   = &tool.Declaration{Name: "odd", Specifier: tool.Specifier{Path: "p", URL: "u"}}

	declarations = []*tool.Declaration{bashTool, writeTool, fetchTool, plainTool, oddTool}
)

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		rule string
		d    *tool.Declaration
		want string // in the error; empty for none
	}{
		{"bash", bashTool, ""}, {"bash(git status:*)", bashTool, ""}, {"bash('git' status)", bashTool, ""},
		{"other(x)", bashTool, ""},
		{"bash(git | cat)", bashTool, "one plain command"}, {"bash(git *)", bashTool, ""},
		{"bash(* *)", bashTool, "every command"},
		{"bash($x:*)", bashTool, "one plain command"},
		{"bash(ls > f)", bashTool, "one plain command"}, {"bash(a; b)", bashTool, "one plain command"},
		{"bash(git 'x)", bashTool, "not a command"}, {"Bash('x)", bashTool, "not a command"},
		{"write_file(docs/**)", writeTool, ""}, {"write_file(./docs/*.{md,txt})", writeTool, ""},
		{"write_file(/ws/docs/**)", writeTool, ""}, {"write_file({a/**,b/**})", writeTool, ""},
		{"write_file(docs/)", writeTool, ""}, {"write_file(!docs)", writeTool, "no exceptions"},
		{"write_file(**/*)", writeTool, "whole workspace"}, {"write_file(./)", writeTool, "whole workspace"},
		{"write_file(.)", writeTool, "whole workspace"},
		{"write_file(?*)", writeTool, "whole workspace"}, {"write_file(*/**)", writeTool, "whole workspace"},
		{"write_file(./**)", writeTool, "whole workspace"},
		{"write_file([!.]*)", writeTool, ""}, {"write_file(.*)", writeTool, ""}, {"write_file(*/*)", writeTool, ""},
		{"write_file(~/x)", writeTool, "not expanded"},
		{"write_file(../x)", writeTool, ".."}, {"write_file(a[b)", writeTool, "not a glob"},
		{"write_file(docs/**.md)", writeTool, "any depth"}, {"write_file(a**/b)", writeTool, "any depth"},
		{"write_file({a}{a}{a}{a}{a})", writeTool, "several rules"},
		{"web_fetch(domain:example.com)", fetchTool, ""}, {"web_fetch(domain:EXAMPLE.com.)", fetchTool, ""},
		{"web_fetch(example.com)", fetchTool, "domain:example.com"},
		{"web_fetch(domain:https://x.y)", fetchTool, "not a plain domain"},
		{"web_fetch(domain:a..b)", fetchTool, "not a plain domain"},
		{"web_fetch(domain:*.x.y)", fetchTool, "not a plain domain"},
		{"web_fetch(domain:)", fetchTool, "not a plain domain"},
		{"plain(x)", plainTool, "write just plain"}, {"odd(x)", oddTool, "write just odd"}, {"plain", plainTool, ""},
	} {
		r := mustRules(t, tc.rule)[0]
		err := r.Check(tc.d)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s for %s: %v, want %q", tc.rule, tc.d.Name, err, tc.want)
		}
	}
	rs := Rules{Deny: mustRules(t, "plain(x)"), Ask: mustRules(t, "bash(a;b)"),
		Allow: mustRules(t, "odd(x)", "bash(git:*)")}
	if err := rs.Check(plainTool, bashTool, oddTool); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("Rules.Check: %v, want three errors", err)
	}
}

func TestBlocks(t *testing.T) {
	rs := Rules{
		Deny: mustRules(t, "bash", "write_file(docs/**)", "mcp__github__*", "OldName"), Ask: mustRules(t, "grep"),
		Allow: mustRules(t, "bash"),
	}
	for name, want := range map[string]bool{"bash": true, "write_file": false, "grep": false, "mcp__github__x": true,
		"mcp__github__": false, "mcp__gitlab__x": false,
		"mcp__github": false, "": false} {
		if got := rs.Blocks(name, nil); got != want {
			t.Errorf("Blocks(%q) = %v", name, got)
		}
	}
	if !rs.Blocks("new_name", []string{"x", "OldName"}) {
		t.Error("a deny rule for an alias does not block")
	}
}

func TestTightenDoesNotShare(t *testing.T) {
	base := Rules{Deny: slices.Grow(mustRules(t, "a"), 8)}
	one, two := base.Tighten(mustRules(t, "b"), nil), base.Tighten(mustRules(t, "c"), nil)
	if one.Deny[1].Tool != "b" || two.Deny[1].Tool != "c" || len(base.Deny) != 1 {
		t.Errorf("%v %v %v", base, one, two)
	}
}

func TestField(t *testing.T) {
	for _, tc := range []struct {
		input, want string
		ok          bool
	}{
		{`{"command":"ls"}`, "ls", true}, {`{"a":{"command":"x"},"command":"ls","b":[1]}`, "ls", true},
		{`{"command":""}`, "", true}, {`{"comm\u0061nd":"ls"}`, "ls", true},
		{`{}`, "", false}, {`{"command":1}`, "", false}, {`{"command":null}`, "", false},
		{`{"command":["ls"]}`, "", false},
		{`"ls"`, "", false}, {``, "", false}, {`[`, "", false}, {`{"command":"ls"`, "", false},
		{`{"command":"ls","command":"rm"}`, "", false}, {`{"command":"ls","Command":"rm"}`, "", false},
		{`{"COMMAND":"ls"}`, "", false}, {`{"command":null,"command":"ls"}`, "", false},
	} {
		if got, ok := Field([]byte(tc.input), "command"); got != tc.want || ok != tc.ok {
			t.Errorf("Field(%s) = %q, %v", tc.input, got, ok)
		}
	}
	if _, ok := Field([]byte(`{"tasK":"a","task":"b"}`), "task"); ok { // U+212A, which folds to k
		t.Error("a key that encoding/json takes for the same one was overlooked")
	}
}
