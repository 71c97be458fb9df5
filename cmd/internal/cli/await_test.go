package cli

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/access"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestAwait: a program that runs for long waits for a server that is not there, and for one that hangs up; what it
// cannot ever reach it does not wait for.
func TestAwait(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	addr := l.Addr().String()
	hungUp := make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err == nil {
			_ = c.Close()
		}
		_ = l.Close()
		close(hungUp)
	}()
	connected := make(chan *nats.Conn, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		nc, err := (&Reach{}).Await(ctx, "nats://"+addr, access.Principal{Role: access.Dispatcher}, "test",
			testenv.Log(t))
		if err != nil {
			t.Error(err)
		}
		connected <- nc
	}()
	<-hungUp
	s, err := natsd.Start(t.Context(), natsd.Options{StoreDir: testenv.StoreDir(t), Listen: addr, Open: true,
		Logger: testenv.Log(t)})
	must.OK(t, err)
	t.Cleanup(s.Shutdown)
	if nc := <-connected; nc != nil {
		nc.Close()
	}

	if _, err := (&Reach{}).Await(t.Context(), "nats://", access.Principal{Role: access.Dispatcher}, "test",
		testenv.Log(t)); err == nil || !strings.Contains(err.Error(), "is not a URL") {
		t.Errorf("no URL: %v", err)
	}
	stop()
	s.Shutdown()
	if _, err := (&Reach{}).Await(ctx, "nats://"+addr, access.Principal{Role: access.Dispatcher}, "test",
		testenv.Log(t)); !errors.Is(err, ErrInterrupted) {
		t.Errorf("when nobody wants it any more it ends with %v", err)
	}
}
