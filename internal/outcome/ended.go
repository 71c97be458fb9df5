package outcome

import (
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/submission"
)

// NotRun is the result of a call that was turned away before its tool was looked at. message is for the model, why for
// the log.
func NotRun(index int, c toolyard.Call, code toolyard.Code, message, why string) toolyard.Result {
	return Ended(toolyard.Result{Index: index, CallID: c.ID, Tool: submission.ShownName(c.Tool), Echo: c.Echo,
		Code: code, Class: toolyard.Unsafe, Error: message}, toolyard.PhaseResolveTool, why)
}

// Ended completes the result of a call that failed at a phase and whose tool gave no result. r has everything but the
// phases, why is for the log, and passed are the phases before.
func Ended(r toolyard.Result, at toolyard.Phase, why string, passed ...toolyard.Fact) toolyard.Result {
	r.IsError = true
	r.Phases = append(slices.Clone(passed),
		toolyard.Fact{Phase: at, Outcome: toolyard.OutcomeFailed, Code: r.Code, Detail: why},
		toolyard.Fact{Phase: toolyard.PhaseEmitTerminal, Outcome: toolyard.OutcomeOK})
	return r
}
