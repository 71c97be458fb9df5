package toolset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	wire "github.com/toolyard/toolyard/internal/mcp"
	"github.com/toolyard/toolyard/internal/pause"
)

// From the revision 2026-07-28 on a server over HTTP says that its tools have changed in the response to a request that
// listens. Nothing else of a session is left when the server is replaced, and proxies end a response that is silent.
// The SDK listens once. So a response that has ended goes on with that of another such request, until the session ends.
// What was said in between is lost, so the list is read again.

// changed is the event that has the list read again. Empty lines in front end an event that was cut.
const changed = "\n\n" + `data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}` + "\n\n"

// isListen reports whether a request listens for changes.
func isListen(req *http.Request) bool {
	return req.Method == http.MethodPost && req.Header.Get("Mcp-Method") == "subscriptions/listen"
}

// listen sends a request that listens. Only a response that is a stream goes on.
func (s *sender) listen(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	off := context.AfterFunc(s.session, func() { cancel(context.Cause(s.session)) })
	l := &listener{sender: s, req: req, ctx: ctx, end: func() { off(); cancel(nil) }}
	res, err := s.send(req)
	if err != nil || res.StatusCode != http.StatusOK || !isStream(res) {
		l.end()
		return res, err
	}
	l.take(res, "")
	res.Body = l
	return res, nil
}

// listener is the body of a response that goes on.
type listener struct {
	sender *sender
	req    *http.Request
	// ctx ends with the request or the session.
	ctx context.Context
	end func()
	// since is when the response came that came last, and wait the pause before it.
	since time.Time
	wait  time.Duration

	mu  sync.Mutex    // Close may be called while Read waits
	now io.ReadCloser // the body of that response
}

// take goes on with a response, behind a text.
func (l *listener) take(res *http.Response, first string) {
	body := wire.Lines(res.Body, MaxMessageBytes, wire.InEvents(withoutAnswer))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now()
	l.now = begun(body, first)
}

func (l *listener) body() io.ReadCloser {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// Read implements [io.Reader].
func (l *listener) Read(p []byte) (int, error) {
	body := l.body()
	n, err := body.Read(p)
	if n > 0 || err == nil {
		return n, nil // an error comes again with the next bytes
	}
	_ = body.Close() // it has ended
	if err := l.again(); err != nil {
		return 0, err
	}
	return 0, nil
}

// again listens anew, after a pause that grows while there is no response, or none that lasts.
func (l *listener) again() error {
	if time.Since(l.since) > lastingAfter {
		l.wait = 0
	}
	for {
		l.wait = min(max(listenPause, 2*l.wait), DefaultMaxPause)
		if err := pause.For(l.ctx, l.wait); err != nil {
			return err
		}
		res, err := l.send()
		if err != nil {
			continue // the calls say what is wrong with the server
		}
		l.take(res, changed)
		if l.ctx.Err() != nil { // Close may have closed the body before
			return errors.Join(context.Cause(l.ctx), l.body().Close())
		}
		return nil
	}
}

// send sends the request anew.
func (l *listener) send() (*http.Response, error) {
	body, err := l.req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	next := l.req.Clone(l.ctx)
	next.Body = body
	res, err := l.sender.send(next)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK || !isStream(res) {
		return nil, errors.Join(fmt.Errorf("the server answers with %s", res.Status), res.Body.Close())
	}
	return res, nil
}

// Close implements [io.Closer].
func (l *listener) Close() error {
	l.end()
	return l.body().Close()
}

// withoutAnswer leaves out the answer to the request, with which a server says that it ends the response.
func withoutAnswer(message []byte) []byte {
	var m struct {
		Method json.RawMessage `json:"method"`
		ID     json.RawMessage `json:"id"`
	}
	if json.Unmarshal(message, &m) == nil && m.Method == nil && m.ID != nil {
		return nil
	}
	return message
}
