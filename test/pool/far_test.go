package pool

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
	public "github.com/toolyard/toolyard/worker"
)

// distant is the address of a server from so far away: everything takes that long, each way.
func distant(t *testing.T, url string, oneWay time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	carry := func(to, from net.Conn) {
		type piece struct {
			data []byte
			due  time.Time
		}
		pieces := make(chan piece, 10_000)
		work.Go(func() {
			defer close(pieces)
			for buffer := make([]byte, 32<<10); ; {
				n, err := from.Read(buffer)
				if n > 0 {
					pieces <- piece{append([]byte(nil), buffer[:n]...), time.Now().Add(oneWay)}
				}
				if err != nil {
					return
				}
			}
		})
		work.Go(func() {
			defer to.Close() //nolint:errcheck // the test is over
			for p := range pieces {
				select {
				case <-time.After(time.Until(p.due)):
				case <-ctx.Done():
				}
				if _, err := to.Write(p.data); err != nil {
					for range pieces { // its reader ends when the connection does
					}
					return
				}
			}
		})
	}
	var mu sync.Mutex
	var open []io.Closer
	work.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			if err != nil {
				t.Error(errors.Join(err, near.Close()))
				return
			}
			mu.Lock()
			open = append(open, near, far)
			mu.Unlock()
			carry(near, far)
			carry(far, near)
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		work.Wait()
	})
	return "nats://" + l.Addr().String()
}

// TestAFarWorker: the way to NATS and back takes a tenth of the ack wait. The worker stays registered, and keeps a call
// for as long as it takes.
func TestAFarWorker(t *testing.T) {
	t.Parallel()
	s := waiting(t, broker.Settings{Shards: testenv.Shards(t), CallAckWait: 2 * time.Second,
		WorkerTTL: 2 * time.Second})
	nc, err := public.Connect(t.Context(), distant(t, s.ClientURL(), 100*time.Millisecond), testenv.Log(t))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	startProgram(t, nc, make1(t, writer("write"), func(ctx context.Context, env tool.Env) (string, error) {
		select {
		case <-time.After(5 * time.Second): // more than twice the call ack wait
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		return "written", env.CommitPoint()
	}))
	startDispatcher(t, s, dispatcher.Config{})
	c := startClient(t, s)
	// a machine that is busy for longer than a lease stops a call, a lease that is too short each of them
	const tries = 3
	for n := 1; ; n++ {
		got := results(t, c, toolyard.Batch{Calls: calls("write")})
		if codes(got) == "ok" {
			return
		}
		t.Logf("the result is %s: %s", codes(got), got[0].Error)
		if n == tries {
			t.Fatalf("in none of %d runs the worker kept its call", tries)
		}
	}
}

// TestAWorkerThatIsTooFar is refused in one line that says what would help.
func TestAWorkerThatIsTooFar(t *testing.T) {
	t.Parallel()
	s := hurried(t)
	nc, err := nats.Connect(distant(t, s.ClientURL(), 150*time.Millisecond))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	err = public.Run(t.Context(), nc, public.Options{Tools: []tool.Tool{make1(t, reader("read"), says("x"))},
		Log: testenv.Log(t)})
	if err == nil || !strings.Contains(err.Error(), "a round trip to NATS takes") ||
		!strings.Contains(err.Error(), "--ack-wait") || strings.Contains(err.Error(), "\n") {
		t.Errorf("it was told %v", err)
	}
	if broker.MaxRoundTrip(10*time.Second) < 2*time.Second {
		t.Error("an ack wait of 10 s does not allow a round trip of 2 s")
	}
}

// TestPartsWaitForNATS: a dispatcher and a worker that are started before the server is there are there when it is.
func TestPartsWaitForNATS(t *testing.T) {
	t.Parallel()
	s := testenv.Restartable(t)
	// The system stands; the server goes away, and both begin while it is away.
	testenv.Broker(t, s.Server, "/dispatcher/waits")
	worker := testenv.Conn(t, s.Server)
	s.Shutdown()
	began := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	ready := make(chan struct{})
	go func() {
		began <- public.Run(ctx, worker, public.Options{
			Tools: []tool.Tool{make1(t, reader("read"), says("x"))}, Ready: func(string) { close(ready) },
			Log: testenv.Log(t), DrainGrace: time.Second,
		})
	}()
	opened := make(chan error, 1)
	other := func() error {
		nc, err := nats.Connect(s.ClientURL(), append(natsbroker.ConnectOptions("test", testenv.Log(t)),
			nats.RetryOnFailedConnect(true))...)
		if err != nil {
			return err
		}
		t.Cleanup(nc.Close)
		_, err = natsbroker.Open(t.Context(), nc, broker.Settings{}, "/dispatcher/late")
		return err
	}
	go func() { opened <- other() }()
	select {
	case err := <-began:
		t.Fatalf("the worker did not wait: %v", err)
	case err := <-opened:
		t.Fatalf("the dispatcher did not wait: %v", err)
	case <-time.After(time.Second): // the fault itself: they have had time to give up
	}
	s.Start()
	testenv.Within(t, "the worker is ready", ready)
	if err := <-opened; err != nil {
		t.Error(err)
	}
	stop()
	if err := <-began; err != nil {
		t.Error(err)
	}
}
