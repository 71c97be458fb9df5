package toolyard

// Code says how a call ended. It is empty on success; programs branch on it, people and models read the message
// beside it. The set is closed: adding one is a new wire version.
type Code string

// The codes, by the phase that gives them.
const (
	// OK is success.
	OK Code = ""

	// resolve_tool

	UnknownTool     Code = "unknown_tool"      // no tool of that name or alias in the batch's surface
	BlockedTool     Code = "blocked_tool"      // a deny rule took the tool out of the surface
	SchemaNotLoaded Code = "schema_not_loaded" // a deferred tool that the session has not loaded

	// parse_schema

	SchemaValidationFailed Code = "schema_validation_failed" // the input does not fit the tool's JSON Schema

	// validate_values

	InvalidArguments Code = "invalid_arguments" // the input fits the schema, its values do not fit the world
	SetupRequired    Code = "setup_required"    // the worker lacks what the tool needs: an operator must act
	SandboxViolation Code = "sandbox_violation" // the call asks for what the policy forbids; also in execute

	// prepare_observable_input

	InputMutationFailed Code = "input_mutation_failed" // the normalised copy could not be made

	// pre_hooks

	HookBlocked Code = "hook_blocked" // a hook vetoed; also in post_hooks
	HookFailed  Code = "hook_failed"  // a hook broke, and a broken hook blocks

	// permission

	PermissionDenied Code = "permission_denied" // a rule, the mode, or nobody to ask
	ApprovalRejected Code = "approval_rejected" // a person said no
	ApprovalExpired  Code = "approval_expired"  // nobody answered in time
	PolicyBlocked    Code = "policy_blocked"    // the session cannot give what the tool needs

	// schedule

	Canceled        Code = "canceled"         // the agent, a person or an operator cancelled it
	SiblingCanceled Code = "sibling_canceled" // another call of its group failed
	Skipped         Code = "skipped"          // ordered_halt stopped before it
	RateLimited     Code = "rate_limited"     // it would have waited too long for its turn under a rate
	BudgetExceeded  Code = "budget_exceeded"  // a budget has nothing left for it

	// execute

	ExecutionFailed Code = "execution_failed" // the tool ran and failed
	Timeout         Code = "timeout"          // the call's own time limit
	// no worker, or what the tool depends on is down; also in schedule
	DependencyUnavailable Code = "dependency_unavailable"
	OutcomeUnknown        Code = "outcome_unknown" // its worker was lost: it may have taken effect

	// map_result, post_hooks, persist_result

	ResultMappingFailed Code = "result_mapping_failed" // the output could not be put into the envelope
	PostHookFailed      Code = "post_hook_failed"      // the tool succeeded, a hook after it broke
	ResultTooLarge      Code = "result_too_large"      // past the hard cap
	ResultRedacted      Code = "result_redacted"       // a remark on a good result: secrets were taken out

	// the batch, the stream, ourselves

	DeadlineExceeded Code = "deadline_exceeded" // the batch's time limit
	IncompleteCall   Code = "incomplete_call"   // the model's stream was cut inside the call
	InternalError    Code = "internal_error"    // a bug of ours
)

// Codes lists every code but [OK], in the order of the pipeline.
var Codes = []Code{
	UnknownTool, BlockedTool, SchemaNotLoaded, SchemaValidationFailed, InvalidArguments, SetupRequired,
	SandboxViolation,
	InputMutationFailed, HookBlocked, HookFailed, PermissionDenied, ApprovalRejected, ApprovalExpired, PolicyBlocked,
	Canceled, SiblingCanceled, Skipped, RateLimited, BudgetExceeded, ExecutionFailed, Timeout, DeadlineExceeded,
	DependencyUnavailable,
	OutcomeUnknown,
	ResultMappingFailed, PostHookFailed, ResultTooLarge, ResultRedacted, IncompleteCall, InternalError,
}

// IsError reports whether a result with this code is an error: all are, but [OK] and the remark [ResultRedacted].
func (c Code) IsError() bool { return c != OK && c != ResultRedacted }
