package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/tool"
)

// TestProblems: each error has its status, and what is nobody's business is not told.
func TestProblems(t *testing.T) {
	var log bytes.Buffer
	connected := error(nil)
	s := &Server{cfg: Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Ready: func() error { return connected }}}
	x := &exchange{r: httptest.NewRequest(http.MethodGet, "/v1/batches/b", nil)}
	secret := errors.New("stream TY_EVENT at /var/lib/secret")
	for _, c := range []struct {
		err    error
		status int
		field  string
		again  bool
	}{
		{&toolyard.InputError{Field: "calls[1].id", Problem: "is empty"}, 400, "calls[1].id", false},
		{&toolyard.InputError{Field: "calls", Problem: "are many", TooLarge: true}, 413, "calls", false},
		{fmt.Errorf("x: %w", client.ErrOtherContent), 409, "id", false},
		{fmt.Errorf("x: %w", client.ErrClosed), 409, "", false},
		{fmt.Errorf("x: %w", client.ErrCompleted), 409, "", false},
		{fmt.Errorf("x: %w", client.ErrNoBatch), 404, "id", false},
		{fmt.Errorf("x: %w", client.ErrNoCall), 404, "index", false},
		{fmt.Errorf("x: %w", client.ErrNoApproval), 404, "id", false},
		{fmt.Errorf("x: %w", tool.ErrNoBlob), 404, "ref", false},
		{fmt.Errorf("x: %w", client.ErrFull), 429, "", true},
		{&client.RefusedError{Status: 429, Detail: "too many"}, 409, "id", false},
		{&client.RefusedError{Status: 503, Detail: "nearly full"}, 409, "id", false},
		{&client.RefusedError{Status: 400, Field: "agent", Detail: "wrong"}, 400, "agent", false},
		{&client.RefusedError{Status: 7}, 400, "", false},
		{fmt.Errorf("%w: %w", secret, context.DeadlineExceeded), 503, "", true},
		{secret, 500, "", false},
	} {
		p := s.problem(x, c.err)
		if p.Status != c.status || p.Field != c.field || (p.GetHeaders().Get("Retry-After") != "") != c.again ||
			p.Title == "" || strings.Contains(p.Detail, "secret") {
			t.Errorf("%v: %+v; want %d, field %q, again %t", c.err, p, c.status, c.field, c.again)
		}
	}
	if !strings.Contains(log.String(), "secret") {
		t.Error("the log does not say why a request failed")
	}
	connected = errors.New("no connection")
	if p := s.problem(x, secret); p.Status != 503 || p.retryAfter == 0 {
		t.Errorf("without a connection: %+v", p)
	}
}

// TestNobodyIsToldToDouble: of a request without an id, and of an interrupt, no error says that the same again is safe,
// in words or in a header by which clients repeat requests. Whether it was stored is not known, and the kind of the
// problem is what it is of others.
func TestNobodyIsToldToDouble(t *testing.T) {
	s := &Server{cfg: Config{Log: slog.New(slog.DiscardHandler), Ready: func() error { return nil }}}
	r := httptest.NewRequest(http.MethodPost, "/v1/batches/b/rerun", nil)
	w := deadlined{httptest.NewRecorder(), make(chan time.Time, 4)}
	interrupting := &exchange{w: w, conn: http.NewResponseController(w), r: httptest.NewRequest(http.MethodPost,
		"/v1/sessions/s/interrupt", strings.NewReader("{"))}
	if _, err := s.interrupt(t.Context(), interrupting, &sessionPath{ID: "s"}); err == nil {
		t.Error("half a body is taken")
	}
	for _, err := range []error{
		fmt.Errorf("%w: the same one again, under the same id, is safe", client.ErrNoAnswer),
		&broker.NoRoomError{Reason: "the disk is full", Unsure: true},
		fmt.Errorf("x: %w", context.DeadlineExceeded),
	} {
		named := s.problem(&exchange{r: r}, err)
		if p := s.problem(interrupting, err); strings.Contains(p.Detail, "is safe") ||
			!strings.Contains(p.Detail, "stops what has begun since") || p.retryAfter != 0 {
			t.Errorf("%v: of an interrupt %+v", err, p)
		}
		p := s.problem(&exchange{r: r, doubles: theBatches}, err)
		if !strings.Contains(named.Detail, "is safe") || strings.Contains(p.Detail, "is safe") ||
			!strings.Contains(p.Detail, "not known whether anything was stored") ||
			!strings.Contains(p.Detail, theBatches) {
			t.Errorf("%v: %q; with an id %q", err, p.Detail, named.Detail)
		}
		if named.GetHeaders().Get("Retry-After") == "" || p.GetHeaders().Get("Retry-After") != "" {
			t.Errorf("%v: headers %v; with an id %v", err, p.GetHeaders(), named.GetHeaders())
		}
		named.retryAfter = 0
		if named.Detail = p.Detail; *p != *named {
			t.Errorf("%v: %+v; with an id %+v", err, p, named)
		}
	}
}

// slow is a body that does not come.
type slow struct{ closed chan struct{} }

func (s slow) Read([]byte) (int, error) { <-s.closed; return 0, io.ErrUnexpectedEOF }

// TestASlowBody: a client that sends no body holds a request for as long as it may, and no longer; deadlines are the
// connection's.
func TestASlowBody(t *testing.T) {
	deadlines := make(chan time.Time, 4)
	body := slow{make(chan struct{})}
	close(body.closed)
	w := deadlined{httptest.NewRecorder(), deadlines}
	x := &exchange{w: w, r: httptest.NewRequest(http.MethodPost, "/v1/batches", body),
		conn: http.NewResponseController(w)}
	if _, err := x.body(10, false); err == nil {
		t.Error("half a body is taken")
	}
	if d := time.Until(<-deadlines); d < bodyTimeout/2 || d > bodyTimeout {
		t.Errorf("the body may take %s", d)
	}
}

// deadlined tells what read deadlines are set.
type deadlined struct {
	*httptest.ResponseRecorder
	read chan time.Time
}

func (d deadlined) SetReadDeadline(t time.Time) error { d.read <- t; return nil }

// TestWrongValues: a problem about a parameter has its value, and says how it is written.
func TestWrongValues(t *testing.T) {
	for _, c := range []struct {
		message string
		value   any
		want    string
	}{
		{"invalid integer", "20s", `wait: is "20s"; use a whole number`},
		{"invalid boolean", "maybe", `wait: is "maybe"; use true or false`},
		{"expected number <= 600", 700, `wait: is 700; use a number <= 600`},
		{`expected value to be one of "a, b"`, strings.Repeat("x", 100),
			`wait: is "` + strings.Repeat("x", maxShownValue) + `"; use one of "a, b"`},
		{"invalid boolean", "x" + strings.Repeat("é", 100),
			`wait: is "x` + strings.Repeat("é", (maxShownValue-1)/2) + `"; use true or false`},
		{"required query parameter is missing", "", "wait: required query parameter is missing"},
	} {
		p := parameterProblem(http.StatusUnprocessableEntity, "validation failed",
			[]error{&huma.ErrorDetail{Message: c.message, Location: "query.wait", Value: c.value}})
		if p.Status != http.StatusBadRequest || p.Field != "wait" || p.Detail != c.want {
			t.Errorf("%s: %d %s: %s; want %s", c.message, p.Status, p.Field, p.Detail, c.want)
		}
	}
}
