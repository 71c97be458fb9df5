package dispatcher

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/submission"
)

// TestAScriptOnAnOverlayCallsNothing: its calls would change the workspace itself.
func TestAScriptOnAnOverlayCallsNothing(t *testing.T) {
	for _, overlay := range []bool{false, true} {
		parent := toolyard.Batch{ID: "b", Agent: "a", Calls: []toolyard.Call{{ID: "c", Tool: toolyard.RunCodeTool}},
			Options: toolyard.Options{Overlay: overlay}}
		parent.Normalize("b")
		child, err := submission.Child(&parent, toolyard.Parent{Batch: "b", Attempt: 1, N: 1}, "read_file", nil)
		if err != nil {
			t.Fatal(err)
		}
		of := &batch.State{Submission: &parent, Plan: &events.Planned{
			Calls: []events.PlannedCall{{Tool: toolyard.RunCodeTool}}}, Calls: []batch.Call{{Attempt: 1}}}
		err = childOf(&child, of)
		if overlay != (err != nil && strings.Contains(err.Error(), "overlay")) {
			t.Errorf("overlay %t: %v", overlay, err)
		}
	}
}

// TestWhoseChildItIs: a batch runs for a call only while that call is in the attempt that the batch names. Otherwise an
// agent that names more attempts would have more calls than a script may make.
func TestWhoseChildItIs(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*batch.State)
		says   string
	}{
		"it runs":          {func(*batch.State) {}, ""},
		"another attempt":  {func(s *batch.State) { s.Calls[0].Attempt = 2 }, "not in its attempt 1"},
		"it has not begun": {func(s *batch.State) { s.Calls[0].Attempt = 0 }, "not in its attempt 1"},
		"it has a result":  {func(s *batch.State) { s.Calls[0].Result = &toolyard.Result{} }, "has ended (ok)"},
		"it was given up":  {func(s *batch.State) { s.Completed = true }, "is over"},
		"there is no plan": {func(s *batch.State) { s.Plan = nil }, "does not run"},
		"there is no call": {func(s *batch.State) { s.Calls = nil }, "has no call 0"},
		"it was refused":   {func(s *batch.State) { s.Refused = &events.Refused{} }, "does not run"},
	} {
		s := batch.State{Plan: &events.Planned{}, Calls: []batch.Call{{Attempt: 1}}}
		c.change(&s)
		why := parentOver(&s, &toolyard.Parent{Batch: "b", Attempt: 1, N: 1})
		if (why == "") != (c.says == "") || !strings.Contains(why, c.says) {
			t.Errorf("%s: %q, want %q", name, why, c.says)
		}
	}
}
