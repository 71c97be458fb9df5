// Package tool is for authors of tools.
//
// A tool is a function with a [Declaration], which describes it to the other parts of the system. [New] makes a tool
// from a typed function and derives its input schema. [Raw] takes a function of JSON and its schema. A field of the
// declaration that is left out has its strictest setting.
//
//	greet, err := tool.New(tool.Typed[In, string]{
//		Declaration: tool.Declaration{
//			Name: "greet", Description: "Greets a person by name.",
//			Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true,
//		},
//		Run: func(ctx context.Context, env tool.Env, in In) (string, error) { return "Hello, " + in.Name, nil },
//	})
//
// A tool fails by returning an [*Error] with a code. Any other error ends the call as execution_failed. A tool must
// stop when its context ends: at the deadline, when the call is canceled, and when the worker may no longer run the
// call.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"time"

	"github.com/toolyard/toolyard"
)

// Tool is a declaration and its code. The input that the functions get is valid under the schema.
type Tool struct {
	Declaration
	// Check checks what the schema cannot, such as ranges, paths and whether files exist (phase validate_values). It
	// must have no side effects. Nil: every input is accepted.
	Check func(ctx context.Context, env Env, input json.RawMessage) error
	// CheckPermission is the tool's own part of the permission phase, for the input that would run. It must have no
	// side effects. It can only be stricter than the rules. An error, a panic and an unknown behavior deny the call.
	// Nil: [Passthrough].
	CheckPermission func(ctx context.Context, env Env, input json.RawMessage) (Permission, error)
	// Diff returns what a call would change, as a unified diff for the person who is asked about it. It must have no
	// side effects. After an error the person is asked without a diff. Nil: there is no diff.
	Diff func(ctx context.Context, env Env, input json.RawMessage) (string, error)
	// Judge classifies a call if Class.Ask is set. An error, a panic, or no answer within a second means UNSAFE.
	Judge func(input json.RawMessage) (Judgement, error)
	// Run runs a call. Required. An output returned with an error is partial, and the result keeps it.
	Run func(ctx context.Context, env Env, input json.RawMessage) (Output, error)
	// Enabled reports whether the tool is offered now. The worker calls it with each heartbeat, beside those of other
	// tools. A panic, or no answer within a second, means no, until it answers. A late answer counts for ten seconds,
	// while it is called again. Batches that were planned before are not affected. Nil: always.
	Enabled func() bool
}

// Permission is a tool's own opinion about the permission of one call. The zero value is none.
type Permission struct {
	Behavior Behavior
	// Reason is for the person who is asked, and for the model if the call is denied.
	Reason string
}

// Behavior says how a tool wants one of its calls to be treated.
type Behavior string

// The behaviors. None of them allows a call: only rules, modes and people do.
const (
	Passthrough Behavior = ""     // rules and mode decide
	Ask         Behavior = "ask"  // a person decides, also where a rule or the mode would allow the call
	Deny        Behavior = "deny" // the call does not run
)

// Output is the output of a call.
type Output struct {
	// Text is the text for the model.
	Text string
	// Structured is the same output as JSON, for programs. It must match the OutputSchema if the tool declares one.
	Structured json.RawMessage
	// Content has the parts of an output that is more than text, such as images; Text may then be empty. Nil: the
	// output is Text.
	Content []toolyard.Content
	// Session is the change to the session, which is applied if the call succeeds. Nil: none.
	Session *SessionChange
}

// SessionChange is a call's change to its session.
type SessionChange struct {
	// Loads names deferred tools whose schemas are in this output, so that the model may call them in later batches. A
	// name that is not in [Env].Tools is refused.
	Loads []string `json:"loads,omitempty"`
	// Context sets values of [Env].Context for the calls of later groups and batches. An empty value removes a key;
	// keys that are not named stay. It is refused from a call that ran concurrently with others, and if the session
	// would exceed its limits. The model is told what was refused.
	Context map[string]string `json:"context,omitempty"`
}

// Limits of a session's context.
const (
	MaxContextKeys  = 100      // keys
	MaxContextBytes = 64 << 10 // bytes of all keys and values
)

// MergeContext returns a session's context after a change (see [SessionChange]), nil if it is empty. It modifies
// neither argument.
func MergeContext(now, change map[string]string) map[string]string {
	out := make(map[string]string, len(now)+len(change))
	maps.Copy(out, now)
	for k, v := range change {
		if out[k] = v; v == "" {
			delete(out, k)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// ContextProblem says which limit of a session a context exceeds. It is empty if the context exceeds none.
func ContextProblem(context map[string]string) string {
	size := 0
	for k, v := range context {
		size += len(k) + len(v)
	}
	switch {
	case len(context) > MaxContextKeys:
		return fmt.Sprintf("the session would have %d settings, and at most %d are kept", len(context), MaxContextKeys)
	case size > MaxContextBytes:
		return fmt.Sprintf("the session's settings would have %d bytes, and at most %d are kept", size, MaxContextBytes)
	}
	return ""
}

// Typed is a tool over Go types. In is decoded from the input, and the input schema is derived from it unless the
// declaration has one. Out may be a string, an [Output] or an *Output; any other value is encoded as JSON.
type Typed[In, Out any] struct {
	Declaration
	Check func(ctx context.Context, env Env, in In) error
	// CheckPermission and Diff are those of [Tool].
	CheckPermission func(ctx context.Context, env Env, in In) (Permission, error)
	Diff            func(ctx context.Context, env Env, in In) (string, error)
	Judge           func(in In) (Judgement, error)
	// Run runs a call. A value returned with an error is a partial output, and the result keeps it.
	Run func(ctx context.Context, env Env, in In) (Out, error)
	// Enabled is that of [Tool].
	Enabled func() bool
}

// New makes a tool from a typed one. It fails if the declaration is incomplete, or no schema can be derived from In.
func New[In, Out any](t Typed[In, Out]) (Tool, error) {
	if t.Run == nil {
		return Tool{}, fmt.Errorf("tool %q: Run is nil", t.Name)
	}
	if t.InputSchema == nil {
		var err error
		if t.InputSchema, err = schemaOf[In](); err != nil {
			return Tool{}, fmt.Errorf("tool %q: derive the input schema: %w", t.Name, err)
		}
	}
	raw := Tool{Declaration: t.Declaration, Enabled: t.Enabled}
	if t.Check != nil {
		raw.Check = func(ctx context.Context, env Env, input json.RawMessage) error {
			in, err := decode[In](input)
			if err != nil {
				return err
			}
			return t.Check(ctx, env, in)
		}
	}
	if t.CheckPermission != nil {
		raw.CheckPermission = func(ctx context.Context, env Env, input json.RawMessage) (Permission, error) {
			in, err := decode[In](input)
			if err != nil {
				return Permission{}, err
			}
			return t.CheckPermission(ctx, env, in)
		}
	}
	if t.Diff != nil {
		raw.Diff = func(ctx context.Context, env Env, input json.RawMessage) (string, error) {
			in, err := decode[In](input)
			if err != nil {
				return "", err
			}
			return t.Diff(ctx, env, in)
		}
	}
	if t.Judge != nil {
		raw.Judge = func(input json.RawMessage) (Judgement, error) {
			in, err := decode[In](input)
			if err != nil {
				return Judgement{}, err
			}
			return t.Judge(in)
		}
	}
	raw.Run = func(ctx context.Context, env Env, input json.RawMessage) (Output, error) {
		in, err := decode[In](input)
		if err != nil {
			return Output{}, err
		}
		out, err := t.Run(ctx, env, in)
		if err == nil {
			return render(out)
		}
		if reflect.ValueOf(&out).Elem().IsZero() {
			return Output{}, err
		}
		partial, broken := render(out)
		if broken != nil {
			return Output{}, err
		}
		return partial, err
	}
	return Raw(raw)
}

// Raw checks a tool that reads its JSON input itself. It fails if the declaration is incomplete. Workers check every
// tool the same way.
func Raw(t Tool) (Tool, error) {
	bad := func(format string, args ...any) (Tool, error) {
		return Tool{}, fmt.Errorf("tool %q: %s", t.Name, fmt.Sprintf(format, args...))
	}
	if err := toolyard.CheckName("name", t.Name); err != nil {
		return bad("%v", err)
	}
	var object map[string]any
	switch {
	case t.Run == nil:
		return bad("Run is nil")
	case t.Description == "":
		return bad("Description is empty; the model reads nothing else to decide")
	case t.Class.Shell != "" && (t.Class.Ask || t.Class.Static != ""):
		return bad("Class.Shell is set beside another rule")
	case t.Class.Remembers && t.Class.Shell == "":
		return bad("Class.Remembers is set without Class.Shell")
	case t.Class.Static != "" && !t.Class.Static.Known():
		return bad("Class.Static is %q; use one of %q", t.Class.Static, toolyard.Classes)
	case t.Class.Ask && t.Judge == nil:
		return bad("Class.Ask is set and Judge is nil")
	case !t.Interrupt.Known():
		return bad("Interrupt is %q; use %q, %q, or nothing for %q", t.Interrupt, Block, Cancel, Block)
	case !t.Specifier.one():
		return bad("Specifier names more than one field; set Path, Command or URL")
	case !t.Execution.Known():
		return bad("Execution is %q; use %q, %q, %q, or nothing for the worker's own process", t.Execution, InSandbox,
			InService, InWasm)
	case t.MaxResultSizeChars < -1:
		return bad("MaxResultSizeChars is %d; use -1, 0 or a positive number", t.MaxResultSizeChars)
	case t.TimeoutMS < 0 || t.TimeoutMS > maxMS:
		return bad("TimeoutMS is %d; use 0 to %d milliseconds", t.TimeoutMS, maxMS)
	case t.IdleTimeoutMS < 0 || t.IdleTimeoutMS > maxMS:
		return bad("IdleTimeoutMS is %d; use 0 to %d milliseconds", t.IdleTimeoutMS, maxMS)
	case t.MaxInFlight < 0:
		return bad("MaxInFlight is %d; use 0 or a positive number of calls", t.MaxInFlight)
	case t.Cost < 0 || t.Cost > MaxCost:
		return bad("Cost is %d; use 0 to %d", t.Cost, MaxCost)
	case t.cacheProblem() != "":
		return bad("%s", t.cacheProblem())
	case toolyard.CheckTags("Tags", t.Tags, toolyard.MaxTagsAsked) != nil:
		return bad("%v", toolyard.CheckTags("Tags", t.Tags, toolyard.MaxTagsAsked))
	case json.Unmarshal(t.InputSchema, &object) != nil || object["type"] != "object":
		return bad("InputSchema is not a JSON Schema of an object")
	case t.missingField() != "":
		return bad("%s", t.missingField())
	}
	return t, nil
}

// maxMS is the longest time limit, in milliseconds: what a [time.Duration] holds.
const maxMS = math.MaxInt64 / int64(time.Millisecond)

func render(out any) (Output, error) {
	switch o := out.(type) {
	case Output:
		return o, nil
	case *Output:
		if o == nil {
			return Output{}, nil
		}
		return *o, nil
	case string:
		return Output{Text: o}, nil
	}
	b, err := json.Marshal(out)
	if err != nil {
		return Output{}, &Error{Code: toolyard.ResultMappingFailed, Message: "the tool's output could not be encoded",
			Err: err}
	}
	return Output{Text: string(b), Structured: b}, nil
}

// Error is the failure of a call. Message is for the model, and should say what to do next. Err is the cause, which
// only the operator sees.
type Error struct {
	Code    toolyard.Code
	Message string
	Err     error
	// Retryable says that the same call may succeed later. RetryAfterMS says how many milliseconds to wait before.
	Retryable    bool
	RetryAfterMS int64
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

// Invalid returns an [*Error] for input values that cannot be used. The model should call again with other values.
func Invalid(format string, args ...any) error {
	return &Error{Code: toolyard.InvalidArguments, Message: fmt.Sprintf(format, args...)}
}

// Violation returns an [*Error] for what the policy forbids. The message must show nothing of what lies outside the
// workspace.
func Violation(format string, args ...any) error {
	return &Error{Code: toolyard.SandboxViolation, Message: fmt.Sprintf(format, args...)}
}

// SetupRequired returns an [*Error] for something that the worker lacks and an operator must provide.
func SetupRequired(format string, args ...any) error {
	return &Error{Code: toolyard.SetupRequired, Message: fmt.Sprintf(format, args...)}
}

// Failed returns an [*Error] for a tool that ran and failed because of err.
func Failed(err error, format string, args ...any) error {
	return &Error{Code: toolyard.ExecutionFailed, Message: fmt.Sprintf(format, args...), Err: err}
}

// Unavailable returns an [*Error] for a dependency that is down. The same call may succeed later.
func Unavailable(err error, format string, args ...any) error {
	return &Error{Code: toolyard.DependencyUnavailable, Message: fmt.Sprintf(format, args...), Err: err,
		Retryable: true}
}

// AsError returns the [*Error] that err is or wraps. If there is none, it returns an execution_failed one with err's
// text; of nil it is nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: toolyard.ExecutionFailed, Message: err.Error(), Err: err}
}
