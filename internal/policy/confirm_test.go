package policy

import (
	"encoding/json"
	"testing"

	"github.com/toolyard/toolyard/tool"
)

// TestConfirm: where the operator wants confirmation, a call that may do what cannot be undone is asked about, whatever
// broad permission there is. A rule that says exactly what is allowed still allows it.
func TestConfirm(t *testing.T) {
	no := new(bool)
	write := tool.Declaration{Name: "write_file", EditsWorkspace: true, Specifier: tool.Specifier{Path: "file_path"}}
	bash := tool.Declaration{Name: "bash", Specifier: tool.Specifier{Command: "command"}}
	drop := tool.Declaration{Name: "mcp__db__drop", RequiresPermission: no}
	for _, tt := range []struct {
		name   string
		d      tool.Declaration
		input  string
		allow  string
		mode   Mode
		hook   bool
		undone bool // the call can be undone
		want   Behavior
	}{
		{"undecided", write, `{}`, "", Default, false, false, Ask},
		{"a rule for the tool", write, `{}`, "write_file", Default, false, false, Ask},
		{"a rule for the place", write, `{}`, "write_file(docs/**)", Default, false, false, Allow},
		{"a rule for another place", write, `{}`, "write_file(src/**)", Default, false, false, Ask},
		{"a rule for the tool, for what can be undone", write, `{}`, "write_file", Default, false, true, Allow},
		{"a mode", write, `{}`, "", AcceptEdits, false, false, Ask},
		{"bypass", write, `{}`, "", Bypass, false, false, Ask},
		{"bypass, for what can be undone", write, `{}`, "", Bypass, false, true, Allow},
		{"dont_ask", write, `{}`, "write_file", DontAsk, false, false, Deny},
		{"a hook", write, `{}`, "", Default, true, false, Ask},
		{"any command", bash, `{"command":"rm x"}`, "bash", Default, false, false, Ask},
		{"a command", bash, `{"command":"rm x"}`, "bash(rm:*)", Default, false, false, Allow},
		{"the declaration", drop, `{}`, "", Default, false, false, Ask},
		{"all tools of a server", drop, `{}`, "mcp__db__*", Default, false, false, Ask},
		{"the tool, which has no specifier", drop, `{}`, "mcp__db__drop", Default, false, false, Allow},
	} {
		rules := Rules{Confirm: true}
		if tt.allow != "" {
			rules.Allow = mustRules(t, tt.allow)
		}
		req := Request{Declaration: &tt.d, Input: json.RawMessage(tt.input), Mode: tt.mode, HookAllows: tt.hook,
			Interactive: true, Paths: []string{"docs/a"}, Judgement: tool.Judgement{Destructive: !tt.undone}}
		if got := Decide(rules, req); got.Behavior != tt.want {
			t.Errorf("%s: %+v, want %s", tt.name, got, tt.want)
		}
	}
}
