package pipeline

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

func TestPreflight(t *testing.T) {
	base, err := registry.Registry{}.Register(
		registry.Entry{Declaration: echo().Declaration, Origin: registry.Builtin},
		registry.Entry{Declaration: named("bash"), Origin: registry.Builtin},
		registry.Entry{Declaration: deferred("deploy"), Origin: registry.Toolset},
		registry.Entry{Declaration: named("tool_search"), Origin: registry.Builtin},
	)
	must.OK(t, err)
	surface, err := registry.Assemble(base, func(name string, _ []string) bool { return name == "bash" })
	must.OK(t, err)
	p := &Pipeline{Worker: "d1"} // no code, no seams
	for _, tt := range []struct {
		tool, input string
		loaded      map[string]bool
		code        toolyard.Code
		phase       toolyard.Phase
		says        string
	}{
		{"echo", `{"text":"hi"}`, nil, toolyard.OK, "", ""},
		{"Echo", `{"text":"hi"}`, nil, toolyard.OK, "", ""},
		{"ehco", `{"text":"hi"}`, nil, toolyard.UnknownTool, toolyard.PhaseResolveTool, `Did you mean "echo"?`},
		{"bash", `{}`, nil, toolyard.BlockedTool, toolyard.PhaseResolveTool, "blocked"},
		{"deploy", `{"text":"x"}`, nil, toolyard.SchemaNotLoaded, toolyard.PhaseResolveTool, "tool_search"},
		{"deploy", `{"text":"x"}`, map[string]bool{"deploy": true}, toolyard.OK, "", ""},
		{"echo", `{"txt":"hi"}`, nil, toolyard.SchemaValidationFailed, toolyard.PhaseParseSchema,
			`InputValidationError: 2 problems:`},
		{"echo", `{`, nil, toolyard.SchemaValidationFailed, toolyard.PhaseParseSchema, "not valid JSON"},
		{"echo", ``, nil, toolyard.SchemaValidationFailed, toolyard.PhaseParseSchema, "empty"},
	} {
		call := toolyard.Call{ID: "c1", Tool: tt.tool, Input: json.RawMessage(tt.input)}
		entry, _, res := p.Preflight(call, &surface, tt.loaded, nil)
		if tt.code == toolyard.OK {
			if res != nil || entry.Hash == "" {
				t.Errorf("%s %s: %+v", tt.tool, tt.input, res)
			}
			continue
		}
		if res == nil {
			t.Errorf("%s %s: passed", tt.tool, tt.input)
			continue
		}
		checkInvariants(t, *res)
		if res.Code != tt.code || phaseOf(*res) != tt.phase || !strings.Contains(res.Error, tt.says) ||
			res.CallID != "c1" || res.Class != toolyard.Unsafe {
			t.Errorf("%s %s: %+v", tt.tool, tt.input, res)
		}
		// The worker runs the same code, and gives the same answer if it can know.
		if tt.phase == toolyard.PhaseParseSchema {
			r := newRig(input(tt.input))
			if again := r.result(t); again.Error != res.Error || again.Code != res.Code {
				t.Errorf("dispatcher: %s\nworker: %s", res.Error, again.Error)
			}
		}
	}
	if _, _, res := p.Preflight(toolyard.Call{ID: "c", Tool: "x"}, nil, nil, nil); res == nil ||
		res.Code != toolyard.UnknownTool {
		t.Errorf("no surface: %+v", res)
	}
	long := strings.Repeat("x", 5_000)
	if _, _, res := p.Preflight(toolyard.Call{ID: "c", Tool: long}, &surface, nil, nil); len(res.Error) > 500 {
		t.Errorf("%d bytes of error", len(res.Error))
	}
}

// TestZeroPipelineRefuses: what is not configured is not allowed.
func TestZeroPipelineRefuses(t *testing.T) {
	p := &Pipeline{}
	res, err := p.Run(t.Context(), Job{Call: toolyard.Call{ID: "c", Tool: "echo"}})
	if err != nil || res.Code != toolyard.UnknownTool || res.Attempts != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	checkInvariants(t, res)
}

// TestTheAdviceNamesNoToolThatIsNotThere: if tool_search is denied, hidden or in no pool, the advice does not name it.
func TestTheAdviceNamesNoToolThatIsNotThere(t *testing.T) {
	base, err := registry.Registry{}.Register(
		registry.Entry{Declaration: named("tool_search"), Origin: registry.Builtin},
		registry.Entry{Declaration: deferred("deploy"), Origin: registry.Toolset},
	)
	must.OK(t, err)
	for denied, want := range map[string]string{"": "Call tool_search for it first",
		"tool_search": "No tool_search is offered here"} {
		surface, err := registry.Assemble(base, func(name string, _ []string) bool { return name == denied })
		must.OK(t, err)
		call := toolyard.Call{ID: "c1", Tool: "deploy", Input: json.RawMessage(`{"text":"x"}`)}
		_, _, res := (&Pipeline{Worker: "d1"}).Preflight(call, &surface, nil, nil)
		if res == nil || res.Code != toolyard.SchemaNotLoaded || !strings.Contains(res.Error, want) {
			t.Errorf("without %q: %+v; want %q", denied, res, want)
		}
	}
}
