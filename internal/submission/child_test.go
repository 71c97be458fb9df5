package submission

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// TestChild: a child is its parent's in all that says who may do what, and its id follows from its place alone.
func TestChild(t *testing.T) {
	of := &toolyard.Batch{ID: "p", Agent: "ann", Session: "s", Workspace: "w", Interactive: true,
		Options: toolyard.Options{Deny: []string{"bash"}, Ask: []string{"glob"}, Tags: []toolyard.Tag{"gpu"},
			CallTimeoutMS: 7, Priority: toolyard.Bulk, Fence: true, Supersede: true, TimeoutMS: 1}}
	of.Normalize("")
	p := toolyard.Parent{Batch: "p", Call: 2, Attempt: 1, N: 3}
	b, err := Child(of, p, "read", json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	o := b.Options
	if b.Agent != "ann" || b.Session != "s" || b.Workspace != "w" || !b.Interactive || o.Deny[0] != "bash" ||
		o.Ask[0] != "glob" || o.Tags[0] != "gpu" || o.CallTimeoutMS != 7 || o.Priority != toolyard.Bulk || !o.Fence ||
		o.Supersede || o.TimeoutMS != MaxChildTime.Milliseconds() || *o.Parent != p {
		t.Errorf("%+v", b)
	}
	ids := map[toolyard.BatchID]bool{b.ID: true}
	for _, other := range []toolyard.Parent{{Batch: "p", Call: 2, Attempt: 1, N: 4},
		{Batch: "p", Call: 2, Attempt: 2, N: 3},
		{Batch: "p", Call: 3, Attempt: 1, N: 3}, {Batch: "p 2", Call: 2, Attempt: 1, N: 3}} {
		if ids[ChildID(other)] {
			t.Errorf("%+v has the id of another", other)
		}
		ids[ChildID(other)] = true
	}
	if _, err := Child(of, p, "read", make(json.RawMessage, MaxChildInput+1)); err == nil {
		t.Error("an input that is too long is accepted")
	}
}

// TestIsChild: the ids of an attempt's batches are told from all others.
func TestIsChild(t *testing.T) {
	p := toolyard.Parent{Batch: "p", Call: 2, Attempt: 1}
	id := func(n int) toolyard.BatchID {
		return ChildID(toolyard.Parent{Batch: "p", Call: 2, Attempt: 1, N: n})
	}
	for _, n := range []int{1, 9, MaxChildren} {
		if !IsChild(id(n), p) {
			t.Errorf("%s is none", id(n))
		}
	}
	for _, other := range []toolyard.BatchID{"", "p", "code-1", id(0), id(-1), id(MaxChildren + 1), id(1) + " ",
		id(1)[:len(id(1))-1], id(1)[:len(id(1))-1] + "01", id(1)[:len(id(1))-1] + "+1",
		ChildID(toolyard.Parent{Batch: "p", Call: 2, Attempt: 2, N: 1}),
		ChildID(toolyard.Parent{Batch: "q", Call: 2, Attempt: 1, N: 1})} {
		if IsChild(other, p) {
			t.Errorf("%q is one", other)
		}
	}
}

func TestCheckChild(t *testing.T) {
	for name, tt := range map[string]struct {
		n     int
		tool  string
		depth int
		calls string
		id    toolyard.BatchID
		says  string // "" if it may run
	}{
		"the first":        {1, toolyard.RunCodeTool, 0, "read", "", ""},
		"the last":         {MaxChildren, toolyard.RunCodeTool, 0, "read", "", ""},
		"one too many":     {MaxChildren + 1, toolyard.RunCodeTool, 0, "read", "", "at most 200"},
		"of another tool":  {1, "bash", 0, "read", "", "only run_code calls tools"},
		"of another batch": {1, toolyard.RunCodeTool, 0, "read", "code-1", "is not that of"},
		"a script":         {1, toolyard.RunCodeTool, 0, toolyard.RunCodeTool, "", "a script runs no other"},
		"too deep":         {1, toolyard.RunCodeTool, MaxChildDepth, "read", "", "runs for a script already"},
	} {
		p := &toolyard.Parent{Batch: "p", Attempt: 1, N: tt.n}
		b := toolyard.Batch{ID: tt.id, Calls: []toolyard.Call{{Tool: tt.calls}}, Options: toolyard.Options{Parent: p}}
		if b.ID == "" {
			b.ID = ChildID(*p)
		}
		err := CheckChild(&b, tt.tool, tt.depth)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
	}
}

func TestProgramLimit(t *testing.T) {
	for echo, want := range map[string]time.Duration{
		``: 0, `{"caller":{"type":"direct"}}`: 0, `{"namespace":"x"}`: 0, `{"caller":"odd"}`: 0,
		`{"caller":{"type":"code_execution_20260120","tool_id":"x"}}`: toolyard.DefaultProgramTimeout,
		`{"caller":{"type":"program","caller_id":"x"}}`:               toolyard.DefaultProgramTimeout,
	} {
		b := toolyard.Batch{Calls: []toolyard.Call{{}, {Echo: toolyard.Echo(echo)}}}
		if got := ProgramLimit(&b); got != want {
			t.Errorf("%s: %s, want %s", echo, got, want)
		}
		if b.Options.ProgramTimeoutMS = 5; want > 0 && ProgramLimit(&b) != 5*time.Millisecond {
			t.Errorf("%s: the batch's own limit does not hold", echo)
		}
	}
}

// TestALimitPastAllTimeIsNoneThatIsOver: a number that means "no limit" must not end everything at once.
func TestALimitPastAllTimeIsNoneThatIsOver(t *testing.T) {
	t.Parallel()
	echo := toolyard.Echo(`{"caller":{"type":"program","caller_id":"x"}}`)
	for _, ms := range []int64{9_300_000_000_000, 18_446_744_073_710, math.MaxInt64} {
		b := toolyard.Batch{Calls: []toolyard.Call{{Echo: echo}}, Options: toolyard.Options{ProgramTimeoutMS: ms}}
		if got := ProgramLimit(&b); got < 24*365*time.Hour {
			t.Errorf("%d ms: %s", ms, got)
		}
	}
}
