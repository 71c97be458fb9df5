package cli_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// TestShutdownClosesUnusedConnections: a connection on which nobody has sent anything does not hold up the end of a
// server; one with a request that runs does.
func TestShutdownClosesUnusedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipes := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		finish := make(chan struct{})
		states := make(chan http.ConnState, 10)
		s := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				<-finish
				_, _ = io.WriteString(w, "finished")
			}),
			ConnState: func(_ net.Conn, state http.ConnState) { states <- state },
		}
		cli.CloseUnused(s)
		served := make(chan error, 1)
		go func() { served <- s.Serve(pipes) }()

		idle := pipes.dial()
		synctest.Wait()
		if len(states) != 1 || <-states != http.StateNew {
			t.Error("the server's own hook does not hear of a new connection")
		}
		used := pipes.dial()
		if _, err := fmt.Fprint(used, "GET / HTTP/1.1\r\nHost: yard\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the request runs
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- s.Shutdown(t.Context()) }()
		if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection that was not used says %v", err)
		}
		if waited := time.Since(began); waited >= time.Second {
			t.Errorf("the connection that was not used was closed after %v", waited)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("the server ended before its request: %v", err)
		default:
		}
		close(finish)
		res, err := http.ReadResponse(bufio.NewReader(used), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "finished" {
			t.Errorf("the request that ran is answered %q, %v", body, err)
		}
		if err := errors.Join(res.Body.Close(), <-ended); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited >= time.Second {
			t.Errorf("the server ended after %v", waited)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
}

// pipes is a listener without a network, so that virtual time goes on.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }
