package policy

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard/tool"
)

var (
	readTool = &tool.Declaration{Name: Reader, Specifier: tool.Specifier{Path: "path"}, ReadOnly: true}
	grepTool = &tool.Declaration{Name: "grep", Specifier: tool.Specifier{Path: "path"}, ReadOnly: true}
)

// TestADeniedReadIsDeniedToAllToolsWithAPath: a path that may not be read may not be searched, edited or overwritten
// either.
func TestADeniedReadIsDeniedToAllToolsWithAPath(t *testing.T) {
	rules := Rules{Deny: mustRules(t, "read_file(secret/**)"),
		Allow: mustRules(t, "grep", "write_file", "bash", "read_file")}
	for _, d := range []*tool.Declaration{readTool, grepTool, writeTool} {
		for path, want := range map[string]Behavior{"secret/key": Deny, "secret": Deny, "docs/a": Allow,
			"not/secret": Allow, ".": Allow} {
			if got := Decide(rules, Request{Declaration: d, WorkspaceDir: "/ws", Paths: []string{path},
				Mode: Default}); got.Behavior != want {
				t.Errorf("%s of %s: %+v, want %s", d.Name, path, got, want)
			}
		}
	}
	no := false
	remote := &tool.Declaration{Name: "remote", Specifier: tool.Specifier{Path: "path"}, UsesWorkspace: &no,
		RequiresPermission: &no}
	if got := Decide(rules, Request{Declaration: remote, Input: input(t, "path", "/secret/a")}); got.Behavior != Allow {
		t.Errorf("a tool whose paths are in no workspace: %+v", got)
	}
	if got := Decide(rules, Request{Declaration: bashTool,
		Input: input(t, "command", "cat secret/key")}); got.Behavior != Allow {
		t.Errorf("bash, for which the places are hidden: %+v", got)
	}
}

func TestHidden(t *testing.T) {
	for _, tc := range []struct {
		rules  []string
		d      *tool.Declaration
		hidden string
		shown  string
	}{
		{[]string{"read_file(secret/**)"}, bashTool, "secret secret/a secret/b/c", ". docs a/secret secret2"},
		{[]string{"read_file(.env)", "read_file(*.pem)"}, bashTool, ".env a/.env a/b.pem b.pem/c", ". .envrc"},
		{[]string{"read_file(/ws/secret)"}, bashTool, "secret secret/a", "a/secret"},
		{[]string{"grep(vendor/)"}, grepTool, "vendor/a a/vendor/b", "a"},
		{[]string{"grep(vendor/)"}, bashTool, "", "vendor/a"}, // a rule of a search hides from that search only
		{[]string{"write_file(docs)"}, bashTool, "", "docs/a"},
		{[]string{"read_file"}, bashTool, "", "a"},
		{[]string{"read_file(/etc/**)"}, bashTool, "a etc .git", ""}, // refused at start; otherwise it hides everything
		{[]string{"read_file(a[b)"}, bashTool, "a", ""},
	} {
		hides := Rules{Deny: mustRules(t, tc.rules...)}.Hidden(tc.d, "/ws")
		for _, p := range strings.Fields(tc.hidden) {
			if hides == nil || !hides(p) {
				t.Errorf("%s for %s: %s is not hidden", tc.rules, tc.d.Name, p)
			}
		}
		for _, p := range strings.Fields(tc.shown) {
			if hides != nil && hides(p) {
				t.Errorf("%s for %s: %s is hidden", tc.rules, tc.d.Name, p)
			}
		}
	}
	if (Rules{}).Hidden(bashTool, "/ws") != nil {
		t.Error("without rules something is hidden")
	}
}

// TestADenyOfAPathThatIsInNoWorkspaceIsRefused: it would deny every call of its tool.
func TestADenyOfAPathThatIsInNoWorkspaceIsRefused(t *testing.T) {
	dirs := []string{"/w/a", "/w/b"}
	for rule, want := range map[string]string{
		"read_file(/etc/**)": "no workspace", "read_file(/w/**)": "no workspace",
		"read_file(/w/*/secret)": "no workspace", "write_file(/w/ab/c)": "no workspace",
		"read_file(/w/a/**)": "whole workspace", "read_file(/w/a)": "no workspace",
		"read_file(/w/a/)":       "whole workspace",
		"read_file(/w/a/secret)": "", "read_file(secret)": "", "read_file": "", "bash(/usr/bin/make:*)": "",
		"other(/etc/**)": "",
	} {
		err := Rules{Deny: mustRules(t, rule)}.CheckPlaces(dirs, readTool, writeTool, bashTool)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
	// A rule about one workspace says nothing in another.
	rules := Rules{Deny: mustRules(t, "read_file(/w/a/secret)", "read_file(/etc/**)", "bash(/w/a/run:*)")}
	for dir, want := range map[string]int{"/w/a": 3, "/w/b": 2, "/w/c": 2} {
		if got := rules.In(readTool, dir, dirs); len(got.Deny) != want {
			t.Errorf("in %s: %v", dir, got.Deny)
		}
	}
}
