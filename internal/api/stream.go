package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// stream writes what comes one by one: server-sent events, or lines of JSON. It is safe for concurrent use. After an error
// nothing is written any more.
type stream struct {
	x     *exchange
	lines bool // of JSON, and no server-sent events

	mu  sync.Mutex
	err error
}

// The media types of a stream.
const (
	sseType    = "text/event-stream"
	ndjsonType = "application/x-ndjson"
)

// openStream begins an answer. Its headers leave at once, so that a client knows that it is heard.
func openStream(x *exchange, lines bool) *stream {
	h := x.w.Header()
	h.Set("Content-Type", sseType)
	if lines {
		h.Set("Content-Type", ndjsonType)
	}
	h.Set("X-Accel-Buffering", "no") // proxies that buffer would hold events back
	x.w.WriteHeader(http.StatusOK)
	s := &stream{x: x, lines: lines}
	if lines {
		s.err = x.conn.Flush()
	} else {
		s.write(fmt.Appendf(nil, "retry: %d\n\n", streamRetry.Milliseconds()))
	}
	return s
}

func (s *stream) write(b []byte) {
	if s.err != nil {
		return
	}
	if s.err = s.x.writeWithin(writeTimeout); s.err != nil {
		return
	}
	if _, s.err = s.x.w.Write(b); s.err == nil {
		s.err = s.x.conn.Flush()
	}
}

// send writes one event, whose data is JSON, and reports why it could not.
func (s *stream) send(id, name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	if s.lines {
		b.Write(data)
		b.WriteByte('\n')
	} else {
		if id != "" {
			fmt.Fprintf(&b, "id: %s\n", id)
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, data)
	}
	s.write(b.Bytes())
	return s.err
}

// beat keeps connections of silent streams open, and finds the ones that are not, until the returned function is called:
// gone is called when nobody listens. Lines of JSON have no form for it.
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
