package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/clip"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/tool"
)

// Problem is the answer to a request that failed: an RFC 9457 problem document.
type Problem struct {
	Type   string `json:"type" doc:"What kind of problem it is, for programs (docs/http.md); about:blank when the status says all." example:"urn:toolyard:problem:input"`
	Title  string `json:"title" doc:"The status in words." example:"Bad Request"`
	Status int    `json:"status" doc:"The HTTP status." example:"400"`
	Detail string `json:"detail" doc:"What is wrong here, and how to mend it."`
	Field  string `json:"field,omitempty" doc:"The field, parameter or header that is wrong, when it is one." example:"calls[3].id"`

	retryAfter time.Duration
	allow      string
	closes     bool  // the connection
	scope      Scope // that the token lacks
	invalid    bool  // a token was sent, and is none
	// metadata is the address of what says whose tokens are accepted; "" where there is none.
	metadata string
}

const problemType = "application/problem+json"

func newProblem(status int, field, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: fmt.Sprintf(format, args...), Field: field}
}

// again says when to come again.
func (p *Problem) again() *Problem { return p.in(0) }

// in says that it is no use to come again before so long.
func (p *Problem) in(wait time.Duration) *Problem {
	p.retryAfter = max(retryAfter, wait)
	return p
}

func (p *Problem) Error() string             { return p.Detail }
func (p *Problem) GetStatus() int            { return p.Status }
func (p *Problem) ContentType(string) string { return problemType }

// GetHeaders are the headers that go with it.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(max(1, int(p.retryAfter.Seconds()))))
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.closes {
		h.Set("Connection", "close")
	}
	if p.Status == http.StatusUnauthorized || p.scope != "" {
		h.Set("WWW-Authenticate", p.challenge())
	}
	return h
}

// challenge says which token is needed (RFC 6750), and where to find out who makes it (RFC 9728).
func (p *Problem) challenge() string {
	c := `Bearer realm="toolyard"`
	switch {
	case p.invalid:
		c += `, error="invalid_token"`
	case p.scope != "":
		c += fmt.Sprintf(`, error="insufficient_scope", scope="%s%s"`, scopePrefix, p.scope)
	}
	if p.metadata != "" {
		c += fmt.Sprintf(`, resource_metadata=%q`, p.metadata)
	}
	return c
}

// write answers with the problem, where no operation does.
func (p *Problem) write(w http.ResponseWriter) error {
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	return json.NewEncoder(w).Encode(p)
}

// The library asks these functions for the problems that it finds itself, in parameters. They and its settings are the
// process's, and nobody else in it uses the library.
func init() {
	huma.DefaultArrayNullable = false // no answer has null for an array
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return parameterProblem(status, message, errs)
	}
	huma.NewErrorWithContext = func(_ huma.Context, status int, message string, errs ...error) huma.StatusError {
		return parameterProblem(status, message, errs)
	}
}

func parameterProblem(status int, message string, errs []error) *Problem {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	p := newProblem(status, "", "%s", message)
	for _, err := range errs {
		d, ok := err.(huma.ErrorDetailer)
		if !ok {
			continue
		}
		detail := d.ErrorDetail()
		_, p.Field, _ = strings.Cut(detail.Location, ".") // "query.limit"
		p.Detail = strings.TrimPrefix(p.Field+": "+wrongValue(detail), ": ")
		break
	}
	return p
}

// maxShownValue is how many bytes of a wrong value a problem shows.
const maxShownValue = 64

// wrongValue says what the value of a parameter is, and how it is written, in place of the library's words.
func wrongValue(d *huma.ErrorDetail) string {
	for _, words := range []struct{ theirs, ours string }{
		{"invalid integer", "use a whole number"}, {"invalid boolean", "use true or false"},
		{"expected number", "use a number"}, {"expected value to be", "use"},
	} {
		rest, ok := strings.CutPrefix(d.Message, words.theirs)
		if !ok {
			continue
		}
		value := fmt.Sprintf("%v", d.Value)
		if text, ok := d.Value.(string); ok {
			value = strconv.Quote(clip.Bytes(text, maxShownValue))
		}
		return "is " + value + "; " + words.ours + rest
	}
	return d.Message
}

// problem says what a client is told about an error. What is no fault of the client's is logged, and not shown.
func (s *Server) problem(x *exchange, err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if refused, ok := errors.AsType[*follow.RefusedError](err); ok {
		return refusal(refused.Status, refused.Field, refused.Detail)
	}
	if p := known(err); p != nil {
		p.Type = client.ProblemType(err)
		if x.doubles != "" && errors.Is(err, client.ErrNoAnswer) {
			p.Detail, p.retryAfter = x.unsure(err), 0 // clients repeat by it what they repeat otherwise not
		}
		if errors.Is(err, client.ErrNoBatch) && x.who.several() && x.query.Get("agent") == "" {
			p.Detail += ". A batch is its agent's: say whose with ?agent="
		}
		return p
	}
	if errors.Is(err, context.Canceled) && x.r.Context().Err() != nil { // nobody reads this
		return newProblem(http.StatusServiceUnavailable, "", "the request was given up")
	}
	away, level := s.cfg.Ready() != nil, slog.LevelError
	if away { // which the log has told, once
		level = slog.LevelDebug
	}
	s.cfg.Log.Log(x.r.Context(), level, "a request failed", "method", x.r.Method, "path", x.r.URL.Path, "error", err)
	if errors.Is(err, context.DeadlineExceeded) || away {
		if x.doubles != "" {
			return newProblem(http.StatusServiceUnavailable, "", "%s", x.unsure(err))
		}
		return newProblem(http.StatusServiceUnavailable, "", "the system does not answer now; ask again later. What "+
			"was submitted may have been stored: the same id again is safe").again()
	}
	return newProblem(http.StatusInternalServerError, "", "the request failed; the server's log says why")
}

// What is looked at before a request is sent again that would do the same a second time, and what that would do.
const (
	theBatch   = "the batch before you send the same again, which may run it twice"
	theBatches = "the agent's newest batches before you send the same again, which may run it twice"
	theSession = "the session's batches before you send the same again, which stops what has begun since"
)

// unsure is what is said about a request without an id that got no answer. What the errors say is meant for requests
// that have one.
func (x *exchange) unsure(err error) string {
	why := "the system does not answer now"
	if room, ok := errors.AsType[*broker.NoRoomError](err); ok {
		why = "there is no room: " + room.Reason
	}
	return why + ". It is not known whether anything was stored: look at " + x.doubles
}

// known is the problem of an error that programs act on; nil for any other.
func known(err error) *Problem {
	if in, ok := errors.AsType[*toolyard.InputError](err); ok {
		if in.TooLarge {
			return newProblem(http.StatusRequestEntityTooLarge, in.Field, "%v", in)
		}
		return newProblem(http.StatusBadRequest, in.Field, "%v", in)
	}
	if refused, ok := errors.AsType[*client.RefusedError](err); ok {
		return refusal(refused.Status, refused.Field, refused.Detail)
	}
	if _, ok := errors.AsType[*broker.NoRoomError](err); ok {
		return newProblem(http.StatusServiceUnavailable, "", "%v", err).again()
	}
	switch {
	case errors.Is(err, client.ErrDamaged):
		return newProblem(http.StatusInternalServerError, "", "%v", err)
	case errors.Is(err, client.ErrNoAnswer), errors.Is(err, client.ErrUnchecked):
		return newProblem(http.StatusServiceUnavailable, "", "%v", err).again()
	case errors.Is(err, client.ErrOtherContent):
		return newProblem(http.StatusConflict, "id", "%v", err)
	case errors.Is(err, client.ErrClosed), errors.Is(err, client.ErrCompleted):
		return newProblem(http.StatusConflict, "", "%v", err)
	case errors.Is(err, client.ErrNoBatch):
		return newProblem(http.StatusNotFound, "id", "%v", err)
	case errors.Is(err, client.ErrNoCall):
		return newProblem(http.StatusNotFound, "index", "%v", err)
	case errors.Is(err, client.ErrNoApproval):
		return newProblem(http.StatusNotFound, "id", "%v", err)
	case errors.Is(err, tool.ErrNoBlob):
		return newProblem(http.StatusNotFound, "ref", "%v", err)
	case errors.Is(err, events.ErrNewer):
		return newProblem(http.StatusNotImplemented, "", "%v. Ask a server of that version", err)
	case errors.Is(err, client.ErrFull):
		return newProblem(http.StatusTooManyRequests, "", "%v", err).again()
	}
	return nil
}

// typed is a problem that is one of the errors that programs act on, and has a status of its own.
func typed(err error, status int, field, format string, args ...any) *Problem {
	p := newProblem(status, field, format, args...)
	p.Type = client.ProblemType(err)
	return p
}

// refusal is the problem of a batch that was stored and then refused. Its id is used up: for want of room it is a
// conflict, which asks for a new id, and nothing that the same id again could mend.
func refusal(status int, field, detail string) *Problem {
	if status < 400 || status > 599 {
		status = http.StatusBadRequest
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		status, field = http.StatusConflict, "id"
	}
	return typed(&client.RefusedError{}, status, field, "the batch was refused: %s", detail)
}
