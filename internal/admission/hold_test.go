package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// holdTrial is a dispatcher with a team, in which small batches come without end.
type holdTrial struct {
	t       *testing.T
	queue   *Queue
	now     time.Time
	ends    map[toolyard.BatchKey]time.Time
	n       int
	started map[toolyard.Agent]int
}

func newHoldTrial(t *testing.T, team Quota) *holdTrial {
	q := NewQuotas(Grants{Teams: []Grant{{"team-*", team}}})
	q.Know(true)
	return &holdTrial{t: t, now: time.Unix(1_000_000, 0), ends: map[toolyard.BatchKey]time.Time{},
		started: map[toolyard.Agent]int{}, queue: NewQueue(Limits{Running: 100, AgentRunning: 100, Waiting: 1_000,
			AgentWaiting: 1_000}, q)}
}

func (h *holdTrial) arrive(a toolyard.Agent, p toolyard.Priority, calls int) {
	h.n++
	k := toolyard.BatchKey{Agent: a, ID: toolyard.BatchID(fmt.Sprint(h.n))}
	if _, why := h.queue.Add(Batch{Key: k, Priority: p, Calls: calls, Begins: calls, Bytes: 1}, false,
		h.now); why != Admitted {
		h.t.Fatalf("%s is turned away: %s", k, why)
	}
}

// after plays so much time, in which batches run for some time each, one small batch ends at a time, and of each of
// some agents a small one always waits.
func (h *holdTrial) after(d, runs time.Duration, small ...toolyard.Agent) {
	const step = 50 * time.Millisecond
	for end := h.now.Add(d); h.now.Before(end); h.now = h.now.Add(step) {
		for _, a := range small {
			if l := h.queue.agents[a]; l == nil || l.waits() == 0 {
				h.arrive(a, toolyard.Interactive, 1)
			}
		}
		for k, at := range h.ends {
			if !h.now.Before(at) {
				h.queue.Remove(k, h.now)
				delete(h.ends, k)
				break // the others later, so that there is never much room at once
			}
		}
		h.start(runs)
		_, number := h.queue.Report(h.now)
		h.queue.Settle(number, h.now)
		h.start(runs)
	}
}

func (h *holdTrial) start(runs time.Duration) {
	for b, ok := h.queue.Next(h.now); ok; b, ok = h.queue.Next(h.now) {
		h.ends[b.Key] = h.now.Add(runs)
		h.started[b.Key.Agent]++
	}
}

// TestAWideBatchFindsRoom in the quota of a team, although smaller batches always wait that fit sooner.
func TestAWideBatchFindsRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		quota  Quota
		p      toolyard.Priority
		calls  int
		runs   time.Duration
		within time.Duration
	}{
		"calls":            {Quota{Calls: 4}, toolyard.Interactive, 4, 200 * time.Millisecond, 10 * time.Second},
		"calls of minutes": {Quota{Calls: 4}, toolyard.Interactive, 4, 90 * time.Second, 20 * time.Minute},
		"bulk":             {Quota{Calls: 4}, toolyard.Bulk, 4, 200 * time.Millisecond, 30 * time.Second},
		"calls a minute": {Quota{CallsPerMinute: 60}, toolyard.Interactive, 61, 10 * time.Millisecond,
			10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHoldTrial(t, c.quota)
			h.after(2*time.Second, c.runs, "team-a", "team-b")
			h.arrive("team-wide", c.p, c.calls)
			h.after(c.within, c.runs, "team-a", "team-b")
			if h.started["team-wide"] != 1 {
				t.Errorf("%v have started in %s, and the wide batch waits", h.started, c.within)
			}
			before := h.started["team-a"]
			h.after(time.Minute+c.runs, c.runs, "team-a", "team-b")
			if h.started["team-a"] == before {
				t.Error("no other batch starts behind the wide one")
			}
		})
	}
}

// TestAnIdleBatchStopsNoTeam: when others are held back in vain, they go on, for as long as they were held back.
func TestAnIdleBatchStopsNoTeam(t *testing.T) {
	t.Parallel()
	const minutes, runs = 30, time.Second
	h := newHoldTrial(t, Quota{Calls: 4})
	h.arrive("team-open", toolyard.Interactive, 1)
	h.after(time.Second, time.Hour)
	if h.started["team-open"] != 1 {
		t.Fatal("the open batch does not start")
	}
	h.arrive("team-wide", toolyard.Interactive, 4)
	var longest, idle time.Duration
	for range minutes * 60 {
		before := h.started["team-a"] + h.started["team-b"]
		h.after(time.Second, runs, "team-a", "team-b")
		if h.started["team-a"]+h.started["team-b"] > before {
			idle = 0
		} else {
			idle += time.Second
		}
		longest = max(longest, idle)
	}
	if h.started["team-wide"] != 0 {
		t.Error("the wide batch has started, and there was no room for it")
	}
	if longest > maxQuotaHold+2*time.Second || longest < maxQuotaHold/2 {
		t.Errorf("nothing started for %s", longest)
	}
	if n := h.started["team-a"] + h.started["team-b"]; n < minutes*60*3/2*8/10 {
		t.Errorf("%d batches have started in %d minutes, of three that may run for a second each", n, minutes)
	}
}

// TestHoldsAreForgotten when nothing waits for room any more.
func TestHoldsAreForgotten(t *testing.T) {
	t.Parallel()
	h := newHoldTrial(t, Quota{Calls: 4})
	h.after(time.Second, time.Second, "team-a", "team-b")
	h.arrive("team-wide", toolyard.Interactive, 4)
	h.after(20*time.Second, time.Second, "team-a", "team-b")
	h.after(20*time.Second, time.Second)
	if len(h.queue.holds) != 0 {
		t.Errorf("held back: %v", h.queue.holds)
	}
}

// TestTwoBatchesThatOthersAreHeldBackForHoldEachOtherBackForNothing: a bulk batch waits for room in its agent's quota,
// and an interactive one of the same agent for room in the team's. When there is room for one of them, one starts.
func TestTwoBatchesThatOthersAreHeldBackForHoldEachOtherBackForNothing(t *testing.T) {
	t.Parallel()
	for _, first := range []toolyard.Priority{toolyard.Bulk, toolyard.Interactive} {
		h := newHoldTrial(t, Quota{Calls: 6})
		h.queue.quotas.grants.Agents = []Grant{{"team-a", Quota{Calls: 4}}}
		h.arrive("team-a", toolyard.Interactive, 1)
		h.arrive("team-b", toolyard.Interactive, 5)
		h.after(time.Second, time.Hour)
		wide := map[toolyard.Priority]int{toolyard.Bulk: 4, toolyard.Interactive: 3}
		second := toolyard.Interactive
		if first == second {
			second = toolyard.Bulk
		}
		h.arrive("team-a", first, wide[first])
		h.after(time.Second, time.Hour)
		h.arrive("team-a", second, wide[second])
		h.after(8*time.Second, time.Hour)
		if len(h.queue.holds) != 2 || len(h.ends) != 2 {
			t.Fatalf("%d holds and %d batches that run, want 2 and 2", len(h.queue.holds), len(h.ends))
		}
		for k := range h.ends {
			h.queue.Remove(k, h.now)
			delete(h.ends, k)
		}
		h.after(200*time.Millisecond, time.Hour)
		if len(h.ends) != 1 {
			t.Errorf("the %s one came first: %d start, want one, for which there is room", first, len(h.ends))
		}
	}
}
