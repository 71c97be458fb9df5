package api

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// stream writes what comes one by one: server-sent events, or lines of JSON. It is safe for concurrent use. After an
// error nothing is written any more.
type stream struct {
	x     *exchange
	alive context.Context // ends when nobody may or can read it any more
	lines bool            // of JSON, and no server-sent events

	mu  sync.Mutex
	err error
	// took is how long the client took for the last write.
	took time.Duration
}

// The media types of a stream.
const (
	sseType    = "text/event-stream"
	ndjsonType = "application/x-ndjson"
)

// openStream begins an answer, which ends with a context. Its headers leave at once, so that a client knows that it is
// heard.
func openStream(alive context.Context, x *exchange, lines bool) *stream {
	h := x.w.Header()
	h.Set("Content-Type", sseType)
	if lines {
		h.Set("Content-Type", ndjsonType)
	}
	h.Set("X-Accel-Buffering", "no") // proxies that buffer would hold events back
	x.w.WriteHeader(http.StatusOK)
	s := &stream{x: x, alive: alive, lines: lines}
	if lines {
		s.err = x.conn.Flush()
	} else {
		s.write(fmt.Appendf(nil, "retry: %d\n\n", streamRetry.Milliseconds()))
	}
	return s
}

// write sends bytes within what the token may take. A client that does not read them in time is gone.
func (s *stream) write(b []byte) {
	if s.err != nil {
		return
	}
	if s.err = s.x.s.pay(s.alive, s.x, len(b)); s.err != nil {
		return
	}
	if s.err = s.x.writeWithin(writeTimeout); s.err != nil {
		return
	}
	began := time.Now()
	if _, s.err = s.x.w.Write(b); s.err == nil {
		s.err = s.x.conn.Flush()
	}
	s.took = time.Since(began)
}

// slow reports whether the client took long for the last write.
func (s *stream) slow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.took >= slowWrite
}

// entry is one event of a stream, whose data is JSON. The id may be left out.
type entry struct {
	id, name string
	data     []byte
}

// send writes one event and reports why it could not.
func (s *stream) send(id, name string, data []byte) error {
	return s.sendAll([]entry{{id, name, data}})
}

// sendAll writes events, as many as fit at a time, and reports why it could not.
func (s *stream) sendAll(entries []entry) error {
	if len(entries) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	for _, e := range entries {
		end := "\n"
		if !s.lines {
			if end = "\n\n"; e.id != "" {
				fmt.Fprintf(&b, "id: %s\n", e.id)
			}
			fmt.Fprintf(&b, "event: %s\ndata: ", e.name)
		}
		for data := e.data; ; { // the same bytes for all streams: none copies all of a long one
			n := min(len(data), maxWriteBytes)
			b.Write(data[:n])
			if data = data[n:]; len(data) == 0 {
				break
			}
			s.write(b.Bytes())
			b.Reset()
			s.err = cmp.Or(s.err, context.Cause(s.alive)) // of a long event the rest is for nobody
		}
		if b.WriteString(end); b.Len() >= maxWriteBytes {
			s.write(b.Bytes())
			b.Reset()
		}
	}
	if b.Len() > 0 {
		s.write(b.Bytes())
	}
	return s.err
}

// beat keeps connections of silent streams open, and finds the ones that are not, until the returned function is
// called: gone is called when nobody listens. Lines of JSON have no form for it.
func (s *stream) beat(ctx context.Context, gone func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(keepAlive)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			s.mu.Lock()
			if !s.lines {
				s.write([]byte(": still here\n\n"))
			}
			err := s.err
			s.mu.Unlock()
			if err != nil {
				gone()
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
