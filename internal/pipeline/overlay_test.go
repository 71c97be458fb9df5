package pipeline

import (
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// TestHeldByOverlay: what could change more than the files of the overlay is not run on one.
func TestHeldByOverlay(t *testing.T) {
	unsafe := tool.Judgement{Class: toolyard.Unsafe}
	for _, c := range []struct {
		name        string
		d           tool.Declaration
		j           tool.Judgement
		unsandboxed bool
		want        bool
	}{
		{"a read", tool.Declaration{Execution: tool.InService}, tool.Judgement{ReadOnly: true}, true, true},
		{"an edit", tool.Declaration{EditsWorkspace: true}, tool.Judgement{Class: toolyard.WriteExclusive}, true, true},
		{"a command", tool.Declaration{Execution: tool.InSandbox}, unsafe, false, true},
		{"a command without a sandbox", tool.Declaration{Execution: tool.InSandbox}, unsafe, true, false},
		{"a script that calls tools", tool.Declaration{Name: toolyard.RunCodeTool, Execution: tool.InSandbox}, unsafe,
			false, false},
		{"a service", tool.Declaration{Execution: tool.InService}, unsafe, false, false},
		{"a tool in Go", tool.Declaration{}, tool.Judgement{Class: toolyard.WriteExclusive}, false, false},
		{"a module", tool.Declaration{Execution: tool.InWasm}, unsafe, false, false},
	} {
		if got := HeldByOverlay(&c.d, c.j, c.unsandboxed); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
