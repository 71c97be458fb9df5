package worker

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/shell"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestWhatAnAgentHandsInOnlyTightens: whatever rules come with a batch, allow rules that somebody has smuggled in
// among them, a call is decided as strictly as without them, or more so. A type that is not known is as good as none.
func TestWhatAnAgentHandsInOnlyTightens(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	texts := []string{"bash", "bash(ls:*)", "bash(rm:*)", "bash(git status:*)", "write_file", "write_file(docs/**)",
		"write_file(src/**)", "mcp__a__*"}
	commands := []string{"ls", "rm -rf x", "ls && rm x", "git status", "git status; ls", "$x"}
	some := func() []policy.Rule {
		var chosen []string
		for range r.IntN(4) {
			chosen = append(chosen, texts[r.IntN(len(texts))])
		}
		rules, err := policy.ParseRules(chosen)
		must.OK(t, err)
		return rules
	}
	declarations := []tool.Declaration{
		{Name: "bash", Class: tool.ClassRule{Shell: "command"}, Specifier: tool.Specifier{Command: "command"}},
		{Name: "write_file", EditsWorkspace: true, Specifier: tool.Specifier{Path: "file_path"}},
	}
	order := map[pipeline.Behavior]int{pipeline.Allow: 0, pipeline.Ask: 1, pipeline.Deny: 2}
	tightened := 0
	const rounds = 10_000
	for range rounds {
		p := Permission{Rules: policy.Rules{Deny: some(), Ask: some(), Allow: some()},
			Mode: policy.Modes[r.IntN(len(policy.Modes))]}
		input, err := json.Marshal(map[string]string{"command": commands[r.IntN(len(commands))],
			"file_path": []string{"docs/a", "src/b", "../c", ".git/config"}[r.IntN(4)]})
		must.OK(t, err)
		in := pipeline.PermissionInput{
			Declaration: declarations[r.IntN(len(declarations))], Input: input,
			CallContext: pipeline.CallContext{WorkspaceDir: "/ws", Interactive: r.IntN(2) == 0},
			Judgement:   tool.Judgement{ReadOnly: r.IntN(3) == 0, Destructive: r.IntN(2) == 0},
			Opinion:     []pipeline.Behavior{"", pipeline.Allow, pipeline.Ask, pipeline.Deny}[r.IntN(4)],
		}
		without, err := p.Decide(t.Context(), in)
		must.OK(t, err)
		own := policy.Rules{Deny: some(), Ask: some(), Allow: some()}
		in.Rules = own
		with, err := p.Decide(t.Context(), in)
		must.OK(t, err)
		if order[with.Behavior] < order[without.Behavior] {
			t.Fatalf("the operator's %+v say %+v of %s; with the batch's %+v it is %+v", p, without, input, own, with)
		}
		if order[with.Behavior] > order[without.Behavior] {
			tightened++
		}
		in.Rules = struct{ pipeline.Rules }{own} // no rules of ours
		if strange, err := p.Decide(t.Context(), in); err != nil || strange.Behavior != without.Behavior {
			t.Fatalf("rules of another type decide: %+v, %v", strange, err)
		}
	}
	if tightened < rounds/100 {
		t.Errorf("the batch's rules made a difference %d times of %d: the test sees too little", tightened, rounds)
	}
}

// TestWhatAToolSaysOfItsCallOnlyTightens: whatever it answers, no call is decided more loosely than without. What a
// person has allowed for the session stands, but not past a denial.
func TestWhatAToolSaysOfItsCallOnlyTightens(t *testing.T) {
	order := map[pipeline.Behavior]int{pipeline.Allow: 0, pipeline.Ask: 1, pipeline.Deny: 2}
	least := map[tool.Behavior]pipeline.Behavior{tool.Passthrough: pipeline.Allow, tool.Ask: pipeline.Ask,
		tool.Deny: pipeline.Deny, "allow": pipeline.Deny}
	for _, list := range []string{"", "deny", "ask", "allow"} {
		for _, mode := range policy.Modes {
			for says, want := range least {
				rule, err := policy.ParseRules([]string{"pay"})
				must.OK(t, err)
				p := Permission{Mode: mode}
				switch list {
				case "deny":
					p.Rules.Deny = rule
				case "ask":
					p.Rules.Ask = rule
				case "allow":
					p.Rules.Allow = rule
				}
				in := pipeline.PermissionInput{
					CallContext: pipeline.CallContext{Interactive: true},
					Declaration: tool.Declaration{Name: "pay"}, Input: json.RawMessage(`{}`), InputHash: "h",
				}
				without, err := p.Decide(t.Context(), in)
				must.OK(t, err)
				in.Tool = tool.Permission{Behavior: says}
				with, err := p.Decide(t.Context(), in)
				must.OK(t, err)
				if order[with.Behavior] < max(order[without.Behavior], order[want]) {
					t.Errorf("rule %q, mode %s, the tool says %q: %s; without %s", list, mode, says, with.Behavior,
						without.Behavior)
				}
				if with.Behavior != pipeline.Ask {
					continue
				}
				if in.Remembered = []string{with.Remember}; with.Remember == "" {
					t.Fatalf("an approval of %q cannot be remembered", says)
				}
				if again, err := p.Decide(t.Context(), in); err != nil || again.Behavior != pipeline.Allow {
					t.Errorf("rule %q, mode %s, the tool says %q, and a person has allowed it: %s, %v", list, mode,
						says, again.Behavior, err)
				}
			}
		}
	}
}

// TestAHooksReasonIsShown: who is asked because of a hook reads why, also when the rules ask too.
func TestAHooksReasonIsShown(t *testing.T) {
	d := tool.Declaration{Name: "bash", Class: tool.ClassRule{Shell: "command"},
		Specifier: tool.Specifier{Command: "command"}}
	ask, err := policy.ParseRules([]string{"bash(git push:*)"})
	must.OK(t, err)
	for command, p := range map[string]Permission{
		"ls": {Mode: policy.Bypass}, "make": {}, "git push": {Rules: policy.Rules{Ask: ask}},
	} {
		input := must.JSON(t, map[string]string{"command": command})
		got, err := p.Decide(t.Context(), pipeline.PermissionInput{
			CallContext: pipeline.CallContext{Interactive: true}, Declaration: d, Input: input, Opinion: pipeline.Ask,
			OpinionReason: "it is Friday",
		})
		if err != nil || got.Behavior != pipeline.Ask || !strings.Contains(got.Reason, "it is Friday") ||
			!strings.Contains(got.Source, "hook") {
			t.Errorf("%s: %+v, %v", command, got, err)
		}
	}
}

// TestWhatACommandDoesDecides: the classifier of shell commands is a part of the permission. What is known to only read
// runs; a person is asked about what deletes, writes, changes permissions, reaches the network, or cannot be read, and
// told that it may do what cannot be undone.
func TestWhatACommandDoesDecides(t *testing.T) {
	d := tool.Declaration{Name: "bash", Class: tool.ClassRule{Shell: "command"}, Execution: tool.InSandbox,
		Specifier: tool.Specifier{Command: "command"}}
	for command, reads := range map[string]bool{
		"ls -l": true, "grep -rn x . | sort | head": true, "git log --oneline": true, "cat a && wc -l b": true,
		"rm -rf build": false, "find . -delete": false, "git clean -fdx": false, "echo x > a": false,
		"chmod -R 777 .": false, "chown root a": false, "sudo ls": false, "curl https://example.com": false,
		"cat a | nc example.com 80": false, "git push": false, "cat < /dev/tcp/example.com/80": false,
		"$X": false, "ls; eval $Y": false, "ls 'a": false, "sh -c ls": false,
	} {
		input := must.JSON(t, map[string]string{"command": command})
		judgement, asks := registry.Judge(d, input, shell.Judge)
		if asks {
			t.Fatalf("%q is judged by a worker", command)
		}
		got, err := Permission{Mode: policy.Default}.Decide(t.Context(), pipeline.PermissionInput{Declaration: d,
			Input: input, Judgement: judgement,
			CallContext: pipeline.CallContext{WorkspaceDir: "/ws", Interactive: true}})
		must.OK(t, err)
		want := pipeline.Ask
		if reads {
			want = pipeline.Allow
		}
		if got.Behavior != want || !reads && !strings.Contains(got.Reason, "cannot be undone") {
			t.Errorf("%q (%s): %+v, want %s", command, judgement.Why, got, want)
		}
	}
}

// TestDecidesAtOnce: a path is looked up in a file system, which may hang, so its call keeps a goroutine for that.
func TestDecidesAtOnce(t *testing.T) {
	in := &pipeline.PermissionInput{}
	if !(Permission{}).DecidesAtOnce(in) {
		t.Error("a call without a path waits for nothing")
	}
	if in.Declaration.Specifier.Path = "path"; (Permission{}).DecidesAtOnce(in) {
		t.Error("a call with a path may wait for its file system")
	}
}

// TestAPathThatCannotBeTold: a path that is left out is the workspace itself. One that is a list, or stands there twice
// for a reader that takes capitals for small letters, is not known: a rule that denies a place holds, and nothing that
// is meant for paths in the workspace allows it.
func TestAPathThatCannotBeTold(t *testing.T) {
	root, err := place.Hold(t.TempDir(), nil)
	must.OK(t, err)
	t.Cleanup(func() { _ = root.Close() })
	deny, err := policy.ParseRules([]string{"put(secret/**)"})
	must.OK(t, err)
	no := false
	for input, told := range map[string]bool{
		`{}`: true, `{"path":null}`: true, `{"path":"a"}`: true, `{"n":1}`: true,
		`{"path":["secret/x"]}`: false, `{"path":{"name":"secret/x"}}`: false, `{"path":"a","Path":"secret/x"}`: false,
		`{"PATH":"secret/x"}`: false, `{"path":1}`: false, `{"Path":null,"path":"a"}`: false,
	} {
		in := pipeline.PermissionInput{
			CallContext: pipeline.CallContext{WorkspaceDir: root.Dir(), Root: root}, Input: json.RawMessage(input),
			Declaration: tool.Declaration{Name: "put", EditsWorkspace: true, RequiresPermission: &no,
				Specifier: tool.Specifier{Path: "path"}},
			Judgement: tool.Judgement{ReadOnly: true},
		}
		denied, err := Permission{Rules: policy.Rules{Deny: deny}}.Decide(t.Context(), in)
		if err != nil || (denied.Behavior == pipeline.Deny) == told {
			t.Errorf("a denied place and %s: %+v, %v", input, denied, err)
		}
		in.Judgement, in.Declaration.RequiresPermission = tool.Judgement{}, nil
		edit, err := Permission{Mode: policy.AcceptEdits}.Decide(t.Context(), in)
		if err != nil || (edit.Behavior == pipeline.Allow) != told {
			t.Errorf("accept_edits and %s: %+v, %v", input, edit, err)
		}
	}
}

// TestASessionApprovalHoldsInItsWorkspace: what a person has allowed for the session was said of one workspace. In
// another one the same path or command means something else, and a person is asked again. A tool that does not use the
// workspace is the same in all.
func TestASessionApprovalHoldsInItsWorkspace(t *testing.T) {
	root, err := place.Hold(t.TempDir(), nil)
	must.OK(t, err)
	t.Cleanup(func() { _ = root.Close() })
	no := false
	workspaces := []toolyard.Workspace{"default", "app", "prod", `a" in the workspace "prod`}
	for name, c := range map[string]struct {
		d        tool.Declaration
		input    string
		anywhere bool
	}{
		"a path": {tool.Declaration{Name: "write_file", Specifier: tool.Specifier{Path: "file_path"}},
			`{"file_path":"docs/a"}`, false},
		"a command": {tool.Declaration{Name: "bash", Specifier: tool.Specifier{Command: "command"}},
			`{"command":"make deploy"}`, false},
		"an input": {tool.Declaration{Name: "pay"}, `{"n":1}`, false},
		"a host": {tool.Declaration{Name: "get", UsesWorkspace: &no, Specifier: tool.Specifier{URL: "url"}},
			`{"url":"https://a.example/x"}`, true},
		"an input of no workspace": {tool.Declaration{Name: "pay", UsesWorkspace: &no}, `{"n":1}`, true},
	} {
		decide := func(w toolyard.Workspace, remembered ...string) pipeline.PermissionDecision {
			got, err := Permission{}.Decide(t.Context(), pipeline.PermissionInput{
				CallContext: pipeline.CallContext{Interactive: true, Workspace: w, WorkspaceDir: root.Dir(),
					Root: root},
				Declaration: c.d, Input: json.RawMessage(c.input), InputHash: "h", Remembered: remembered,
			})
			must.OK(t, err)
			return got
		}
		for _, given := range workspaces {
			rule := decide(given).Remember
			for _, w := range workspaces {
				want := pipeline.Ask
				if w == given || c.anywhere {
					want = pipeline.Allow
				}
				if got := decide(w, rule); got.Behavior != want {
					t.Errorf("%s: %q, allowed in %q, is %s in %q", name, rule, given, got.Behavior, w)
				}
			}
		}
	}
}
