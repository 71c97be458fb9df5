package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/toolyard/toolyard/internal/sse"
)

// errEnd ends a stream that has said all.
var errEnd = errors.New("the stream has said all")

// tap is a stream of server-sent events that is read to its end, over as many connections as it takes.
type tap struct {
	path  string
	query url.Values
	// take gets each event. errEnd ends the stream well, any other error ends it.
	take func(sse.Event) error
	// cut is called when a connection was lost, before the next is made. Nil: nothing is missed that way.
	cut func(error) error
	// conn is a connection that was made before. Nil: none was.
	conn *streamConn

	last string // the id of the last event that was taken and has one
}

// streamConn is one connection of a stream.
type streamConn struct {
	resp   *http.Response
	cancel context.CancelFunc
}

func (c *streamConn) close() {
	c.cancel()
	_ = c.resp.Body.Close() // it is only read
}

// read reads a stream to its end. When it is cut, it is taken up again behind the last event that has an id, from any
// server. A problem that the stream tells ends it, unless it passes.
func (t *overHTTP) read(ctx context.Context, s *tap) error {
	began := s.conn != nil
	err := t.retry(ctx, false, func() (progress bool, err error) {
		progress, err = t.readOnce(ctx, s)
		began = began || progress
		if _, again := passes(err); again && began && s.cut != nil && ctx.Err() == nil {
			if err := s.cut(err); err != nil {
				return progress, err
			}
		}
		return progress, err
	})
	if errors.Is(err, errEnd) {
		return nil
	}
	return err
}

// connect makes a connection. It is there when it returns: what happens from then on is on it.
func (t *overHTTP) connect(ctx context.Context, s *tap) (*streamConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	slow := time.AfterFunc(answerTimeout, cancel)
	defer slow.Stop()
	header := http.Header{"Accept": {"text/event-stream"}}
	if s.last != "" {
		header.Set("Last-Event-ID", s.last)
	}
	resp, err := t.send(ctx, request{method: http.MethodGet, path: s.path, query: s.query}, nil, header)
	if err != nil {
		cancel()
		return nil, err
	}
	return &streamConn{resp, cancel}, nil
}

// readOnce reads what one connection has of a stream. progress says that this was anything, or that the connection was
// there for a while before it was cut: the stream of a batch that waits has nothing but heartbeats, and proxies cut it.
func (t *overHTTP) readOnce(ctx context.Context, s *tap) (progress bool, err error) {
	conn := s.conn
	s.conn = nil
	if conn == nil {
		if conn, err = t.connect(ctx, s); err != nil {
			return false, err
		}
	}
	defer conn.close()
	if conn.resp.StatusCode == http.StatusNoContent { // the end was seen before
		return false, errEnd
	}
	if kind := conn.resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return false, fmt.Errorf("%s answers with %q and no stream of events; is this Toolyard's API?", s.path, kind)
	}
	silent := time.AfterFunc(streamSilence, conn.cancel)
	defer silent.Stop()
	began, there := time.Now(), false
	in := sse.Parser{MaxEventBytes: MaxStreamEventBytes}
	for buffer := make([]byte, streamBufferBytes); ; {
		n, cut := conn.resp.Body.Read(buffer)
		if inTime := silent.Reset(streamSilence); n > 0 || inTime {
			there = time.Since(began) >= longestRetry // so that the server is not asked more often than otherwise
		}
		err := in.Feed(buffer[:n], func(e sse.Event) error {
			silent.Stop() // whoever takes it may take long
			defer silent.Reset(streamSilence)
			err := s.takeOne(e)
			progress = progress || err == nil
			return err
		})
		switch {
		case errors.Is(err, sse.ErrTooLong):
			return progress, fmt.Errorf("an event of the stream has more than %d bytes", MaxStreamEventBytes)
		case err != nil:
			return progress, err
		case cut != nil:
			return progress || there, &lostError{fmt.Errorf("the stream of %s was cut: %w", s.path, cut)}
		}
	}
}

// takeOne takes an event.
func (s *tap) takeOne(e sse.Event) error {
	if e.Name == "problem" {
		var p problem
		if err := json.Unmarshal(e.Data, &p); err != nil {
			return fmt.Errorf("the stream of %s tells a problem that cannot be read: %w", s.path, err)
		}
		return p.err(0)
	}
	if err := s.take(e); err != nil {
		return err
	}
	if e.ID != "" {
		s.last = e.ID
	}
	return nil
}
