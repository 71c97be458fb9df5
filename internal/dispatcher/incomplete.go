package dispatcher

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
)

// incomplete answers a call that was cut with the model's stream. Whatever there is of its input, nothing may be made of it.
func incomplete(call toolyard.Call, entry registry.Entry) *toolyard.Result {
	name := toolyard.ShownName(call.Tool)
	if entry.Name != "" {
		name = entry.Name
	}
	const detail = "the model's stream was cut inside the call"
	return &toolyard.Result{
		CallID: call.ID, Tool: name, Echo: call.Echo, IsError: true, Code: toolyard.IncompleteCall,
		Error: "The call was cut off before its input was complete, and nothing was run. Make the call again, with a shorter input if it was long.",
		Phases: []toolyard.Fact{
			{Phase: toolyard.PhaseResolveTool, Outcome: toolyard.OutcomeFailed, Code: toolyard.IncompleteCall, Detail: detail},
			{Phase: toolyard.PhaseEmitTerminal, Outcome: toolyard.OutcomeOK},
		},
	}
}
