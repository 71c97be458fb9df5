package pool

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// talker is an agent with an open batch, whose model talks most of the time.
type talker struct {
	stream *client.Stream
	next   func() (toolyard.Result, error, bool)
	stop   func()
}

// openAll opens a batch for each of so many agents.
func openAll(t testing.TB, ctx context.Context, c *client.Client, n int) []*talker {
	t.Helper()
	talkers := make([]*talker, n)
	var wg sync.WaitGroup
	gate := make(chan struct{}, 32)
	for i := range talkers {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			stream, err := c.Open(ctx, toolyard.Batch{Agent: toolyard.Agent(fmt.Sprint("agent-", i)), ID: "talk",
				Workspace: toolyard.Workspace(fmt.Sprint("w", i))})
			if err != nil {
				t.Errorf("agent %d: %v", i, err)
				return
			}
			next, stop := iter.Pull2(stream.Results(ctx))
			talkers[i] = &talker{stream: stream, next: next, stop: stop}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return talkers
}

// say appends a call and waits for its result.
func (a *talker) say(ctx context.Context) error {
	if err := a.stream.Append(ctx, toolyard.Call{Tool: "read"}); err != nil {
		return err
	}
	r, err, ok := a.next()
	switch {
	case err != nil:
		return err
	case !ok || r.Code != toolyard.OK:
		return fmt.Errorf("the result is %+v, %v", r, ok)
	}
	return nil
}

// TestWaitingIsTold: a batch that waits for its turn says so to whoever listens.
func TestWaitingIsTold(t *testing.T) {
	t.Parallel()
	s := testenv.Server(t)
	began, release := make(chan struct{}), make(chan struct{})
	startWorker(t, s, worker.Config{Tools: []tool.Tool{make1(t, reader("hold"),
		func(context.Context, tool.Env) (string, error) {
			close(began)
			<-release
			return "", nil
		})}})
	startDispatcher(t, s, dispatcher.Config{MaxBatches: 1})
	c := startClient(t, s)
	first := submit(t, c, toolyard.Batch{Agent: "a", Calls: calls("hold")})
	testenv.Within(t, "the first batch runs", began)
	second := submit(t, c, toolyard.Batch{Agent: "b", Calls: calls("no such tool")})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	told := false
	for p, err := range second.Progress(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if p.Waiting != nil {
			if told = true; *p.Waiting != (client.Waiting{Running: 1, Waiting: 1}) || p.Index != -1 {
				t.Errorf("it is told %+v, %+v", p, p.Waiting)
			}
			break
		}
	}
	if !told {
		t.Error("nobody is told that the batch waits")
	}
	close(release)
	if got := codes(collect(t, ctx, first)) + " " + codes(collect(t, ctx, second)); got != "ok unknown_tool" {
		t.Errorf("the results are %s", got)
	}
}

// BenchmarkOpenAgents has 2,000 agents with an open batch each on one dispatcher, of which 16 at a time append a call
// that does nothing and wait for its result.
func BenchmarkOpenAgents(b *testing.B) {
	s := testenv.Server(b)
	startWorker(b, s, worker.Config{Tools: []tool.Tool{make1(b, reader("read"), says("x"))}})
	startDispatcher(b, s, dispatcher.Config{})
	c := startClient(b, s)
	talkers := openAll(b, b.Context(), c, 2_000)
	took := make([]time.Duration, 0, b.N)
	var mu sync.Mutex
	turns := make(chan *talker)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for a := range turns {
				began := time.Now()
				if err := a.say(b.Context()); err != nil {
					b.Error(err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	b.ResetTimer()
	for i := range b.N {
		turns <- talkers[i*7%len(talkers)]
	}
	close(turns)
	wg.Wait()
	slices.SortFunc(took, cmp.Compare)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
