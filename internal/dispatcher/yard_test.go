package dispatcher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// yard is a bubble with a worker that the test plays: w. Its tools are read, write, and put, which is a write that may
// run twice.
type yard struct {
	*bubble.Env
	b     *natsbroker.Broker
	still func()       // ends the worker's heartbeats
	ran   atomic.Int32 // calls that the worker has run

	mu     sync.Mutex
	agents []toolyard.Agent // whose calls it has run, in their order
}

// order says whose calls the worker has run, in their order.
func (y *yard) order() []toolyard.Agent {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.Clone(y.agents)
}

func inYard(t *testing.T, test func(y *yard)) {
	t.Helper()
	bubble.Run(t, broker.Settings{MaxStoreBytes: 256 << 20}, func(e *bubble.Env) {
		y := &yard{Env: e, b: e.Broker("test")}
		y.still = y.beat("w")
		test(y)
	})
}

// beat keeps a worker registered until the returned function is called.
func (y *yard) beat(id string) (still func()) {
	y.Helper()
	entry := broker.Worker{ID: id, Pool: toolyard.DefaultPool, Classes: toolyard.Classes}
	must.OK(y.T, y.b.Beat(y.Context(), entry))
	ctx, stop := context.WithCancel(context.WithoutCancel(y.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = y.b.Beat(ctx, entry) // it fails while the server is away, and is repeated
			select {
			case <-ctx.Done():
			case <-time.After(broker.Heartbeat(y.b.Settings().WorkerTTL)):
			}
		}
	}()
	still = func() { stop(); <-done }
	y.Cleanup(still)
	return still
}

// entries are the tools, which are known without any worker.
func (y *yard) entries() (out []registry.Entry) {
	for _, d := range []tool.Declaration{
		{Name: "read", Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true},
		{Name: "write", Class: tool.ClassRule{Static: toolyard.WriteExclusive}},
		{Name: "put", Class: tool.ClassRule{Static: toolyard.WriteExclusive}, Idempotent: new(true)},
	} {
		d.Description = "A tool of a test."
		made, err := tool.New(tool.Typed[struct{}, string]{Declaration: d,
			Run: func(context.Context, tool.Env, struct{}) (string, error) { return "", nil }})
		must.OK(y.T, err)
		out = append(out, registry.Entry{Declaration: made.Declaration, Origin: registry.Toolset,
			Pool: toolyard.DefaultPool})
	}
	return out
}

func planner() Planner { return Planner{Pipeline: &pipeline.Pipeline{}} }

// dispatcher starts a dispatcher as a party of that name. It looks at the store more rarely than it does by default:
// in a test of hours that would be most of what is done.
func (y *yard) dispatcher(party string, with ...func(*Config)) *bubble.Part {
	y.Helper()
	cfg := Config{ID: party, Base: y.entries(), Log: y.Log(), Planner: planner(), StoreEvery: 20 * time.Second}
	for _, set := range with {
		set(&cfg)
	}
	return y.Start(New(y.Broker(party), cfg))
}

// submit stores a batch of calls.
func (y *yard) submit(tools ...string) toolyard.BatchKey {
	y.Helper()
	var sub toolyard.Batch
	for _, name := range tools {
		sub.Calls = append(sub.Calls, toolyard.Call{Tool: name})
	}
	return y.submitBatch(sub)
}

func (y *yard) submitBatch(sub toolyard.Batch) toolyard.BatchKey {
	y.Helper()
	sub.Normalize(toolyard.BatchID(broker.NewID()))
	must.OK(y.T, y.b.Submit(y.Context(), sub))
	return sub.Key()
}

// fold is what the log says of a batch now.
func (y *yard) fold(k toolyard.BatchKey) batch.State {
	y.Helper()
	s, err := y.b.Fold(y.Context(), k)
	must.OK(y.T, err)
	return s
}

// work has the worker run calls, until the test ends or rest is called: each succeeds at once. It answers that it holds
// none.
func (y *yard) work() (rest func()) {
	y.Helper()
	end, err := y.b.OnHolds("w", func(toolyard.BatchKey, int) bool { return false }, nil,
		func(err error) { y.Error(err) })
	must.OK(y.T, err)
	rest = sync.OnceFunc(func() { _ = end() }) // the connection is closed with the test
	for n := range broker.Lanes * len(toolyard.Classes) {
		lane := y.lane(toolyard.Classes[n/broker.Lanes], n%broker.Lanes)
		ctx, stop := context.WithCancel(context.WithoutCancel(y.Context()))
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				for d, err := range lane.Take(ctx, 8) {
					if err != nil {
						break
					}
					y.run(d)
				}
			}
		}()
		former := rest
		rest = sync.OnceFunc(func() { former(); stop(); lane.Stop(); <-done })
	}
	y.Cleanup(rest)
	return rest
}

func (y *yard) lane(class toolyard.Class, number int) broker.Lane {
	y.Helper()
	lane, err := y.b.Lane(y.Context(), batch.Route{Pool: toolyard.DefaultPool, Class: class}, number, nil)
	must.OK(y.T, err)
	return lane
}

// take takes the default agent's next call of a class.
func (y *yard) take(class toolyard.Class) *broker.Delivery {
	y.Helper()
	lane := y.lane(class, broker.LaneOf(toolyard.DefaultAgent))
	defer lane.Stop()
	for range 100 {
		for d, err := range lane.Take(y.Context(), 1) {
			must.OK(y.T, err)
			return d
		}
	}
	y.Fatal("no call came")
	return nil
}

// claim stores a worker's claim of a call that was taken, and is done with its message.
func (y *yard) claim(d *broker.Delivery, worker string) uint64 {
	y.Helper()
	c := d.Calls[0]
	rec, err := y.b.Append(y.Context(), d.Key(), batch.ChainItem, toolyard.DefaultPool, d.Item, d.Expected,
		events.Claimed{Worker: worker, Attempt: c.Attempt, Ticket: d.Ticket})
	if err == nil {
		err = d.Done()
	}
	must.OK(y.T, err)
	return rec.Seq
}

// run runs the calls of a message, as a worker does: behind a claim where they need one, and not when they are answered
// or claimed already.
func (y *yard) run(d *broker.Delivery) {
	ctx := context.WithoutCancel(y.Context())
	c, seq, err := d.Calls[0], d.Expected, error(nil)
	if c.Claim || c.Again || d.Deliveries > 1 {
		var rec batch.Record
		rec, err = y.b.Append(ctx, d.Key(), batch.ChainItem, toolyard.DefaultPool, d.Item, seq,
			events.Claimed{Call: c.Index, Worker: "w", Attempt: c.Attempt, Ticket: d.Ticket})
		seq = rec.Seq
	}
	if err == nil {
		y.ran.Add(int32(len(d.Calls)))
		y.mu.Lock()
		y.agents = append(y.agents, d.Agent)
		y.mu.Unlock()
		err = y.finish(d, seq)
	}
	if err != nil && !errors.Is(err, broker.ErrConflict) {
		y.Errorf("run call %d: %v", c.Index, err)
	}
	if err := d.Done(); err != nil {
		y.Logf("a message was not acknowledged: %v", err)
	}
}

// finish stores the results of a message's calls behind an event of their item's chain.
func (y *yard) finish(d *broker.Delivery, seq uint64) error {
	var ends []events.End
	for _, c := range d.Calls {
		ends = append(ends, events.End{Result: toolyard.Result{Index: c.Index, CallID: c.ID, Tool: c.Tool,
			Output: "done", Worker: "w", Attempts: c.Attempt, Class: c.Judgement.Class}})
	}
	_, err := y.b.Append(context.WithoutCancel(y.Context()), d.Key(), batch.ChainItem, toolyard.DefaultPool, d.Item,
		seq, events.Finish(ends...))
	return err
}

// codes waits for the end of a batch, and returns the codes of its results.
func (y *yard) codes(k toolyard.BatchKey) string {
	y.Helper()
	var s batch.State
	y.Eventually("the batch is complete", func() bool {
		s = y.fold(k)
		return s.Completed
	})
	var out []string
	for _, c := range s.Calls {
		code := string(c.Result.Code)
		if code == "" {
			code = "ok"
		}
		out = append(out, code)
	}
	return strings.Join(out, " ")
}
