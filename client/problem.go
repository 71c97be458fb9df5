package client

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// problemTypes are the kinds of problems that the HTTP API tells apart by the type of a problem document, beside their
// status.
var problemTypes = []struct {
	err  error
	kind string
}{
	{ErrOtherContent, "urn:toolyard:problem:other-content"},
	{ErrFull, "urn:toolyard:problem:full"},
	{ErrUnchecked, "urn:toolyard:problem:unchecked"}, // also for want of an answer
	{ErrNoAnswer, "urn:toolyard:problem:no-answer"},
	{ErrDamaged, "urn:toolyard:problem:damaged"},
	{ErrNoBatch, "urn:toolyard:problem:no-batch"},
	{ErrNoCall, "urn:toolyard:problem:no-call"},
	{ErrNoApproval, "urn:toolyard:problem:no-approval"},
	{ErrCompleted, "urn:toolyard:problem:completed"},
	{ErrClosed, "urn:toolyard:problem:closed"},
	{ErrNotOpened, "urn:toolyard:problem:not-opened"},
}

// The types of problems that are more than one error value.
const (
	refusedType = "urn:toolyard:problem:refused"
	inputType   = events.InputProblem
	plainType   = "about:blank"
)

// ProblemTypes lists what [ProblemType] returns.
func ProblemTypes() []string {
	out := []string{plainType, inputType, refusedType}
	for _, t := range problemTypes {
		out = append(out, t.kind)
	}
	return out
}

// ProblemType is the type of the problem document (RFC 9457) that the HTTP API answers an error with: "about:blank"
// when its status says all.
func ProblemType(err error) string {
	if _, ok := errors.AsType[*toolyard.InputError](err); ok {
		return inputType
	}
	if _, ok := errors.AsType[*RefusedError](err); ok {
		return refusedType
	}
	for _, t := range problemTypes {
		if errors.Is(err, t.err) {
			return t.kind
		}
	}
	return plainType
}

// HTTPError is an answer of the HTTP API that is none of the errors that NATS knows too: no right to ask, a system that
// does not answer.
type HTTPError struct {
	// Status is that of the answer.
	Status int
	// Field is what of the request is wrong, when it is one thing.
	Field, Detail string
	// RetryAfter is after what time the server wants to be asked again; 0 when it does not say.
	RetryAfter time.Duration
	is         error
}

func (e *HTTPError) Error() string {
	detail := e.Detail
	if detail == "" {
		detail = http.StatusText(e.Status)
	}
	if e.is != nil {
		return detail
	}
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		return "the server refuses this: " + detail
	}
	return "the server answers: " + detail
}

// Is makes an answer for want of room an [ErrFull], and one that the system behind the server did not give in time an
// [ErrNoAnswer].
func (e *HTTPError) Is(target error) bool {
	return target == ErrFull && e.Status == http.StatusTooManyRequests || e.is != nil && target == e.is
}

// problem is a problem document as it comes.
type problem struct {
	Type   string `json:"type"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
}

// knownError is one of this package's error values in the server's words.
type knownError struct {
	is     error
	detail string
}

func (e *knownError) Error() string        { return e.detail }
func (e *knownError) Is(target error) bool { return target == e.is }

// err is what the problem says, as the error that the same would be over NATS.
func (p problem) err(retryAfter time.Duration) error {
	for _, t := range problemTypes {
		switch {
		case p.Type == t.kind && t.err == ErrNoAnswer: // which is asked again
			return &HTTPError{Status: p.Status, Detail: p.Detail, RetryAfter: retryAfter, is: t.err}
		case p.Type == t.kind:
			return &knownError{t.err, p.Detail}
		}
	}
	switch p.Type {
	case refusedType:
		return &RefusedError{Status: p.Status, Field: p.Field, Detail: strings.TrimPrefix(p.Detail, refusedPrefix)}
	case inputType:
		return &toolyard.InputError{Field: p.Field, Problem: strings.TrimPrefix(p.Detail, p.Field+": "),
			TooLarge: p.Status == http.StatusRequestEntityTooLarge}
	}
	return &HTTPError{Status: p.Status, Field: p.Field, Detail: p.Detail, RetryAfter: retryAfter}
}
