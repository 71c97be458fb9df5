package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// validateValues runs the tool's own check, and then checks whether this worker can isolate the call as its class
// requires. The check comes first, because wrong values are more useful to the model.
func (c *call) validateValues(ctx context.Context) finding {
	if c.p.saturated() { // before the first code that may be left behind, and again before execute
		return c.tooManyLeftBehind()
	}
	if root := c.job.Root; root != nil { // before any hook sees the directory
		if err := root.Check(); err != nil {
			e := tool.AsError(err)
			return failed(toolyard.SandboxViolation, e.Message+".", cause(e))
		}
	}
	if f := c.check(ctx); f.fail != nil {
		return f
	}
	host := registry.Host{Isolation: c.p.Isolation, Unsandboxed: c.p.Unsandboxed}
	if why := host.Refuses(&c.entry.Declaration, c.judgement.Class); why != "" {
		return failed(toolyard.SetupRequired, why, c.judged())
	}
	// A class that the declaration states needs no explanation, unless it is the strictest.
	if d := &c.entry.Declaration; c.judgement.Class == toolyard.Unsafe || d.Class.Shell != "" || d.Class.Ask {
		return finding{detail: c.judged()}
	}
	return finding{}
}

// judged says what the call's class is, and why.
func (c *call) judged() string { return "judged " + string(c.judgement.Class) + ": " + c.judgement.Why }

func (c *call) check(ctx context.Context) finding {
	if c.code.Check == nil {
		return finding{}
	}
	limit := orDefault(c.p.CheckTimeout, DefaultCheckTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &timeoutError{limit: limit, own: true,
		what: "the check of the input"})
	defer cancel()
	env := c.env(ctx)
	input := c.input()
	_, err := guard(c.p, ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{},
			c.code.Check(ctx, env, input)
	})
	if err == nil {
		return finding{}
	}
	if stop := c.ended(ctx); stop != nil {
		stop.detail = join(stop.detail, err.Error())
		return finding{fail: stop}
	}
	if _, ok := errors.AsType[*panicError](err); ok || errors.Is(err, errGone) {
		return c.bug(toolyard.PhaseValidateValues, err)
	}
	e := tool.AsError(err)
	code := e.Code
	switch code {
	case toolyard.InvalidArguments, toolyard.SetupRequired, toolyard.SandboxViolation, toolyard.DependencyUnavailable,
		toolyard.Timeout:
	default: // a check that says no, without saying how
		code = toolyard.InvalidArguments
	}
	message := e.Message
	if code == toolyard.InvalidArguments || code == toolyard.SandboxViolation {
		message += c.notYours()
	}
	return finding{fail: &failure{code: code, message: message, detail: cause(e), retryable: e.Retryable,
		retryAfterMS: e.RetryAfterMS}}
}

func (c *call) tooManyLeftBehind() finding {
	return finding{fail: &failure{code: toolyard.DependencyUnavailable, retryable: true,
		retryAfterMS: retryWhenSaturatedMS,
		message:      "This worker starts nothing new: too many earlier calls ignored their end and still run.",
		detail:       fmt.Sprintf("%d goroutines were left behind", c.p.Leaked())}}
}

// retryWhenSaturatedMS is how long a model is told to wait for abandoned goroutines, in milliseconds.
const retryWhenSaturatedMS = 5_000

// cause is the part of a tool's failure that only the operator sees.
func cause(e *tool.Error) string {
	if e.Err == nil || e.Err.Error() == e.Message {
		return ""
	}
	return e.Err.Error()
}
