package pipeline

import (
	"context"
	"slices"

	"github.com/toolyard/toolyard"
)

// when says when a phase runs.
type when int

const (
	whileGood    when = iota // until the first failure
	whenExecuted             // whenever execute started
	always
)

// row is one phase. Codes beyond the design's table have a comment with the reason.
type row struct {
	phase toolyard.Phase
	run   func(*call, context.Context) finding
	when  when
	// waits says that the phase may take long: the end of the call's context ends it, with a code of interruptions.
	waits bool
	codes []toolyard.Code
}

// interruptions are the codes that may end a call in any phase that waits.
var interruptions = []toolyard.Code{toolyard.Canceled, toolyard.SiblingCanceled, toolyard.DeadlineExceeded}

// table is the pipeline.
var table = []row{
	{phase: toolyard.PhaseResolveTool, run: (*call).resolveTool,
		codes: []toolyard.Code{toolyard.UnknownTool, toolyard.BlockedTool, toolyard.SchemaNotLoaded}},
	{phase: toolyard.PhaseParseSchema, run: (*call).parseSchema,
		codes: []toolyard.Code{toolyard.SchemaValidationFailed}},
	{phase: toolyard.PhaseValidateValues, run: (*call).validateValues, waits: true,
		codes: []toolyard.Code{toolyard.InvalidArguments, toolyard.SetupRequired, toolyard.SandboxViolation,
			// A check does its own input and output: it can find a dependency down, or hang.
			toolyard.DependencyUnavailable, toolyard.Timeout}},
	{phase: toolyard.PhaseObservableInput, run: (*call).prepareObservableInput,
		codes: []toolyard.Code{toolyard.InputMutationFailed}},
	{phase: toolyard.PhasePreHooks, run: (*call).preHooks, waits: true,
		codes: []toolyard.Code{toolyard.HookBlocked, toolyard.HookFailed}},
	{phase: toolyard.PhasePermission, run: (*call).permission, waits: true,
		codes: []toolyard.Code{toolyard.PermissionDenied, toolyard.ApprovalRejected, toolyard.PolicyBlocked,
			// A person may not answer in time.
			toolyard.ApprovalExpired}},
	{phase: toolyard.PhaseSchedule, run: (*call).schedule, waits: true,
		codes: []toolyard.Code{toolyard.DependencyUnavailable}},
	{phase: toolyard.PhaseExecute, run: (*call).execute, waits: true,
		codes: []toolyard.Code{toolyard.ExecutionFailed, toolyard.Timeout, toolyard.DependencyUnavailable,
			toolyard.SandboxViolation,
			toolyard.OutcomeUnknown,
			// Some wrong values only show while the tool runs. These codes do not fail siblings.
			toolyard.InvalidArguments, toolyard.SetupRequired}},
	{phase: toolyard.PhaseMapResult, run: (*call).mapResult,
		codes: []toolyard.Code{toolyard.ResultMappingFailed}},
	{phase: toolyard.PhasePostHooks, run: (*call).postHooks, when: whenExecuted,
		codes: []toolyard.Code{toolyard.PostHookFailed, toolyard.HookBlocked}},
	{phase: toolyard.PhasePersistResult, run: (*call).persistResult,
		codes: []toolyard.Code{toolyard.ResultTooLarge, toolyard.ResultRedacted}},
	{phase: toolyard.PhaseEmitTerminal, run: (*call).emitTerminal, when: always},
}

// allows reports whether the phase may end, or remark, with the code. internal_error is possible in every phase.
func (r *row) allows(code toolyard.Code) bool {
	return code == toolyard.InternalError || slices.Contains(r.codes, code) ||
		(r.waits && slices.Contains(interruptions, code))
}

// PhaseCodes are the codes that a phase may end or remark with, internal_error aside, in the order of the table.
func PhaseCodes(phase toolyard.Phase) []toolyard.Code {
	for i := range table {
		if table[i].phase == phase {
			codes := slices.Clone(table[i].codes)
			if table[i].waits {
				codes = append(codes, interruptions...)
			}
			return codes
		}
	}
	return nil
}

// finding is what a phase found. The zero finding means success without remarks.
type finding struct {
	// detail is for the operator.
	detail string
	// noted says that the detail should be recorded although nothing failed.
	noted bool
	// remark is a code on a good result.
	remark toolyard.Code
	// fail ends the call.
	fail *failure
	// wait ends the run, because a person has to decide.
	wait *WaitingError
}

// failure is how a call ends if it fails.
type failure struct {
	code toolyard.Code
	// message is what the model reads about the event. advise.go adds what to do next, by the code.
	message string
	// next says what to do next, if the code alone does not.
	next string
	// detail is what the operator reads.
	detail string
	// foreign says that message is the tool's.
	foreign      bool
	retryable    bool
	retryAfterMS int64
	// lost says that the call is no longer ours; the other fields then mean nothing.
	lost bool
}

func noted(detail string) finding { return finding{noted: true, detail: detail} }

func failed(code toolyard.Code, message, detail string) finding {
	return finding{fail: &failure{code: code, message: message, detail: detail}}
}
