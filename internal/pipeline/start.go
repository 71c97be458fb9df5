package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
)

// schedule waits for the call's turn. The breaker is asked first: a dependency that is down costs neither a slot nor a
// claim. A probe of a half-open breaker keeps others away while it waits for its slot.
func (c *call) schedule(ctx context.Context) finding {
	if c.p.saturated() {
		return c.tooManyLeftBehind()
	}
	if c.p.Scheduler == nil {
		return failed(toolyard.InternalError, "Internal error: nothing on this worker can start a call.", "no scheduler is configured")
	}
	if c.p.Breakers != nil {
		report, retry, err := c.p.Breakers.Allow(c.dependency())
		if err != nil {
			return finding{fail: &failure{code: toolyard.DependencyUnavailable, detail: err.Error(), retryable: true, retryAfterMS: roundUpMS(retry),
				message: fmt.Sprintf("What the tool %q depends on is down; it was not tried.", c.entry.Name)}}
		}
		c.report = report
	}
	release, err := c.p.Scheduler.Start(ctx, &c.job)
	if err == nil {
		c.release = release
		// A cancel may have come while the claim was being recorded; the call must not start for that.
		return finding{fail: c.ended(ctx)}
	}
	_, sibling := errors.AsType[ErrSiblingCanceled](err)
	switch {
	case sibling, errors.Is(err, ErrLost), errors.Is(err, ErrCanceled), errors.Is(err, ErrDeadline):
		return finding{fail: c.stopped(err)}
	}
	if stop := c.ended(ctx); stop != nil {
		stop.detail = join(stop.detail, err.Error())
		return finding{fail: stop}
	}
	return finding{fail: &failure{code: toolyard.DependencyUnavailable, message: "The call could not be started.", detail: err.Error(), retryable: true}}
}

// dependency is what the circuit breaker watches.
func (c *call) dependency() string {
	if c.entry.Dependency != "" {
		return c.entry.Dependency
	}
	return c.entry.Name
}

// roundUpMS is a duration in whole milliseconds, never less than the duration.
func roundUpMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
