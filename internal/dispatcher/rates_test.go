package dispatcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/admission"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// rates gives a dispatcher rates of tools.
func rates(r ...admission.NamedRate) func(*Config) {
	return func(c *Config) { c.Quotas.Tools = r }
}

// over is how many calls of some batches have results.
func (y *yard) over(all ...toolyard.BatchKey) (n int) {
	y.Helper()
	for _, k := range all {
		for _, c := range y.fold(k).Calls {
			if c.Result != nil {
				n++
			}
		}
	}
	return n
}

// TestCallsASecond: whichever of two dispatchers has their batches, no more calls of a tool begin in a second than its
// rate says, all run in the end, and the log says of those that waited for what.
func TestCallsASecond(t *testing.T) {
	inYard(t, func(y *yard) {
		for _, party := range []string{"d1", "d2"} {
			y.dispatcher(party, rates(admission.NamedRate{Name: "re*", Rate: admission.Rate{PerSecond: 2}}))
		}
		y.work()
		y.settle()
		began := time.Now()
		var all []toolyard.BatchKey
		for n := range 4 {
			all = append(all, y.of(toolyard.Agent(fmt.Sprint("a", n)), "read", "read", "read", "read", "read"))
		}
		free := y.submit("write")
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			if n, most := y.over(all...), 2*(1+int(time.Since(began)/time.Second)); n > most {
				y.Fatalf("%d calls are over after %s, at two a second", n, time.Since(began))
			}
		}
		if got := y.codes(free); got != "ok" {
			y.Errorf("a call of another tool: %s", got)
		}
		for _, k := range all {
			if got := y.codes(k); got != "ok ok ok ok ok" {
				y.Errorf("%s: %s", k, got)
			}
		}
		if took := time.Since(began); took < 9*time.Second || took > 15*time.Second {
			y.Errorf("20 calls at two a second took %s", took)
		}
	})
}

// TestCallsInFlight: no more calls of a tool are handed to workers than its rate says, over two dispatchers, and an
// agent with one call does not wait for all of another's.
func TestCallsInFlight(t *testing.T) {
	inYard(t, func(y *yard) {
		for _, party := range []string{"d1", "d2"} {
			y.dispatcher(party, rates(admission.NamedRate{Name: "read",
				Rate: admission.Rate{Calls: 1, Wait: time.Hour}}))
		}
		y.settle()
		var flood []toolyard.BatchKey
		for range 6 {
			flood = append(flood, y.of("flood", "read", "read", "read", "read"))
		}
		time.Sleep(time.Second)
		quiet := y.of("quiet", "read")
		time.Sleep(time.Second)
		if n := y.queuedCalls(); n != 1 {
			y.Errorf("%d messages are in the work queue, and one call may be in flight", n)
		}
		y.work()
		if got := y.codes(quiet); got != "ok" {
			y.Errorf("the quiet agent's call: %s", got)
		}
		if at := slices.Index(y.order(), "quiet"); at > 3 {
			y.Errorf("%d calls ran before the other agent's", at)
		}
		for _, k := range flood {
			if got := y.codes(k); got != "ok ok ok ok" {
				y.Errorf("%s: %s", k, got)
			}
		}
	})
}

// queuedCalls is how many messages the work queue has.
func (y *yard) queuedCalls() uint64 {
	y.Helper()
	js, err := jetstream.New(y.Conn("test"))
	must.OK(y.T, err)
	s, err := js.Stream(y.Context(), "TY_CALL")
	must.OK(y.T, err)
	return s.CachedInfo().State.Msgs
}

// TestRateLimited: a call that would wait too long is answered at once, with when to try again, and a worker never gets
// it. One that waited says so in its fact.
func TestRateLimited(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", rates(admission.NamedRate{Name: "read", Rate: admission.Rate{PerSecond: 1,
			Wait: 2500 * time.Millisecond}}))
		y.work()
		y.settle()
		k := y.submit("read", "read", "read", "read", "read", "read")
		if got := y.codes(k); strings.Count(got, "ok") != 3 || strings.Count(got, "rate_limited") != 3 {
			y.Errorf("the results are %s", got)
		}
		for _, c := range y.fold(k).Calls {
			r := c.Result
			if r.Code != toolyard.RateLimited {
				continue
			}
			says := slices.ContainsFunc(r.Phases, func(f toolyard.Fact) bool {
				return f.Phase == toolyard.PhaseSchedule && f.Code == toolyard.RateLimited &&
					strings.Contains(f.Detail, "for the rate of tool read")
			})
			if !says || !r.Retryable || r.RetryAfterMS < 3_000 || r.Attempts != 0 ||
				!strings.Contains(r.Error, "tool read: at most 1 a second") ||
				!strings.Contains(r.Error, "did not run") {
				y.Errorf("it is %+v", r)
			}
		}
		if n := y.ran.Load(); n != 3 {
			y.Errorf("%d calls ran", n)
		}
	})
}

// TestACallThatWaitsForARateIsCanceled at once: no worker has it.
func TestACallThatWaitsForARateIsCanceled(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", rates(admission.NamedRate{Name: "read", Rate: admission.Rate{Calls: 1}}))
		k := y.submit("read", "read")
		y.settle()
		d := y.take(toolyard.ReadOnly)
		began := time.Now()
		must.OK(y.T, y.b.Cancel(y.Context(), k, "not wanted", 1))
		y.Eventually("the call that waits is answered", func() bool { return y.fold(k).Calls[1].Result != nil })
		if took := time.Since(began); took > time.Second {
			y.Errorf("it took %s", took)
		}
		y.run(d)
		if got := y.codes(k); got != "ok canceled" {
			y.Errorf("the results are %s", got)
		}
	})
}

// TestPlacesOfTheDead: when a dispatcher dies, the one that takes its batches over counts the calls that run. When
// their worker is dead too, their places are free as soon as they are settled.
func TestPlacesOfTheDead(t *testing.T) {
	inYard(t, func(y *yard) {
		one := rates(admission.NamedRate{Name: "put", Rate: admission.Rate{Calls: 1, Wait: time.Hour}})
		first := y.dispatcher("d1", one)
		y.settle()
		lost := y.submit("put")
		y.settle()
		d := y.take(toolyard.WriteExclusive)
		y.claim(d, "gone") // a worker that is registered nowhere, and never heard of again
		first.End()
		y.dispatcher("d2", one)
		y.Eventually("the batch is taken over", func() bool { return y.fold(lost).Owner == "d2" })
		waits := y.submitBatch(toolyard.Batch{Agent: "other", Workspace: "other",
			Calls: []toolyard.Call{{Tool: "put"}}})
		time.Sleep(300 * time.Millisecond)
		if s := y.fold(lost); s.Calls[0].Status != batch.Claimed || y.queuedCalls() != 0 {
			y.Errorf("beside a call that is %s, %d are in the work queue", s.Calls[0].Status, y.queuedCalls())
		}
		y.work()
		if a, b := y.codes(lost), y.codes(waits); a != "ok" || b != "ok" {
			y.Errorf("the results are %s; %s", a, b)
		}
	})
}

// TestRatesOfAgents: an agent's calls wait for each other, and those of another do not.
func TestRatesOfAgents(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", func(c *Config) {
			c.Quotas.Agents = []admission.Grant{{Agents: "slow", Quota: admission.Quota{CallsPerSecond: 1}}}
		})
		y.work()
		y.settle()
		began := time.Now()
		slow, fast := y.of("slow", "read", "read", "read", "read"), y.of("fast", "read", "read", "read", "read")
		if got := y.codes(fast); got != "ok ok ok ok" || time.Since(began) > time.Second {
			y.Errorf("%s after %s", got, time.Since(began))
		}
		if got := y.codes(slow); got != "ok ok ok ok" || time.Since(began) < 3*time.Second {
			y.Errorf("%s after %s", got, time.Since(began))
		}
	})
}

// TestACallThatIsRetriedUnderARate: the only call that its rate lets run fails and is to run again. Its owner hears of
// that late, when the pause is over. It gets its turn again, and does not wait for the place that it has itself.
func TestACallThatIsRetriedUnderARate(t *testing.T) {
	inYard(t, func(y *yard) {
		y.dispatcher("d", rates(admission.NamedRate{Name: "put", Rate: admission.Rate{Calls: 1, Wait: time.Hour}}))
		y.settle()
		k := y.submit("put")
		y.settle()
		d := y.take(toolyard.WriteExclusive)
		claim := y.claim(d, "w")
		y.Server.Deafen("d")
		if _, err := y.b.Append(y.Context(), k, batch.ChainItem, toolyard.DefaultPool, d.Item, claim,
			events.AttemptFailed{Worker: "w", Attempt: 1, Code: toolyard.DependencyUnavailable}); err != nil {
			y.Fatal(err)
		}
		time.Sleep(2 * batch.FirstRetryPause)
		y.Server.Heal("d")
		y.work()
		began := time.Now()
		if got := y.codes(k); got != "ok" || time.Since(began) > time.Minute {
			y.Errorf("%s after %s", got, time.Since(began))
		}
	})
}

// TestCallsThatRunWhenRatesComeCount: a call is in flight when the first rate of its tool is read. It counts, and a
// second one waits until it is over.
func TestCallsThatRunWhenRatesComeCount(t *testing.T) {
	inYard(t, func(y *yard) {
		d := New(y.Broker("d"), Config{ID: "d", Base: y.entries(), Log: y.Log(), Planner: planner(),
			QuotasChange: true})
		y.Start(d)
		y.settle()
		runs := y.submit("put")
		y.settle()
		delivered := y.take(toolyard.WriteExclusive)
		d.Regrant(admission.Grants{Tools: []admission.NamedRate{{Name: "put", Rate: admission.Rate{Calls: 1,
			Wait: time.Hour}}}})
		time.Sleep(time.Second) // heartbeats
		waits := y.submitBatch(toolyard.Batch{Agent: "other", Workspace: "other",
			Calls: []toolyard.Call{{Tool: "put"}}})
		time.Sleep(time.Second)
		if n := y.queuedCalls(); n != 1 {
			y.Errorf("%d messages are in the work queue, and one call may be in flight", n)
		}
		y.run(delivered)
		y.work()
		if a, b := y.codes(runs), y.codes(waits); a != "ok" || b != "ok" {
			y.Errorf("the results are %s; %s", a, b)
		}
	})
}
