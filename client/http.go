package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/submission"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// The limits of a client over HTTP.
const (
	// DefaultMaxRetries is how often a request that was not answered is repeated, unless [HTTPOptions] says otherwise.
	DefaultMaxRetries = 8
	// MaxAnswerBytes is how long an answer may be, other than a stream.
	MaxAnswerBytes = 256 << 20
	// MaxStreamEventBytes is how long one event of a stream may be.
	MaxStreamEventBytes = 65 << 20

	// streamBufferBytes is how much of a stream is read at a time.
	streamBufferBytes = 32 << 10

	firstRetry   = 100 * time.Millisecond
	longestRetry = 5 * time.Second
	// answerTimeout is how long one attempt of a request may take, but for streams.
	answerTimeout = 2 * time.Minute
	// streamSilence is how long a stream may be silent before it counts as lost: the server says every 15 s that it is
	// there.
	streamSilence = 45 * time.Second
)

// HTTPOptions say how a server is reached.
type HTTPOptions struct {
	// Token is the bearer token, which names the agent. Empty: the server asks nobody, and listens on this machine
	// only.
	Token string
	// Client makes the requests. Default: one of its own. A redirect is never followed: a token is for one server.
	Client *http.Client
	// MaxRetries is how often a request is repeated that was not answered, or with 502, 503 or 504, and how often in a
	// row a stream is taken up again that was cut. 0: [DefaultMaxRetries]. Negative: never. What is repeated changes
	// nothing that was done already; decisions on approvals, [Client.Interrupt] and [Client.Resolve] are repeated only
	// when no connection could be made.
	MaxRetries int
}

// ConnectHTTP makes a client of a server's HTTP API, whose base URL is like "http://127.0.0.1:8080". It fails when the
// server does not answer, or says that it is not ready. An agent of a batch or a session that is left empty is the
// token's.
func ConnectHTTP(ctx context.Context, baseURL string, o HTTPOptions) (*Client, error) {
	base, err := url.Parse(baseURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" ||
		base.Fragment != "" || base.User != nil {
		return nil, &toolyard.InputError{Field: "server",
			Problem: fmt.Sprintf("%q is not the URL of a server; use %s", natsbroker.ShownURL(baseURL),
				withScheme(baseURL))}
	}
	if strings.ContainsAny(o.Token, " \t\r\n") {
		return nil, &toolyard.InputError{Field: "token", Problem: "has white space in it, which no token has"}
	}
	t := &overHTTP{base: strings.TrimSuffix(base.String(), "/"), token: o.Token, retries: o.MaxRetries,
		http: &http.Client{}}
	if o.Client != nil {
		own := *o.Client
		t.http = &own
	}
	t.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if t.retries == 0 {
		t.retries = DefaultMaxRetries
	}
	first := *t // which is not tried again
	first.retries = -1
	if err := first.ask(ctx, request{method: http.MethodGet, path: "/healthz"}, nil); err != nil {
		return nil, fmt.Errorf("connect to Toolyard at %s: %w", t.base, err)
	}
	return &Client{t}, nil
}

// withScheme is what was probably meant by an address that is no URL.
func withScheme(address string) string {
	u, err := url.Parse("http://" + address)
	if err == nil && !strings.Contains(address, "://") && u.Hostname() != "" && u.User == nil && u.RawQuery == "" &&
		u.Fragment == "" {
		return u.String() + ", or https:// if it has a certificate"
	}
	return "http://HOST:PORT"
}

// overHTTP asks a server.
type overHTTP struct {
	base, token string
	retries     int
	http        *http.Client
}

// request is one thing that is asked, as often as it takes.
type request struct {
	method, path string
	query        url.Values
	// body is sent as JSON; nil: none.
	body any
	// once says that it is not repeated when it may have been sent: doing it twice is not doing it once.
	once bool
}

// path puts a path together of parts that are escaped.
func path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + submission.PathSegment(p))
	}
	return b.String()
}

// of is the query that names an agent; an empty one is the token's.
func of(a toolyard.Agent) url.Values {
	if a == "" {
		return url.Values{}
	}
	return url.Values{"agent": {string(a)}}
}

// ask makes a request until it is answered, and reads the answer into out, unless that is nil.
func (t *overHTTP) ask(ctx context.Context, r request, out any) error {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return fmt.Errorf("encode a request: %w", err)
		}
	}
	return t.retry(ctx, r.once, func() (progress bool, err error) {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		resp, err := t.send(ctx, r, body, nil)
		if err != nil {
			return false, err
		}
		defer func() { _ = resp.Body.Close() }() // what was wanted of it has been read
		data, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswerBytes+1))
		switch {
		case err != nil:
			return false, &lostError{fmt.Errorf("read the answer to %s %s: %w", r.method, r.path, err)}
		case len(data) > MaxAnswerBytes:
			return false, fmt.Errorf("the answer to %s %s has more than %d bytes", r.method, r.path, MaxAnswerBytes)
		case out == nil:
			return false, nil
		}
		if err := json.Unmarshal(data, out); err != nil {
			return false, fmt.Errorf("the answer to %s %s cannot be read; is this Toolyard's API? %w", r.method, r.path,
				err)
		}
		return false, nil
	})
}

// lostError says that it is not known what became of a request: no answer came, or half of one.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// Is makes it an [ErrNoAnswer], as over NATS, unless it is known that nothing was sent.
func (e *lostError) Is(target error) bool { return target == ErrNoAnswer && !unsent(e.err) }

// unsent reports whether a request failed before there was a connection for it.
func unsent(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// passes reports whether a request that failed so may succeed when it is repeated.
func passes(err error) (after time.Duration, ok bool) {
	if _, lost := errors.AsType[*lostError](err); lost {
		return 0, true
	}
	if e, is := errors.AsType[*HTTPError](err); is {
		switch e.Status {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return e.RetryAfter, true
		}
	}
	return 0, false
}

// retry tries something until it succeeds, fails for good, or has failed too often in a row without progress.
func (t *overHTTP) retry(ctx context.Context, once bool, try func() (progress bool, err error)) error {
	pause, failed := firstRetry, 0
	for {
		progress, err := try()
		if err == nil {
			return nil
		}
		after, again := passes(err)
		if again && ctx.Err() != nil { // no answer came, because nobody waits for it
			return context.Cause(ctx)
		}
		if progress { // what went well until now is worth a try at once
			pause, failed = 0, 0
		}
		if failed++; !again || once && !unsent(err) || failed > t.retries {
			return err
		}
		timer := time.NewTimer(min(max(pause, after), longestRetry))
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
		pause = min(max(firstRetry, 2*pause), longestRetry)
	}
}

// send makes one attempt, and returns the answer if it is a good one. Its body is the caller's to close.
func (t *overHTTP) send(ctx context.Context, r request, body []byte, header http.Header) (*http.Response, error) {
	at := t.base + r.path
	if len(r.query) > 0 {
		at += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, at, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range traceparent.From(ctx).Fields {
		req.Header.Set(name, value)
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return nil, &lostError{fmt.Errorf("no answer: %w", err)}
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }() // its status says enough
	return nil, refusalOf(resp)
}

// maxProblemBytes is how much of an answer is read that says no.
const maxProblemBytes = 1 << 20

// refusalOf is what an answer says that is not a good one. One that is cut does not say which error it is.
func refusalOf(resp *http.Response) error {
	p := problem{Status: resp.StatusCode}
	data, cut := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	kind, _, bad := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if cut == nil && bad == nil && kind == "application/problem+json" && json.Unmarshal(data, &p) != nil {
		p = problem{}
	}
	p.Status = resp.StatusCode
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		p.Detail = fmt.Sprintf("it is at %q now; use that URL", resp.Header.Get("Location"))
	}
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || after < 0 {
		after = 0
	}
	refusal := p.err(time.Duration(after) * time.Second)
	if cut != nil {
		return &lostError{fmt.Errorf("%w, and its answer was cut: %w", refusal, cut)}
	}
	return refusal
}
