package pool

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// execution is one of a call, on one of two workers.
type execution struct {
	worker, index int
}

// executions are those of the reads of a batch. Each goes on until it is let go, or told to stop.
type executions struct {
	mu    sync.Mutex
	began map[execution]chan struct{} // closed when it has begun
	ends  map[execution]chan struct{} // closed when it may end
	now   atomic.Int64                // how many go on
}

func (e *executions) gate(of map[execution]chan struct{}, x execution) chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if of[x] == nil {
		of[x] = make(chan struct{})
	}
	return of[x]
}

func (e *executions) read(worker int) func(context.Context, tool.Env) (string, error) {
	return func(ctx context.Context, env tool.Env) (string, error) {
		e.now.Add(1)
		defer e.now.Add(-1)
		x := execution{worker, env.Index}
		close(e.gate(e.began, x))
		select {
		case <-e.gate(e.ends, x):
			return "read", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// TestDeliveriesThatTheServerForgot: the server is killed when it has just handed out two reads, and hands them out
// once more, for the first time as it says. No execution of them goes on beside the write of the next group, whichever
// ends first, and whether the dispatcher is still there or another one has adopted the batch.
func TestDeliveriesThatTheServerForgot(t *testing.T) {
	testenv.OneShard(t)
	t.Parallel()
	for name, c := range map[string]struct{ secondEndsFirst, adopted bool }{
		"the first execution ends first":                 {},
		"the second execution ends first":                {secondEndsFirst: true},
		"the first ends first, and another has adopted":  {adopted: true},
		"the second ends first, and another has adopted": {secondEndsFirst: true, adopted: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := testenv.Restartable(t)
			testenv.Open(t, testenv.Conn(t, s.Server), broker.Settings{Shards: testenv.Shards(t)}, "/test")
			e := &executions{began: map[execution]chan struct{}{}, ends: map[execution]chan struct{}{}}
			beside := make(chan int64, 1)
			for w := range 2 {
				startWorker(t, s.Server, worker.Config{Slots: map[toolyard.Class]int{toolyard.ReadOnly: 1},
					Tools: []tool.Tool{
						make1(t, reader("read"), e.read(w)),
						make1(t, writer("write"), func(context.Context, tool.Env) (string, error) {
							beside <- e.now.Load()
							return "written", nil
						}),
					}})
			}
			d := startDispatcher(t, s.Server, dispatcher.Config{})
			sub, err := startClient(t, s.Server).Submit(t.Context(),
				toolyard.Batch{Calls: calls("read", "read", "write")})
			if err != nil {
				t.Fatal(err)
			}
			var first, other execution // of the call with index 0, and of the other call
			select {
			case <-e.gate(e.began, execution{0, 0}):
				first, other = execution{0, 0}, execution{1, 1}
			case <-e.gate(e.began, execution{1, 0}):
				first, other = execution{1, 0}, execution{0, 1}
			}
			testenv.Within(t, "the other read runs", e.gate(e.began, other))
			if c.adopted {
				d.end(t)
			}
			s.Shutdown()
			s.ForgetDeliveries("TY_CALL")
			s.Start()
			if c.adopted {
				startDispatcher(t, s.Server, dispatcher.Config{})
				b := testenv.Broker(t, s.Server, "/test")
				testenv.Until(t, "the batch is adopted", func() bool {
					st, err := b.Fold(t.Context(), sub.Key())
					return err == nil && st.Takeovers > 0
				})
			}
			close(e.gate(e.ends, other)) // its worker has room then, and gets the first read too
			second := execution{other.worker, first.index}
			testenv.Within(t, "the first read runs a second time", e.gate(e.began, second))
			n := int64(-1)
			if c.secondEndsFirst {
				close(e.gate(e.ends, second))
			} else {
				close(e.gate(e.ends, first))
				select {
				case n = <-beside:
				case <-time.After(500 * time.Millisecond): // time enough for a write that does not wait
				}
				close(e.gate(e.ends, second))
			}
			if n < 0 {
				n = <-beside
			}
			if n != 0 {
				t.Errorf("the write began beside %d executions of reads", n)
			}
			if got := collect(t, t.Context(), sub); codes(got) != "ok ok ok" {
				t.Errorf("the results are %s", codes(got))
			}
		})
	}
}
