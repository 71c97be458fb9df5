package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/breaker"
	"github.com/toolyard/toolyard/internal/cache"
	"github.com/toolyard/toolyard/internal/elicit"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/tool"
)

// execute runs the tool, or takes the output of an equal call if the tool declares a cache.
func (c *call) execute(ctx context.Context) finding {
	if c.entry.Cache != nil && c.p.Cache != nil {
		return c.executeOrReuse(ctx)
	}
	return c.executeTool(ctx)
}

// limit is how long the tool may run: the shorter of its own time limit and the batch's, and that of a background call
// instead of both. own says that it is its own.
func (c *call) limit() (limit time.Duration, own bool) {
	if c.job.Background && c.job.CallTimeout > 0 {
		return c.job.CallTimeout, false
	}
	limit = c.entry.Timeout()
	own = c.job.CallTimeout <= 0 || c.job.CallTimeout >= limit
	if !own {
		limit = c.job.CallTimeout
	}
	return limit, own
}

// executeTool runs the tool within its limit. If the tool declares an idle timeout, that applies too.
func (c *call) executeTool(ctx context.Context) finding {
	limit, own := c.limit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &timeoutError{limit: limit, own: own, what: "the tool"})
	defer cancel()
	ctx, goesOn := c.watchIdle(ctx)
	env := c.env(ctx)
	progress, end := untilOver(env.Progress, goesOn)
	env.Progress = progress
	progress(tool.Progress{Fraction: 0})
	defer end()
	input := c.input()
	c.executed = true
	c.res.Attempts, c.res.WasConcurrent, c.res.Origin = c.job.Earlier+1, c.job.WasConcurrent, c.origin()
	ctx, stamp := sandbox.WithStamp(ctx)
	stopGrace := orDefault(c.p.StopGrace, DefaultStopGrace)
	ctx = sandbox.WithGrace(ctx, stopGrace/2) // the other half is for what is killed then
	ctx = elicit.With(ctx, c.asking())
	began := c.p.now()
	release := c.release
	if release == nil {
		release = func() {}
	}
	c.release = nil // the slot stays the tool's until it returns, however late
	out, err := guardFor(c.p, ctx, stopGrace,
		func(ctx context.Context) (tool.Output, error) { return c.code.Run(ctx, env, input) }, release)
	c.res.ExecuteMS = ms(c.p.now().Sub(began))
	c.res.Isolation = stamp.Isolation() // what isolated the code that ran, not what this worker could do
	c.out = out
	if c.reuse != nil {
		c.reuse.given = cache.Copy(out) // what follows may change it
	}
	q, asks := errors.AsType[*elicit.Question](err)
	if asks = asks && q != nil && c.ended(ctx) == nil && !c.refused.Load(); asks {
		err = nil // it has answered, though with a question
	}
	f := c.judgeEnd(ctx, err)
	if c.report != nil {
		c.report(c.blame(ctx, err, f))
		c.report = nil
	}
	if asks {
		return c.ask(q)
	}
	if f != nil && !f.lost {
		if c.takeParts() != "" {
			c.parts = nil
		}
		c.text, c.kept = valid(c.out.Text), c.out.Text != "" // partial output is evidence
	}
	return finding{fail: f}
}

// untilOver returns the function to which a tool reports its progress, and a function that ends this with a last
// report. Later reports are about a call that has ended, and are dropped. Each report calls goesOn.
func untilOver(report func(tool.Progress), goesOn func()) (progress func(tool.Progress), end func()) {
	var mu sync.Mutex // nothing may follow the last report
	over := false
	progress = func(p tool.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			goesOn()
			report(p)
		}
	}
	return progress, func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		report(tool.Progress{Fraction: 1})
	}
}

// watchIdle returns a context that ends when the tool reports no progress for its declared idle timeout, and a function
// that each report calls. Without an idle timeout the context is unchanged.
func (c *call) watchIdle(ctx context.Context) (_ context.Context, goesOn func()) {
	limit := c.entry.IdleTimeout()
	if limit <= 0 || c.job.Background {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() {
		cancel(&timeoutError{limit: limit, own: true, idle: true,
			what: "the tool"})
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
	return ctx, func() {
		if ctx.Err() == nil {
			timer.Reset(limit)
		}
	}
}

// judgeEnd turns the tool's return into the call's end; nil is success. A tool that succeeds while it is being stopped
// has succeeded: its effects exist, and the model must know. One that fails then was stopped.
func (c *call) judgeEnd(ctx context.Context, err error) *failure {
	if err == nil {
		return nil
	}
	detail := err.Error()
	if p, ok := errors.AsType[*panicError](err); ok {
		detail += "\n" + string(p.stack)
	}
	if stop := c.ended(ctx); stop != nil {
		if errors.Is(err, errLeftBehind) {
			stop.message = strings.TrimSpace(stop.message + " " +
				"The tool was told to stop and has not returned: it may still act.")
			stop.detail = join(stop.detail, "the tool did not return within "+orDefault(c.p.StopGrace,
				DefaultStopGrace).String()+" of its end")
			return stop
		}
		if !errors.Is(err, context.Cause(ctx)) && !errors.Is(err, ctx.Err()) {
			stop.detail = join(stop.detail, detail)
		}
		return stop
	}
	// A commit point was refused: it is unknown what the tool has done.
	if errors.Is(err, ErrLost) || c.refused.Load() {
		return &failure{lost: true, detail: detail}
	}
	if _, panicked := errors.AsType[*panicError](err); panicked || errors.Is(err, errGone) {
		return &failure{code: toolyard.ExecutionFailed, message: "The tool crashed.", detail: detail}
	}
	e := tool.AsError(err)
	f := &failure{code: e.Code, message: e.Message, foreign: true, detail: cause(e), retryable: e.Retryable,
		retryAfterMS: e.RetryAfterMS}
	switch e.Code {
	case toolyard.ExecutionFailed:
	case toolyard.DependencyUnavailable, toolyard.Timeout:
		f.retryable = f.retryable || c.mayRepeat()
	case toolyard.InvalidArguments, toolyard.SetupRequired, toolyard.SandboxViolation, toolyard.OutcomeUnknown:
		f.retryable = false
	case toolyard.ResultMappingFailed:
		c.badOutput = e
		return nil
	default:
		f.code, f.detail = toolyard.ExecutionFailed,
			join("the tool gave the code "+string(e.Code)+", which is not one of execute", f.detail)
	}
	return f
}

// blame says what the call reveals about its dependency. Only infrastructure failures count: the tool reports one, or
// its own time limit passed and it has named its dependency. A limit that the batch has set does not count, because one
// impatient agent must not close a dependency for all.
func (c *call) blame(ctx context.Context, err error, f *failure) breaker.Outcome {
	late, isLate := errors.AsType[*timeoutError](context.Cause(ctx))
	switch {
	case f == nil:
		return breaker.Answered
	case f.lost, errors.Is(err, errGone):
		return breaker.Unrelated
	case f.code == toolyard.DependencyUnavailable:
		return breaker.Failed
	case f.code == toolyard.Timeout && isLate && late.own && c.entry.Dependency != "":
		return breaker.Failed
	case f.code == toolyard.ExecutionFailed:
		if _, panicked := errors.AsType[*panicError](err); !panicked {
			return breaker.Answered // it came to a result of its own
		}
	}
	return breaker.Unrelated
}

// env makes the tool's environment, a new copy for each use.
func (c *call) env(ctx context.Context) tool.Env {
	progress, commit := c.job.Progress, c.job.CommitPoint
	if progress == nil {
		progress = func(tool.Progress) {}
	}
	var root tool.Root
	var hidden func(string) bool
	if c.job.Root != nil {
		root = c.job.Root
		if c.p.Permission != nil {
			hidden = c.p.Permission.Hidden(&c.entry.Declaration, c.job.Rules, c.job.RulesDir())
		}
	}
	var background time.Duration
	if c.job.Background {
		background, _ = c.limit()
	}
	trace := traceparent.From(ctx)
	values := make(map[string]string, len(c.job.Context)) // never nil: a tool may write into its copy
	maps.Copy(values, c.job.Context)
	return tool.Env{
		Background: background, Root: root, Hidden: hidden,
		Agent: c.job.Key.Agent, Batch: c.job.Key.ID, Session: c.job.Session, Index: c.job.Index, CallID: c.job.Call.ID,
		Workspace: c.job.Workspace, WorkspaceDir: c.job.WorkspaceDir, Attempt: c.job.Attempt,
		IdempotencyKey: IdempotencyKey(c.job.Key, c.job.Index), FencingToken: c.job.FencingToken,
		Locks: c.job.Locks, Blobs: c.job.Blobs,
		Tools: c.job.Tools, Call: c.job.CallTool,
		TraceParent: trace.Parent, TraceState: trace.State, Baggage: trace.Baggage,
		Progress: progress, Context: values, Redact: c.p.Redact,
		CommitPoint: func() error {
			if ctx.Err() != nil { // also after the result is known: execute's context ends with it
				return context.Cause(ctx)
			}
			if commit == nil {
				return nil
			}
			err := commit()
			if errors.Is(err, ErrLost) {
				c.refused.Store(true)
			}
			return err
		},
	}
}

// IdempotencyKey identifies a call for services that detect repeats. It is the same for every attempt of a call,
// different for every other call, and consists of letters, digits and a dash.
func IdempotencyKey(key toolyard.BatchKey, index int) string {
	raw, err := json.Marshal([]any{key.Agent, key.ID, index})
	if err != nil {
		panic(err) // strings and a number always encode
	}
	sum := sha256.Sum256(raw)
	const bytes = 16 // enough to be unique
	return "ty-" + hex.EncodeToString(sum[:bytes])
}
