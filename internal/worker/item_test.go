package worker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/membroker"
	"github.com/toolyard/toolyard/internal/events"
)

// item queues n reads as one item, of which so many may run at a time.
func (y *yard) item(n, width int) queued {
	y.Helper()
	return y.queueItem(toolyard.DefaultAgent, 0, n, "read", width)
}

// results are those that the item's calls have so far, by call. A call with two fails the test.
func (q queued) results() map[int]toolyard.Result {
	q.y.Helper()
	out := map[int]toolyard.Result{}
	for _, r := range q.events() {
		f, ok := r.Body.(events.Finished)
		if !ok {
			continue
		}
		for _, res := range f.Results() {
			if _, twice := out[res.Index]; twice {
				q.y.Errorf("call %d has two results", res.Index)
			}
			out[res.Index] = res
		}
	}
	return out
}

// TestAnItemRuns: its calls run at a time and are not claimed, and results that are ready together are stored together.
func TestAnItemRuns(t *testing.T) {
	inYard(t, 8, func(y *yard) {
		gate := make(chan struct{})
		y.run = func(context.Context, string) error { <-gate; return nil }
		q := y.item(8, 8)
		y.Eventually("all run", func() bool { return y.ran.Load() == 8 })
		close(gate)
		y.Eventually("all have results", func() bool { return len(q.results()) == 8 })
		if n := len(q.events()); n > 4 {
			y.Errorf("eight results that were ready together take %d events", n)
		}
	})
}

// TestAFastCallOfAnItem: its result does not wait for those of slow ones.
func TestAFastCallOfAnItem(t *testing.T) {
	inYard(t, 8, func(y *yard) {
		y.run = func(context.Context, string) error {
			if y.ran.Load() > 1 {
				time.Sleep(10 * time.Second)
			}
			return nil
		}
		began := time.Now()
		q := y.item(5, 5)
		y.Eventually("a call has its result", func() bool { return len(q.results()) > 0 })
		if took := time.Since(began); took > time.Second {
			y.Errorf("it took %s", took)
		}
		y.Eventually("all have results", func() bool { return len(q.results()) == 5 })
	})
}

// TestWhatHasNoTurnGoesBack: calls that wait behind others of their item for half a lease are given back, for workers
// that have room.
func TestWhatHasNoTurnGoesBack(t *testing.T) {
	inYard(t, 8, func(y *yard) {
		gate := make(chan struct{})
		y.run = func(context.Context, string) error { <-gate; return nil }
		q := y.item(5, 2)
		y.Eventually("three are given back", func() bool {
			back, _ := q.end().Body.(events.Returned)
			return slices.Equal(back.Calls, []int{2, 3, 4})
		})
		close(gate)
		y.Eventually("two have results", func() bool { return len(q.results()) == 2 })
		time.Sleep(2 * y.b.Settings().CallAckWait)
		if ran := y.ran.Load(); ran != 2 {
			y.Errorf("%d calls ran", ran)
		}
	})
}

// TestADeafToolTakesNoTurn: what stands behind a tool that ignores its end runs, or goes back, while that goes on.
func TestADeafToolTakesNoTurn(t *testing.T) {
	inYard(t, 8, func(y *yard) {
		release := make(chan struct{})
		defer close(release)
		y.run = func(context.Context, string) error {
			if y.ran.Load() == 1 {
				<-release
			}
			return nil
		}
		q := y.item(2, 1)
		y.Eventually("the first runs", func() bool { return y.ran.Load() == 1 })
		y.abort(q, 0)
		y.Eventually("the item is done with", func() bool {
			back := slices.ContainsFunc(q.events(), func(r batch.Record) bool {
				b, ok := r.Body.(events.Returned)
				return ok && slices.Equal(b.Calls, []int{1})
			})
			got := q.results()
			return got[0].Code == toolyard.Canceled && (back || got[1].Output == "done")
		})
	})
}

// TestAnAbortedCallThatHasNoTurn ends at once, and has not begun.
func TestAnAbortedCallThatHasNoTurn(t *testing.T) {
	inYard(t, 8, func(y *yard) {
		gate := make(chan struct{})
		y.run = func(context.Context, string) error { <-gate; return nil }
		q := y.item(3, 1)
		y.Eventually("the first runs", func() bool { return y.ran.Load() == 1 })
		began := time.Now()
		y.abort(q, 2)
		y.Eventually("it has its result", func() bool { return len(q.results()) == 1 })
		if took := time.Since(began); took > time.Second {
			y.Errorf("it took %s", took)
		}
		if r := q.results()[2]; r.Code != toolyard.Canceled || r.Attempts != 0 {
			y.Errorf("%+v", r)
		}
		close(gate)
		y.Eventually("all have results", func() bool { return len(q.results()) == 3 })
		if ran := y.ran.Load(); ran != 2 {
			y.Errorf("%d calls ran", ran)
		}
	})
}

// TestAnItemThatIsDeliveredAgain: its calls run one at a time, each claimed, so that one that ends its worker takes no
// other's attempt with it. What has its result does not run again.
func TestAnItemThatIsDeliveredAgain(t *testing.T) {
	inYard(t, 8, func(y *yard) {
		inside, most := 0, 0
		y.run = func(context.Context, string) error {
			y.mu.Lock()
			inside++
			most = max(most, inside)
			y.mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			y.mu.Lock()
			inside--
			y.mu.Unlock()
			return nil
		}
		q := y.queueItem(toolyard.DefaultAgent, 0, 4, "read", 4,
			func(c *events.RequestedCall) { c.Again = true })
		y.Eventually("all have results", func() bool { return len(q.results()) == 4 })
		claims := 0
		for _, r := range q.events() {
			if _, ok := r.Body.(events.Claimed); ok {
				claims++
			}
		}
		if most != 1 || claims != 4 || y.ran.Load() != 4 {
			y.Errorf("%d ran at a time, %d were claimed, and %d ran", most, claims, y.ran.Load())
		}
	})
}

// TestSlowCallsOfAnItemThatIsDeliveredAgain: the first runs, claimed, and the others go back to be queued one by one.
// Whoever had them first may have begun them, so that counts as an attempt.
func TestSlowCallsOfAnItemThatIsDeliveredAgain(t *testing.T) {
	inYard(t, 8, func(y *yard) {
		gate := make(chan struct{})
		y.run = func(context.Context, string) error { <-gate; return nil }
		q := y.queueItem(toolyard.DefaultAgent, 0, 4, "read", 4,
			func(c *events.RequestedCall) { c.Again, c.Attempt = true, 2 })
		y.Eventually("three are given back", func() bool {
			back, _ := q.end().Body.(events.Returned)
			return slices.Equal(back.Calls, []int{1, 2, 3}) && back.Attempt == 1
		})
		close(gate)
		y.Eventually("the first has its result", func() bool { return len(q.results()) == 1 })
		if r := q.results()[0]; r.Attempts != 2 || y.ran.Load() != 1 {
			y.Errorf("%d ran: %+v", y.ran.Load(), r)
		}
	})
}

// abort broadcasts that a call is canceled.
func (y *yard) abort(q queued, call int) {
	y.w.abort(broker.AbortNotice{Agent: q.key.Agent, Batch: q.key.ID, Calls: []int{call}, Code: toolyard.Canceled,
		Reason: "enough"}, nil)
}

// TestAnEndIsNotLostBehindAConflict: when the ends of an item meet a conflict, because the owner has ended another call
// of it, and what stands in the chain cannot be read, the message is not done with: the call that is not answered comes
// back and gets its result.
func TestAnEndIsNotLostBehindAConflict(t *testing.T) {
	inYard(t, 2, func(y *yard) {
		var q queued
		known, appended := make(chan struct{}), make(chan struct{})
		y.run = func(context.Context, string) error {
			if y.ran.Load() > 1 {
				<-appended
				return nil
			}
			<-known
			// the owner ends the second call meanwhile
			q.append(0, events.Finish(events.End{Result: toolyard.Result{Index: 1, CallID: "c", Tool: "read",
				IsError: true, Code: toolyard.Canceled}}))
			// From the third read on nothing of the worker arrives: two find out that the conflict is one.
			reads := map[uint64]int{}
			y.Server.Hold(func(s membroker.Step) bool {
				if s.Party != "w" || !strings.Contains(s.What, "API.DIRECT.GET.TY_EVENT") {
					return false
				}
				if _, ok := reads[s.Arrived]; !ok {
					reads[s.Arrived] = len(reads)
				}
				return reads[s.Arrived] >= 2
			})
			close(appended)
			return nil
		}
		q = y.item(2, 2)
		close(known)
		time.Sleep(time.Minute)
		y.Server.Hold(nil)
		y.Eventually("the call has its result", func() bool {
			_, ok := q.results()[0]
			return ok
		})
	})
}
