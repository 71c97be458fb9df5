package batch

import (
	"slices"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// Status returns where the batch stands.
func (s *State) Status() toolyard.Status {
	// A cancel that came too late has canceled nothing, whatever else had.
	wasCanceled := func(c Call) bool {
		return c.Result != nil && c.Result.Code == toolyard.Canceled && c.Seq > s.canceledAt
	}
	switch {
	case s.Completed && s.canceled() && (slices.ContainsFunc(s.Calls, wasCanceled) || s.closedByCancel()):
		return toolyard.StatusCanceled
	case s.Completed:
		return toolyard.StatusCompleted
	case s.Parked:
		return toolyard.StatusWaiting
	case s.InputClosed: // whether its owner has taken that in or not
	case s.Plan != nil && !s.Closed, s.Plan == nil && s.Submission != nil && s.Submission.Open:
		return toolyard.StatusOpen
	}
	return toolyard.StatusRunning
}

// closedByCancel reports whether calls could be appended to the batch until it was canceled.
func (s *State) closedByCancel() bool {
	return s.Submission != nil && s.Submission.Open && (s.closedAt == 0 || s.closedAt > s.canceledAt)
}

// CanceledInTime reports whether a cancel of the whole batch was stored before its calls had ended. It never becomes
// false again.
func (s *State) CanceledInTime() bool {
	return s.canceled() && !slices.ContainsFunc(s.Calls, func(c Call) bool {
		return c.Result != nil && 0 < c.Seq && c.Seq < s.canceledAt
	})
}

// canceled reports whether a cancel of the whole batch was asked for.
func (s *State) canceled() bool { return s.canceledAt != 0 }

// inputEnd is why an event of the input chain is the last one that counts.
func inputEnd(b events.Body) string {
	switch b := b.(type) {
	case events.Closed:
		return brief(b.Reason)
	case events.Unreadable:
		return brief("an event that was appended cannot be read: " + b.Problem)
	}
	return ""
}

// EndsInput reports whether an event is the one behind which the batch takes no more calls. The fold may have it or
// not.
func (s *State) EndsInput(r Record) bool {
	switch r.Body.(type) {
	case events.Closed, events.Unreadable:
		return r.Chain == ChainInput && s.Submission != nil && s.Submission.Open &&
			(s.closedAt == 0 || s.closedAt == r.Seq)
	}
	return false
}
