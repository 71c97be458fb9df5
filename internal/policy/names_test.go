package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/tool"
)

// builtins are declarations like those of the built-in tools, without any alias.
var builtins = map[string]*tool.Declaration{
	"bash":       {Name: "bash", Specifier: tool.Specifier{Command: "command"}},
	"read_file":  {Name: "read_file", Specifier: tool.Specifier{Path: "file_path"}},
	"write_file": {Name: "write_file", EditsWorkspace: true, Specifier: tool.Specifier{Path: "file_path"}},
	"edit_file":  {Name: "edit_file", EditsWorkspace: true, Specifier: tool.Specifier{Path: "file_path"}},
	"glob":       {Name: "glob", Specifier: tool.Specifier{Path: "path"}},
	"grep":       {Name: "grep", Specifier: tool.Specifier{Path: "path"}},
	"web_fetch":  {Name: "web_fetch", UsesWorkspace: new(bool), Specifier: tool.Specifier{URL: "url"}},
	"mcp__my__x": {Name: "mcp__my__x"},
}

// TestNamesOfTheField: the names that people know from Claude Code mean our tools in every list of rules.
func TestNamesOfTheField(t *testing.T) {
	for _, tc := range []struct {
		rule, tool, field, value string
		denied, allowed          bool
	}{
		{"Bash", "bash", "command", "ls", true, true},
		{"Bash(*)", "bash", "command", "ls", true, true},
		{"Bash(ls:*)", "bash", "command", "ls -l", true, true},
		{"Bash(ls:*)", "bash", "command", "cat x", false, false},
		{"Bash(npm run *)", "bash", "command", "npm run test", true, true},
		{"Bash(npm run *)", "bash", "command", "npm run", true, true},
		{"Bash(npm run *)", "bash", "command", "npm install", false, false},
		{"Read(.env)", "read_file", "file_path", "sub/.env", true, true},
		{"Write(docs/**)", "write_file", "file_path", "docs/a", true, true},
		{"Write(docs/**)", "edit_file", "file_path", "docs/a", false, false},
		{"Edit(docs/**)", "edit_file", "file_path", "docs/a", true, true},
		{"Edit(docs/**)", "write_file", "file_path", "docs/a", true, true},
		{"Edit(docs/**)", "write_file", "file_path", "src/a", false, false},
		{"Edit", "write_file", "file_path", "src/a", true, true},
		{"Edit(**)", "write_file", "file_path", "src/a", true, true},
		{"edit_file(docs/**)", "write_file", "file_path", "docs/a", false, false},
		{"Glob", "glob", "path", "x", true, true},
		{"Grep", "grep", "path", "x", true, true},
		{"WebFetch(domain:a.org)", "web_fetch", "url", "https://www.a.org/x", true, true},
		{"WebFetch(domain:a.org)", "web_fetch", "url", "https://b.org/x", false, false},
		{"mcp__my", "mcp__my__x", "a", "b", true, true},
		{"mcp__my__*", "mcp__my__x", "a", "b", true, true},
		{"mcp__my__x", "mcp__my__x", "a", "b", true, true},
		{"mcp__m", "mcp__my__x", "a", "b", false, false},
		{"mcp__my__y", "mcp__my__x", "a", "b", false, false},
	} {
		req := Request{Declaration: builtins[tc.tool], Input: input(t, tc.field, tc.value)}
		if req.Declaration.Specifier.Path != "" {
			req.Paths = []string{tc.value}
		}
		denied, allowed := matches(t, tc.rule, req)
		if allowed && !tc.allowed && tc.field == "path" { // reading in the workspace needs no rule
			allowed = false
		}
		if denied != tc.denied || allowed != tc.allowed {
			t.Errorf("%s on %s %q: denied %v, allowed %v; want %v, %v", tc.rule, tc.tool, tc.value, denied, allowed,
				tc.denied, tc.allowed)
		}
	}
	if rs := (Rules{Deny: mustRules(t, "Glob", "mcp__my", "Bash(x)")}); !rs.Blocks("glob", nil) ||
		!rs.Blocks("mcp__my__x", nil) || rs.Blocks("bash", nil) {
		t.Error("a deny of Glob or mcp__my does not take the tool out, or one of Bash(x) does")
	}
	hidden := Rules{Deny: mustRules(t, "Read(.env)")}.Hidden(builtins["bash"], "/ws")
	if hidden == nil || !hidden("a/.env") || hidden("a/b") {
		t.Error("a deny of Read(.env) hides nothing from commands")
	}
}

// TestUnknownNames: a rule that no tool can match is an error that says so.
func TestUnknownNames(t *testing.T) {
	here := Names{Tools: []string{"charge", "old_charge"}, Servers: []string{"my"}}
	anywhere := Names{Tools: here.Tools, AnyServer: true}
	for rule, known := range map[string]bool{
		"bash": true, "read_result": true, "Bash(ls:*)": true, "Edit": true, "charge": true, "old_charge": true,
		"mcp__my": true, "mcp__my__*": true,
		"mcp__my__later": true, "raed_file(.env)": false, "BASH": false, "WebSearch": false, "MultiEdit(x)": false,
		"Charge": false, "mcp__": false,
	} {
		err := Rules{Deny: mustRules(t, rule)}.CheckNames(here)
		says := fmt.Sprintf("deny rule %q: there is no tool", rule)
		if (err == nil) != known || err != nil && !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v, known %v", rule, err, known)
		}
	}
	for _, rule := range []string{"mcp__other", "mcp__other__*", "mcp__other__x"} {
		if err := (Rules{Ask: mustRules(t, rule)}).CheckNames(here); err == nil ||
			!strings.Contains(err.Error(), "my") {
			t.Errorf("%s where only the server my is: %v", rule, err)
		}
		if err := (Rules{Allow: mustRules(t, rule)}).CheckNames(anywhere); err != nil {
			t.Errorf("%s where servers come and go: %v", rule, err)
		}
	}
}
