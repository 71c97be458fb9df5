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
			Calls: []events.PlannedCall{{Tool: toolyard.RunCodeTool}}}, Calls: make([]batch.Call, 1)}
		err = childOf(&child, of)
		if overlay != (err != nil && strings.Contains(err.Error(), "overlay")) {
			t.Errorf("overlay %t: %v", overlay, err)
		}
	}
}
