package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard/tool"
)

// errLeftBehind is what the caller of a function gets that did not return in time. What it means is in the context.
var errLeftBehind = errors.New("it ignored the end of its context and was left behind")

// errGone is what the caller of a function gets that ended its goroutine (runtime.Goexit).
var errGone = errors.New("it ended its goroutine instead of returning")

// errNil is a nil *tool.Error that was returned as an error: a failure all the same.
var errNil = errors.New("the tool returned an error that is nil inside")

// guard runs code that is not ours, and waits for it a short while after its context has ended; see guardFor.
func guard[T any](p *Pipeline, ctx context.Context, fn func(context.Context) (T, error)) (T, error) {
	return guardFor(p, ctx, orDefault(p.Grace, DefaultGrace), fn, func() {})
}

// guardFor runs code that is not ours in a goroutine of its own, so that it can neither panic nor hold up the result:
// it is waited for until its context ends, and for a grace after that. Then it is left behind, and counted until it
// returns. returned is called when it does, before guardFor returns or long after.
func guardFor[T any](p *Pipeline, ctx context.Context, grace time.Duration, fn func(context.Context) (T, error),
	returned func()) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	var over atomic.Bool // set by whoever comes first: the function's return, or our leaving
	go func() {
		a := answer{err: errGone}
		defer func() {
			returned()
			answers <- a
			if !over.CompareAndSwap(false, true) {
				p.leaked.Add(-1)
			}
		}()
		var value T
		err := rescue(func() (err error) { value, err = fn(ctx); return err })
		if e, ok := errors.AsType[*tool.Error](err); ok && e == nil {
			err = errNil // a common mistake, and one that panics wherever it is looked at
		}
		a = answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-timer.C:
	}
	p.leaked.Add(1)
	if over.CompareAndSwap(false, true) {
		var zero T
		return zero, errLeftBehind
	}
	p.leaked.Add(-1)
	a := <-answers
	return a.value, a.err
}

// Leaked is how many goroutines of tools, hooks and permission were left behind and still run.
func (p *Pipeline) Leaked() int { return int(p.leaked.Load()) }

// saturated reports whether too many of them do.
func (p *Pipeline) saturated() bool {
	limit := p.MaxLeaked
	if limit <= 0 {
		limit = DefaultMaxLeaked
	}
	return p.Leaked() >= limit
}
