// Package tool is a tool author's view of Toolyard.
//
// A tool is a typed function with metadata. The metadata is a [Declaration]: data that every part of the system can
// read without having the code. [New] makes a tool from a typed function and derives its input schema; [Raw] takes
// JSON and a schema as they are. A flag that is left out has its strictest meaning.
//
//	greet, err := tool.New(tool.Typed[In, string]{
//		Declaration: tool.Declaration{
//			Name: "greet", Description: "Greets a person by name.",
//			Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true,
//		},
//		Run: func(ctx context.Context, env tool.Env, in In) (string, error) { return "Hello, " + in.Name, nil },
//	})
//
// A tool's failure is an [*Error] with a code; any other error ends the call as execution_failed. Tools watch their
// context: it ends at the deadline, on cancel and when the worker loses its right to run the call.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolyard/toolyard"
)

// Tool is a declaration and the code behind it. Input given to the functions has passed the schema.
type Tool struct {
	Declaration
	// Check is validate_values: what the schema can't say (existence, ranges, paths). It has no side effects. Nil:
	// accept.
	Check func(ctx context.Context, env Env, input json.RawMessage) error
	// CheckPermission is the tool's own part of the permission phase, asked for the input that would run. It has no
	// side effects. It only tightens: what rules deny stays denied, and what they ask a person about is asked. An
	// error, a panic and an unknown behavior deny. Nil: [Passthrough].
	CheckPermission func(ctx context.Context, env Env, input json.RawMessage) (Permission, error)
	// Diff says what a call would change, for the person who is asked about it: a unified diff. It has no side effects.
	// An error says that it is not known; the person is asked all the same. Nil: nothing is said.
	Diff func(ctx context.Context, env Env, input json.RawMessage) (string, error)
	// Judge is asked when Class.Ask is set. An error or a panic means UNSAFE, and so does silence for a second.
	Judge func(input json.RawMessage) (Judgement, error)
	// Run is the tool. Required. An output beside an error is what it had so far: it is kept in the result.
	Run func(ctx context.Context, env Env, input json.RawMessage) (Output, error)
	// Enabled says whether the tool is offered now; the worker asks with each heartbeat. A batch that was planned
	// before keeps what it saw. Nil: always.
	Enabled func() bool
}

// Permission is what a tool itself says of one call's permission. The zero value is no opinion.
type Permission struct {
	Behavior Behavior
	// Reason is what the person who is asked reads, and the model when the call is denied.
	Reason string
}

// Behavior is what a tool wants for one of its calls.
type Behavior string

// The behaviors. There is none that allows: that is for rules, modes and people.
const (
	Passthrough Behavior = ""     // rules and mode decide
	Ask         Behavior = "ask"  // a person decides, also where a rule or the mode would allow the call
	Deny        Behavior = "deny" // the call does not run
)

// Output is what a tool gives back.
type Output struct {
	// Text is what the model reads.
	Text string
	// Structured is the same as data, for callers that want it; it must fit the OutputSchema where one is declared.
	Structured json.RawMessage
	// Content is the output by its parts, where it is more than text; Text may then be left out. Nil: Text is all.
	Content []toolyard.Content
	// Session is what the call changes in its session, if it succeeds. Nil: nothing.
	Session *SessionChange
}

// SessionChange is what a call changes in its session.
type SessionChange struct {
	// Loads are deferred tools whose schemas the model has seen with this output: it may call them in later batches. A
	// name that is none of [Env].Tools is refused.
	Loads []string `json:"loads,omitempty"`
	// Context is for the calls of later groups and batches, as [Env].Context: what it names is set, or taken away where
	// the value is empty, and all else stays. It is refused from a call that runs beside others, and when the session
	// would be past its limits with it. The model reads what was refused.
	Context map[string]string `json:"context,omitempty"`
}

// The limits of what tools set in a session.
const (
	MaxContextKeys  = 100      // settings of a session
	MaxContextBytes = 64 << 10 // of all keys and values of those settings
)

// MergeContext is a session's context with a change in it, see [SessionChange]; nil when nothing is set. It changes
// neither.
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

// ContextProblem says which limit of a session a context is past, and is empty when it is past none.
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

// Typed is a tool over Go types: In is decoded from the input, and its JSON Schema is derived unless the declaration
// has one; Out is a string or an [Output] as they are, anything else is rendered as JSON.
type Typed[In, Out any] struct {
	Declaration
	Check func(ctx context.Context, env Env, in In) error
	// CheckPermission and Diff are those of [Tool].
	CheckPermission func(ctx context.Context, env Env, in In) (Permission, error)
	Diff            func(ctx context.Context, env Env, in In) (string, error)
	Judge           func(in In) (Judgement, error)
	// Run is the tool. A value beside an error is what it had so far: it is kept in the result of a call that was
	// stopped or has failed.
	Run func(ctx context.Context, env Env, in In) (Out, error)
	// Enabled says whether the tool is offered now. Nil: always.
	Enabled func() bool
}

// New makes a tool from a typed one. It fails when the declaration is incomplete or no schema can be derived from In.
func New[In, Out any](t Typed[In, Out]) (Tool, error) {
	if t.Run == nil {
		return Tool{}, fmt.Errorf("tool %q: Run is nil", t.Name)
	}
	if t.InputSchema == nil {
		s, err := jsonschema.For[In](nil)
		if err != nil {
			return Tool{}, fmt.Errorf("tool %q: derive the input schema: %w", t.Name, err)
		}
		if t.InputSchema, err = json.Marshal(s); err != nil {
			return Tool{}, fmt.Errorf("tool %q: encode the input schema: %w", t.Name, err)
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

// Raw checks a tool that reads its JSON input itself. It fails when the declaration is incomplete. Workers hold every
// tool to the same.
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
	case t.TimeoutMS < 0:
		return bad("TimeoutMS is %d; use 0 or a positive number of milliseconds", t.TimeoutMS)
	case t.IdleTimeoutMS < 0:
		return bad("IdleTimeoutMS is %d; use 0 or a positive number of milliseconds", t.IdleTimeoutMS)
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
	}
	return t, nil
}

func render(out any) (Output, error) {
	switch o := out.(type) {
	case Output:
		return o, nil
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

// Error is a tool's failure: a result, not a fault of the system. Message is what the model reads, and says what to do
// next; Err is the cause, which only the operator sees.
type Error struct {
	Code    toolyard.Code
	Message string
	Err     error
	// Retryable says that the same call, unchanged, may succeed; RetryAfterMS how many milliseconds to wait first.
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

// Invalid is an [*Error] about values that do not fit the world: the model should call again with other input.
func Invalid(format string, args ...any) error {
	return &Error{Code: toolyard.InvalidArguments, Message: fmt.Sprintf(format, args...)}
}

// Violation is an [*Error] about what the policy forbids. The message shows nothing of what lies outside.
func Violation(format string, args ...any) error {
	return &Error{Code: toolyard.SandboxViolation, Message: fmt.Sprintf(format, args...)}
}

// SetupRequired is an [*Error] about what the worker lacks: an operator must act, the model should do without.
func SetupRequired(format string, args ...any) error {
	return &Error{Code: toolyard.SetupRequired, Message: fmt.Sprintf(format, args...)}
}

// Failed is an [*Error] of a tool that ran and failed for the reason err.
func Failed(err error, format string, args ...any) error {
	return &Error{Code: toolyard.ExecutionFailed, Message: fmt.Sprintf(format, args...), Err: err}
}

// Unavailable is an [*Error] about a dependency that is down: the same call may succeed later.
func Unavailable(err error, format string, args ...any) error {
	return &Error{Code: toolyard.DependencyUnavailable, Message: fmt.Sprintf(format, args...), Err: err,
		Retryable: true}
}

// AsError returns err's [*Error], or an execution_failed one that carries err's own text to the model.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: toolyard.ExecutionFailed, Message: err.Error(), Err: err}
}
