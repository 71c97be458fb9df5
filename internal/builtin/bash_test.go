package builtin

import (
	"context"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/tool"
)

// boasts is a backend that says it isolates. Nothing may start even so: no backend can run a command yet.
type boasts struct{}

func (boasts) Name() string { return "boasts" }
func (boasts) Probe(context.Context) (sandbox.Capabilities, error) {
	return sandbox.Capabilities{Backend: "boasts", Layers: []string{"pid"}}, nil
}

func TestBashNeedsASandbox(t *testing.T) {
	b := newBench(t)
	command := in{"command": "touch ran", "timeout_ms": 1000, "description": "Makes a file"}
	message := b.refused(toolyard.SetupRequired, "bash", command)
	b.contains(message, "this worker cannot isolate commands")
	check := b.tools["bash"].Check(t.Context(), b.env, encode(command))
	if e := tool.AsError(check); e.Err == nil || !strings.Contains(e.Err.Error(), "worker check") || strings.Contains(e.Message, "worker check") {
		t.Errorf("the operator reads %v, the model %q", e.Err, e.Message)
	}
	boasting, err := bash(boasts{})
	b.must(err)
	b.tools["bash"] = boasting
	b.refused(toolyard.SetupRequired, "bash", command)
	if names := b.names(); names != "." {
		t.Errorf("something ran: %s", names)
	}
	if d := boasting.Declaration; d.ReadOnly || d.Class.Shell != "command" || d.Specifier.Command != "command" || !d.NeedsPermission() {
		t.Errorf("declared as %+v", d)
	}
	for _, bad := range []in{
		{"command": ""}, {"command": " \n"}, {"command": "a\x00b"}, {"command": strings.Repeat("x", MaxCommandBytes+1)},
		{"command": "ls", "timeout_ms": 0}, {"command": "ls", "timeout_ms": MaxBashTimeout.Milliseconds() + 1},
		{"command": "ls", "description": strings.Repeat("x", MaxDescriptionBytes+1)},
	} {
		b.refused(toolyard.InvalidArguments, "bash", bad)
	}
}
