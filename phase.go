package toolyard

// Phase is one of the twelve steps that a call goes through, in the order of [Phases].
type Phase string

// The phases.
const (
	PhaseResolveTool     Phase = "resolve_tool"
	PhaseParseSchema     Phase = "parse_schema"
	PhaseValidateValues  Phase = "validate_values"
	PhaseObservableInput Phase = "prepare_observable_input"
	PhasePreHooks        Phase = "pre_hooks"
	PhasePermission      Phase = "permission"
	PhaseSchedule        Phase = "schedule"
	PhaseExecute         Phase = "execute"
	PhaseMapResult       Phase = "map_result"
	PhasePostHooks       Phase = "post_hooks"
	PhasePersistResult   Phase = "persist_result"
	PhaseEmitTerminal    Phase = "emit_terminal"
)

// Phases lists the twelve phases in their order.
var Phases = []Phase{
	PhaseResolveTool, PhaseParseSchema, PhaseValidateValues, PhaseObservableInput, PhasePreHooks, PhasePermission,
	PhaseSchedule, PhaseExecute, PhaseMapResult, PhasePostHooks, PhasePersistResult, PhaseEmitTerminal,
}

// Outcome says what a phase found.
type Outcome string

// The outcomes of a phase. A phase that did not run leaves no fact.
const (
	OutcomeOK     Outcome = "ok"     // passed
	OutcomeFailed Outcome = "failed" // ended the call with the fact's code
	OutcomeNoted  Outcome = "noted"  // passed, and the detail says something worth knowing
)

// Fact is the record of one phase of one call.
type Fact struct {
	Phase   Phase   `json:"phase"`
	Outcome Outcome `json:"outcome"`
	// Code is set when the phase failed, or remarked on a good result.
	Code Code `json:"code,omitempty"`
	// MS is the time the phase took, in milliseconds on the worker's monotonic clock.
	MS float64 `json:"ms"`
	// Detail is for the operator: what was decided, by whom or what. The model never sees it.
	Detail string `json:"detail,omitempty"`
}
