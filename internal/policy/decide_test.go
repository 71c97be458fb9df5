package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/protect"
	"github.com/toolyard/toolyard/tool"
)

// The decision of each mode for each kind of tool, without rules: the table of the documentation.
func TestModesAndFlags(t *testing.T) {
	no := new(bool)
	kinds := []struct {
		name string
		d    tool.Declaration
		j    tool.Judgement
	}{
		{"reads", tool.Declaration{}, tool.Judgement{ReadOnly: true}},
		{"reads elsewhere", tool.Declaration{UsesWorkspace: no}, tool.Judgement{ReadOnly: true}},
		{"edits", tool.Declaration{EditsWorkspace: true}, tool.Judgement{Destructive: true}},
		{"free", tool.Declaration{RequiresPermission: no}, tool.Judgement{}},
		{"free, destroys", tool.Declaration{RequiresPermission: no, Destructive: new(true)},
			tool.Judgement{Destructive: true}},
		{"free, open", tool.Declaration{RequiresPermission: no}, tool.Judgement{Destructive: true}},
		{"anything", tool.Declaration{}, tool.Judgement{Destructive: true}},
		{"says both", tool.Declaration{}, tool.Judgement{ReadOnly: true, Destructive: true}},
	}
	want := `
                default        accept_edits   plan           dont_ask       bypass         ""             nonsense
reads           allow          allow          allow          allow          allow          allow          allow
reads elsewhere ask            ask            ask            deny           allow          ask            deny
edits           ask            allow          deny           deny           allow          ask            deny
free            allow          allow          deny           allow          allow          allow          deny
free, destroys  ask            ask            deny           deny           allow          ask            deny
free, open      allow          allow          deny           allow          allow          allow          deny
anything        ask            ask            deny           deny           allow          ask            deny
says both       ask            ask            deny           deny           allow          ask            deny
`
	modes := append(append([]Mode{}, Modes...), "", "nonsense")
	var got strings.Builder
	fmt.Fprintf(&got, "\n%-16s", "")
	for _, m := range modes {
		if m == "" {
			m = `""`
		}
		fmt.Fprintf(&got, "%-15s", m)
	}
	for _, k := range kinds {
		fmt.Fprintf(&got, "\n%-16s", k.name)
		for _, m := range modes {
			k.d.Name = "x"
			d := Decide(Rules{}, Request{Declaration: &k.d, Judgement: k.j, Mode: m, Interactive: true,
				Paths: []string{"src/a.go"}})
			fmt.Fprintf(&got, "%-15s", d.Behavior)
		}
	}
	trim := func(s string) string {
		var lines []string
		for l := range strings.Lines(s) {
			lines = append(lines, strings.TrimRight(l, " \n"))
		}
		return strings.Join(lines, "\n")
	}
	if g := trim(got.String()); g != strings.TrimRight(trim(want), "\n") {
		t.Errorf("got%s\nwant%s", g, want)
	}
}

func TestDecisions(t *testing.T) {
	talks := &tool.Declaration{Name: "ask_user", RequiresUserInteraction: true, RequiresPermission: new(bool)}
	reads := tool.Judgement{ReadOnly: true}
	docs := []string{"docs/a"}
	for _, tc := range []struct {
		name             string
		deny, ask, allow string
		req              Request
		want             Decision // Reason: a part of it
	}{
		{"deny beats all", "write_file(docs/**)", "write_file", "write_file",
			Request{Declaration: writeTool, Mode: Bypass, Paths: docs},
			Decision{Deny, toolyard.PermissionDenied, "rule deny write_file(docs/**)", "Do not repeat it"}},
		{"deny beats a precise allow", "write_file", "", "write_file(docs/a)",
			Request{Declaration: writeTool, Paths: docs},
			Decision{Deny, toolyard.PermissionDenied, "rule deny write_file", "write_file"}},
		{"deny beats no person", "ask_user", "", "", Request{Declaration: talks},
			Decision{Deny, toolyard.PermissionDenied, "rule deny ask_user", ""}},
		{"deny says what was in doubt", "bash(rm:*)", "", "",
			Request{Declaration: bashTool, Input: []byte(`{"command":"ls 'x"}`)},
			Decision{Deny, toolyard.PermissionDenied, "rule deny bash(rm:*)",
				"it holds because the command does not parse"}},
		{"no person", "", "ask_user", "ask_user", Request{Declaration: talks, Mode: Bypass, Judgement: reads},
			Decision{Deny, toolyard.PolicyBlocked, "no person in the session", "Do without it"}},
		{"a person", "", "", "", Request{Declaration: talks, Interactive: true},
			Decision{Allow, "", "needs no permission", ""}},
		{"ask beats allow", "", "write_file", "write_file(docs/**)", Request{Declaration: writeTool, Paths: docs},
			Decision{Ask, "", "rule ask write_file", "consent"}},
		{"ask beats accept_edits", "", "write_file(docs/**)", "",
			Request{Declaration: writeTool, Mode: AcceptEdits, Paths: docs},
			Decision{Ask, "", "rule ask write_file(docs/**)", ""}},
		{"ask beats bypass", "", "plain", "", Request{Declaration: plainTool, Mode: Bypass},
			Decision{Ask, "", "rule ask plain", ""}},
		{"the tool asks, a rule allows", "", "", "plain",
			Request{Declaration: plainTool, Tool: tool.Permission{Behavior: tool.Ask, Reason: "It costs."}},
			Decision{Ask, "", "the tool", "It costs."}},
		{"the tool asks for a read", "", "", "", Request{Declaration: plainTool, Judgement: reads,
			Tool: tool.Permission{Behavior: tool.Ask}},
			Decision{Ask, "", "the tool", "asks"}},
		{"the tool asks, nobody is asked", "", "", "", Request{Declaration: plainTool, Mode: DontAsk, Judgement: reads,
			Tool: tool.Permission{Behavior: tool.Ask}},
			Decision{Deny, toolyard.PermissionDenied, "the tool, mode dont_ask", "Nobody is asked"}},
		{"the tool denies, a rule allows", "", "", "plain",
			Request{Declaration: plainTool, Mode: Bypass, Tool: tool.Permission{Behavior: tool.Deny, Reason: "No."}},
			Decision{Deny, toolyard.PermissionDenied, "the tool", "No."}},
		{"the tool asks, a rule denies", "plain", "", "",
			Request{Declaration: plainTool, Tool: tool.Permission{Behavior: tool.Ask}},
			Decision{Deny, toolyard.PermissionDenied, "rule deny plain", ""}},
		{"the tool would allow", "", "", "", Request{Declaration: plainTool, Mode: Bypass,
			Tool: tool.Permission{Behavior: "allow"}},
			Decision{Deny, toolyard.PermissionDenied, "the tool", ""}},
		{"ask beats read-only", "", "plain", "", Request{Declaration: plainTool, Judgement: reads},
			Decision{Ask, "", "rule ask plain", ""}},
		{"ask under dont_ask", "", "plain", "plain", Request{Declaration: plainTool, Mode: DontAsk, Interactive: true},
			Decision{Deny, toolyard.PermissionDenied, "rule ask plain, mode dont_ask", "Nobody is asked"}},
		{"plan beats allow", "", "", "write_file", Request{Declaration: writeTool, Mode: Plan, Paths: docs},
			Decision{Deny, toolyard.PermissionDenied, "mode plan", "plan mode"}},
		{"plan beats ask", "", "write_file", "", Request{Declaration: writeTool, Mode: Plan, Interactive: true,
			Paths: docs},
			Decision{Deny, toolyard.PermissionDenied, "mode plan", ""}},
		{"ask on a read in plan", "", "plain", "", Request{Declaration: plainTool, Mode: Plan, Judgement: reads},
			Decision{Ask, "", "rule ask plain", ""}},
		{"allow", "", "", "write_file(docs/**)", Request{Declaration: writeTool, Paths: docs},
			Decision{Allow, "", "rule allow write_file(docs/**)", ""}},
		{"allow under dont_ask", "", "", "plain", Request{Declaration: plainTool, Mode: DontAsk},
			Decision{Allow, "", "rule allow plain", ""}},
		{"accept_edits", "", "", "", Request{Declaration: writeTool, Mode: AcceptEdits, Judgement: tool.Strictest(""),
			Paths: docs},
			Decision{Allow, "", "mode accept_edits", ""}},
		{"read-only", "", "", "", Request{Declaration: plainTool, Judgement: reads},
			Decision{Allow, "", "read-only in the workspace", ""}},
		{"bypass", "", "", "", Request{Declaration: plainTool, Mode: Bypass}, Decision{Allow, "", "mode bypass", ""}},
		{"undecided", "", "", "", Request{Declaration: plainTool, Judgement: tool.Strictest("")},
			Decision{Ask, "", "undecided", "cannot be undone"}},
		{"undecided under dont_ask", "", "", "", Request{Declaration: plainTool, Mode: DontAsk},
			Decision{Deny, toolyard.PermissionDenied, "undecided, mode dont_ask", "Nobody is asked"}},
		{"deny by alias", "shell", "", "bash", Request{Declaration: bashTool},
			Decision{Deny, toolyard.PermissionDenied, "rule deny shell", ""}},
		{"no allow by alias", "", "", "shell", Request{Declaration: bashTool}, Decision{Ask, "", "undecided", ""}},
		{"a server's tools", "mcp__a__*", "", "", Request{Declaration: &tool.Declaration{Name: "mcp__a__b"}},
			Decision{Deny, toolyard.PermissionDenied, "rule deny mcp__a__*", ""}},
		{"another tool's rules", "bash", "bash", "bash", Request{Declaration: plainTool},
			Decision{Ask, "", "undecided", ""}},
		{"no declaration", "", "", "plain", Request{Mode: Bypass},
			Decision{Deny, toolyard.PermissionDenied, "no declaration", ""}},
	} {
		one := func(s string) []Rule {
			if s == "" {
				return nil
			}
			return mustRules(t, s)
		}
		got := Decide(Rules{Deny: one(tc.deny), Ask: one(tc.ask), Allow: one(tc.allow)}, tc.req)
		reason := got.Reason
		got.Reason = tc.want.Reason
		if got != tc.want || !strings.Contains(reason, tc.want.Reason) || (reason == "") != (got.Behavior == Allow) {
			t.Errorf("%s: %+v with reason %q, want %+v", tc.name, got, reason, tc.want)
		}
	}
}

func ExampleDecide() {
	writeFile := &tool.Declaration{Name: "write_file", EditsWorkspace: true,
		Specifier: tool.Specifier{Path: "file_path"}}
	deny, _ := ParseRule("write_file(docs/**)")
	rules := Rules{Deny: []Rule{deny}}
	for _, path := range []string{"src/main.go", "docs/index.md"} {
		d := Decide(rules, Request{Declaration: writeFile, Mode: AcceptEdits, Paths: []string{path}})
		fmt.Println(path, d.Behavior, d.Code, d.Source)
	}
	// Output:
	// src/main.go allow  mode accept_edits
	// docs/index.md deny permission_denied rule deny write_file(docs/**)
}

// TestNothingBroadAllowsAProtectedPlace: broad permissions do not cover files that run by themselves. A rule that names
// the place does.
func TestNothingBroadAllowsAProtectedPlace(t *testing.T) {
	d := &tool.Declaration{Name: "write_file", EditsWorkspace: true, Specifier: tool.Specifier{Path: "file_path"}}
	place := &protect.Place{Path: ".github/workflows", Why: "a build server runs it"}
	for _, tt := range []struct {
		name  string
		req   Request
		allow string
		want  Behavior
	}{
		{"accept_edits", Request{Mode: AcceptEdits, Protected: place}, "", Ask},
		{"accept_edits elsewhere", Request{Mode: AcceptEdits}, "", Allow},
		{"bypass", Request{Mode: Bypass, Protected: place}, "", Ask},
		{"bypass elsewhere", Request{Mode: Bypass}, "", Allow},
		{"dont_ask", Request{Mode: DontAsk, Protected: place}, "write_file", Deny},
		{"a hook", Request{HookAllows: true, Protected: place}, "", Ask},
		{"a hook elsewhere", Request{HookAllows: true}, "", Allow},
		{"a rule for the tool", Request{Protected: place}, "write_file", Ask},
		{"a rule for all", Request{Protected: place}, "write_file(**/*.yml)", Ask},
		{"a rule for the directory above", Request{Protected: place}, "write_file(.github/**)", Ask},
		{"a rule with a wildcard in the place", Request{Protected: place}, "write_file(.github/work*/**)", Ask},
		{"a rule that names it", Request{Protected: place}, "write_file(.github/workflows/**)", Allow},
		{"a rule that names it at any depth", Request{Protected: place}, "write_file(**/.github/workflows/*.yml)",
			Allow},
		{"a rule that names it, and covers something else", Request{Protected: place},
			"write_file(.github/workflows/*.txt)", Ask},
		{"a call that only reads", Request{Protected: place,
			Judgement: tool.Judgement{ReadOnly: true, Class: toolyard.ReadOnly}}, "write_file(**/*.yml)", Allow},
	} {
		req := tt.req
		req.Declaration, req.Interactive, req.Paths = d, true, []string{".github/workflows/ci.yml"}
		var rules Rules
		if tt.allow != "" {
			rules.Allow = mustRules(t, tt.allow)
		}
		if got := Decide(rules, req); got.Behavior != tt.want {
			t.Errorf("%s: %+v, want %s", tt.name, got, tt.want)
		}
	}
	if got := Decide(Rules{}, Request{Declaration: d, Mode: AcceptEdits, Interactive: true}); got.Behavior != Ask {
		t.Errorf("an unknown path: %+v", got)
	}
}
