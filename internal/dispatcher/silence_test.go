package dispatcher

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// These tests are about what an owner may conclude from not hearing of a worker: docs/adr/0020. Their worker answers no
// question.

// settled is the result of a batch's only call; nil while it is open.
func (y *yard) settled(k toolyard.BatchKey) *toolyard.Result {
	y.Helper()
	if s := y.fold(k); len(s.Calls) == 1 {
		return s.Calls[0].Result
	}
	return nil
}

// deafen takes the consumers away by which the registry of workers is watched: nobody is told of changes, and the
// connections stay.
func (y *yard) deafen() {
	y.Helper()
	js, err := jetstream.New(y.Conn("test"))
	must.OK(y.T, err)
	stream, err := js.Stream(y.Context(), "KV_ty_worker")
	must.OK(y.T, err)
	n := 0
	names := stream.ConsumerNames(y.Context())
	for name := range names.Name() {
		must.OK(y.T, stream.DeleteConsumer(y.Context(), name))
		n++
	}
	if err := names.Err(); err != nil || n == 0 {
		y.Fatalf("%d watches were taken away: %v", n, err)
	}
}

// TestADeadWatchIsNoDeadWorker: the watch of the registry has died, and the worker answers no question. It beats, so
// its claim stands.
func TestADeadWatchIsNoDeadWorker(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		k := y.submit("write")
		d := y.take(toolyard.WriteExclusive)
		claim := y.claim(d, "w")
		y.deafen()
		time.Sleep(10 * y.b.Settings().WorkerTTL)
		if r := y.settled(k); r != nil {
			y.Fatalf("the call was settled while its worker was alive: %s, %s", r.Code, r.Error)
		}
		must.OK(y.T, y.finish(d, claim))
		if got := y.codes(k); got != "ok" {
			y.Errorf("the results are %s", got)
		}
	})
}

// TestAClaimIsASignOfLife: a worker is known to be silent, and claims another call. That claim stands for as long as
// the worker may believe in its lease, and is settled then.
func TestAClaimIsASignOfLife(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		still := y.beat("dying")
		for range 2 {
			k := y.submit("write")
			y.claim(y.take(toolyard.WriteExclusive), "dying")
			claimed := time.Now()
			still()
			if got := y.codes(k); got != "outcome_unknown" {
				y.Errorf("the results are %s", got)
			}
			ttl := y.b.Settings().WorkerTTL
			if took := time.Since(claimed); took < broker.Lease(ttl) || took > 10*ttl {
				y.Errorf("the call was settled %s after its claim: a worker may act for %s after it", took,
					broker.Lease(ttl))
			}
		}
	})
}

// TestACallThatItsWorkerForgot: a claim stands in the log of a live worker that does not have the call, as after a
// claim whose answer was lost. The owner asks, and settles the call.
func TestACallThatItsWorkerForgot(t *testing.T) {
	inYard(t, func(y *yard) {
		end, err := y.b.OnHolds("w", func(toolyard.BatchKey, int) bool { return false }, nil,
			func(err error) { y.Error(err) })
		must.OK(y.T, err)
		y.Cleanup(func() { _ = end() })
		y.dispatcher("d")
		k := y.submit("write")
		y.claim(y.take(toolyard.WriteExclusive), "w")
		claimed := time.Now()
		if got := y.codes(k); got != "outcome_unknown" {
			y.Errorf("the results are %s", got)
		}
		if took := time.Since(claimed); took > 2*y.b.Settings().CallAckWait {
			y.Errorf("the call was settled %s after its claim", took)
		}
	})
}

// TestTheOnlyWorkerDiesAfterItsEffect: a write that may run twice, and no worker is left for the second time. It is not
// said that it did not run.
func TestTheOnlyWorkerDiesAfterItsEffect(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", func(c *Config) { c.WorkerWait = time.Second })
		k := y.submit("put")
		y.claim(y.take(toolyard.WriteExclusive), "w")
		y.still()
		got := y.codes(k)
		r := y.settled(k)
		if got != "dependency_unavailable" || strings.Contains(r.Error, "did not run") ||
			!strings.Contains(r.Error, "taken effect") || r.Attempts != 1 {
			y.Errorf("%s, %d attempts: %s", got, r.Attempts, r.Error)
		}
	})
}

// TestAReadThatKillsItsWorker is started as often as an idempotent call may be, and no more.
func TestAReadThatKillsItsWorker(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d")
		k := y.submit("read")
		for n := range 3 { // the first time without a claim, then with one, as a real worker does
			d := y.take(toolyard.ReadOnly)
			if c := &d.Calls[0]; d.Deliveries > 1 || c.Again || c.Attempt > 1 {
				if n == 1 { // the first time counts
					c.Attempt++
				}
				y.claim(d, "dead")
			}
		}
		if got, r := y.codes(k), y.settled(k); got != "outcome_unknown" || r.Attempts != 3 {
			y.Errorf("after %d attempts: %s", r.Attempts, got)
		}
	})
}

// TestAToolIsKnownWhenItsWorkerIsRegistered: a batch that comes right after a worker's entry was stored finds the
// worker's tools, also when the dispatcher has not been told of it yet.
func TestAToolIsKnownWhenItsWorkerIsRegistered(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", func(c *Config) { c.Base = nil })
		reg, err := registry.Registry{}.Register(y.entries()...)
		must.OK(y.T, err)
		surface, err := registry.Assemble(reg, nil)
		must.OK(y.T, err)
		encoded, err := surface.Encode()
		must.OK(y.T, err)
		must.OK(y.T, y.b.PutSurface(y.Context(), surface.Hash, encoded))
		y.work()
		must.OK(y.T, y.b.Beat(y.Context(), broker.Worker{ID: "new", Pool: toolyard.DefaultPool,
			Classes: toolyard.Classes, Toolset: surface.Hash}))
		if got := y.codes(y.submit("write")); got != "ok" {
			y.Errorf("the result is %s", got)
		}
	})
}

// TestAWorkerThatNeverAnswers: a worker that lives and never says whether it runs a read holds up a batch until its
// deadline, and then no longer than a worker may act for a call.
func TestAWorkerThatNeverAnswers(t *testing.T) {
	inYard(t, func(y *yard) {
		d := y.dispatcher("d")
		k := y.submitBatch(toolyard.Batch{Calls: []toolyard.Call{{Tool: "read"}, {Tool: "write"}},
			Options: toolyard.Options{TimeoutMS: time.Minute.Milliseconds()}})
		read := y.take(toolyard.ReadOnly)
		d.End()
		y.run(read)
		y.dispatcher("next")
		if got := y.codes(k); got != "ok "+string(toolyard.DeadlineExceeded) {
			y.Errorf("the results are %s", got)
		}
		y.Eventually("the workspace is free", func() bool { n, _ := y.queue(); return n == 0 })
	})
}

// TestAFormerOwnerThatMissedTheNext: a batch waits for its workspace, and its owner is cut off. The next owner runs its
// call, gives the workspace back, and dies before it replies. The former one hears the server again: it finds out that
// it lost the batch, although the ticket that it waits for never comes, and no longer keeps others from taking it up.
func TestAFormerOwnerThatMissedTheNext(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("former")
		first := y.submit("write")
		held := y.take(toolyard.WriteExclusive)
		k := y.submit("write")
		y.Eventually("the second batch waits", func() bool { n, _ := y.queue(); return n == 2 })
		y.Server.Cut("former")
		y.run(held)
		y.dispatcher("next")
		y.Server.Hold(func(st membroker.Step) bool {
			return st.Party == "next" && st.Kind == membroker.Operation && strings.Contains(st.What, " ty.reply."+
				string(k.Agent)+"."+string(k.ID))
		})
		y.run(y.take(toolyard.WriteExclusive))
		y.Eventually("the workspace is free", func() bool { n, _ := y.queue(); return n == 0 })
		y.Server.Cut("next")
		y.Server.Hold(nil)
		y.Server.Heal("former")
		for _, k := range []toolyard.BatchKey{first, k} {
			if got := y.codes(k); got != "ok" {
				y.Errorf("the results of %s are %s", k, got)
			}
		}
	})
}
