package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// serverEvent is one of a stream of server-sent events.
type serverEvent struct {
	id   string
	name string
	data []byte
}

// errEnd ends a stream that has said all.
var errEnd = errors.New("the stream has said all")

// tap is a stream of server-sent events that is read to its end, over as many connections as it takes.
type tap struct {
	path  string
	query url.Values
	// take gets each event. errEnd ends the stream well, any other error ends it.
	take func(serverEvent) error
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

// read reads a stream to its end. When it is cut, it is taken up again behind the last event that has an id, from any server. A
// problem that the stream tells ends it, unless it passes.
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

// readOnce reads what one connection has of a stream. progress says that this was anything.
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
	in := newEventReader(conn.resp.Body, func() { silent.Reset(streamSilence) })
	for {
		e, err := in.next()
		switch {
		case errors.Is(err, errEventTooLong):
			return progress, err
		case err != nil:
			return progress, &lostError{fmt.Errorf("the stream of %s was cut: %w", s.path, err)}
		}
		progress = true
		if e.name == "problem" {
			var p problem
			if err := json.Unmarshal(e.data, &p); err != nil {
				return progress, fmt.Errorf("the stream of %s tells a problem that cannot be read: %w", s.path, err)
			}
			return progress, p.err(0)
		}
		silent.Stop() // whoever takes it may take long
		if err := s.take(e); err != nil {
			return progress, err
		}
		silent.Reset(streamSilence)
		if e.id != "" {
			s.last = e.id
		}
	}
}

// eventReader reads server-sent events, as the HTML standard has them.
type eventReader struct {
	r     *bufio.Reader
	alive func() // called for each line
	most  int
}

var errEventTooLong = fmt.Errorf("an event of the stream has more than %d bytes", MaxStreamEventBytes)

func newEventReader(r io.Reader, alive func()) *eventReader {
	return &eventReader{r: bufio.NewReader(r), alive: alive, most: MaxStreamEventBytes}
}

// next returns the next event that has data. What stands before a cut is no event.
func (r *eventReader) next() (e serverEvent, err error) {
	size, has := 0, false
	for {
		line, err := r.line(r.most - size)
		if err != nil {
			return serverEvent{}, err
		}
		r.alive()
		if len(line) == 0 {
			if has {
				return e, nil
			}
			e, size = serverEvent{}, 0
			continue
		}
		size += len(line)
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			e.id = string(value)
		case "event":
			e.name = string(value)
		case "data":
			if has {
				e.data = append(e.data, '\n')
			}
			e.data, has = append(e.data, value...), true
		}
	}
}

// line reads a line of so many bytes at most, without its end.
func (r *eventReader) line(most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > most+len("\r\n"):
			return nil, errEventTooLong
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return nil, err
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
	}
}
