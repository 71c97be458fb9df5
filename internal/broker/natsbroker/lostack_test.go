package natsbroker_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// losing is a connection that loses the first write that contains some bytes, like a server that is killed after it has
// received a message and before it has processed it.
type losing struct {
	net.Conn
	what []byte
	lost *atomic.Bool
}

func (c *losing) Write(p []byte) (int, error) {
	if bytes.Contains(p, c.what) && c.lost.CompareAndSwap(false, true) {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// TestAnAcknowledgementThatIsLost: an acknowledgement without an answer is repeated, although its context has no end.
// Otherwise the batch would stay in work forever, and count as running.
func TestAnAcknowledgementThatIsLost(t *testing.T) {
	s := testenv.Server(t)
	var lost atomic.Bool
	nc, err := nats.Connect(s.ClientURL(), nats.SetCustomDialer(dialer(func(network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		return &losing{c, []byte("+ACK"), &lost}, err
	})))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	b := testenv.Open(t, nc, broker.Settings{}, "/dispatcher/d")
	must.OK(t, b.Submit(t.Context(), submission("b")))
	subs, err := b.Submissions()
	must.OK(t, err)
	defer subs.Stop()
	sub, err := subs.Next(t.Context())
	must.OK(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a dispatcher's has no end
	defer cancel()
	if err := sub.Done(ctx); err != nil || !lost.Load() {
		t.Errorf("%v; was an acknowledgement lost: %v", err, lost.Load())
	}
}
