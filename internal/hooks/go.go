package hooks

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard/internal/pipeline"
)

// Func is a hook in Go, in this process.
type Func struct {
	// Name names it in facts and in the log. Required.
	Name string
	// Event says when it runs: PreToolUse, PostToolUse or PostToolUseFailure.
	Event Event
	// Matcher selects the tools, as in a configuration. Empty: all.
	Matcher string
	// Timeout bounds it. 0: [DefaultTimeout].
	Timeout time.Duration
	// OnFailure is what happens if it fails. Empty: block before a call, continue after it.
	OnFailure OnFailure
	// Run is the hook. It gets its own copy. It should return when its context ends; if it does not, it is abandoned.
	Run func(ctx context.Context, in pipeline.HookInput) (pipeline.HookVerdict, error)
}

type goRunner struct {
	fn   func(ctx context.Context, in pipeline.HookInput) (pipeline.HookVerdict, error)
	left *atomic.Int64
}

func (s *Set) funcHandler(f *Func, index int) (*handler, error) {
	name := f.Name
	bad := func(format string, args ...any) (*handler, error) {
		if name == "" {
			name = fmt.Sprintf("number %d", index+1)
		}
		return nil, fmt.Errorf("hook %s: %s", name, fmt.Sprintf(format, args...))
	}
	switch {
	case f.Name == "":
		return bad("has no name")
	case f.Run == nil:
		return bad("has no function")
	case f.Event != PreToolUse && f.Event != PostToolUse && f.Event != PostToolUseFailure:
		return bad("%q is no event of a call", f.Event)
	case f.Timeout < 0 || f.Timeout > MaxTimeout:
		return bad("the timeout %s is not within %s", f.Timeout, MaxTimeout)
	}
	m, err := parseMatcher(f.Matcher)
	if err == nil {
		err = s.checkMatcher(m)
	}
	if err != nil {
		return bad("matcher: %v", err)
	}
	onFailure, err := failureOf(f.Event, f.OnFailure)
	if err != nil {
		return bad("on failure: %v", err)
	}
	h := &handler{event: f.Event, name: f.Name, matcher: m, timeout: f.Timeout, onFailure: onFailure,
		runner: &goRunner{f.Run, &s.left}}
	if h.timeout == 0 {
		h.timeout = DefaultTimeout
	}
	return h, nil
}

// run implements runner. The function runs in its own goroutine, which is abandoned if it ignores the end of its
// context.
func (g *goRunner) run(ctx context.Context, o *occasion) (answer, error) {
	if g.left.Load() >= MaxLeftBehind {
		return answer{}, fmt.Errorf("it was not started: %d hooks ignored their end and still run", MaxLeftBehind)
	}
	type outcome struct {
		verdict pipeline.HookVerdict
		err     error
	}
	done := make(chan outcome, 1)
	var over atomic.Bool // set by the first of two: the function's return, or the end of our wait
	go func() {
		out := outcome{err: errors.New("it ended its goroutine instead of returning")}
		defer func() {
			if p := recover(); p != nil {
				out = outcome{err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
			}
			done <- out
			if !over.CompareAndSwap(false, true) {
				g.left.Add(-1)
			}
		}()
		v, err := g.fn(ctx, o.in)
		out = outcome{v, err}
	}()
	select {
	case out := <-done:
		return fromVerdict(o.event, out.verdict, out.err)
	case <-ctx.Done():
	}
	g.left.Add(1)
	if !over.CompareAndSwap(false, true) { // it has just returned
		g.left.Add(-1)
		out := <-done
		return fromVerdict(o.event, out.verdict, out.err)
	}
	return answer{}, context.Cause(ctx)
}

// fromVerdict reads a function's answer, with the same limits as for other hooks.
func fromVerdict(event Event, v pipeline.HookVerdict, err error) (answer, error) {
	switch {
	case err != nil:
		return answer{}, err
	case event == PreToolUse && v.Output != nil:
		return answer{}, errors.New("it changed an output before there is one")
	case event != PreToolUse && (v.Input != nil || v.Opinion != ""):
		return answer{}, errors.New("it changed the input, or had an opinion on permission, after the call has run")
	case event == PostToolUseFailure && v.Output != nil:
		return answer{}, errors.New("it changed the output of a call that failed")
	}
	switch v.Opinion {
	case "", pipeline.Allow, pipeline.Ask, pipeline.Deny:
	default:
		return answer{}, fmt.Errorf("the opinion %.100q is not known", v.Opinion)
	}
	return answer{block: v.Block, stop: v.Stop, reason: clip(v.Reason, MaxReasonChars), opinion: v.Opinion,
		input: v.Input, output: v.Output, context: v.Context}, nil
}
