package http

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/follow"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// doorOf is the API of a system in a bubble, which somebody has set up.
func doorOf(e *bubble.Env, nc *nats.Conn) *api.Server {
	e.Helper()
	b, err := natsbroker.Attach(e.Context(), nc, "/api/test")
	must.OK(e.T, err)
	c, err := client.Connect(e.Context(), nc, client.Options{})
	must.OK(e.T, err)
	door, err := api.New(api.Config{Client: c, Reader: follow.New(b, follow.Options{Shared: true}),
		Loopback: true, Log: e.Log(), Ready: func() error { return nil }})
	must.OK(e.T, err)
	e.Cleanup(door.Stop)
	return door
}

// slowly is a body that takes a while to arrive.
type slowly struct {
	io.Reader
	after time.Duration
}

func (s *slowly) Read(b []byte) (int, error) {
	time.Sleep(s.after)
	s.after = 0
	return s.Reader.Read(b)
}

// TestASlowBody: a body may take most of a minute to arrive, and the request has all its time for the work then.
func TestASlowBody(t *testing.T) {
	for name, tt := range map[string]struct {
		path, body string
		want       int
	}{
		"a batch":               {"/v1/batches", `{"id": "b", "calls": [{"tool": "echo"}]}`, http.StatusAccepted},
		"calls":                 {"/v1/batches/o/calls", `{"calls": [{"id": "c", "tool": "echo"}]}`, http.StatusAccepted},
		"a close":               {"/v1/batches/o/close", `{}`, http.StatusAccepted},
		"a change of a session": {"/v1/sessions/s", `{"alone": true}`, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
				e.Broker("other") // which sets the system up
				door := doorOf(e, e.Conn("api"))
				post := func(path, body string, after time.Duration) *httptest.ResponseRecorder {
					r := httptest.NewRequestWithContext(e.Context(), http.MethodPost, "http://localhost"+path,
						&slowly{strings.NewReader(body), after})
					r.Header.Set("Content-Type", "application/json")
					w := httptest.NewRecorder()
					door.ServeHTTP(w, r)
					return w
				}
				if w := post("/v1/batches", `{"id": "o", "open": true}`, 0); w.Code != http.StatusAccepted {
					e.Fatalf("%d %s", w.Code, w.Body)
				}
				if w := post(tt.path, tt.body, 50*time.Second); w.Code != tt.want {
					e.Errorf("%d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// pipes are the connections that a server accepts.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { return nil }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial begins a request to a door, as bytes, and returns the connection.
func dial(e *bubble.Env, door http.Handler, request string) net.Conn {
	e.Helper()
	ours, theirs := net.Pipe()
	listener, served := make(pipes, 1), make(chan error, 1)
	listener <- theirs
	server := &http.Server{Handler: door, ReadHeaderTimeout: api.HeaderTimeout, IdleTimeout: api.IdleTimeout}
	go func() { served <- server.Serve(listener) }()
	e.Cleanup(func() {
		close(listener)
		if err := errors.Join(ours.Close(), server.Close()); err != nil {
			e.Error(err)
		}
		<-served
	})
	if _, err := io.WriteString(ours, request); err != nil {
		e.Fatal(err)
	}
	return ours
}

// TestABodyThatDoesNotCome: a request whose body does not come is over soon, also where nothing reads the body.
func TestABodyThatDoesNotCome(t *testing.T) {
	for name, request := range map[string]string{
		"which an operation reads":  "POST /v1/batches HTTP/1.1",
		"which no operation reads":  "GET /v1/batches HTTP/1.1",
		"of a path that is not":     "POST /v1/nowhere HTTP/1.1",
		"of a stream":               "GET /v1/batches/b/events?follow=true HTTP/1.1",
		"of what is not for others": "POST /v1/batches HTTP/1.1\r\nOrigin: https://example.com",
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
				e.Broker("other")
				door := doorOf(e, e.Conn("api"))
				conn := dial(e, door, request+"\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
					"Content-Length: 10\r\n\r\n{")
				must.OK(e.T, conn.SetReadDeadline(time.Now().Add(5*time.Minute)))
				if answer, err := io.ReadAll(conn); err != nil {
					e.Errorf("%q, %v", answer, err)
				}
			})
		})
	}
}

// TestABodyThatNobodyReads: where nothing reads a body, it changes nothing.
func TestABodyThatNobodyReads(t *testing.T) {
	bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
		e.Broker("other")
		door := doorOf(e, e.Conn("api"))
		r := httptest.NewRequestWithContext(e.Context(), http.MethodPost, "http://localhost/v1/batches",
			strings.NewReader(`{"id": "o", "open": true}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if door.ServeHTTP(w, r); w.Code != http.StatusAccepted {
			e.Fatalf("%d %s", w.Code, w.Body)
		}
		conn := dial(e, door, "GET /v1/batches/o/events HTTP/1.1\r\nHost: localhost\r\n"+
			"Accept: text/event-stream\r\nContent-Length: 2\r\n\r\n{}")
		must.OK(e.T, conn.SetReadDeadline(time.Now().Add(5*time.Minute)))
		answer, err := io.ReadAll(conn)
		if !errors.Is(err, os.ErrDeadlineExceeded) || strings.Count(string(answer), "still here") < 10 {
			e.Errorf("%q, %v", answer, err)
		}
	})
}
