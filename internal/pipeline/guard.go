package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/toolyard/toolyard/tool"
)

// errLeftBehind is returned for a function that did not return in time. The reason is in its context.
var errLeftBehind = errors.New("it ignored the end of its context and was abandoned")

// errGone is returned for a function that ended its goroutine (runtime.Goexit).
var errGone = errors.New("it ended its goroutine instead of returning")

// errNil is returned for a nil *tool.Error as an error, which counts as a failure.
var errNil = errors.New("the tool returned an error that is nil inside")

// guard runs foreign code, and waits for it a short time after its context has ended; see guardFor.
func guard[T any](p *Pipeline, ctx context.Context, fn func(context.Context) (T, error)) (T, error) {
	return guardFor(p, ctx, orDefault(p.Grace, DefaultGrace), fn, func() {})
}

// guardFor runs foreign code in its own goroutine, so that it can neither panic nor delay the result. It waits until
// the context ends, and for a grace after that. Then it abandons the goroutine, and counts it until it returns.
// returned is called when the function returns, before guardFor returns or long after.
func guardFor[T any](p *Pipeline, ctx context.Context, grace time.Duration, fn func(context.Context) (T, error),
	returned func()) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	var over atomic.Bool // set by the first of two: the function's return, or the end of our wait
	go func() {
		a := answer{err: errGone}
		defer func() {
			returned()
			answers <- a
			if !over.CompareAndSwap(false, true) {
				p.leaks().Add(-1)
			}
		}()
		var value T
		err := rescue(func() (err error) { value, err = fn(ctx); return err })
		if e, ok := errors.AsType[*tool.Error](err); ok && e == nil {
			err = errNil // a common mistake; calling Error on it panics
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
	p.leaks().Add(1)
	if over.CompareAndSwap(false, true) {
		var zero T
		return zero, errLeftBehind
	}
	p.leaks().Add(-1)
	a := <-answers
	return a.value, a.err
}

// Leaked is the number of abandoned goroutines of tools, hooks and permission that still run; see [Pipeline.Leaks].
func (p *Pipeline) Leaked() int { return int(p.leaks().Load()) }

// saturated reports whether there are too many abandoned goroutines.
func (p *Pipeline) saturated() bool {
	limit := p.MaxLeaked
	if limit <= 0 {
		limit = DefaultMaxLeaked
	}
	return p.Leaked() >= limit
}
