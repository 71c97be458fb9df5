//go:build unix

package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/test/verdict"
)

// twoOfEach starts two workers and two dispatchers, one of each with failpoints, maybe.
func (s *system) twoOfEach(worker, dispatcher string) (w, d *process) {
	s.t.Helper()
	w, _ = s.twoWorkers(worker)
	s.together(func() { d = s.dispatcher("dispatcher-a", dispatcher) }, func() { s.dispatcher("dispatcher-b", "") })
	return w, d
}

// twoWorkers starts two workers, the first with failpoints, maybe.
func (s *system) twoWorkers(failpoints string) (a, b *process) {
	s.t.Helper()
	s.together(func() { a = s.worker("worker-a", failpoints) }, func() { b = s.worker("worker-b", "") })
	return a, b
}

// killDispatcher is a cell in which one of two dispatchers kills itself at a place, under load. With several places the
// seeds take them in turn.
func killDispatcher(t *testing.T, id string, m mix, points ...failpoint.Name) {
	cell(t, id, func(s *system) rules {
		point := points[int(s.seed-1)%len(points)]
		s.basic()
		_, victim := s.twoOfEach("", fmt.Sprintf("%s=kill@%d", point, 1+s.rand.IntN(3)))
		l := s.load(m)
		s.killedAt(victim, point)
		s.faultOver()
		s.dispatcher("successor", "")
		l.finish()
		return rules{}
	})
}

// TestDispatcherDiesBeforePlan (D1): a dispatcher dies when it has received a batch and has written nothing.
func TestDispatcherDiesBeforePlan(t *testing.T) {
	killDispatcher(t, "D1", mix{}, failpoint.BatchReceived)
}

// TestDispatcherDiesWithSomeCallsQueued (D2): a dispatcher dies when it has queued some calls of a group and not the
// others.
func TestDispatcherDiesWithSomeCallsQueued(t *testing.T) {
	killDispatcher(t, "D2", mix{}, failpoint.CallsPartlyQueued)
}

// TestDispatcherDiesWithAllCallsQueued (D3): a dispatcher dies when it has queued all calls that may be in flight.
func TestDispatcherDiesWithAllCallsQueued(t *testing.T) {
	killDispatcher(t, "D3", mix{}, failpoint.CallsQueued)
}

// TestDispatcherDiesAfterSeeingAResult (D4): a dispatcher dies when it has seen the result of one call of several.
func TestDispatcherDiesAfterSeeingAResult(t *testing.T) {
	killDispatcher(t, "D4", mix{}, failpoint.ResultSeen)
}

// TestDispatcherDiesBetweenGroups (D5): a dispatcher dies between two groups: before it asks for the next ticket, or
// when it has the ticket and the log does not say so yet.
func TestDispatcherDiesBetweenGroups(t *testing.T) {
	killDispatcher(t, "D5", mix{}, failpoint.GroupOver, failpoint.GroupStarting)
}

// TestDispatcherDiesWithSomeResultsReplied (D6): a dispatcher dies when it has replied some of the results.
func TestDispatcherDiesWithSomeResultsReplied(t *testing.T) {
	killDispatcher(t, "D6", mix{}, failpoint.SomeReplied)
}

// TestDispatcherDiesAfterLastReply (D7): a dispatcher dies when it has replied all results: before it leaves the
// workspace's queue, or before it acknowledges the batch.
func TestDispatcherDiesAfterLastReply(t *testing.T) {
	killDispatcher(t, "D7", mix{}, failpoint.AllReplied, failpoint.BatchOver)
}

// failing makes calls of which the first fails while its siblings work for long, or wait to be queued.
func failing(r *rand.Rand) []toolyard.Call {
	add := func(tool string, ms int) toolyard.Call {
		return toolyard.Call{Tool: tool, Input: raw(map[string]any{"work_ms": ms})}
	}
	out := []toolyard.Call{add("look", 60_000), add("look_once", 60_000), add("look", 60_000), add("look_once", 60_000)}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return append(append([]toolyard.Call{add("fail", 30+r.IntN(100))}, out...), add("write", 10))
}

// TestDispatcherDiesBeforeSiblingsAreTold (D8): a dispatcher dies when it has written the end of a failed call's
// siblings to the log and has not told their workers.
func TestDispatcherDiesBeforeSiblingsAreTold(t *testing.T) {
	killDispatcher(t, "D8", mix{shape: failing, quiet: true}, failpoint.AbortDecided)
}

// TestDispatcherWakesAfterTakeover (D9): a dispatcher is stopped in the middle of a batch and goes on when another
// dispatcher has adopted the batch.
func TestDispatcherWakesAfterTakeover(t *testing.T) {
	points := []failpoint.Name{failpoint.GroupStarting, failpoint.CallsQueued, failpoint.GroupOver,
		failpoint.SomeReplied}
	cell(t, "D9", func(s *system) rules {
		point := points[int(s.seed-1)%len(points)]
		s.basic()
		_, victim := s.twoOfEach("", fmt.Sprintf("%s=stop@%d", point, 1+s.rand.IntN(3)))
		l := s.load(mix{more: 3})
		s.stoppedAt(victim, point)
		over := map[toolyard.BatchKey]bool{}
		s.until(faultWait, "another dispatcher has adopted a batch", func() bool { return l.adopted(over) > 0 })
		victim.signal(syscall.SIGCONT)
		s.faultOver()
		l.finish()
		return rules{}
	})
}

// adopted counts the takeovers in the logs of the load's batches, but for those that were over before; it notes which
// are now. A batch may be over soon after it was adopted, and its agent several batches on.
func (l *load) adopted(over map[toolyard.BatchKey]bool) (n int) {
	l.s.t.Helper()
	l.mu.Lock()
	subs := append([]*verdict.Submission(nil), l.submissions...)
	l.mu.Unlock()
	for _, sub := range subs {
		if over[sub.Key()] {
			continue
		}
		st, err := l.s.b.Fold(l.s.context(), sub.Key())
		if err == nil {
			n += st.Takeovers
			over[sub.Key()] = st.Completed
		}
	}
	return n
}

// TestABatchEndsItsDispatchers (D12): each dispatcher dies that takes a batch up. The one after them gives it up, and
// runs others.
func TestABatchEndsItsDispatchers(t *testing.T) {
	cell(t, "D12", func(s *system) rules {
		s.basic()
		s.worker("worker-a", "")
		l := &load{s: s}
		s.loads = append(s.loads, l)
		batch := func(id toolyard.BatchID) toolyard.Batch {
			return toolyard.Batch{Agent: "dan", ID: id, Calls: []toolyard.Call{{Tool: "look",
				Input: raw(map[string]int{"work_ms": 1})}}}
		}
		deadly, err := s.client().Submit(s.context(), batch("deadly"))
		if err != nil {
			s.t.Fatal(err)
		}
		for n := range dispatcher.UsualDeliveries + dispatcher.MaxDeaths {
			victim := s.launch(fmt.Sprintf("dispatcher-%d", n), string(failpoint.BatchReceived)+"=kill", "dispatcher",
				"serve", "--nats", s.url, "--listen", "127.0.0.1:0")
			s.killedAt(victim, failpoint.BatchReceived)
		}
		s.faultOver()
		s.dispatcher("successor", "")
		for _, err = range deadly.Results(s.context()) {
		}
		if refused, ok := errors.AsType[*client.RefusedError](err); !ok || refused.Status != 500 {
			s.t.Errorf("the batch ended with %v", err)
		}
		if r := l.extra(batch("other")).Results[0]; r.IsError {
			s.t.Errorf("another batch: %s %s", r.Code, r.Error)
		}
		l.finish()
		return rules{givesUp: true, foreign: []toolyard.BatchKey{deadly.Key()}}
	})
}
