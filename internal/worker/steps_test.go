package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/bubble"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// yard is a bubble with a worker, whose batches the test owns. Its tools are read, write, put, which is a write that
// may run twice, and capped, a read of which two run at a time.
type yard struct {
	*bubble.Env
	b    *natsbroker.Broker
	w    *Worker
	part *bubble.Part
	// run is what each tool does; ran counts how often. Set run before calls are queued.
	run func(ctx context.Context, name string) error
	ran atomic.Int32
	// repair is the program's own.
	repair func(context.Context, Malformed) (Repaired, error)
	// asked are the tags that calls ask for which are queued from now on.
	asked []toolyard.Tag

	mu     sync.Mutex
	agents []toolyard.Agent // whose calls have begun, in their order
}

// inYard runs a test in a bubble with a worker that has so many slots of each class.
func inYard(t *testing.T, slots int, test func(y *yard)) {
	t.Helper()
	bubble.Run(t, broker.Settings{MaxStoreBytes: 256 << 20}, func(e *bubble.Env) {
		y := &yard{Env: e, b: e.Broker("owner"), run: func(context.Context, string) error { return nil }}
		var tools []tool.Tool
		for _, d := range []tool.Declaration{
			{Name: "read", Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true},
			{Name: "write", Class: tool.ClassRule{Static: toolyard.WriteExclusive}},
			{Name: "put", Class: tool.ClassRule{Static: toolyard.WriteExclusive}, Idempotent: new(true)},
			{Name: "capped", Class: tool.ClassRule{Static: toolyard.ReadOnly}, ReadOnly: true, MaxInFlight: 2},
		} {
			d.Description = "A tool of a test."
			made, err := tool.New(tool.Typed[struct{}, string]{Declaration: d,
				Run: func(ctx context.Context, env tool.Env, _ struct{}) (string, error) {
					y.mu.Lock()
					y.agents = append(y.agents, env.Agent)
					y.mu.Unlock()
					y.ran.Add(1)
					return "done", y.run(ctx, d.Name)
				}})
			must.OK(y.T, err)
			tools = append(tools, made)
		}
		each := map[toolyard.Class]int{}
		for _, c := range toolyard.Classes {
			each[c] = slots
		}
		w, err := New(e.Broker("w"), Config{ID: "w", Tools: tools, Origin: registry.Toolset, Mode: policy.Bypass,
			Repair: func(ctx context.Context, m Malformed) (Repaired, error) { return y.repair(ctx, m) },
			Slots:  each, DrainGrace: time.Second, Log: e.Log()})
		must.OK(y.T, err)
		y.w, y.part = w, y.Start(w)
		test(y)
	})
}

// queued is a call that the owner has queued.
type queued struct {
	y   *yard
	key toolyard.BatchKey
	seq uint64 // of its message
}

// queue queues a call of a tool, as its batch's only one.
func (y *yard) queue(name string, change ...func(*events.RequestedCall)) queued {
	y.Helper()
	return y.queueFor(toolyard.DefaultAgent, 0, name, change...)
}

// queueFor queues a call of an agent in a lane.
func (y *yard) queueFor(a toolyard.Agent, lane int, name string, change ...func(*events.RequestedCall)) queued {
	y.Helper()
	return y.queueItem(a, lane, 1, name, 1, change...)
}

// queueItem queues n calls of a tool as one item, of which so many may run at a time.
func (y *yard) queueItem(a toolyard.Agent, lane, n int, name string, width int,
	change ...func(*events.RequestedCall)) queued {
	y.Helper()
	return y.queueAs(toolyard.BatchKey{Agent: a, ID: toolyard.BatchID(broker.NewID())}, lane, n, name, width, change...)
}

// queueAs queues an item of a batch.
func (y *yard) queueAs(k toolyard.BatchKey, lane, n int, name string, width int,
	change ...func(*events.RequestedCall)) queued {
	y.Helper()
	_, e, ok := y.w.tools.Lookup(name)
	if !ok {
		y.Fatalf("there is no tool %q", name)
	}
	judgement, _ := registry.Judge(e.Declaration, json.RawMessage(`{}`), nil)
	req := events.Requested{Agent: k.Agent, Batch: k.ID,
		Session: toolyard.DefaultSession, Workspace: toolyard.DefaultWorkspace, QueuedAt: time.Now(), MaxAttempts: 3,
		RemainingMS: time.Hour.Milliseconds(), Width: width, Tags: y.asked}
	for i := range n {
		call := events.RequestedCall{Index: i, ID: "c", Tool: name, Input: json.RawMessage(`{}`), Declaration: e.Hash,
			Judgement: judgement, Claim: !judgement.Class.Safe(), Attempt: 1}
		for _, f := range change {
			f(&call)
		}
		req.Calls = append(req.Calls, call)
	}
	q := y.b.QueueAll(y.Context(), lane, []batch.Queue{{
		Route: batch.Route{Pool: toolyard.DefaultPool, Class: judgement.Class}, Request: req}})
	if q[0].Err != nil {
		y.Fatal(q[0].Err)
	}
	return queued{y, toolyard.BatchKey{Agent: req.Agent, ID: req.Batch}, q[0].Seq}
}

// events are those of the item.
func (q queued) events() []batch.Record {
	q.y.Helper()
	records, err := q.y.b.Item(q.y.Context(), q.key, toolyard.DefaultPool, 0, 0)
	must.OK(q.y.T, err)
	return records
}

// end is the last event of the call.
func (q queued) end() batch.Record {
	q.y.Helper()
	records := q.events()
	if len(records) == 0 {
		return batch.Record{}
	}
	return records[len(records)-1]
}

// append stores somebody's event behind one of the call.
func (q queued) append(expected uint64, body events.Body) {
	q.y.Helper()
	if _, err := q.y.b.Append(q.y.Context(), q.key, batch.ChainItem, toolyard.DefaultPool, 0, expected,
		body); err != nil {
		q.y.Fatal(err)
	}
}

// result waits for the call's result.
func (q queued) result() toolyard.Result {
	q.y.Helper()
	var f events.Finished
	q.y.Eventually("the call has its result", func() (ok bool) {
		f, ok = q.end().Body.(events.Finished)
		return ok
	})
	return f.Result
}

// TestACallRuns: a read's first event is its result, and a write is claimed first.
func TestACallRuns(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		var claims atomic.Int32
		for name, want := range map[string]int32{"read": 0, "write": 1} {
			var q queued
			known := make(chan struct{})
			y.run = func(context.Context, string) error {
				<-known
				if c, ok := q.end().Body.(events.Claimed); ok && c.Worker == "w" {
					claims.Add(1)
				}
				return nil
			}
			claims.Store(0)
			q = y.queue(name)
			close(known)
			if r := q.result(); r.IsError || r.Output != "done" || r.Worker != "w" || r.Attempts != 1 {
				y.Errorf("%s: %+v", name, r)
			}
			if claims.Load() != want {
				y.Errorf("%s: %d claims stand in the log while it runs, want %d", name, claims.Load(), want)
			}
		}
		if y.ran.Load() != 2 {
			y.Errorf("%d calls ran", y.ran.Load())
		}
	})
}

// TestLostAnswers: whichever answers of the server to a worker are lost, its write runs once and has its result.
func TestLostAnswers(t *testing.T) {
	for steps := range 12 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			inYard(t, 1, func(y *yard) {
				y.run = func(context.Context, string) error { time.Sleep(time.Millisecond); return nil }
				q := y.queue("write")
				time.Sleep(time.Duration(steps) * 4 * bubble.StepTime)
				y.Server.LoseAnswers("w", 2)
				if r := q.result(); r.Output != "done" || y.ran.Load() != 1 {
					y.Errorf("it ran %d times: %+v", y.ran.Load(), r)
				}
			})
		})
	}
}

// TestAConflict: a call that is another's, or that has its result, does not run, and its message is done with.
func TestAConflict(t *testing.T) {
	for name, end := range map[string]events.Body{
		"claimed by another": events.Claimed{Worker: "other", Attempt: 1},
		"answered": events.Finish(events.End{Result: toolyard.Result{CallID: "c", Tool: "write", IsError: true,
			Code: toolyard.Canceled}}),
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, 1, func(y *yard) {
				release := make(chan struct{})
				y.run = func(context.Context, string) error { <-release; return nil }
				first := y.queue("write") // it has the only slot
				y.Eventually("the first call runs", func() bool { return y.ran.Load() == 1 })
				second := y.queue("write")
				second.append(0, end)
				close(release)
				first.result()
				third := y.queue("write")
				third.result() // behind the second
				if y.ran.Load() != 2 {
					y.Errorf("%d calls ran", y.ran.Load())
				}
				y.Eventually("the message is done with", func() bool {
					never, err := y.b.Withdraw(y.Context(), batch.Route{Pool: toolyard.DefaultPool,
						Class: toolyard.WriteExclusive}, 0, []uint64{second.seq})
					return err == nil && len(never) == 0
				})
			})
		})
	}
}

// TestAFullStream: a result is worth waiting for. The tool does not run again.
func TestAFullStream(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		y.run = func(context.Context, string) error { y.Server.Fill("TY_EVENT", true); return nil }
		q := y.queue("write")
		time.Sleep(time.Minute)
		if _, ok := q.end().Body.(events.Claimed); !ok {
			y.Fatalf("in a full stream the call's last event is %T", q.end().Body)
		}
		y.Server.Fill("TY_EVENT", false)
		if r := q.result(); r.Output != "done" || y.ran.Load() != 1 {
			y.Errorf("it ran %d times: %+v", y.ran.Load(), r)
		}
	})
}

// TestAResultThatCouldNotBeStored: the call is delivered again to the worker that ran it, which says that nobody knows
// what came of it. It does not run again, and its slot is free for the next.
func TestAResultThatCouldNotBeStored(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		y.run = func(context.Context, string) error { y.Server.Fill("TY_EVENT", true); return nil }
		q := y.queue("write")
		time.Sleep(storeTimeout + time.Second)
		y.Server.Fill("TY_EVENT", false)
		if r := q.result(); r.Code != toolyard.OutcomeUnknown || y.ran.Load() != 1 {
			y.Errorf("it ran %d times: %+v", y.ran.Load(), r)
		}
		y.run = func(context.Context, string) error { return nil }
		if r := y.queue("write").result(); r.Output != "done" {
			y.Errorf("the next call: %+v", r)
		}
	})
}

// TestACallThatIsStoppedBehindItsEnd: a call is canceled when what came of it could not be stored. Its worker, which is
// handed it again, does not say that it never ran.
func TestACallThatIsStoppedBehindItsEnd(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		y.run = func(context.Context, string) error { y.Server.Fill("TY_EVENT", true); return nil }
		q := y.queue("write")
		time.Sleep(storeTimeout + time.Second)
		must.OK(y.T, y.b.Abort(broker.AbortNotice{Agent: q.key.Agent, Batch: q.key.ID, Calls: []int{0},
			Code: toolyard.Canceled, By: "somebody"}))
		y.Server.Fill("TY_EVENT", false)
		if r := q.result(); r.Code != toolyard.OutcomeUnknown || r.Attempts != 1 || y.ran.Load() != 1 {
			y.Errorf("it ran %d times: %+v", y.ran.Load(), r)
		}
	})
}

// TestAnAttemptWhoseEndCouldNotBeStored: a write that may run twice is delivered again to the worker that ran it. That
// attempt counts: it is for the owner to begin the next one, and after the last one nobody knows what came of the call.
func TestAnAttemptWhoseEndCouldNotBeStored(t *testing.T) {
	type attempt struct{ number, unstarted int }
	repeats := func(number int) func(events.Body) bool {
		return func(b events.Body) bool {
			f, ok := b.(events.AttemptFailed)
			return ok && f.Attempt == number && !f.NotStarted
		}
	}
	unknown := func(attempts int) func(events.Body) bool {
		return func(b events.Body) bool {
			f, ok := b.(events.Finished)
			return ok && f.Result.Code == toolyard.OutcomeUnknown && f.Result.Attempts == attempts
		}
	}
	for a, ends := range map[attempt]func(events.Body) bool{
		{1, 0}: repeats(1), {3, 0}: unknown(3), {3, 2}: repeats(3), {4, 1}: unknown(3), {6, 5}: unknown(1),
	} {
		t.Run(fmt.Sprintf("attempt %d behind %d that were not started", a.number, a.unstarted), func(t *testing.T) {
			inYard(t, 1, func(y *yard) {
				y.run = func(context.Context, string) error { y.Server.Fill("TY_EVENT", true); return nil }
				q := y.queue("put", func(c *events.RequestedCall) {
					c.Attempt, c.Unstarted = a.number, a.unstarted
				})
				time.Sleep(storeTimeout + time.Second)
				y.Server.Fill("TY_EVENT", false)
				y.Eventually("the attempt is over", func() bool {
					_, claimed := q.end().Body.(events.Claimed)
					return !claimed
				})
				if end := q.end().Body; !ends(end) || y.ran.Load() != 1 {
					y.Errorf("it ran %d times, and ends with %T: %+v", y.ran.Load(), end, end)
				}
			})
		})
	}
}

// TestAWorkerThatIsStopped hands over what may run again, says of the rest that nobody knows
// what came of it, and gives back what has not begun.
func TestAWorkerThatIsStopped(t *testing.T) {
	for name, tt := range map[string]struct {
		tool string
		ends func(events.Body) bool
	}{
		"a write": {"write", func(b events.Body) bool {
			f, ok := b.(events.Finished)
			return ok && f.Result.Code == toolyard.OutcomeUnknown && f.Result.Attempts == 1
		}},
		"a write that may run twice": {"put", func(b events.Body) bool {
			f, ok := b.(events.AttemptFailed)
			return ok && !f.NotStarted && f.Attempt == 1
		}},
		"a read": {"read", func(b events.Body) bool { return b == nil }}, // its delivery counts as an attempt
	} {
		t.Run(name, func(t *testing.T) {
			inYard(t, 1, func(y *yard) {
				y.run = func(ctx context.Context, _ string) error { <-ctx.Done(); return context.Cause(ctx) }
				runs := y.queue(tt.tool)
				y.Eventually("the call runs", func() bool { return y.ran.Load() == 1 })
				waits := y.queue(tt.tool)
				y.part.End()
				if end := runs.end().Body; !tt.ends(end) {
					y.Errorf("the call that ran ends with %T: %+v", end, end)
				}
				switch end := waits.end().Body.(type) {
				case nil, events.Returned:
				default:
					y.Errorf("the call that waited ends with %T: %+v", end, end)
				}
				if y.ran.Load() != 1 {
					y.Errorf("%d calls ran", y.ran.Load())
				}
			})
		})
	}
}

// TestAToolThatABusyWorkerHas: its call is given back for as long as it takes, and does not end for want of a worker.
func TestAToolThatABusyWorkerHas(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		free := make(chan struct{})
		rare, err := tool.New(tool.Typed[struct{}, string]{
			Declaration: tool.Declaration{Name: "rare", Description: "A tool that one worker has.",
				Class: tool.ClassRule{Static: toolyard.WriteExclusive}},
			Run: func(context.Context, tool.Env, struct{}) (string, error) { <-free; return "done", nil },
		})
		must.OK(y.T, err)
		busy, err := New(y.Broker("busy"), Config{ID: "busy", Tools: []tool.Tool{rare}, Origin: registry.Toolset,
			Mode: policy.Bypass, Slots: map[toolyard.Class]int{toolyard.WriteExclusive: 1}, Log: y.Log()})
		must.OK(y.T, err)
		y.Start(busy)
		_, e, _ := busy.tools.Lookup("rare")
		asRare := func(c *events.RequestedCall) { c.Tool, c.Declaration = "rare", e.Hash }
		first, second := y.queue("write", asRare), y.queue("write", asRare)
		time.Sleep(2 * maxDeliveries * returnPause)
		close(free)
		for _, q := range []queued{first, second} {
			if r := q.result(); r.IsError || r.Worker != "busy" {
				y.Errorf("%+v", r)
			}
		}
	})
}

// TestAToolThatNobodyHasAsPlanned: its call is given back for a while, and then ends.
func TestAToolThatNobodyHasAsPlanned(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		began := time.Now()
		q := y.queue("write", func(c *events.RequestedCall) { c.Declaration = "another" })
		if r := q.result(); r.Code != toolyard.DependencyUnavailable || !r.Retryable || y.ran.Load() != 0 {
			y.Errorf("it ran %d times: %+v", y.ran.Load(), r)
		}
		if took := time.Since(began); took < (maxDeliveries-1)*returnPause {
			y.Errorf("it was given up after %s", took)
		}
	})
}

// TestACappedTool: no more of its calls run at a time than it says, and those that wait stand in nobody's way: another
// tool's calls of the same agent, which are queued behind them in the same lane, run meanwhile.
func TestACappedTool(t *testing.T) {
	inYard(t, 4, func(y *yard) {
		gate := make(chan struct{})
		var inside, most atomic.Int32
		y.run = func(_ context.Context, name string) error {
			if name == "capped" {
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer inside.Add(-1)
			}
			<-gate
			return nil
		}
		var capped []queued
		for range 100 {
			capped = append(capped, y.queue("capped"))
		}
		y.Eventually("two of the tool's calls run", func() bool { return y.ran.Load() == 2 })
		for range 2 {
			y.queue("read")
		}
		y.Eventually("the other tool's calls run", func() bool { return y.ran.Load() == 4 })
		close(gate)
		for _, q := range capped {
			if r := q.result(); r.IsError {
				y.Errorf("a capped call: %s", r.Error)
			}
		}
		if most.Load() != 2 {
			y.Errorf("%d calls of the tool ran at a time, want 2", most.Load())
		}
	})
}

// TestADeafToolCostsItsSlot: one that goes on after its call has ended keeps its slot, and gives it back when it
// returns.
func TestADeafToolCostsItsSlot(t *testing.T) {
	inYard(t, 1, func(y *yard) {
		release := make(chan struct{})
		y.run = func(context.Context, string) error { <-release; return nil }
		deaf := y.queue("read")
		y.Eventually("the tool runs", func() bool { return y.ran.Load() == 1 })
		y.w.abort(broker.AbortNotice{Agent: deaf.key.Agent, Batch: deaf.key.ID, Calls: []int{0},
			Code: toolyard.Canceled, Reason: "enough"}, nil)
		if r := deaf.result(); r.Code != toolyard.Canceled {
			y.Errorf("%+v", r)
		}
		next := y.queue("read")
		time.Sleep(2 * y.b.Settings().CallAckWait)
		if y.ran.Load() != 1 {
			y.Error("a second call ran beside the tool, in one slot")
		}
		close(release)
		if r := next.result(); r.IsError {
			y.Errorf("when the tool has returned: %+v", r)
		}
	})
}

// TestAFloodOfOneAgent does not keep another's calls waiting for all of it: lanes are served in turn, and agents of one
// lane get slots in turn.
func TestAFloodOfOneAgent(t *testing.T) {
	for name, lane := range map[string]int{"lanes of their own": 1, "one lane": 0} {
		t.Run(name, func(t *testing.T) {
			inYard(t, 2, func(y *yard) {
				gate := make(chan struct{})
				y.run = func(context.Context, string) error { <-gate; return nil }
				const many = 100
				var all []queued
				for n := range many {
					if n == 20 {
						all = append(all, y.queueFor("quiet", lane, "read"))
					}
					all = append(all, y.queueFor("flood", 0, "read"))
				}
				for range all { // one call after the other gets through
					gate <- struct{}{}
				}
				for _, q := range all {
					if r := q.result(); r.IsError {
						y.Errorf("%+v", r)
					}
				}
				if at := slices.Index(y.agents, "quiet"); at < 0 || at > 40 {
					y.Errorf("the quiet agent's call was number %d of %d", at+1, len(y.agents))
				}
			})
		})
	}
}
