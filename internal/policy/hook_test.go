package policy

import (
	"encoding/json"
	"testing"

	"github.com/toolyard/toolyard/tool"
)

// TestAHookAllowsWhatNothingElseDecides: it has less weight than every rule and mode that denies.
func TestAHookAllowsWhatNothingElseDecides(t *testing.T) {
	d := &tool.Declaration{Name: "write_file", Specifier: tool.Specifier{Path: "file_path"}}
	rule := []Rule{{Tool: "write_file"}}
	for name, c := range map[string]struct {
		rules Rules
		mode  Mode
		want  Behavior
	}{
		"undecided": {Rules{}, Default, Allow}, "dont_ask": {Rules{}, DontAsk, Allow}, "plan": {Rules{}, Plan, Deny},
		"an unknown mode": {Rules{}, "x", Deny},
		"deny":            {Rules{Deny: rule}, Default, Deny}, "ask": {Rules{Ask: rule}, Default, Ask},
		"ask, bypass": {Rules{Ask: rule}, Bypass, Ask},
	} {
		req := Request{Declaration: d, Input: json.RawMessage(`{}`), Judgement: tool.Strictest("x"), Mode: c.mode,
			HookAllows: true}
		if got := Decide(c.rules, req); got.Behavior != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

// TestTouches: a single rule matches as a deny rule does: also what it only may match.
func TestTouches(t *testing.T) {
	bash := &tool.Declaration{Name: "bash", Aliases: []string{"shell"}, Specifier: tool.Specifier{Command: "command"}}
	for _, c := range []struct {
		rule, input string
		want        bool
	}{
		{"bash", `{}`, true}, {"shell", `{}`, true}, {"read_file", `{}`, false},
		{"bash(rm:*)", `{"command":"ls; rm x"}`, true}, {"bash(rm:*)", `{"command":"ls"}`, false},
		{"bash(rm:*)", `{}`, true},
	} {
		r, err := ParseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Touches(Request{Declaration: bash, Input: json.RawMessage(c.input)}); got != c.want {
			t.Errorf("%s on %s: %t", c.rule, c.input, got)
		}
	}
	if !(Rule{Tool: "x"}).Touches(Request{}) {
		t.Error("of a call of which nothing is known, every rule may be meant")
	}
}
