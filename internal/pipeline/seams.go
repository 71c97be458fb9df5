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
	// what the worker announces for it. It is called concurrently and must not wait.
	Lookup(name string) (t tool.Tool, e registry.Entry, ok bool)
}

// Rules are a batch's own deny and ask rules, parsed. The pipeline asks only what it needs for resolve_tool;
// [Permission] gets the value and knows its type.
type Rules interface {
	// Blocks reports whether a deny rule takes the whole tool out.
	Blocks(name string, aliases []string) bool
}

// Hooks are the hooks of this installation, as one: the implementation matches, orders, bounds and combines them. Both
// methods return soon after their context ended; a hook that does not is left behind. They are called concurrently.
// What they get is theirs: changing it changes nothing here.
type Hooks interface {
	// Pre runs before permission. An error means that a hook broke, and blocks the call.
	Pre(ctx context.Context, in HookInput) (HookVerdict, error)
	// Post runs whenever the tool ran, however that ended. An error means that a hook broke; the output is kept.
	Post(ctx context.Context, in HookInput) (HookVerdict, error)
}

// HookInput is a frozen copy of what a hook may know.
type HookInput struct {
	CallContext
	CallID    string
	Tool      string
	Judgement tool.Judgement
	// Input is the observable copy: normalised, redacted, cut where it is long. InputHash names the input itself.
	Input     json.RawMessage
	InputHash string
	// Outcome is what came out; zero for Pre.
	Outcome HookOutcome
}

// HookOutcome is what came out of the tool.
type HookOutcome struct {
	Code    toolyard.Code
	IsError bool
	// Output is the redacted output, Error what the model reads of a failure.
	Output, Error string
	ExecuteMS     float64
}

// HookVerdict is what the hooks say together. The zero verdict lets the call pass as it is.
type HookVerdict struct {
	// Block vetoes: the call, or for Post its output. Stop does the same and asks for the agent to be stopped; the
	// fact says so. Reason is what the model reads.
	Block, Stop bool
	Reason      string
	// By names the hooks that had something to say, for the operator.
	By string
	// Broken says which hooks broke and were left out all the same, and why; for the operator. The fact says so too.
	Broken []string
	// Input, from Pre, replaces the whole input. What it has in common with the observable copy stands for the
	// original.
	Input json.RawMessage
	// Output, from Post, replaces the output of a tool that succeeded. Nil leaves it.
	Output *string
	// Context is added to the output for the model.
	Context string
	// Opinion, from Pre, is what the hooks think of permission. Empty: nothing. A deny is final.
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
	// Decide returns soon after its context ended. Ask means that a person has to decide: the pipeline sees to it. An
	// error denies. It is called concurrently.
	Decide(ctx context.Context, in PermissionInput) (PermissionDecision, error)
	// Hidden returns what reports which paths of the workspace are hidden from calls of a tool; see [tool.Env]. Rules
	// are the batch's own. It does not wait.
	Hidden(d *tool.Declaration, rules Rules, workspaceDir string) func(path string) bool
}

// PermissionInput is what will run, and who wants it.
type PermissionInput struct {
	CallContext
	Declaration tool.Declaration
	Judgement   tool.Judgement
	// Input is what will run, for rules to match on: it may hold secrets. Observable is what may be shown.
	Input, Observable json.RawMessage
	InputHash         string
	// Opinion is the hooks'. An allow never beats a deny or an ask.
	Opinion       Behavior
	OpinionReason string
	// Tool is what the tool itself says of this call: nothing, ask or deny.
	Tool tool.Permission
	// Rules are the batch's own; nil for none.
	Rules Rules
	// Remembered is what people have allowed for the rest of the session, as decisions have named it.
	Remembered []string
}

// PermissionDecision is what was decided. The zero decision denies.
type PermissionDecision struct {
	Behavior Behavior
	// Source says what decided, a rule, the mode, a person, for the operator; Reason why, for the model too.
	Source, Reason string
	// Code refines a denial: permission_denied (the default), approval_rejected, approval_expired or policy_blocked.
	Code toolyard.Code
	// Remember names what a person's approval for the rest of the session would allow; for Ask. Empty: it cannot be
	// remembered.
	Remember string
}

// Breakers are the circuit breakers; [*breaker.Breakers] is them.
type Breakers interface {
	// Allow asks whether a dependency may be tried. done must be called once; retryAfter comes with an error.
	Allow(dependency string) (done func(breaker.Outcome), retryAfter time.Duration, err error)
}

// Blobs stores outputs that are too long for a result.
type Blobs interface {
	// Put stores content for the agent of the batch and returns its reference once it is stored durably. It is called
	// concurrently.
	Put(ctx context.Context, key toolyard.BatchKey, content string) (ref string, err error)
}
