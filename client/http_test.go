package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard"
)

// script answers requests in memory, one after the other, and keeps what was asked.
type script struct {
	mu      sync.Mutex
	asked   []*http.Request
	answers []func(*http.Request) (*http.Response, error)
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked = append(s.asked, r)
	if len(s.answers) == 0 {
		s.mu.Unlock()
		return nil, errors.New("the script is over")
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	s.mu.Unlock()
	return next(r)
}

type answer = func(*http.Request) (*http.Response, error)

func says(status int, kind, body string, headers ...string) answer {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {kind}}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r},
			nil
	}
}

func problems(status int, kind, field, detail string, headers ...string) answer {
	return says(status, "application/problem+json", fmt.Sprintf(`{"type":%q,"status":%d,"detail":%q,"field":%q}`, kind,
		status, detail, field), headers...)
}

var (
	fine = says(200, "text/plain", "ok\n")
	lost = func(*http.Request) (*http.Response, error) { return nil, errors.New("reset by peer") }
)

func stream(body string) answer { return says(200, "text/event-stream", body) }

// scripted is a client whose server says these things.
func scripted(t *testing.T, o HTTPOptions, answers ...answer) (*Client, *script) {
	t.Helper()
	s := &script{answers: append([]answer{fine}, answers...)}
	o.Client = &http.Client{Transport: s}
	c, err := ConnectHTTP(t.Context(), "http://server:8080/", o)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func batchOf(id string) toolyard.Batch {
	return toolyard.Batch{ID: toolyard.BatchID(id), Calls: []toolyard.Call{{Tool: "t"}}}
}

const storedView = `{"id":"b","agent":"a","status":"running"}`

// TestRequestsAreRepeated: what was not answered is asked again, with pauses that grow, and what was refused is not.
func TestRequestsAreRepeated(t *testing.T) {
	half := func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 202, Header: http.Header{}, Request: r,
			Body: io.NopCloser(io.MultiReader(strings.NewReader(`{"id"`), failing{}))}, nil
	}
	cut := func(status int) answer {
		return func(r *http.Request) (*http.Response, error) {
			h := http.Header{"Content-Type": {"application/problem+json"}}
			return &http.Response{StatusCode: status, Header: h, Request: r,
				Body: io.NopCloser(io.MultiReader(strings.NewReader(`{"type":"urn:toolyard:prob`), failing{}))}, nil
		}
	}
	unmade := func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
	}
	busy := problems(503, "about:blank", "", "not now")
	for _, tt := range []struct {
		name    string
		retries int
		answers []answer
		asked   int
		after   time.Duration
		want    func(error) bool
	}{
		{"at once", 0, []answer{says(202, "application/json", storedView)}, 1, 0, nil},
		{"no answer, half of one, not now", 0, []answer{lost, half, busy, says(202, "application/json", storedView)}, 4,
			700 * time.Millisecond, nil},
		{"asked to wait", 0, []answer{problems(503, "about:blank", "", "not now", "Retry-After", "3"),
			says(202, "application/json", storedView)}, 2, 3 * time.Second, nil},
		{"asked to wait for ever", 0, []answer{problems(503, "about:blank", "", "not now", "Retry-After", "99999999"),
			says(202, "application/json", storedView)}, 2, longestRetry, nil},
		{"too often", 2, []answer{lost, lost, lost, says(202, "application/json", storedView)}, 3,
			300 * time.Millisecond, func(err error) bool {
				return strings.Contains(err.Error(), "reset by peer") && errors.Is(err, ErrNoAnswer)
			}},
		{"never", -1, []answer{lost}, 1, 0, func(err error) bool { return errors.Is(err, ErrNoAnswer) }},
		{"not sent", -1, []answer{unmade}, 1, 0, func(err error) bool { return !errors.Is(err, ErrNoAnswer) }},
		{"no answer from NATS", 1, []answer{problems(503, "urn:toolyard:problem:no-answer", "", "NATS", "Retry-After",
			"1"), problems(503, "urn:toolyard:problem:no-answer", "", "NATS")}, 2, time.Second,
			func(err error) bool { return errors.Is(err, ErrNoAnswer) && !errors.Is(err, ErrFull) }},
		{"a full disk", 0, []answer{problems(503, "urn:toolyard:problem:full", "", "no room: the disk")}, 1, 0,
			func(err error) bool {
				return errors.Is(err, ErrFull) && strings.Contains(err.Error(), "the disk")
			}},
		{"full", 0, []answer{problems(429, "urn:toolyard:problem:full", "", "full")}, 1, 0,
			func(err error) bool { return errors.Is(err, ErrFull) }},
		{"too many requests", 0, []answer{problems(429, "about:blank", "", "too many")}, 1, 0,
			func(err error) bool { return errors.Is(err, ErrFull) }},
		{"refused for want of room", 0, []answer{problems(503, "urn:toolyard:problem:refused", "",
			"the batch was refused: full")}, 1, 0, func(err error) bool {
			e, ok := errors.AsType[*RefusedError](err)
			return ok && e.Detail == "full" && errors.Is(err, ErrFull)
		}},
		{"wrong", 0, []answer{problems(400, "urn:toolyard:problem:input", "calls[0].id", "calls[0].id: is wrong")}, 1,
			0, func(err error) bool {
				e, ok := errors.AsType[*toolyard.InputError](err)
				return ok && e.Field == "calls[0].id" && e.Problem == "is wrong" && !e.TooLarge
			}},
		{"other content", 0, []answer{problems(409, "urn:toolyard:problem:other-content", "id", "other content")}, 1, 0,
			func(err error) bool { return errors.Is(err, ErrOtherContent) }},
		{"half a refusal", 0, []answer{cut(409), problems(409, "urn:toolyard:problem:other-content", "id",
			"other content")}, 2, firstRetry, func(err error) bool { return errors.Is(err, ErrOtherContent) }},
		{"never more than half a refusal", 1, []answer{cut(403), cut(403)}, 2, firstRetry, func(err error) bool {
			e, ok := errors.AsType[*HTTPError](err)
			return ok && e.Status == 403 && strings.Contains(err.Error(), "cut")
		}},
		{"no right", 0, []answer{problems(401, "about:blank", "", "no token")}, 1, 0, func(err error) bool {
			e, ok := errors.AsType[*HTTPError](err)
			return ok && e.Status == 401 && !errors.Is(err, ErrFull)
		}},
		{"elsewhere", 0, []answer{says(302, "text/html", "", "Location", "http://evil/")}, 1, 0,
			func(err error) bool { return strings.Contains(err.Error(), "http://evil/") }},
		{"not ours", 0, []answer{says(200, "text/html", "<html>")}, 1, 0,
			func(err error) bool { return strings.Contains(err.Error(), "Toolyard's API") }},
		{"a proxy's words", 0, []answer{says(404, "text/html", "<html>")}, 1, 0, func(err error) bool {
			e, ok := errors.AsType[*HTTPError](err)
			return ok && e.Status == 404
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, HTTPOptions{MaxRetries: tt.retries, Token: "secret"}, tt.answers...)
				began := time.Now()
				sub, err := c.Submit(t.Context(), batchOf("b"))
				if tt.want == nil && (err != nil || sub.Key().String() != "a/b") || tt.want != nil &&
					(err == nil || !tt.want(err)) {
					t.Errorf("%#v, %v", sub, err)
				}
				if took := time.Since(began); took != tt.after {
					t.Errorf("took %s, want %s", took, tt.after)
				}
				if len(s.asked)-1 != tt.asked {
					t.Errorf("asked %d times, want %d", len(s.asked)-1, tt.asked)
				}
				for _, r := range s.asked {
					if r.URL.Host != "server:8080" || r.Header.Get("Authorization") != "Bearer secret" {
						t.Errorf("asked %s with %q", r.URL, r.Header.Get("Authorization"))
					}
				}
			})
		})
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("reset by peer") }

// TestAStreamIsTakenUpAgain: behind the last event that came whole, and the client sees no seam.
func TestAStreamIsTakenUpAgain(t *testing.T) {
	result := func(i int) string { return fmt.Sprintf("id: %d\nevent: result\ndata: {\"index\":%d}\n\n", i, i) }
	const end = "id: 3\nevent: completed\ndata: {\"status\":\"completed\",\"results\":3}\n\n"
	for _, tt := range []struct {
		name    string
		answers []answer
		lasts   string // the Last-Event-IDs that were asked with
		results int
		says    string
	}{
		{"whole", []answer{stream(result(0) + result(1) + result(2) + end)}, "-", 3, ""},
		{"cut anywhere", []answer{stream(result(0) + result(1)[:20]), stream(result(1)), lost, stream(result(2) +
			end[:len(end)-1]), stream(end)}, "- 0 1 1 2", 3, ""},
		{"cut behind the end", []answer{stream(result(0) + result(1) + result(2)), says(204, "", "")}, "- 2", 3, ""},
		{"a problem that passes", []answer{stream(result(0) +
			"event: problem\ndata: {\"type\":\"about:blank\",\"status\":503}\n\n"), stream(result(1) + result(2) +
			end)}, "- 0", 3, ""},
		{"a problem that stays", []answer{stream(result(0) +
			"event: problem\ndata: {\"type\":\"urn:toolyard:problem:no-batch\",\"status\":404,\"detail\":\"gone\"}\n\n")}, "-", 1, "gone"},
		{"a repeat", []answer{stream(result(0) + result(0))}, "-", 1, "call 0 came where that of call 1 is next"},
		{"a gap", []answer{stream(result(0) + result(2))}, "-", 1, "call 2 came where that of call 1 is next"},
		{"an end too early", []answer{stream(result(0) + end)}, "-", 1, "said to have 3 results, and 1 came"},
		{"no stream", []answer{says(200, "text/html", "<html>")}, "-", 0, "no stream of events"},
		{"unknown events and comments", []answer{stream(": hello\n\nevent: news\ndata: x\n\nretry: 5\n\n" + result(0) +
			"event: progress\ndata: {}\n\n" + result(1) + result(2) + end)}, "-", 3, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, HTTPOptions{}, tt.answers...)
				n, failed := 0, ""
				for r, err := range c.Batch(toolyard.BatchKey{Agent: "a", ID: "b"}).Results(t.Context()) {
					if err != nil {
						failed = err.Error()
						continue
					}
					if r.Index != n {
						t.Errorf("result %d where %d is next", r.Index, n)
					}
					n++
				}
				var lasts []string
				for _, r := range s.asked[1:] {
					last := r.Header.Get("Last-Event-ID")
					if last == "" {
						last = "-"
					}
					lasts = append(lasts, last)
				}
				if got := strings.Join(lasts, " "); got != tt.lasts || n != tt.results ||
					(failed == "") != (tt.says == "") || !strings.Contains(failed, tt.says) {
					t.Errorf("%d results, asked behind %s, and it ended with %q", n, got, failed)
				}
			})
		})
	}
}

// TestASilentStreamIsLost: a connection that says nothing for too long is given up, and the next one taken.
func TestASilentStreamIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := func(r *http.Request) (*http.Response, error) {
			in, out := io.Pipe()
			context.AfterFunc(r.Context(), func() { _ = out.CloseWithError(r.Context().Err()) })
			go func() {
				for range 3 { // it is there for a while
					if _, err := io.WriteString(out, ": still here\n\n"); err != nil {
						return
					}
					time.Sleep(15 * time.Second)
				}
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in,
				Request: r}, nil
		}
		c, s := scripted(t, HTTPOptions{}, dead, stream("id: 0\nevent: completed\ndata: {\"results\":0}\n\n"))
		began := time.Now()
		for _, err := range c.Batch(toolyard.BatchKey{ID: "b"}).Results(t.Context()) {
			t.Fatal(err)
		}
		if took := time.Since(began); len(s.asked) != 3 || took != 30*time.Second+streamSilence {
			t.Errorf("asked %d times in %s", len(s.asked), took)
		}
	})
}

// TestAQuietStreamMayBeCutAsOftenAsItTakes: the results of a batch that waits come at last, also through a proxy that
// ends each connection after a while. A server that takes connections and never says a word is given up.
func TestAQuietStreamMayBeCutAsOftenAsItTakes(t *testing.T) {
	quiet := func(beats int, beat, end time.Duration) answer {
		return func(r *http.Request) (*http.Response, error) {
			in, out := io.Pipe()
			context.AfterFunc(r.Context(), func() { _ = out.CloseWithError(r.Context().Err()) })
			go func() {
				for range beats {
					time.Sleep(beat)
					if _, err := io.WriteString(out, ": still here\n\n"); err != nil {
						return
					}
				}
				time.Sleep(end)
				_ = out.CloseWithError(io.ErrUnexpectedEOF) // by the proxy
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in,
				Request: r}, nil
		}
	}
	for name, tt := range map[string]struct {
		cut  answer
		asks int
	}{
		"after a minute":             {quiet(3, 15*time.Second, 15*time.Second), 6},
		"before the first heartbeat": {quiet(0, 0, 10*time.Second), 6},
		"at once":                    {quiet(0, 0, 0), 3},
		"at once, with a heartbeat":  {quiet(1, 0, 0), 3},
		"never, and silent":          {quiet(0, 0, time.Hour), 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, HTTPOptions{MaxRetries: 2}, tt.cut, tt.cut, tt.cut, tt.cut, tt.cut,
					stream("id: 0\nevent: completed\ndata: {\"results\":0}\n\n"))
				failed := error(nil)
				for _, err := range c.Batch(toolyard.BatchKey{Agent: "a", ID: "b"}).Results(t.Context()) {
					failed = err
				}
				if asked := len(s.asked) - 1; asked != tt.asks || (failed == nil) != (tt.asks == 6) {
					t.Errorf("asked %d times, want %d, and it ended with %v", asked, tt.asks, failed)
				}
				time.Sleep(2 * time.Hour) // until the connections are over
			})
		})
	}
}

// TestConnectHTTPRefuses: what is no server, or none that is ready.
func TestConnectHTTPRefuses(t *testing.T) {
	for _, base := range []string{"", "server:8080", "nats://server", "http://", "http://user:pw@server",
		"http://server?x=1"} {
		if _, err := ConnectHTTP(t.Context(), base, HTTPOptions{}); !errors.As(err, new(*toolyard.InputError)) {
			t.Errorf("%q: %v", base, err)
		}
	}
	if _, err := ConnectHTTP(t.Context(), "http://server", HTTPOptions{Token: "a b"}); !errors.As(err,
		new(*toolyard.InputError)) {
		t.Errorf("a token with white space: %v", err)
	}
	s := &script{answers: []answer{problems(503, "about:blank", "", "not here")}}
	if _, err := ConnectHTTP(t.Context(), "http://server",
		HTTPOptions{Client: &http.Client{Transport: s}}); err == nil || !strings.Contains(err.Error(), "not here") ||
		len(s.asked) != 1 {
		t.Errorf("a server that does not answer: %v", err)
	}
}

// TestEveryProblemHasItsError: what the server calls an error leads back to the same error, and only to it.
func TestEveryProblemHasItsError(t *testing.T) {
	kinds := map[string]bool{}
	for _, known := range problemTypes {
		kind := ProblemType(fmt.Errorf("wrapped: %w", known.err))
		if kind != known.kind || kinds[kind] {
			t.Errorf("%v has the type %s", known.err, kind)
		}
		kinds[kind] = true
		back := problem{Type: kind, Status: 400, Detail: "in words"}.err(0)
		for _, other := range problemTypes {
			if errors.Is(back, other.err) != (other.err == known.err) {
				t.Errorf("%s is %v: %t", kind, other.err, errors.Is(back, other.err))
			}
		}
		if back.Error() != "in words" {
			t.Errorf("%s says %q", kind, back)
		}
	}
	for _, err := range []error{ErrOtherContent, ErrFull, ErrNoAnswer, ErrDamaged, ErrNoBatch, ErrNoCall, ErrNoApproval,
		ErrUnchecked, ErrCompleted, ErrClosed, ErrNotOpened} {
		if ProblemType(err) == plainType { // a program on HTTP could not act on it
			t.Errorf("%v has no type of its own", err)
		}
	}
	if got := ProblemType(fmt.Errorf("%w: %w", ErrUnchecked, ErrNoAnswer)); !strings.HasSuffix(got, ":unchecked") {
		t.Errorf("a worker that does not answer: the type is %s", got)
	}
	if got := ProblemType(errors.New("anything")); got != plainType {
		t.Errorf("another error has the type %s", got)
	}
}

// TestALoopMayEndWithItsContext: whoever leaves a loop gets no error of the context any more.
func TestALoopMayEndWithItsContext(t *testing.T) {
	c, _ := scripted(t, HTTPOptions{}, stream("id: 0\nevent: result\ndata: {\"index\":0,\"output\":\"it\"}\n\n"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for r, err := range c.Batch(toolyard.BatchKey{Agent: "a", ID: "b"}).Results(ctx) {
		if err != nil || r.Output != "it" {
			t.Errorf("got %+v (%v)", r, err)
		}
		cancel()
		break
	}
}

// TestAStreamOfProblemsIsNoProgress: a server that takes a stream and then says that it cannot serve it is asked less
// and less often, and not for ever.
func TestAStreamOfProblemsIsNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := stream("event: problem\ndata: {\"type\":\"about:blank\",\"status\":503}\n\n")
		c, s := scripted(t, HTTPOptions{MaxRetries: 2}, busy, busy, busy, busy, busy)
		began, failed := time.Now(), error(nil)
		for _, err := range c.Batch(toolyard.BatchKey{Agent: "a", ID: "b"}).Results(t.Context()) {
			failed = err
		}
		var e *HTTPError
		if took := time.Since(began); !errors.As(failed, &e) || len(s.asked) != 1+3 || took != 3*firstRetry {
			t.Errorf("asked %d times in %s, and it ended with %v", len(s.asked), took, failed)
		}
	})
}
