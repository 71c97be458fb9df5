package dispatcher

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
)

// TestCallsThatAreRefused: what the operator refuses is no batch, and answered in a batch to which somebody has
// appended it without asking.
func TestCallsThatAreRefused(t *testing.T) {
	no := &toolyard.InputError{Field: "calls[1].input", Problem: "is refused"}
	p := Planner{Pipeline: &pipeline.Pipeline{}, CheckCalls: func(from int, calls []toolyard.Call) error {
		for i, c := range calls {
			if from+i == 1 && string(c.Input) != "{}" {
				return no
			}
		}
		return nil
	}}
	d := New(answers{}, Config{ID: "d", Log: slog.New(slog.DiscardHandler), Planner: p})
	calls := []toolyard.Call{{ID: "a", Tool: "tool_0", Input: json.RawMessage(`{}`)},
		{ID: "b", Tool: "tool_0", Input: json.RawMessage(`{"text": "x"}`)}}
	sub := &toolyard.Batch{Agent: "ada", Calls: calls}
	reg := offered(t, 1)
	if err := d.CheckCalls(0, calls); err != error(no) {
		t.Errorf("for those who store: %v", err)
	}
	if _, err := d.planOn(reg, sub, nil); err != error(no) {
		t.Errorf("a batch: %v", err)
	}
	if _, err := p.Plan(reg, sub, nil); err != error(no) {
		t.Errorf("a batch, without a dispatcher: %v", err)
	}
	surface, err := p.Surface(reg, "ada", toolyard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	plan := p.Extend(surface, &batch.State{Submission: &toolyard.Batch{Open: true}, Plan: &events.Planned{},
		Input: calls})
	if r := plan.planned.Results; len(r) != 1 || r[0].Index != 1 || r[0].Code != toolyard.InvalidArguments {
		t.Errorf("appended: %+v", r)
	}
}
