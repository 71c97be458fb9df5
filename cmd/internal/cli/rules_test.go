package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

func ruleTools() []tool.Tool {
	return []tool.Tool{
		{Declaration: tool.Declaration{Name: "bash", Specifier: tool.Specifier{Command: "command"}}},
		{Declaration: tool.Declaration{Name: "write_file", Specifier: tool.Specifier{Path: "file_path"}}},
		{Declaration: tool.Declaration{Name: "web_fetch", Specifier: tool.Specifier{URL: "url"}}},
	}
}

func TestRulesFiles(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"good": {`
deny:
  - {rule: "bash(rm:*)", matches: ["rm -rf build", "git status; rm x"], spares: ["ls -la"]}
  - rule: mcp__shell__*
ask:
  - {rule: "web_fetch(domain:example.com)", matches: ["https://www.example.com/a"], spares: ["https://example.org/"]}
allow:
  - {rule: "bash(git status:*)", matches: ["git status -s"], spares: ["git status; rm -rf .", "git status > f", "X=1 git status", "git status $(rm x)"]}
  - {rule: "write_file(docs/**)", matches: ["docs/a/b.md"], spares: ["src/a.go", "docs.md"]}
`, ""},
		"empty": {``, ""},
		"an example is not matched": {`allow: [{rule: "bash(git status:*)", matches: ["git diff"], spares: ["ls"]}]`,
			`allow[0]: rule "bash(git status:*)" does not match "git diff"`},
		"an example is not spared": {`deny: [{rule: "bash(rm:*)", matches: ["rm x"], spares: ["ls; rm x"]}]`,
			`matches "ls; rm x", which is an example of what it spares`},
		"no examples": {`allow: [{rule: "bash(git status:*)"}]`, "at least one example"},
		"only one kind": {`allow: [{rule: "bash(git status:*)", matches: ["git status"]}]`,
			"at least one example"},
		"a path that leaves": {`allow: [{rule: "write_file(docs/**)", matches: ["../docs/a"], spares: ["a"]}]`,
			"not known to be inside"},
		"a rule that is none":         {`deny: [{rule: "bash("}]`, "deny[0]"},
		"an unknown key":              {`permit: []`, "permit"},
		"an unknown key of a rule":    {`deny: [{rule: bash, match: [x]}]`, "match"},
		"a specifier for an unknown":  {`deny: [{rule: "deploy(x)", matches: [x], spares: [y]}]`, `no tool "deploy"`},
		"no specifier, and it spares": {`deny: [{rule: bash, spares: [ls]}]`, "spares none"},
		"no YAML":                     {"deny: [", "line"},
		"a list":                      {"- bash", "rules.yaml: line 1: want keys with values, got a list"},
		"a rule without its key":      {"deny: [bash]", "line 1: want keys with values, got the value `bash`"},
		"examples that are no list":   {"deny: [{rule: bash, matches: ls}]", "line 1: want a list, got the value `ls`"},
		"a rule that is a list":       {"deny: [{rule: [bash]}]", "line 1: want a text, got a list"},
		"an unknown key, in words":    {"permit: []", "rules.yaml: line 1: the key permit is not known"},
		"a second document":           {"allow: []\n---\ndeny: [{rule: bash}]\n", "more than one document"},
		"a second one that is none":   {"allow: []\n---\ndeny: [", "line"},
		"an end of the document":      {"---\nallow: []\n...\n# no more\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := must.File(t, "rules.yaml", c.file)
			p := Permissions{Mode: string(policy.Default), Files: []string{path}, Deny: []string{"web_fetch"}}
			rules, _, err := p.Rules(ruleTools())
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) ||
					!strings.Contains(err.Error(), "rules.yaml") {
					t.Errorf("got %v, want an error about %q", err, c.want)
				}
				return
			}
			must.OK(t, err)
			if name == "good" && (len(rules.Deny) != 3 || len(rules.Ask) != 1 || len(rules.Allow) != 2) {
				t.Errorf("got %+v", rules)
			}
		})
	}
	p := Permissions{Mode: string(policy.Default), Files: []string{filepath.Join(t.TempDir(), "nowhere.yaml")}}
	if _, _, err := p.Rules(nil); err == nil || !strings.Contains(err.Error(), "nowhere.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}
