package pool

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// lossy is a connection that sends requests for calls where nobody answers, as long as it is told to.
type lossy struct {
	net.Conn
	loses *atomic.Bool
}

const asks, lost = "$JS.API.CONSUMER.MSG.NEXT.TY_CALL.", "$JS.API.CONSUMER.MSG.LOST.TY_CALL."

func (c lossy) Write(p []byte) (int, error) {
	if c.loses.Load() {
		p = bytes.ReplaceAll(p, []byte(asks), []byte(lost))
	}
	return c.Conn.Write(p)
}

type dialer func(network, address string) (net.Conn, error)

func (d dialer) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestALostRequestIsSeen: a worker with room asks for calls, and its requests are lost. A call lies beside it until one
// is not. The worker says so in its log and in its entry, and the dispatcher counts it.
func TestALostRequestIsSeen(t *testing.T) {
	s := hurried(t)
	nobody := testenv.Conn(t, s)
	if _, err := nobody.Subscribe(lost+">", func(*nats.Msg) {}); err != nil { // or the server says that there is nobody
		t.Fatal(err)
	}
	must.OK(t, nobody.Flush())
	var loses atomic.Bool
	loses.Store(true)
	nc, err := nats.Connect(s.ClientURL(), nats.SetCustomDialer(dialer(func(network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		return lossy{c, &loses}, err
	})))
	must.OK(t, err)
	t.Cleanup(nc.Close)
	b := testenv.Open(t, nc, broker.Settings{Shards: testenv.Shards(t)}, "/worker/test")
	var log lines
	w, err := worker.New(b, worker.Config{
		Mode: policy.Bypass, Tools: []tool.Tool{make1(t, reader("read"), says("x"))},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	must.OK(t, err)
	begin(t, w)
	d := dispatcher.New(testenv.Broker(t, s, "/dispatcher/test"), dispatcher.Config{
		Log: testenv.Log(t), Planner: dispatcher.Planner{Pipeline: &pipeline.Pipeline{}},
	})
	begin(t, d)
	c := startClient(t, s)
	sub := submit(t, c, toolyard.Batch{Calls: calls("read")})
	js := testenv.JetStream(t, testenv.Conn(t, s))
	var queued time.Time
	for queued.IsZero() || time.Since(queued) < 1500*time.Millisecond { // that it lies there for so long is the fault
		stream := testenv.Stream(t, js, "TY_CALL")
		if queued.IsZero() && stream.CachedInfo().State.Msgs > 0 {
			queued = time.Now()
		}
		time.Sleep(10 * time.Millisecond)
	}
	loses.Store(false)
	if got := codes(collect(t, t.Context(), sub)); got != "ok" {
		t.Errorf("the result is %s", got)
	}
	t.Log(log.String())
	if !strings.Contains(log.String(), "a call lay in the queue beside this worker") {
		t.Error("the worker's log does not say that a call lay beside it")
	}
	for end := time.Now().Add(30 * time.Second); d.Load().Stalls != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			live, err := b.Workers(t.Context())
			t.Fatalf("the dispatcher counts %d; the workers are %+v, %v", d.Load().Stalls, live, err)
		}
	}
}
