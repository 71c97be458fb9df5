// Package background has the tools of background calls: calls that go on behind their batch.
//
// A background call is a batch of its own. These tools ask a dispatcher, which starts, looks at and stops such batches
// as the log says (internal/dispatcher/background.go). See docs/adr/0058-background-calls-are-batches.md.
package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// The rhythm of waiting for the end of a background call.
const (
	// DefaultWait is how long background_wait waits if its input says nothing.
	DefaultWait = 30 * time.Second
	// firstLook is how long after its start a call is looked at again. Each pause is twice as long as the one before,
	// up to longestLook.
	firstLook   = 25 * time.Millisecond
	longestLook = 2 * time.Second
	// waitRoom is how much longer than its wait a tool may run.
	waitRoom = 30 * time.Second
)

// Ask has a dispatcher do what the running call says; hash is that of its input.
type Ask func(ctx context.Context, hash string) (broker.BackgroundAnswer, error)

type askKey struct{}

// WithAsk gives a call of one of the tools its way to a dispatcher.
func WithAsk(ctx context.Context, ask Ask) context.Context {
	return context.WithValue(ctx, askKey{}, ask)
}

const handleProperty = `"handle":{"type":"string","minLength":1,"maxLength":128,
	"description":"The handle, exactly as background_start gave it."}`

// Tools makes the tools.
func Tools() []tool.Tool {
	most := toolyard.MaxBackgroundWait.Milliseconds()
	wait := func(what string, usual int64) string {
		return fmt.Sprintf(`"wait_ms":{"type":"integer","minimum":0,"maximum":%d,"default":%d,"description":%q}`, most,
			usual, what)
	}
	handle := fmt.Sprintf(`{"type":"object","additionalProperties":false,"required":["handle"],"properties":{%s}}`,
		handleProperty)
	start := fmt.Sprintf(`{"type":"object","additionalProperties":false,"required":["tool","input"],"properties":{
		"tool":{"type":"string","minLength":1,"description":"The name of the tool to call."},
		"input":{"type":"object","description":"The input of that tool."},
		"workspace":{"type":"boolean","default":false,"description":"Have the call act on the workspace. It then holds it as long as it runs, so that other calls wait. Without, a command runs in an empty directory of its own."},
		"timeout_ms":{"type":"integer","minimum":1,"description":"After how many milliseconds to stop the call. Default: as long as is allowed."},
		"as_result":{"type":"boolean","default":false,"description":"Give the result of a call that is over by then as this call's own: if that one failed, this one fails."},
		%s}}`, wait("How many milliseconds to wait for the call's end first: a call that is over by then gives its result "+
		"at once.", 0))
	end := fmt.Sprintf(`{"type":"object","additionalProperties":false,"required":["handle"],"properties":{%s,%s}}`,
		handleProperty, wait("For how many milliseconds to wait at most.", DefaultWait.Milliseconds()))
	return []tool.Tool{
		define(toolyard.BackgroundCheck, "Says how a background call stands: its output so far, or its result.", handle,
			0, false),
		define(toolyard.BackgroundStart, "Starts a call of another tool that goes on in the background, and gives its "+
			"handle at once. Use it for what takes minutes, such as a build or a server.", start, 0, true),
		define(toolyard.BackgroundStop, "Stops a background call. What it has done stays.", handle, 0, true),
		define(toolyard.BackgroundWait, "Waits for the end of a background call, and gives its result, or its output so "+
			"far.", end, DefaultWait, false),
	}
}

// define makes one tool, which waits as long as usual if its input says nothing. What acts is alone in its group and
// safe to repeat: a start finds the call that it has started.
func define(name, description, inputSchema string, usual time.Duration, acts bool) tool.Tool {
	yes, no := true, false
	d := tool.Declaration{
		Name: name, Description: description, InputSchema: json.RawMessage(inputSchema),
		Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true, Destructive: &no, Idempotent: &yes,
		RequiresPermission: &no, // the background call has its own
		UsesWorkspace:      &no,
		OpenWorld:          &yes, // what the background call gives may come from anywhere
		Interrupt:          tool.Cancel,
		AbortsSiblings:     &no,
		TimeoutMS:          (toolyard.MaxBackgroundWait + waitRoom).Milliseconds(),
		MaxResultSizeChars: 100_000,
	}
	if acts {
		d.Class, d.ReadOnly = tool.ClassRule{Static: toolyard.WriteExclusive}, false
	}
	return tool.Tool{Declaration: d, Run: func(ctx context.Context, env tool.Env, raw json.RawMessage) (tool.Output,
		error) {
		return run(ctx, env, raw, usual)
	}}
}

// run has a dispatcher do what the input says, and looks again until the call is over or the wait is.
func run(ctx context.Context, env tool.Env, raw json.RawMessage, usual time.Duration) (tool.Output, error) {
	ask, ok := ctx.Value(askKey{}).(Ask)
	if !ok {
		return tool.Output{}, tool.SetupRequired("there are no background calls here")
	}
	in, err := read(raw, usual)
	if err != nil {
		return tool.Output{}, err
	}
	end := time.Now().Add(in.wait)
	for look := firstLook; ; look = min(2*look, longestLook) {
		a, err := ask(ctx, in.hash)
		switch {
		case ctx.Err() != nil:
			return tool.Output{}, context.Cause(ctx)
		case err != nil:
			return tool.Output{}, tool.Unavailable(err, "no dispatcher answered; try again")
		case a.Problem != "" && a.Handle == "":
			return tool.Output{}, refusal(a)
		}
		left := time.Until(end)
		over := a.State == broker.BackgroundOver || a.State == broker.BackgroundRefused
		switch {
		case over && in.asResult:
			return asResult(a)
		case over, left <= 0:
			return output(a)
		}
		if err := pause.For(ctx, min(look, left)); err != nil {
			return tool.Output{}, err
		}
		env.Progress(tool.Progress{Fraction: -1, Status: string(a.State)})
	}
}

// asked is what the tools themselves read of an input.
type asked struct {
	wait     time.Duration
	hash     string
	asResult bool
}

func read(raw json.RawMessage, usual time.Duration) (asked, error) {
	v, err := schema.Parse(raw)
	if err != nil {
		return asked{}, tool.Invalid("the input does not fit: %v", err)
	}
	var in struct {
		WaitMS   *int64 `json:"wait_ms"`
		AsResult bool   `json:"as_result"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return asked{}, tool.Invalid("the input does not fit: %v", err)
	}
	out := asked{wait: usual, hash: v.Hash(), asResult: in.AsResult}
	if in.WaitMS != nil {
		out.wait = time.Duration(max(0, min(*in.WaitMS, toolyard.MaxBackgroundWait.Milliseconds()))) * time.Millisecond
	}
	return out, nil
}

// refusal is the error of a call for which the dispatcher did nothing.
func refusal(a broker.BackgroundAnswer) error {
	switch a.Code {
	case toolyard.DependencyUnavailable:
		return tool.Unavailable(errors.New(a.Problem), "%s", a.Problem)
	case toolyard.SetupRequired:
		return tool.SetupRequired("%s", a.Problem)
	case toolyard.ExecutionFailed:
		return &tool.Error{Code: a.Code, Message: a.Problem}
	}
	return tool.Invalid("%s", a.Problem)
}

// asResult gives the end of a background call as that of the call that started it.
func asResult(a broker.BackgroundAnswer) (tool.Output, error) {
	r := a.Result
	if r == nil {
		return tool.Output{}, &tool.Error{Code: toolyard.ExecutionFailed,
			Message: "The call was refused and has not run: " + a.Problem}
	}
	text := r.Text() + rest(r)
	if !r.IsError {
		return tool.Output{Text: text, Structured: r.Structured, Content: content(r)}, nil
	}
	var out tool.Output
	if r.Error != "" { // a message is cut where it is long: the output goes beside it
		out = tool.Output{Text: r.Output + rest(r), Content: content(r)}
		text = strings.TrimSuffix(r.Error, "\n\n"+strings.TrimRight(r.Output, "\n"))
	}
	switch r.Code {
	case toolyard.ExecutionFailed, toolyard.DependencyUnavailable, toolyard.Timeout, toolyard.InvalidArguments,
		toolyard.SetupRequired, toolyard.SandboxViolation, toolyard.OutcomeUnknown:
		return out, &tool.Error{Code: r.Code, Message: text, Retryable: r.Retryable, RetryAfterMS: r.RetryAfterMS}
	}
	// The pipeline lets no tool say, for instance, that permission was denied.
	return out, &tool.Error{Code: toolyard.ExecutionFailed,
		Message: fmt.Sprintf("The call ended as %s. %s", r.Code, text)}
}

// rest says where the whole of a result is that was cut. Empty: it was not, or says so itself.
func rest(r *toolyard.Result) string {
	if !r.Truncated || r.Blob == "" || strings.Contains(r.Text(), r.Blob) {
		return ""
	}
	return fmt.Sprintf("\n[this is the beginning; read_result with ref %s has all of it]", r.Blob)
}

// content are the parts of a result, for another result. The pipeline takes no reference from a tool, so words say
// where a part is stored.
func content(r *toolyard.Result) []toolyard.Content {
	parts := slices.Clone(r.Content)
	for i := range parts {
		p := &parts[i]
		if p.Blob == "" {
			continue
		}
		text := p.Text
		if !strings.Contains(text, p.Blob) {
			text = fmt.Sprintf("%s\nRead it with the tool read_result and ref %q.", p, p.Blob)
		}
		*p = toolyard.Content{Type: toolyard.ContentText, Text: text}
	}
	return parts
}

// said is the structured output of the tools.
type said struct {
	Handle toolyard.BatchID       `json:"handle"`
	State  broker.BackgroundState `json:"state"`
	// IsError and Code are those of the result.
	IsError bool          `json:"is_error,omitempty"`
	Code    toolyard.Code `json:"code,omitempty"`
}

// output is what the model reads of a background call.
func output(a broker.BackgroundAnswer) (tool.Output, error) {
	s := said{Handle: a.Handle, State: a.State, Code: a.Code, IsError: a.Problem != ""}
	var text strings.Builder
	var parts []toolyard.Content
	switch r := a.Result; {
	case r != nil:
		s.IsError, s.Code = r.IsError, r.Code
		how := "succeeded"
		if r.IsError {
			how = "ended as " + string(r.Code)
		}
		fmt.Fprintf(&text, "[background call %s %s]\n%s%s", a.Handle, how, r.Text(), rest(r))
		if len(r.Content) > 0 {
			parts = append([]toolyard.Content{{Type: toolyard.ContentText, Text: text.String()}}, content(r)...)
		}
	case a.State == broker.BackgroundRefused:
		fmt.Fprintf(&text, "[background call %s was refused and has not run]\n%s", a.Handle, a.Problem)
	case a.State == broker.BackgroundWaiting:
		fmt.Fprintf(&text, "[background call %s waits for a person's permission]", a.Handle)
	case a.State == broker.BackgroundQueued:
		fmt.Fprintf(&text, "[background call %s has been started and has not begun]", a.Handle)
	default:
		fmt.Fprintf(&text, "[background call %s is running; its output so far follows]", a.Handle)
		if a.Tail.LostBytes > 0 {
			fmt.Fprintf(&text, "\n[%d bytes before this are left out]", a.Tail.LostBytes)
		}
		if a.Tail.Text == "" {
			text.WriteString("\n[none]")
		} else {
			text.WriteString("\n" + a.Tail.Text)
		}
	}
	structured, err := json.Marshal(s)
	if err != nil {
		return tool.Output{}, fmt.Errorf("encode what is known of %s: %w", a.Handle, err)
	}
	return tool.Output{Text: text.String(), Structured: structured, Content: parts}, nil
}
