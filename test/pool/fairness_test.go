package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// allTaken returns when a dispatcher has found a place for all that was submitted before: it takes submissions in their
// order, and answers this one, under a name that is never made, as soon as it takes it.
func allTaken(t *testing.T, s *natsd.Server, n int) {
	t.Helper()
	nc := testenv.Conn(t, s)
	tokens := fmt.Sprintf("x.never=61made%d", n)
	answered, err := nc.SubscribeSync("ty.live.reply." + tokens)
	must.OK(t, err)
	must.OK(t, nc.Flush())
	if _, err := nc.Request("ty.batch."+tokens, []byte("{}"), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := answered.NextMsg(30 * time.Second); err != nil {
		t.Fatalf("the dispatcher did not take what was submitted: %v", err)
	}
}

// gated is a tool whose calls take one step through a gate each and say who they were.
func gated(t *testing.T, d tool.Declaration, gate <-chan struct{}, ran chan<- toolyard.Agent) tool.Tool {
	return make1(t, d, func(ctx context.Context, env tool.Env) (string, error) {
		select {
		case <-gate:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		ran <- env.Agent
		return "", nil
	})
}

// TestAQuietAgentAmongCalls: an agent's running batches are capped, so another's starts at once; and its call is among
// the next that run, though the flood's batches come as fast as they go.
func TestAQuietAgentAmongCalls(t *testing.T) {
	s := testenv.Server(t)
	gate, ran := make(chan struct{}), make(chan toolyard.Agent, 400)
	startWorker(t, s, worker.Config{Slots: map[toolyard.Class]int{toolyard.ReadOnly: 2},
		Tools: []tool.Tool{gated(t, reader("read"), gate, ran)}})
	startDispatcher(t, s, dispatcher.Config{MaxBatches: 21, MaxAgentBatches: 20})
	c := startClient(t, s)
	const many = 200
	var all []*client.Batch
	for range many {
		all = append(all, submit(t, c, toolyard.Batch{Agent: "flood", Calls: calls("read")}))
	}
	allTaken(t, s, 0)
	quiet := submit(t, c, toolyard.Batch{Agent: "quiet", Calls: calls("read")})
	awaitStart(t, testenv.Broker(t, s, "/test"), quiet.Key())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range many + 1 { // one call after the other gets through
			select {
			case gate <- struct{}{}:
			case <-t.Context().Done():
				return
			}
		}
	}()
	collect(t, t.Context(), quiet)
	for _, b := range all {
		collect(t, t.Context(), b)
	}
	<-ended
	for n := range many + 1 {
		if a := <-ran; a == "quiet" {
			t.Logf("the quiet agent's call was number %d of %d", n+1, many+1)
			if n > 40 {
				t.Errorf("the quiet agent's call was number %d of %d", n+1, many+1)
			}
		}
	}
}

// TestTooManyBatches: past an agent's cap new batches are refused with a reason that says what to do, and others' are
// not.
func TestTooManyBatches(t *testing.T) {
	s := testenv.Server(t)
	gate, ran := make(chan struct{}), make(chan toolyard.Agent, 20)
	startWorker(t, s, worker.Config{Tools: []tool.Tool{gated(t, reader("read"), gate, ran)}})
	startDispatcher(t, s, dispatcher.Config{MaxAgentBatches: 2, MaxAgentWaiting: 3})
	c := startClient(t, s)
	var all []*client.Batch
	for range 7 {
		all = append(all, submit(t, c, toolyard.Batch{Agent: "flood", Calls: calls("read")}))
	}
	for n, b := range all[5:] {
		var refused error
		for _, err := range b.Results(t.Context()) {
			refused = err
		}
		e, ok := errors.AsType[*client.RefusedError](refused)
		if !ok || e.Status != 429 || !errors.Is(refused, client.ErrFull) || e.Detail == "" {
			t.Errorf("batch %d: %v, want a refusal with status 429", n+5, refused)
		}
		t.Log(refused)
		for e, err := range b.Watch(t.Context()) { // it ends, and with the refusal
			must.OK(t, err)
			t.Log(e.What)
		}
	}
	other := submit(t, c, toolyard.Batch{Agent: "other", Calls: calls("read")})
	close(gate)
	for _, b := range append(all[:5], other) {
		if got := codes(collect(t, t.Context(), b)); got != "ok" {
			t.Errorf("a batch within the caps: %s", got)
		}
	}
	if got := codes(results(t, c, toolyard.Batch{Agent: "flood", Calls: calls("read")})); got != "ok" {
		t.Errorf("when there is room again: %s", got)
	}
}

// BenchmarkFairness times a quiet agent's batches of one call of fairTool, alone and while another agent keeps a
// hundred times as many outstanding: in a lane of its own, where both agents' home is the same lane, and in a workspace
// of its own besides. The worker's slots are saturated.
func BenchmarkFairness(b *testing.B) {
	const slots, flooding = 4, 100
	quietAgent := toolyard.Agent("quiet")
	apart, together := toolyard.Agent("flood"), toolyard.Agent("flood")
	for n := 0; broker.LaneOf(apart) == broker.LaneOf(quietAgent); n++ {
		apart = toolyard.Agent(fmt.Sprint("flood ", n))
	}
	for n := 0; broker.LaneOf(together) != broker.LaneOf(quietAgent); n++ {
		together = toolyard.Agent(fmt.Sprint("flood ", n))
	}
	for _, bench := range []struct {
		name      string
		flood     toolyard.Agent
		workspace toolyard.Workspace // the quiet agent's; the flood's is the default
	}{{"lanes=apart", apart, toolyard.DefaultWorkspace}, {"lanes=same", together, toolyard.DefaultWorkspace},
		{"workspaces=apart", apart, "quiet"}} {
		b.Run(bench.name, func(b *testing.B) {
			c := fairPool(b, slots)
			one := func(a toolyard.Agent, w toolyard.Workspace) error {
				sub, err := c.Submit(b.Context(), toolyard.Batch{Agent: a, Workspace: w, Calls: calls("sleep")})
				if err != nil {
					return err
				}
				for r, err := range sub.Results(b.Context()) {
					if err == nil && r.IsError {
						err = errors.New(r.Error)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}
			const samples = 300
			measure := func() []time.Duration {
				var took []time.Duration
				for range samples {
					began := time.Now()
					must.OK(b, one(quietAgent, bench.workspace))
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				return took
			}
			for b.Loop() {
				alone := measure()
				stop, floods := make(chan struct{}), make(chan struct{})
				var wg sync.WaitGroup
				var mu sync.Mutex
				floodRan := 0
				for range flooding {
					wg.Go(func() {
						for {
							select {
							case <-stop:
								return
							default:
							}
							if err := one(bench.flood, toolyard.DefaultWorkspace); err != nil {
								b.Error(err)
								return
							}
							mu.Lock()
							if floodRan++; floodRan == flooding { // all of them go round
								close(floods)
							}
							mu.Unlock()
						}
					})
				}
				<-floods
				mu.Lock()
				before, began := floodRan, time.Now()
				mu.Unlock()
				flooded := measure()
				mu.Lock()
				ran, took := floodRan-before, time.Since(began)
				mu.Unlock()
				close(stop)
				wg.Wait()
				ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
				b.ReportMetric(ms(alone[samples/2]), "alone-p50-ms")
				b.ReportMetric(ms(alone[samples*99/100]), "alone-p99-ms")
				b.ReportMetric(ms(flooded[samples/2]), "flooded-p50-ms")
				b.ReportMetric(ms(flooded[samples*99/100]), "flooded-p99-ms")
				b.ReportMetric(float64(flooded[samples*99/100])/float64(alone[samples*99/100]), "p99-ratio")
				b.ReportMetric(float64(ran)/took.Seconds(), "flood-batches/s")
			}
		})
	}
}

// fairTool is how long the tool takes: so long that the slots are what runs out, and not the processor that all of it
// shares.
const fairTool = 50 * time.Millisecond

// fairPool is a pool whose tool takes fairTool.
func fairPool(b *testing.B, slots int) *client.Client {
	b.Helper()
	sleep := newTool(b, tool.Typed[nothing, string]{Declaration: reader("sleep"),
		Run: func(context.Context, tool.Env, nothing) (string, error) {
			time.Sleep(fairTool)
			return "", nil
		}})
	return benchPool(b, worker.Config{Tools: []tool.Tool{sleep},
		Slots: map[toolyard.Class]int{toolyard.ReadOnly: slots}})
}
