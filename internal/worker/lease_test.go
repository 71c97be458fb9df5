package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/suspend"
	"github.com/toolyard/toolyard/internal/testenv"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

// bench is a worker with one tool, and the test in the place of the owner.
type bench struct {
	t    *testing.T
	b    *natsbroker.Broker
	w    *Worker
	hash string
	key  toolyard.BatchKey
}

// newBench starts a worker whose waits are so long that nothing lapses by itself.
func newBench(t *testing.T, class toolyard.Class, run func(ctx context.Context, env tool.Env) (string, error)) *bench {
	t.Helper()
	s := testenv.Server(t)
	settings := broker.Settings{WorkerTTL: 4 * time.Minute, CallAckWait: 4 * time.Minute, BatchAckWait: 4 * time.Minute}
	b := testenv.Open(t, testenv.Conn(t, s), settings, "/test")
	type nothing struct{}
	made, err := tool.New(tool.Typed[nothing, string]{
		Declaration: tool.Declaration{Name: "do", Description: "A tool of a test.",
			Class: tool.ClassRule{Static: class}, ReadOnly: class.Safe()},
		Run: func(ctx context.Context, env tool.Env, _ nothing) (string, error) { return run(ctx, env) },
	})
	must.OK(t, err)
	w, err := New(b.As(broker.SourceWorker+"w"), Config{
		ID: "w", Tools: []tool.Tool{made}, Origin: registry.Toolset, Mode: policy.Bypass, Log: testenv.Log(t),
		DrainGrace: time.Millisecond,
	})
	must.OK(t, err)
	_, e, ok := w.tools.Lookup("do")
	if !ok {
		t.Fatal("the worker does not have its tool")
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the worker ended with %v", err)
		}
	})
	<-w.Ready()
	return &bench{t: t, b: b, w: w, hash: e.Hash, key: toolyard.BatchKey{Agent: "a", ID: "b"}}
}

// hand queues the call.
func (b *bench) hand(judgement tool.Judgement) {
	b.t.Helper()
	req := events.Requested{
		Agent: b.key.Agent, Batch: b.key.ID, Workspace: "default", MaxAttempts: 3, RemainingMS: 600_000,
		QueuedAt: time.Now(), Ticket: 7,
		Calls: []events.RequestedCall{{
			ID: "c", Tool: "do", Input: []byte("{}"), Declaration: b.hash, Judgement: judgement,
			Claim: !judgement.Class.Safe(), Attempt: 1,
		}},
	}
	route := batch.Route{Pool: toolyard.DefaultPool, Class: judgement.Class}
	for _, q := range b.b.QueueAll(b.t.Context(), 0, []batch.Queue{{Route: route, Request: req}}) {
		if q.Err != nil {
			b.t.Fatal(q.Err)
		}
	}
}

// chain is what stands on the call's chain.
func (b *bench) chain() []batch.Record {
	b.t.Helper()
	s := batch.State{Key: b.key, Plan: &events.Planned{Calls: []events.PlannedCall{{Pool: toolyard.DefaultPool}}},
		Calls: make([]batch.Call, 1)}
	out, err := b.b.Newer(b.t.Context(), &s, batch.ChainItem, 0)
	must.OK(b.t, err)
	return out
}

// end waits for the call's end in the log.
func (b *bench) end() events.Body {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got := b.chain()
		if n := len(got); n > 0 {
			switch body := got[n-1].Body.(type) {
			case events.Finished, events.AttemptFailed:
				return body
			}
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the call has no end: %+v", got)
		}
	}
}

// lapse makes a lease look as if its last heartbeat was answered so long ago.
func (l *lease) lapse(ago time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now().Add(-ago)
}

// suspend has the machine suspended for some time since the lease was renewed.
func (l *lease) suspend(ago time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var asleep time.Duration
	l.clock = suspend.NewClock(func() time.Duration { return asleep })
	asleep = ago
}

// between is a time between a lapsed lease and the end of its tool.
func between(wait time.Duration) time.Duration { return (broker.Lease(wait) + broker.Stop(wait)) / 2 }

var (
	write = tool.Judgement{Class: toolyard.WriteExclusive}
	put   = tool.Judgement{Class: toolyard.WriteExclusive, Idempotent: true}
	look  = tool.Judgement{Class: toolyard.ReadOnly, ReadOnly: true, Idempotent: true}
)

// TestALapsedLeaseIsProvenInTheLog: the leases of a running call have lapsed, and heartbeats are answered again. The
// tool goes on when its worker has claimed the call anew: then nobody has settled it, and nobody can without seeing
// it.
func TestALapsedLeaseIsProvenInTheLog(t *testing.T) {
	for name, j := range map[string]tool.Judgement{"a claimed write": write, "a read that nobody has claimed": look} {
		t.Run(name, func(t *testing.T) {
			began, goOn := make(chan struct{}), make(chan struct{})
			b := newBench(t, j.Class, func(_ context.Context, env tool.Env) (string, error) {
				close(began)
				<-goOn
				return "done", env.CommitPoint()
			})
			b.hand(j)
			<-began
			b.w.registered.lapse(between(4 * time.Minute))
			close(goOn)
			// The tool is at its commit point by now, or soon. A heartbeat is answered:
			must.OK(t, b.w.sendBeat(t.Context(), b.w.entry()))
			if f, ok := b.end().(events.Finished); !ok || f.Result.Output != "done" || f.Result.IsError {
				t.Errorf("the call ended with %+v", f)
			}
			events := []string{}
			for _, r := range b.wholeChain() {
				events = append(events, string(r.Body.EventType()))
			}
			want := 2 // the claim anew, and the result
			if !j.Class.Safe() {
				want++
			}
			if len(events) != want {
				t.Errorf("the call's chain has %q", events)
			}
		})
	}
}

// TestASettledCallIsNotProven: the owner has settled the call while its worker's lease had lapsed, since its heartbeats
// failed, or while its machine was suspended: then the monotonic clock stood still. The commit point is refused, and
// what the tool makes of that is no result.
func TestASettledCallIsNotProven(t *testing.T) {
	for name, lapse := range map[string]func(*lease){
		"heartbeats fail":          func(l *lease) { l.lapse(between(4 * time.Minute)) },
		"the machine is suspended": func(l *lease) { l.suspend(10 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) { settledCall(t, lapse) })
	}
}

func settledCall(t *testing.T, lapse func(*lease)) {
	began, goOn, refused := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b := newBench(t, toolyard.WriteExclusive, func(_ context.Context, env tool.Env) (string, error) {
		close(began)
		<-goOn
		err := env.CommitPoint()
		refused <- err
		return "", err
	})
	b.hand(write)
	<-began
	lapse(&b.w.registered)
	claim := b.chain()[0]
	settled := events.Finish(events.End{Result: toolyard.Result{CallID: "c", Tool: "do", IsError: true,
		Code: toolyard.OutcomeUnknown, Error: "lost"}})
	if _, err := b.b.Append(t.Context(), b.key, batch.ChainItem, toolyard.DefaultPool, 0, claim.Seq,
		settled); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	must.OK(t, b.w.sendBeat(t.Context(), b.w.entry()))
	if err := <-refused; !errors.Is(err, pipeline.ErrLost) {
		t.Errorf("the commit point says %v", err)
	}
	if f := b.end().(events.Finished); f.Result.Error != "lost" {
		t.Errorf("the call has the result %+v", f.Result)
	}
}

// TestALeaseThatStaysLapsed stops the tool, which is lost and has not failed: its outcome is unknown, or it is
// attempted again where that does no harm.
func TestALeaseThatStaysLapsed(t *testing.T) {
	for name, tt := range map[string]struct {
		judgement tool.Judgement
		want      events.Type
	}{"a write": {write, events.CallFinished}, "one that may run twice": {put, events.CallAttemptFailed}} {
		t.Run(name, func(t *testing.T) {
			began, goOn := make(chan struct{}), make(chan struct{})
			b := newBench(t, toolyard.WriteExclusive, func(_ context.Context, env tool.Env) (string, error) {
				close(began)
				<-goOn
				if err := env.CommitPoint(); err != nil {
					return "", errors.New("the file could not be saved") // a tool that hides why
				}
				return "saved", nil
			})
			b.hand(tt.judgement)
			<-began
			b.w.registered.lapse(broker.Stop(4 * time.Minute))
			close(goOn)
			end := b.end()
			if end.EventType() != tt.want {
				t.Fatalf("the call ended with %+v", end)
			}
			if f, ok := end.(events.Finished); ok && f.Result.Code != toolyard.OutcomeUnknown {
				t.Errorf("the result is %s: %s", f.Result.Code, f.Result.Error)
			}
		})
	}
}

// wholeChain is every event of the call's chain.
func (b *bench) wholeChain() []broker.Logged {
	b.t.Helper()
	sub := toolyard.Batch{Agent: b.key.Agent, Calls: []toolyard.Call{{Tool: "do"}}}
	sub.Normalize(b.key.ID)
	if err := b.b.Submit(b.t.Context(), sub); err != nil { // a log begins with its submission
		b.t.Fatal(err)
	}
	log, err := b.b.Log(b.t.Context(), b.key)
	must.OK(b.t, err)
	return log[1:]
}
