package toolset

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
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolyard/toolyard/internal/manifest"
	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/pause"
)

// remote is a server that is reached over HTTP.
type remote struct {
	mcp.StreamableClientTransport
	stop context.CancelFunc
}

func (r *remote) cut()        { r.stop() }
func (r *remote) wait() error { return nil }

// overHTTP prepares the connection to a running server.
func (t *Toolset) overHTTP(relist func()) (link, error) {
	s := &t.o.Server
	at, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	headers, err := manifest.FillHeaders(s.Headers, func(name string) (string, error) {
		if v, ok := t.o.Lookup(name); ok {
			return v, nil
		}
		return "", fmt.Errorf("the credential %s is not in the environment", name)
	})
	if err != nil {
		return nil, err
	}
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the program's HTTP transport was replaced")
	}
	session, stop := context.WithCancel(context.Background())
	sender := &sender{next: base.Clone(), at: at, headers: headers, session: session, relist: relist}
	context.AfterFunc(session, sender.next.CloseIdleConnections)
	return &remote{stop: stop, StreamableClientTransport: mcp.StreamableClientTransport{
		Endpoint: s.URL, MaxEventSize: MaxMessageBytes,
		HTTPClient: &http.Client{Transport: sender, CheckRedirect: sender.redirect},
	}}, nil
}

// sender sends a session's requests: with the operator's headers, only to the server, with limits on the responses, and
// only while the session lasts.
type sender struct {
	next    *http.Transport
	at      *url.URL
	headers map[string]string
	session context.Context
	// relist has the list of tools read again.
	relist func()
	// listening says when the last stream was asked for, for what the server says of itself, and how often.
	listening struct {
		mu    sync.Mutex
		since time.Time
		count int
	}
	lost lost
}

// sessionHeader names the session that a request belongs to.
const sessionHeader = "Mcp-Session-Id"

// maxRedirects bounds the redirects, all of them within the server.
const maxRedirects = 3

// redirect follows redirects within the server, if the request stays the same. net/http makes a GET of others (301,
// 302, 303), and a GET asks for the server's own stream, in which no answer comes.
func (s *sender) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if !s.here(req.URL) {
		return fmt.Errorf("the server redirects to %s://%s; name that address in the manifest if it is meant",
			req.URL.Scheme, req.URL.Host)
	}
	if asked := via[len(via)-1].Method; req.Method != asked {
		return fmt.Errorf("the server redirects a %s to %s with the status %d, which makes a GET of it; name that "+
			"address in the manifest if it is meant", asked, req.URL.Path, req.Response.StatusCode)
	}
	return nil
}

func (s *sender) here(u *url.URL) bool { return u.Scheme == s.at.Scheme && u.Host == s.at.Host }

// RoundTrip implements [http.RoundTripper].
func (s *sender) RoundTrip(req *http.Request) (*http.Response, error) {
	if isListen(req) {
		return s.listen(req)
	}
	return s.send(req)
}

// isStream reports whether a response is a stream of events.
func isStream(res *http.Response) bool { return isType(res, "text/event-stream") }

func isType(res *http.Response, media string) bool {
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return err == nil && kind == media
}

// send sends a request.
func (s *sender) send(req *http.Request) (*http.Response, error) {
	if !s.here(req.URL) {
		return nil, fmt.Errorf("a request to %s is not to the server", req.URL.Host)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	off := context.AfterFunc(s.session, func() { cancel(context.Cause(s.session)) })
	end := func() { off(); cancel(nil) }
	req = req.Clone(ctx)
	for name, value := range s.headers {
		req.Header.Set(name, value)
	}
	stream, err := s.listens(req)
	if err = errors.Join(err, sayTask(req)); err != nil {
		end()
		return nil, err
	}
	watch := responsesOf(ctx)
	watch.began()
	res, err := s.next.RoundTrip(req)
	if err != nil {
		watch.ended()
		end()
		return nil, err
	}
	watch.got(res)
	b := &body{ReadCloser: res.Body, left: MaxMessageBytes, end: sync.OnceFunc(func() { watch.ended(); end() })}
	if res.StatusCode == http.StatusNotFound && req.Header.Get(sessionHeader) != "" {
		// The session is over. The SDK would take an error of JSON-RPC for the answer to the request alone, and go on
		// with the session.
		_ = b.Close() // nothing of it is read
		res.Body, res.ContentLength = http.NoBody, 0
		return res, nil
	}
	call, _ := ctx.Value(callKey{}).(string)
	if call != "" && res.StatusCode/100 == 2 && !isStream(res) && !isType(res, "application/json") {
		// The page of something in between, such as a sign-in. The SDK would end the session. Of a gateway that fails
		// it takes that it concerns this request alone.
		_ = b.Close() // nothing of it is read
		res.StatusCode, res.Body, res.ContentLength = http.StatusBadGateway, http.NoBody, 0
		return res, nil
	}
	lift := lift
	if res.StatusCode/100 == 2 && (stream > 0 || req.GetBody != nil) {
		lift = answering(req)
	}
	if isStream(res) {
		b.left = 0
		b.ReadCloser = &metered{ReadCloser: res.Body}
		lifted := wire.InEvents(func(message []byte) []byte {
			return wire.LiftQuestion(lift(message), call)
		})
		res.Body = wire.Lines(b, MaxMessageBytes, func(line []byte) []byte {
			watch.line(line)
			return lifted(line)
		})
		if stream > 0 {
			res.Body = begun(res.Body, "id: "+ownEvent+strconv.Itoa(stream)+"\n\n")
		}
		if stream > 1 {
			s.missed()
		}
		return res, nil
	}
	res.Body = wire.Whole(b, lift)
	return res, nil
}

// answering is the function lift for what comes in answer to a request. An error without an id, for which the SDK would
// end the session, answers that request, and nothing where it comes in the stream for what the server says of itself.
// With another status than 2xx it may say that the server knows the session no more.
func answering(req *http.Request) func(message []byte) []byte {
	return func(message []byte) []byte {
		if _, ok := errorOfNothing(message); !ok {
			return lift(message)
		}
		id, err := idOf(req)
		var answer map[string]json.RawMessage
		if err != nil || id == nil || json.Unmarshal(message, &answer) != nil {
			return nil
		}
		answer["id"] = id
		if message, err = json.Marshal(answer); err != nil {
			return nil
		}
		return message
	}
}

// idOf is the id of the request of JSON-RPC in a request of HTTP; nil if there is none.
func idOf(req *http.Request) (json.RawMessage, error) {
	if req.GetBody == nil {
		return nil, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	err = json.NewDecoder(body).Decode(&m)
	return m.ID, errors.Join(err, body.Close())
}

// The SDK ends a session whose stream for what the server says of itself has ended several times in a row without an
// event that has an id. Proxies close such a stream whenever it is silent, and many servers give no ids. So each of
// these streams begins with an id of ours, which the server does not get to see. What the server has said between two
// of them is lost, so the list is read again.
const (
	eventHeader = "Last-Event-Id"
	ownEvent    = "toolyard-"
)

// listens is the number of the stream that a request is for; 0 if it is for none of these, or for the rest of one. A
// server may say that it is to be asked again at once, and end each stream at once, so one that follows another waits.
func (s *sender) listens(req *http.Request) (number int, err error) {
	if strings.HasPrefix(req.Header.Get(eventHeader), ownEvent) {
		req.Header.Del(eventHeader)
	}
	if req.Method != http.MethodGet || req.Header.Get(eventHeader) != "" {
		return 0, nil
	}
	l := &s.listening
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := pause.For(req.Context(), time.Until(l.since.Add(listenPause))); err != nil {
		return 0, err
	}
	l.since = time.Now()
	l.count++
	return l.count, nil
}

// begun is a stream with a text in front.
func begun(stream io.ReadCloser, first string) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(first), stream), stream}
}

// sayTask has a request say what it has of tasks: a call that it asks for one, and a request about one its name.
func sayTask(req *http.Request) error {
	if id, ok := req.Context().Value(taskKey{}).(string); ok && req.Header.Get("Mcp-Method") != "" {
		req.Header.Set("Mcp-Name", id)
	}
	if req.Body == nil {
		return nil
	}
	body, err := io.ReadAll(req.Body) // which the SDK has whole
	if err = errors.Join(err, req.Body.Close()); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	body = wire.LowerRequest(body)
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// body is a bounded response body.
type body struct {
	io.ReadCloser
	left int64 // bytes that may still come; 0 at the start: no limit on the sum
	read int64
	end  func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if b.left > 0 && b.read > b.left {
		n, err = 0, fmt.Errorf("the response has more than %d bytes", b.left)
	}
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// responses tracks the responses that may contain a call's answer. If none is open for a while, the answer will not
// come, although the SDK would still wait for it. A nil value tracks nothing.
type responses struct {
	mu     sync.Mutex
	open   int
	timer  *time.Timer
	gone   func()
	status int           // of the last response; 0 if there was none
	pause  time.Duration // the pause that it requests
	later  time.Duration // after which the server wants to be asked again for the rest of its events
	// accepted says that a response was a success, so the server has the call. What later ones say is no answer to it.
	accepted bool
}

type responsesKey struct{}

// withResponses returns a context in which gone is called when no open response can contain the answer.
func withResponses(ctx context.Context, gone func()) (context.Context, *responses) {
	r := &responses{gone: gone}
	return context.WithValue(ctx, responsesKey{}, r), r
}

// responsesOf is the context's responses; nil if there are none.
func responsesOf(ctx context.Context) *responses {
	r, _ := ctx.Value(responsesKey{}).(*responses)
	return r
}

func (r *responses) began() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open++; r.timer != nil {
		r.timer.Stop()
	}
}

func (r *responses) got(res *http.Response) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.later = res.StatusCode, 0
	r.accepted = r.accepted || res.StatusCode/100 == 2
	r.pause = pause.Asked(res.Header, time.Now())
}

// line notes what a line of an event stream says about when to ask again.
func (r *responses) line(line []byte) {
	value, ok := bytes.CutPrefix(line, []byte("retry:"))
	if r == nil || !ok {
		return
	}
	if ms, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 32); err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.later = min(time.Duration(ms)*time.Millisecond, pause.MaxAsked)
		if r.open == 0 && r.timer != nil { // the end may have come in one piece with the line
			r.timer.Reset(r.later + cutGrace)
		}
	}
}

// last is the status of the last response, 0 if there was none, and the pause that it requests.
func (r *responses) last() (status int, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status, r.pause
}

// taken reports whether the server has accepted the call.
func (r *responses) taken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted
}

func (r *responses) ended() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open--; r.open == 0 {
		r.timer = time.AfterFunc(r.later+cutGrace, r.gone)
	}
}

// notSent reports whether an error says that nothing has reached the server.
func notSent(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}
