package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
)

// The reasons for stopping a call: causes of the context that is given to [Pipeline.Run] (context.CancelCauseFunc), and
// errors of [Job].Start. They may be wrapped. Any other cause counts as a cancel.
var (
	// ErrCanceled: the agent, a person, an interrupt or an operator stopped it. The call ends as canceled.
	ErrCanceled = errors.New("canceled")
	// ErrDeadline: the batch's time is over. The call ends as deadline_exceeded; context.DeadlineExceeded has the same
	// effect.
	ErrDeadline = errors.New("the batch's deadline has passed")
	// ErrLost: this worker no longer has the right to answer for the call. Run returns it and no result.
	ErrLost = errors.New("this call is no longer ours: emit nothing")
)

// ErrSiblingCanceled stops a call because another one of its group failed. The call ends as sibling_canceled.
type ErrSiblingCanceled struct {
	// Culprit names the call that failed, for the model.
	Culprit string
}

func (e ErrSiblingCanceled) Error() string { return "call " + e.Culprit + " of the same group failed" }

// CanceledError is [ErrCanceled] with who canceled the call, and why.
type CanceledError struct{ Reason, By string }

func (e CanceledError) Error() string { return "canceled by " + e.By + ": " + e.Reason }

// Is makes it match [ErrCanceled].
func (e CanceledError) Is(target error) bool { return target == ErrCanceled }

// timeoutError is the cause when a call's own time is over.
type timeoutError struct {
	limit time.Duration
	// own says that the limit is the tool's own, not one that the batch has set.
	own bool
	// idle says that the limit is on its silence, not on its whole time.
	idle bool
	// what names the running thing, for the model.
	what string
}

func (e *timeoutError) Error() string {
	if e.idle {
		return fmt.Sprintf("%s reported no progress for %s", e.what, e.limit)
	}
	return fmt.Sprintf("%s did not finish within %s", e.what, e.limit)
}

// ended says how the call ends because its context ended; nil while it has not.
func (c *call) ended(ctx context.Context) *failure {
	if ctx.Err() == nil {
		return nil
	}
	return c.stopped(context.Cause(ctx))
}

// Stopped says how a call ends that was stopped for a cause before it had begun; lost: with [ErrLost].
func Stopped(cause error) (code toolyard.Code, message string, lost bool) {
	f := (&call{}).stopped(cause)
	return f.code, f.message, f.lost
}

// stopped says how a call ends for a cause.
func (c *call) stopped(cause error) *failure {
	f := &failure{detail: cause.Error()}
	sibling, isSibling := errors.AsType[ErrSiblingCanceled](cause)
	late, isLate := errors.AsType[*timeoutError](cause)
	switch {
	case errors.Is(cause, ErrLost):
		f.lost = true
	case isSibling:
		f.code, f.message = toolyard.SiblingCanceled,
			"Stopped, because call "+sibling.Culprit+" of the same group failed."
	case isLate:
		f.code, f.message = toolyard.Timeout, "Timed out: "+late.Error()+"."
		f.retryable = !c.executed || c.mayRepeat()
	case errors.Is(cause, ErrDeadline), errors.Is(cause, context.DeadlineExceeded):
		f.code, f.message = toolyard.DeadlineExceeded, "The batch's time limit passed before the call was done."
	default:
		f.code, f.message = toolyard.Canceled, "The call was canceled."
		if c, ok := errors.AsType[CanceledError](cause); ok && c.Reason != "" {
			f.message = "Canceled: " + c.Reason + "."
		}
	}
	return f
}
