package worker

import (
	"path/filepath"
	"testing"

	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/shells"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// TestARuleMeansTheProgramAtTheTop: where an earlier command has moved the shell, ./run.sh is another program than the
// one that a rule or a person has allowed. All other words mean what they meant.
func TestARuleMeansTheProgramAtTheTop(t *testing.T) {
	root, err := place.Hold(t.TempDir(), nil)
	must.OK(t, err)
	t.Cleanup(func() { _ = root.Close() })
	d := tool.Declaration{Name: "bash", Class: tool.ClassRule{Shell: "command", Remembers: true},
		Execution: tool.InSandbox, Specifier: tool.Specifier{Command: "command"}}
	allow := policy.Rules{}
	for _, text := range []string{"bash(./run.sh:*)", "bash(npm test)"} {
		rule, err := policy.ParseRule(text)
		must.OK(t, err)
		allow.Allow = append(allow.Allow, rule)
	}
	whole, err := policy.ParseRule("bash")
	must.OK(t, err)
	store := shells.New(filepath.Join(t.TempDir(), "shells"))
	call := pipeline.CallContext{Session: "s", Workspace: "w", WorkspaceDir: root.Dir(), Root: root, Interactive: true}
	call.Key.Agent = "ann"
	decide := func(rules policy.Rules, command string, remembered ...string) pipeline.PermissionDecision {
		in := pipeline.PermissionInput{CallContext: call, Declaration: d, InputHash: "h", Remembered: remembered,
			Input: must.JSON(t, map[string]string{"command": command})}
		p := Permission{Rules: rules, Shells: store}
		if p.DecidesAtOnce(&in) {
			t.Error("the directory of a shell is looked up in a file system, which may hang")
		}
		got, err := p.Decide(t.Context(), in)
		must.OK(t, err)
		return got
	}
	check := func(where string, want pipeline.Behavior) {
		t.Helper()
		for _, command := range []string{"./run.sh -v", "timeout 5 ./run.sh; ls"} {
			if got := decide(allow, command); got.Behavior != want {
				t.Errorf("%s: %q is %+v, want %s", where, command, got, want)
			}
			given := decide(policy.Rules{}, command)
			if (given.Remember != "") != (want == pipeline.Allow) {
				t.Errorf("%s: of %q %q is remembered", where, command, given.Remember)
			}
		}
		for _, command := range []string{"./run.sh", "A=1 ./run.sh"} {
			remembered := policy.Remember(policy.Request{Declaration: &d, Workspace: "w", WorkspaceDir: root.Dir(),
				Input: must.JSON(t, map[string]string{"command": command})}, "h")
			if got := decide(policy.Rules{}, command, remembered); got.Behavior != want {
				t.Errorf("%s: %q, remembered as %q, is %+v, want %s", where, command, remembered, got, want)
			}
		}
		for command, rules := range map[string]policy.Rules{
			"npm test": allow, "./run.sh": {Allow: []policy.Rule{whole}},
		} {
			if got := decide(rules, command); got.Behavior != pipeline.Allow {
				t.Errorf("%s: %q is %+v", where, command, got)
			}
		}
	}
	move := func(dir string) {
		sh, err := store.Open(t.Context(), shells.Key{Agent: "ann", Session: "s", Workspace: "w", Dir: root.Dir()}, "c",
			true)
		must.OK(t, err)
		must.OK(t, sh.Commit(t.Context(), shells.State{Dir: dir}, false))
		must.OK(t, sh.Close(shells.Told))
	}
	check("in a new shell", pipeline.Allow)
	move("sub")
	check("below the top", pipeline.Ask)
	move("")
	check("at the top again", pipeline.Allow)
	call.Root, err = place.Hold(t.TempDir(), nil)
	must.OK(t, err)
	t.Cleanup(func() { _ = call.Root.Close() })
	check("in another workspace", pipeline.Allow)
}
