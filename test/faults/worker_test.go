//go:build unix

package faults

import (
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/failpoint"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// killWorker is a cell in which one of two workers kills itself at a place, under load. happened looks at what is left
// and says whether the fault is to be seen there.
func killWorker(t *testing.T, id string, point failpoint.Name, happened func(s *system, l *load, victim *process)) {
	cell(t, id, func(s *system) rules {
		s.basic()
		victim, _ := s.twoOfEach(fmt.Sprintf("%s=kill@%d", point, 1+s.rand.IntN(3)), "")
		l := s.load(mix{})
		s.killedAt(victim, point)
		s.faultOver()
		s.worker("successor", "")
		l.finish()
		if happened != nil {
			happened(s, l, victim)
		}
		return rules{harmed: []*process{victim}}
	})
}

// claimIsSettled checks that the victim left a claim behind, and that somebody else ended each that it left.
func claimIsSettled(s *system, l *load, victim *process) {
	s.t.Helper()
	left := 0
	for _, sub := range l.submissions {
		log, err := s.b.Log(s.context(), sub.Key())
		must.OK(s.t, err)
		open := map[int]bool{} // calls that the victim has claimed and not ended
		for _, e := range log {
			if e.Chain != batch.ChainItem {
				continue
			}
			c, claims := e.Body.(events.Claimed)
			switch {
			case claims && c.Worker == victim.said("id"):
				open[e.Index] = true
			case open[e.Index]:
				if e.Meta.Source != "/worker/"+victim.said("id") {
					left++
				}
				delete(open, e.Index)
			}
		}
		for i := range open {
			s.t.Errorf("the claim of %s/%d, which its worker left behind, has no end", sub.Key(), i)
		}
	}
	if left == 0 {
		s.t.Error("no worker left a claim behind")
	}
}

// begunAndNotEnded counts the calls that a process has begun and not ended.
func (s *system) begunAndNotEnded(p *process) (n int) {
	s.t.Helper()
	lines, err := ledger.Read(s.ledger())
	must.OK(s.t, err)
	for _, l := range lines {
		if l.Worker != p.pid() {
			continue
		}
		switch l.Kind {
		case ledger.Begin:
			n++
		case ledger.End:
			n--
		}
	}
	return n
}

// TestWorkerDiesBeforeClaim (W1): a worker dies when it has received a call and has not claimed it. Another worker runs
// the call.
func TestWorkerDiesBeforeClaim(t *testing.T) { killWorker(t, "W1", failpoint.CallTaken, nil) }

// TestWorkerDiesAfterClaim (W2): a worker dies when it has claimed a call and has not started the tool.
func TestWorkerDiesAfterClaim(t *testing.T) {
	killWorker(t, "W2", failpoint.CallClaimed, claimIsSettled)
}

// TestWorkerDiesDuringEffect (W3): a worker dies in the middle of an exclusive call's effect.
func TestWorkerDiesDuringEffect(t *testing.T) {
	killWorker(t, "W3", failpoint.EffectBegun, func(s *system, l *load, victim *process) {
		claimIsSettled(s, l, victim)
		if s.begunAndNotEnded(victim) == 0 {
			s.t.Error("the worker was killed in the middle of an effect, and the ledger has none that was begun and " +
				"not ended")
		}
	})
}

// TestWorkerDiesBeforeResultIsStored (W4): a worker dies when the tool is done and its result is not stored.
func TestWorkerDiesBeforeResultIsStored(t *testing.T) {
	killWorker(t, "W4", failpoint.ResultReady, nil)
}

// TestWorkerDiesBeforeAck (W5): a worker dies when the result is stored and the call is not acknowledged.
func TestWorkerDiesBeforeAck(t *testing.T) { killWorker(t, "W5", failpoint.ResultStored, nil) }

// stopWorker is a cell in which one of two workers is stopped at a place for three call ack waits, and wakes up.
func stopWorker(t *testing.T, id string, point failpoint.Name, zombie bool) {
	cell(t, id, func(s *system) rules {
		s.basic()
		victim, _ := s.twoOfEach(fmt.Sprintf("%s=stop@%d", point, 1+s.rand.IntN(3)), "")
		l := s.load(mix{more: 2})
		s.stoppedAt(victim, point)
		since := time.Now()
		s.until(faultWait, "three ack waits have passed",
			func() bool { return time.Since(since) > 3*s.settings.CallAckWait })
		victim.signal(syscall.SIGCONT)
		s.faultOver()
		s.until(faultWait, "the worker that woke up has ended what it had begun",
			func() bool { return s.begunAndNotEnded(victim) == 0 })
		l.finish()
		claimIsSettled(s, l, victim)
		return rules{harmed: []*process{victim}, zombie: zombie}
	})
}

// TestWorkerWakesBeforeCommitPoint (W6): a worker is stopped in the middle of an exclusive call and wakes up when the
// call is settled. The call's commit point refuses it.
func TestWorkerWakesBeforeCommitPoint(t *testing.T) {
	stopWorker(t, "W6", failpoint.EffectBegun, false)
}

// TestWorkerWakesAfterCommitPoint (W6): a worker is stopped between the commit point and the effect, where no code of
// ours can refuse it. What the tool acts on refuses the old fencing token if another group had the workspace
// meanwhile.
func TestWorkerWakesAfterCommitPoint(t *testing.T) {
	stopWorker(t, "W6late", failpoint.EffectDue, true)
}

// TestWorkerHangsWhileIdle (W8): a worker hangs while it waits for calls, with its connection open. A call that was
// delivered to it goes to the other worker on redelivery, and not to the hanging one again: each agent's read waits
// one call ack wait at most.
func TestWorkerHangsWhileIdle(t *testing.T) {
	cell(t, "W8", func(s *system) rules {
		s.basic()
		victim := s.worker("worker-a", "") // it asks first
		s.worker("worker-b", "")
		s.dispatcher("dispatcher", "")
		victim.signal(syscall.SIGSTOP)
		s.until(faultWait, "the worker is stopped", victim.stopped)
		l := &load{s: s}
		s.loads = append(s.loads, l)
		const agents = 6
		var wg sync.WaitGroup
		for i := range agents {
			sub := &verdict.Submission{Batch: toolyard.Batch{
				Agent: toolyard.Agent(fmt.Sprint("agent", i)), ID: "read", Workspace: "dan",
				Calls: repeated("look", 1, nil), Options: toolyard.Options{TimeoutMS: batchTimeout.Milliseconds()},
			}}
			l.mu.Lock()
			l.submissions = append(l.submissions, sub)
			l.mu.Unlock()
			c := s.client()
			wg.Go(func() {
				began := time.Now()
				l.one(sub, 0, nil, mix{quiet: true}, c, c)
				s.t.Logf("%s: the result after %s", sub.Key(), time.Since(began))
			})
		}
		wg.Wait()
		s.faultOver()
		if n := s.deliveries(); n > 2*agents {
			s.t.Errorf("%d calls were delivered %d times, want twice each at most", agents, n)
		}
		victim.kill()
		return rules{harmed: []*process{victim}}
	})
}

// deliveries is how often messages of the work queue were delivered.
func (s *system) deliveries() (n int) {
	s.t.Helper()
	stream, err := s.js.Stream(s.context(), "TY_CALL")
	must.OK(s.t, err)
	lanes := stream.ListConsumers(s.context())
	for c := range lanes.Info() {
		n += int(c.Delivered.Consumer)
	}
	must.OK(s.t, lanes.Err())
	return n
}

// census asks a worker's process what it holds.
func (s *system) census(l *load, name string) (out map[string]int64) {
	s.t.Helper()
	sub := l.extra(toolyard.Batch{Agent: "census", ID: toolyard.BatchID(name), Workspace: "census",
		Calls: []toolyard.Call{{Tool: "census"}}})
	if len(sub.Results) != 1 || sub.Results[0].IsError {
		s.t.Fatalf("the census failed: %+v", sub.Results)
	}
	must.OK(s.t, json.Unmarshal([]byte(sub.Results[0].Output), &out))
	return out
}

// TestToolsIgnoreTheirEnd (W7): tools ignore the end of their call, leak, use up memory and fork. Each call has its
// result in time, and afterwards the worker holds what it held before.
func TestToolsIgnoreTheirEnd(t *testing.T) {
	cell(t, "W7", func(s *system) rules {
		s.basic()
		worker := s.worker("worker", "", "--read-slots", "64")
		s.dispatcher("dispatcher", "")
		l := s.load(mix{quiet: true})
		before := s.census(l, "before")
		const limit, deaf = 300 * time.Millisecond, 4 * time.Second
		for name, c := range map[string]struct {
			calls []toolyard.Call
			codes []toolyard.Code
		}{
			"deaf": {repeated("deaf", 20, map[string]any{"work_ms": deaf.Milliseconds()}),
				[]toolyard.Code{toolyard.Timeout, toolyard.SiblingCanceled}},
			"deaf write": {repeated("deaf_write", 2, map[string]any{"work_ms": deaf.Milliseconds()}),
				[]toolyard.Code{toolyard.Timeout}},
			"leak": {repeated("leak", 4, map[string]any{"work_ms": deaf.Milliseconds()}),
				[]toolyard.Code{toolyard.OK}},
			"eat": {repeated("eat", 4, map[string]any{"bytes": 64 << 20}), []toolyard.Code{toolyard.OK}},
			"fork": {repeated("fork", 1, map[string]any{"work_ms": time.Hour.Milliseconds()}),
				[]toolyard.Code{toolyard.Timeout}},
		} {
			b := toolyard.Batch{Agent: "dan", ID: toolyard.BatchID(name), Workspace: "dan", Calls: c.calls}
			if c.codes[0] == toolyard.Timeout {
				b.Options.CallTimeoutMS = limit.Milliseconds()
			}
			began := time.Now()
			sub := l.extra(b)
			if took := time.Since(began); c.codes[0] == toolyard.Timeout && took > deaf {
				s.t.Errorf("Q12: %s: the results came after %s, and the limit of a call is %s", name, took, limit)
			}
			for _, r := range sub.Results {
				if r.Code != c.codes[0] && r.Code != c.codes[len(c.codes)-1] {
					s.t.Errorf("%s ended as %q: %s", name, r.Code, r.Error)
				}
			}
		}
		s.faultOver()
		l.finish()
		s.until(faultWait, "the deaf tools are done", func() bool { return s.begunAndNotEnded(worker) == 0 })
		n := 0
		s.until(faultWait, "the worker holds what it held before", func() bool {
			n++
			now := s.census(l, fmt.Sprint("after-", n))
			return now["goroutines"] <= before["goroutines"]+10 && now["fds"] <= before["fds"]+2 &&
				now["heap"] <= before["heap"]+(32<<20)
		})
		codes := map[string][]toolyard.Code{}
		for _, name := range []string{"deaf", "deaf_write", "fork"} {
			codes[name] = []toolyard.Code{toolyard.Timeout, toolyard.SiblingCanceled}
		}
		return rules{codes: codes, told: deaf + 3*time.Second}
	})
}
