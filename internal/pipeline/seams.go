package pipeline

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/breaker"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// Tools are the tools whose code this worker has.
type Tools interface {
	// Lookup finds a tool by its name, or by an alias that resolves to it in the worker's base registry. The entry is
	// what the worker announces for it. Nobody changes either, and without a tool both are empty. Lookup is called
	// concurrently and must not wait.
	Lookup(name string) (t *tool.Tool, e *registry.Entry, ok bool)
}

// Rules are a batch's own deny and ask rules, parsed. The pipeline itself needs only Blocks, for resolve_tool;
// [Permission] gets the value and knows its type.
type Rules interface {
	// Blocks reports whether a deny rule covers the whole tool.
	Blocks(name string, aliases []string) bool
}

// Hooks are all hooks of this installation. The implementation matches, orders, bounds and combines them. Both methods
// return soon after their context ended; a hook that does not is abandoned. They are called concurrently. They own
// their arguments: changing them has no effect here.
type Hooks interface {
	// Pre runs before permission. An error means that a hook broke, and blocks the call.
	Pre(ctx context.Context, in HookInput) (HookVerdict, error)
	// Post runs whenever the tool ran, however it ended. An error means that a hook broke; the output is kept.
	Post(ctx context.Context, in HookInput) (HookVerdict, error)
}

// HookInput is a frozen copy of what a hook may know.
type HookInput struct {
	CallContext
	CallID    string
	Tool      string
	Judgement tool.Judgement
	// Input is a copy: normalised, redacted, and cut if it is longer than [MaxHookInputBytes]. InputHash is the hash of
	// the input itself.
	Input     json.RawMessage
	InputHash string
	// Outcome is the outcome of the tool; zero for Pre.
	Outcome HookOutcome
}

// HookOutcome is the outcome of the tool.
type HookOutcome struct {
	Code    toolyard.Code
	IsError bool
	// Output is the redacted output. Error is what the model reads about a failure.
	Output, Error string
	// Content are the redacted parts of the output that Output was not made from, without data that is no text.
	// Structured is the redacted output as data; nil if it is the same as Output.
	Content    []toolyard.Content
	Structured json.RawMessage
	// Origin is where they come from, if that is outside; see [toolyard.Origin]. Empty: it is not.
	Origin    string
	ExecuteMS float64
}

// HookVerdict is the combined verdict of the hooks. The zero verdict lets the call pass unchanged.
type HookVerdict struct {
	// Block vetoes the call, or for Post its output. Stop does the same and also asks the agent to stop; the fact says
	// so. Reason is what the model reads.
	Block, Stop bool
	Reason      string
	// By names the hooks that contributed, for the operator.
	By string
	// Broken says which hooks broke and were ignored, and why, for the operator. The fact says so too.
	Broken []string
	// Input, from Pre, replaces the whole input. Where it equals the copy, it stands for the original.
	Input json.RawMessage
	// Output, from Post, replaces the output of a tool that succeeded. Nil leaves it.
	Output *string
	// Context is added to the output for the model.
	Context string
	// Opinion, from Pre, is the hooks' opinion on permission. Empty: none. A deny is final.
	Opinion Behavior
}

// Behavior is a decision on permission.
type Behavior string

// The behaviors.
const (
	Allow Behavior = "allow"
	Ask   Behavior = "ask"
	Deny  Behavior = "deny"
)

// Permission decides whether a call may run. Deny beats ask beats allow, over rules, mode, flags and the hooks'
// opinion.
type Permission interface {
	// Decide returns soon after its context ended. Ask means that a person has to decide; the pipeline arranges that.
	// An error denies. Decide is called concurrently.
	Decide(ctx context.Context, in PermissionInput) (PermissionDecision, error)
	// Hidden returns a function that reports which paths of the workspace are hidden from calls of a tool; see
	// [tool.Env]. Rules are the batch's own. Hidden does not wait.
	Hidden(d *tool.Declaration, rules Rules, workspaceDir string) func(path string) bool
}

// AtOnce is a [Permission] that says of which calls it decides without waiting for anything. Then Decide is called
// without a goroutine of its own.
type AtOnce interface {
	DecidesAtOnce(in *PermissionInput) bool
}

// PermissionInput is the call that would run, and its origin.
type PermissionInput struct {
	CallContext
	Declaration tool.Declaration
	Judgement   tool.Judgement
	// Input is what will run, for rules to match: it may contain secrets. Observable is what may be shown.
	Input, Observable json.RawMessage
	InputHash         string
	// Opinion is the hooks' opinion. An allow never beats a deny or an ask.
	Opinion       Behavior
	OpinionReason string
	// Tool is the tool's own answer for this call: nothing, ask or deny.
	Tool tool.Permission
	// Rules are the batch's own; nil for none.
	Rules Rules
	// Remembered is what people have allowed for the rest of the session, in the words of the decisions.
	Remembered []string
}

// PermissionDecision is the decision. The zero decision denies.
type PermissionDecision struct {
	Behavior Behavior
	// Source says what decided (a rule, the mode, a person), for the operator. Reason says why, also for the model.
	Source, Reason string
	// Code refines a denial: permission_denied (the default), approval_rejected, approval_expired or policy_blocked.
	Code toolyard.Code
	// Remember says what a person's approval for the rest of the session would allow; for Ask. Empty: it cannot be
	// remembered.
	Remember string
}

// Breakers are the circuit breakers; [*breaker.Breakers] implements it.
type Breakers interface {
	// Allow reports whether a dependency may be tried. done must be called once; retryAfter comes with an error.
	Allow(dependency string) (done func(breaker.Outcome), retryAfter time.Duration, err error)
}

// Blobs stores outputs that are too long for a result.
type Blobs interface {
	// Put stores content for the agent of the batch, and returns its reference after it is stored durably. It is called
	// concurrently.
	Put(ctx context.Context, key toolyard.BatchKey, content string) (ref string, err error)
}
