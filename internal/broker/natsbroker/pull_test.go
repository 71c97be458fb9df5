package natsbroker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// slowWriter is a connection on which one write returns late, although its data has been sent: the next write that
// contains the armed bytes.
type slowWriter struct {
	net.Conn
	armed *atomic.Pointer[[]byte]
	sent  chan<- struct{}
	done  <-chan struct{}
}

func (c *slowWriter) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if want := c.armed.Load(); want != nil && bytes.Contains(p, *want) && c.armed.CompareAndSwap(want, nil) {
		close(c.sent)
		<-c.done
	}
	return n, err
}

type dialer func(network, address string) (net.Conn, error)

func (d dialer) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// queue queues calls of agent a, numbered from first.
func queue(t *testing.T, b *natsbroker.Broker, first, n int) {
	t.Helper()
	var calls []batch.Queue
	for i := range n {
		call := events.RequestedCall{Index: first + i, Input: json.RawMessage(`{}`)}
		calls = append(calls, batch.Queue{Route: batch.Route{Pool: "default", Class: toolyard.ReadOnly},
			Request: events.Requested{Agent: "a", Batch: "b", Calls: []events.RequestedCall{call}}})
	}
	for i, q := range b.QueueAll(t.Context(), broker.LaneOf("a"), calls) {
		if q.Err != nil {
			t.Fatalf("call %d: %v", first+i, q.Err)
		}
	}
}

// lane opens the lane of agent a.
func lane(t *testing.T, b *natsbroker.Broker) broker.Lane {
	t.Helper()
	l, err := b.Lane(t.Context(), batch.Route{Pool: "default", Class: toolyard.ReadOnly}, broker.LaneOf("a"), nil)
	must.OK(t, err)
	t.Cleanup(l.Stop)
	return l
}

// deliveries takes calls, a number at a time, and passes them on until the lane is stopped.
func deliveries(t *testing.T, l broker.Lane, n int) <-chan *broker.Delivery {
	out := make(chan *broker.Delivery)
	go func() {
		for {
			for d, err := range l.Take(t.Context(), n) {
				if errors.Is(err, broker.ErrStopped) {
					close(out)
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case out <- d:
				case <-t.Context().Done():
					return
				}
			}
		}
	}()
	return out
}

// TestAnAnswerBeforeItsRequestIsMade: on a busy machine a message may come before the goroutine that requested it
// continues. The next request must not be lost then, and the next call must not wait beside a free worker.
func TestAnAnswerBeforeItsRequestIsMade(t *testing.T) {
	s := testenv.Server(t)
	other := testenv.Broker(t, s, "/test")
	var armed atomic.Pointer[[]byte]
	sent, done := make(chan struct{}), make(chan struct{})
	dial := dialer(func(network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		return &slowWriter{Conn: c, armed: &armed, sent: sent, done: done}, err
	})
	nc, err := nats.Connect(s.ClientURL(), nats.WriteBufferSize(1), nats.SetCustomDialer(dial))
	must.OK(t, err)
	defer nc.Close()
	b := testenv.Open(t, nc, broker.Settings{}, "/test")
	want := []byte("CONSUMER.MSG.NEXT.TY_CALL")
	armed.Store(&want)
	queue(t, other, 0, 1)
	taken := deliveries(t, lane(t, b), 1)
	<-sent
	// The request is sent; half a second later the goroutine that made it continues. The first call may have been taken
	// by then or not: the test judges only the second one.
	time.Sleep(500 * time.Millisecond)
	close(done)
	queue(t, other, 1, 1)
	began := time.Now()
	for range 2 {
		select {
		case d := <-taken:
			t.Logf("call %d after %s", d.Calls[0].Index, time.Since(began))
		case <-time.After(15 * time.Second):
			t.Fatal("a call lies in the queue for 15 s beside a worker that waits for one")
		}
	}
}

// TestACallDoesNotComeBackToASilentWorker: one worker has requested calls, and falls silent with its connection open. A
// call that was delivered to it goes to another worker after its ack wait, and not to it again.
func TestACallDoesNotComeBackToASilentWorker(t *testing.T) {
	s := testenv.Server(t)
	silence(t, s)
	lively := deliveries(t, lane(t, testenv.Broker(t, s, "/lively")), 8)
	began := time.Now()
	queue(t, testenv.Broker(t, s, "/test"), 0, 2)
	for range 2 {
		select {
		case d := <-lively:
			t.Logf("call %d after %s, delivery %d", d.Calls[0].Index, time.Since(began), d.Deliveries)
			if d.Deliveries > 2 {
				t.Errorf("call %d came at its delivery %d, after %s", d.Calls[0].Index, d.Deliveries, time.Since(began))
			}
			if err := d.Done(); err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a call did not come within a minute")
		}
	}
}

// silence is a worker that has asked for as many calls as a worker asks for, and hangs.
func silence(t *testing.T, s *natsd.Server) {
	t.Helper()
	asked := make(chan struct{}, 1)
	watcher := testenv.Conn(t, s)
	if _, err := watcher.Subscribe("$JS.API.CONSUMER.MSG.NEXT.TY_CALL.>", func(*nats.Msg) {
		select {
		case asked <- struct{}{}:
		default:
		}
	}); err != nil {
		t.Fatal(err)
	}
	must.OK(t, watcher.Flush())
	deliveries(t, lane(t, testenv.Broker(t, s, "/silent")), 8) // and nobody takes them
	testenv.Within(t, "a worker that is there asks for work", asked)
	watcher.Close()
}

// patient starts a system whose call ack wait is so long that no message is redelivered because of it.
func patient(t *testing.T, s *natsd.Server) {
	t.Helper()
	settings := broker.Settings{CallAckWait: time.Minute}
	testenv.Open(t, testenv.Conn(t, s), settings, "/test")
}

// comes returns the next call that comes, long before any ack wait is over.
func comes(t *testing.T, from <-chan *broker.Delivery) *broker.Delivery {
	t.Helper()
	select {
	case d := <-from:
		return d
	case <-time.After(20 * time.Second):
		t.Fatal("no call came within 20 s")
		return nil
	}
}

// TestALaneThatIsStoppedGivesBack: messages on their way are given back, so that others need not wait for the ack wait.
func TestALaneThatIsStoppedGivesBack(t *testing.T) {
	s := testenv.Server(t)
	patient(t, s)
	queue(t, testenv.Broker(t, s, "/test"), 0, 8)
	stopped := lane(t, testenv.Broker(t, s, "/stopped"))
	first := comes(t, deliveries(t, stopped, 8))
	stopped.Stop()
	other := deliveries(t, lane(t, testenv.Broker(t, s, "/other")), 8)
	got := map[int]bool{}
	for range 6 { // the seventh was about to be passed on by the test
		got[comes(t, other).Calls[0].Index] = true
	}
	if got[first.Calls[0].Index] || len(got) != 6 {
		t.Errorf("call %d was taken, and given back were %v", first.Calls[0].Index, got)
	}
}

// TestAServerThatIsRestartedIsAskedAgain: at once, and not when the lost request times out.
func TestAServerThatIsRestartedIsAskedAgain(t *testing.T) {
	s := testenv.Restartable(t)
	patient(t, s.Server)
	b := testenv.Broker(t, s.Server, "/lively")
	taken := deliveries(t, lane(t, b), 8)
	queue(t, b, 0, 1)
	comes(t, taken)
	s.Shutdown()
	s.Start()
	queue(t, b, 1, 1)
	if d := comes(t, taken); d.Calls[0].Index != 1 {
		t.Errorf("call %d came", d.Calls[0].Index)
	}
}

// TestALaneThatIsNotThere ends its Take with an error too: it was deleted while no request stood, and the server says
// nothing to those that come later.
func TestALaneThatIsNotThere(t *testing.T) {
	bubble.Run(t, broker.Settings{}, func(e *bubble.Env) {
		l, err := e.Broker("test").Lane(e.Context(), batch.Route{Pool: "default", Class: toolyard.ReadOnly}, 0, nil)
		must.OK(t, err)
		js, err := jetstream.New(e.Conn("other"))
		if err == nil {
			err = js.DeleteConsumer(e.Context(), "TY_CALL", "call_READ_ONLY_default_0")
		}
		must.OK(t, err)
		ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
		defer cancel()
		for err = nil; err == nil && ctx.Err() == nil; {
			for _, err = range l.Take(ctx, 1) {
				break
			}
		}
		if !errors.Is(err, jetstream.ErrConsumerDeleted) {
			t.Errorf("it ended with %v", err)
		}
		l.Stop()
	})
}

// TestALaneThatIsDeleted ends its Take with an error.
func TestALaneThatIsDeleted(t *testing.T) {
	s := testenv.Server(t)
	b := testenv.Broker(t, s, "/test")
	l := lane(t, b)
	queue(t, b, 0, 1)
	testenv.Take(t, l)
	js := testenv.JetStream(t, testenv.Conn(t, s))
	ended := make(chan error, 1)
	go func() {
		for {
			for _, err := range l.Take(t.Context(), 1) {
				if err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	name := fmt.Sprint("call_READ_ONLY_default_", broker.LaneOf("a"))
	for deadline := time.Now().Add(30 * time.Second); ; { // until the server has a request to answer
		c, err := js.Consumer(t.Context(), "TY_CALL", name)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no request stands: %v", err)
		}
		if c.CachedInfo().NumWaiting > 0 {
			break
		}
	}
	must.OK(t, js.DeleteConsumer(t.Context(), "TY_CALL", name))
	select {
	case err := <-ended:
		if !errors.Is(err, jetstream.ErrConsumerDeleted) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on for ever")
	}
}
