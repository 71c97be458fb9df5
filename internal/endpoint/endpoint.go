// Package endpoint makes tools from the HTTP endpoints that an operator has declared.
//
// A call is one request: the input as JSON, or in the placeholders of the URL, an Idempotency-Key that is the same for
// every attempt, and the credentials that the manifest names. The model chooses only values: not the host, no
// additional segment, no header.
//
// Failure: the status determines the cause. 4xx: the input, the operator's credentials, or the request itself; 429 and
// 503: wait; other 5xx and broken connections: the service. A request that may have taken effect and may not be
// repeated is outcome_unknown.
package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/traceparent"
	"github.com/toolyard/toolyard/tool"
)

// The limits of a request.
const (
	MaxBodyBytes  = 16 << 20 // of a response
	MaxErrorChars = 4_000    // of the body of a failed response that the model sees
	MaxRedirects  = 5        // all at the same host
)

// endpoint is one tool.
type endpoint struct {
	tool.Declaration
	spec *manifest.HTTP
	http *http.Client
}

// New makes the tool of a manifest's endpoint. It sends nothing yet.
func New(t manifest.Tool) (tool.Tool, error) {
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return tool.Tool{}, errors.New("the program's HTTP transport was replaced")
	}
	transport := base.Clone()
	e := &endpoint{Declaration: t.Declaration, spec: t.HTTP,
		http: &http.Client{Transport: transport, CheckRedirect: sameOrigin}}
	// On a kept connection that breaks off, net/http sends a request with an Idempotency-Key again by itself.
	transport.DisableKeepAlives = !e.repeatable()
	return tool.Raw(tool.Tool{Declaration: t.Declaration, Run: e.run,
		Check: func(_ context.Context, env tool.Env, input json.RawMessage) error {
			if _, err := e.spec.Address(input); err != nil {
				return err
			}
			_, err := manifest.FillHeaders(e.spec.Headers, env.Secret)
			return err
		}})
}

// errElsewhere is the error of a redirect that is not followed.
var errElsewhere = errors.New("it redirects to another place")

// errMoved is the error of a redirect that would make another request of this one: net/http asks a 301 and a 302 with
// GET and without the body, and a service that answers that, perhaps with a page to log in, has done nothing by it.
var errMoved = errors.New("it is elsewhere, and asks for another method there")

// sameOrigin follows redirects only within the service, because the request is meant for no other. A 303 is asked with
// GET by its definition: the service has taken the request, and says where its answer is.
func sameOrigin(req *http.Request, via []*http.Request) error {
	if len(via) > MaxRedirects {
		return fmt.Errorf("more than %d redirects", MaxRedirects)
	}
	last := via[len(via)-1]
	if at := last.URL; req.URL.Scheme != at.Scheme || req.URL.Host != at.Host {
		return fmt.Errorf("%w, %s://%s", errElsewhere, req.URL.Scheme, req.URL.Host)
	}
	if req.Method != last.Method && req.Response.StatusCode != http.StatusSeeOther {
		return fmt.Errorf("%w, %s", errMoved, req.URL.Path)
	}
	return nil
}

func (e *endpoint) run(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
	at, err := e.spec.Address(input)
	if err != nil {
		return tool.Output{}, err
	}
	headers, err := manifest.FillHeaders(e.spec.Headers, env.Secret)
	if err != nil {
		return tool.Output{}, err
	}
	var body io.Reader
	if e.spec.Body == "json" {
		body = bytes.NewReader(input)
	}
	req, err := http.NewRequestWithContext(ctx, e.spec.Method, at.String(), body)
	if err != nil {
		return tool.Output{}, tool.Failed(err, "the request could not be made")
	}
	req.Header.Set("User-Agent", "toolyard")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	trace := traceparent.Context{Parent: env.TraceParent, State: env.TraceState, Baggage: env.Baggage}
	for name, value := range trace.Fields {
		req.Header.Set(name, value)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	if env.IdempotencyKey != "" {
		req.Header.Set("Idempotency-Key", env.IdempotencyKey)
	}
	if env.CommitPoint != nil {
		if err := env.CommitPoint(); err != nil {
			return tool.Output{}, err
		}
	}
	var connected atomic.Bool
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}))
	res, err := e.http.Do(req)
	if err != nil {
		return tool.Output{}, e.requestError(ctx, at, err, connected.Load(), res)
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(res.Body, MaxBodyBytes+1))
	switch {
	case err != nil:
		return tool.Output{}, e.requestError(ctx, at, err, true, nil)
	case res.StatusCode < 200 || res.StatusCode > 299:
		return tool.Output{}, e.status(env, at, res, content)
	case len(content) > MaxBodyBytes:
		return tool.Output{}, &tool.Error{Code: toolyard.ResultMappingFailed,
			Message: fmt.Sprintf("the response has more than %d bytes", MaxBodyBytes)}
	}
	return output(at, res.Header.Get("Content-Type"), content)
}

// requestError is the error of a request without a complete response. connected says that there was a connection on
// which it could be sent. redirect is the one that was not followed; nil for none.
func (e *endpoint) requestError(ctx context.Context, at *url.URL, err error, connected bool,
	redirect *http.Response) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the URL, whose query may be secret
	}
	switch {
	case redirect != nil && !e.repeatable() && e.mayHaveActed(redirect):
		return unknown(err, "%s answered %s with a redirect (%d) that is not followed: %v", at.Host, e.spec.Method,
			redirect.StatusCode, err)
	case errors.Is(err, errMoved):
		return tool.Failed(err, "%s redirects %s requests of this address to another one, where they would become GET; "+
			"an operator has to put the new address into the manifest", at.Host, e.spec.Method)
	case errors.Is(err, errElsewhere):
		return tool.Failed(err, "%s redirects to another place, which is not followed; an operator has to put the "+
			"new address into the manifest", at.Host)
	case !connected:
		return tool.Unavailable(err, "%s could not be reached; the request was not sent", at.Host)
	case e.repeatable():
		return tool.Unavailable(err, "%s broke off before it had answered", at.Host)
	}
	return unknown(err, "%s broke off before it had answered", at.Host)
}

// unknown is the error of a request that may have taken effect.
func unknown(err error, format string, args ...any) error {
	return &tool.Error{Code: toolyard.OutcomeUnknown, Err: err, Message: fmt.Sprintf(format, args...) +
		". The request may or may not have taken effect: check before trying again."}
}

// mayHaveActed reports whether a service that answered with a redirect, or behind one, may have acted on the request. A
// 303 leads to the answer of a request that was taken, and a 302 is what many services answer to a form that they have
// taken. The others say that the request belongs elsewhere.
func (e *endpoint) mayHaveActed(res *http.Response) bool {
	if e.spec.Method == http.MethodGet {
		return false
	}
	return res.StatusCode == http.StatusFound || res.StatusCode == http.StatusSeeOther ||
		res.Request.Method != e.spec.Method // behind a 303
}

// repeatable reports whether a request may be repeated.
func (e *endpoint) repeatable() bool { return e.Complete(tool.Judgement{}, e.ReadOnly).Idempotent }

// status is the error of a failed response.
func (e *endpoint) status(env tool.Env, at *url.URL, res *http.Response, content []byte) error {
	said, _ := env.Cut(strings.ToValidUTF8(string(content), "\uFFFD"), MaxErrorChars)
	said = strings.TrimSpace(said)
	message := fmt.Sprintf("%s answered %d %s", at.Host, res.StatusCode, http.StatusText(res.StatusCode))
	if said != "" {
		message += ":\n" + said
	}
	if e.mayHaveActed(res) && !e.repeatable() { // what failed is another request, for the answer
		return unknown(nil, "%s", message)
	}
	out := &tool.Error{Code: toolyard.ExecutionFailed, Message: message}
	switch code := res.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusProxyAuthRequired:
		out.Code, out.Err = toolyard.SetupRequired, errors.New("the credentials that the worker sends are not accepted")
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		out.Code, out.Retryable, out.RetryAfterMS = toolyard.DependencyUnavailable, true,
			pause.Asked(res.Header, time.Now()).Milliseconds()
	case code == http.StatusBadRequest, code == http.StatusNotFound, code == http.StatusGone,
		code == http.StatusRequestEntityTooLarge,
		code == http.StatusRequestURITooLong, code == http.StatusUnprocessableEntity:
		out.Code = toolyard.InvalidArguments
	case code >= http.StatusInternalServerError && code != http.StatusNotImplemented:
		out.Code = toolyard.DependencyUnavailable
		if !e.repeatable() {
			out.Message += "\nThe request may or may not have taken effect: check before trying again."
		}
	}
	return out
}

// byteOrderMark may stand before JSON, and a parser may ignore it (RFC 8259, 8.1).
const byteOrderMark = "\ufeff"

// output is a response as the call's output.
func output(at *url.URL, contentType string, content []byte) (tool.Output, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind = ""
	}
	part := toolyard.Content{MIMEType: kind, Data: content, URI: at.Scheme + "://" + at.Host + at.EscapedPath()}
	switch {
	case kind == "application/json", strings.HasSuffix(kind, "+json"):
		if content = bytes.TrimPrefix(content, []byte(byteOrderMark)); len(content) == 0 {
			return tool.Output{}, nil
		}
		if !json.Valid(content) {
			return tool.Output{}, &tool.Error{Code: toolyard.ResultMappingFailed, Message: at.Host +
				" answered with what it calls JSON and is none"}
		}
		return tool.Output{Structured: content}, nil
	case strings.HasPrefix(kind, "image/"):
		part.Type, part.URI = toolyard.ContentImage, ""
	case strings.HasPrefix(kind, "audio/"):
		part.Type, part.URI = toolyard.ContentAudio, ""
	case utf8.Valid(content):
		return tool.Output{Text: string(content)}, nil
	default:
		part.Type = toolyard.ContentResource
	}
	return tool.Output{Content: []toolyard.Content{part}}, nil
}
