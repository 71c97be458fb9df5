package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
)

// trial drives a queue and checks its properties.
type trial struct {
	t      *testing.T
	queue  *Queue
	limits Limits
	// waiting are the new batches by agent and priority, in the order in which they came; ahead those under way. came
	// numbers the former.
	waiting map[line][]toolyard.BatchID
	came    map[toolyard.BatchID]int
	ahead   []toolyard.BatchKey
	running []toolyard.BatchKey
	idle    []toolyard.BatchKey
	// passed counts, for each agent that could have started, how often each other agent started before it. streak is
	// how many interactive batches have started in a row while a bulk one could.
	passed map[line]map[toolyard.Agent]int
	streak int
	n      int
	log    []string
}

// line is what stands in one order: the batches of an agent of one priority.
type line struct {
	agent toolyard.Agent
	p     toolyard.Priority
}

func newTrial(t *testing.T, l Limits) *trial {
	return &trial{t: t, queue: NewQueue(l, nil), limits: l, waiting: map[line][]toolyard.BatchID{},
		came: map[toolyard.BatchID]int{}, passed: map[line]map[toolyard.Agent]int{}}
}

// waitsOf is how many batches of an agent wait.
func (tr *trial) waitsOf(a toolyard.Agent) int {
	return len(tr.waiting[line{a, toolyard.Interactive}]) + len(tr.waiting[line{a, toolyard.Bulk}])
}

func (tr *trial) fail(format string, args ...any) {
	tr.t.Helper()
	tr.t.Fatalf("%s\nafter %v", fmt.Sprintf(format, args...), tr.log)
}

func (tr *trial) waits() (n int) {
	for _, w := range tr.waiting {
		n += len(w)
	}
	return n
}

func (tr *trial) runs(a toolyard.Agent) (n int) {
	for _, k := range tr.running {
		if k.Agent == a {
			n++
		}
	}
	return n
}

func (tr *trial) arrive(a toolyard.Agent, p toolyard.Priority, underWay bool) {
	defer tr.settle()
	tr.n++
	k := toolyard.BatchKey{Agent: a, ID: toolyard.BatchID(fmt.Sprint(tr.n))}
	tr.log = append(tr.log, fmt.Sprintf("+%s/%s/%s", k, p, map[bool]string{true: "!"}[underWay]))
	before, all := tr.waitsOf(a), tr.waits()
	said := tr.queue.WouldReject(k.Agent, 1)
	away, why := tr.queue.Add(Batch{Key: k, Priority: p, Calls: 1, Begins: 1, Bytes: 1}, underWay, time.Time{})
	if mine := away == k; !underWay && (said != Admitted) != (mine && why != Admitted) {
		tr.t.Fatalf("of %s it is said %q, and %s is turned away: %q", k, said, away, why)
	}
	if underWay {
		if why != Admitted {
			tr.fail("a batch under way turned %s away: %s", away, why)
		}
		tr.ahead = append(tr.ahead, k)
		return
	}
	tr.waiting[line{a, p}] = append(tr.waiting[line{a, p}], k.ID)
	tr.came[k.ID] = tr.n
	switch {
	case before == tr.limits.AgentWaiting:
		if why != AgentFull || away != k {
			tr.fail("%s came where %d of its agent wait: %q, %s", k, before, why, away)
		}
	case all == tr.limits.Waiting:
		if why != QueueFull {
			tr.fail("%s came where %d wait: %q", k, all, why)
		}
		for other := range tr.waiting {
			if tr.waitsOf(other.agent) > tr.waitsOf(away.Agent) {
				tr.fail("%s was turned away, and %s has more waiting", away, other.agent)
			}
		}
	case why != Admitted:
		tr.fail("%s was turned away without need: %s", away, why)
	}
	if why == Admitted {
		return
	}
	for _, p := range []toolyard.Priority{toolyard.Interactive, toolyard.Bulk} {
		at := line{away.Agent, p}
		w := tr.waiting[at]
		if len(w) > 0 && w[len(w)-1] == away.ID {
			tr.waiting[at] = w[:len(w)-1]
		}
		for _, id := range tr.waiting[at] {
			if tr.came[id] >= tr.came[away.ID] {
				tr.fail("%s was turned away, which is not its agent's newest", away)
			}
		}
	}
}

// eligible are the agents that have a new batch which their own cap lets start, with its priority.
func (tr *trial) eligible() (out []line) {
	for l, w := range tr.waiting {
		if len(w) > 0 && tr.runs(l.agent) < tr.limits.AgentRunning {
			out = append(out, l)
		}
	}
	return out
}

func (tr *trial) start() {
	defer tr.settle()
	could := tr.eligible()
	b, ok := tr.queue.Next(time.Time{})
	k := b.Key
	tr.log = append(tr.log, fmt.Sprintf(">%v", k))
	aheadMay := len(tr.ahead) > 0 && len(tr.running) < tr.limits.Running+tr.limits.Spare
	newMay := len(could) > 0 && len(tr.running) < tr.limits.Running &&
		len(tr.running)+len(tr.idle) < tr.limits.Running+tr.limits.Idle
	if ok != (aheadMay || newMay) {
		tr.fail("started %v: %v, with %d running, %d ahead, %v that could", k, ok, len(tr.running), len(tr.ahead),
			could)
	}
	if !ok {
		return
	}
	tr.running = append(tr.running, k)
	if aheadMay {
		if k != tr.ahead[0] {
			tr.fail("started %s before %s, which is under way", k, tr.ahead[0])
		}
		tr.ahead = tr.ahead[1:]
		return
	}
	mine := line{k.Agent, b.Priority}
	if !slices.Contains(could, mine) || tr.waiting[mine][0] != k.ID {
		tr.fail("started %s, which is not the next of an agent that may start", k)
	}
	of := func(p toolyard.Priority) bool {
		return slices.ContainsFunc(could, func(l line) bool { return l.p == p })
	}
	both := of(toolyard.Interactive) && of(toolyard.Bulk)
	if due := tr.streak == BulkEvery-1; both && (b.Priority == toolyard.Bulk) != due {
		tr.fail("started %s of priority %s after %d interactive ones in a row", k, b.Priority, tr.streak)
	}
	if tr.streak++; !both || b.Priority == toolyard.Bulk {
		tr.streak = 0
	}
	tr.waiting[mine] = tr.waiting[mine][1:]
	delete(tr.passed, mine)
	for _, l := range could {
		if l.agent == k.Agent || l.p != b.Priority {
			continue
		}
		if tr.passed[l] == nil {
			tr.passed[l] = map[toolyard.Agent]int{}
		}
		if tr.passed[l][k.Agent]++; tr.passed[l][k.Agent] > 1 {
			tr.fail("%s started twice while %s waited for its turn", k.Agent, l.agent)
		}
	}
}

// settle drops the counts of agents that cannot start a batch now.
func (tr *trial) settle() {
	could := tr.eligible()
	for l := range tr.passed {
		if !slices.Contains(could, l) {
			delete(tr.passed, l)
		}
	}
}

func (tr *trial) done(i int) {
	k := tr.running[i]
	tr.log = append(tr.log, "-"+k.String())
	tr.queue.Remove(k, time.Time{})
	tr.running = slices.Delete(tr.running, i, i+1)
}

// rest makes a running batch idle, and wake an idle one run.
func (tr *trial) rest(i int) {
	k := tr.running[i]
	tr.log = append(tr.log, "z"+k.String())
	tr.queue.Idle(k)
	tr.running, tr.idle = slices.Delete(tr.running, i, i+1), append(tr.idle, k)
}

func (tr *trial) wake(i int) {
	defer tr.settle()
	k := tr.idle[i]
	tr.log = append(tr.log, "!"+k.String())
	tr.queue.Busy(k)
	tr.idle, tr.running = slices.Delete(tr.idle, i, i+1), append(tr.running, k)
}

// leave ends an idle batch.
func (tr *trial) leave(i int) {
	k := tr.idle[i]
	tr.log = append(tr.log, "-"+k.String())
	tr.queue.Remove(k, time.Time{})
	tr.idle = slices.Delete(tr.idle, i, i+1)
}

// empty ends and starts everything, and finds that nothing was forgotten and nothing is left.
func (tr *trial) empty() {
	for len(tr.idle) > 0 {
		tr.leave(0)
	}
	for len(tr.running) > 0 || len(tr.ahead) > 0 || tr.waits() > 0 {
		n := len(tr.running)
		tr.start()
		if len(tr.running) == n {
			if n == 0 {
				tr.fail("%d batches wait for ever", tr.waits()+len(tr.ahead))
			}
			tr.done(0)
		}
	}
	if tr.queue.running != 0 || tr.queue.waiting != 0 || len(tr.queue.idle) != 0 || len(tr.queue.agents) != 0 ||
		len(tr.queue.turns[interactive])+len(tr.queue.turns[bulk]) != 0 || len(tr.queue.started) != 0 {
		tr.fail("an empty room holds %+v", tr.queue)
	}
}

// TestRoomExhaustively plays every sequence of steps of a small room: two agents, every arrival, start and end.
func TestQueueExhaustively(t *testing.T) {
	steps := []func(*trial){
		func(tr *trial) { tr.arrive("a", toolyard.Interactive, false) },
		func(tr *trial) { tr.arrive("b", toolyard.Interactive, false) },
		func(tr *trial) { tr.arrive("a", toolyard.Interactive, true) },
		func(tr *trial) { tr.start() },
		func(tr *trial) {
			if len(tr.running) > 0 {
				tr.done(0)
			}
		},
		func(tr *trial) {
			if len(tr.running) > 1 {
				tr.done(len(tr.running) - 1)
			}
		},
		func(tr *trial) {
			if len(tr.running) > 0 {
				tr.rest(0)
			}
		},
		func(tr *trial) {
			if len(tr.idle) > 0 {
				tr.wake(0)
			}
		},
	}
	l := Limits{Running: 2, AgentRunning: 1, Waiting: 3, AgentWaiting: 2, Spare: 1, Idle: 1}
	played := 0
	play := func(steps []func(*trial), depth int) {
		for n := range pow(len(steps), depth) {
			tr := newTrial(t, l)
			for range depth {
				steps[n%len(steps)](tr)
				n /= len(steps)
			}
			tr.empty()
			played++
		}
	}
	play(steps, 6)
	play(append(steps, func(tr *trial) { tr.arrive("a", toolyard.Bulk, false) }), 5)
	t.Logf("%d histories", played)
}

func pow(base, exp int) int {
	out := 1
	for range exp {
		out *= base
	}
	return out
}

// TestRoomAtRandom plays long histories of rooms of all sizes with several agents.
func TestQueueAtRandom(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		tr := newTrial(t, Limits{Running: 1 + r.IntN(6), AgentRunning: 1 + r.IntN(4), Waiting: 1 + r.IntN(12),
			AgentWaiting: 1 + r.IntN(6), Spare: r.IntN(3), Idle: r.IntN(4)})
		for range 300 {
			switch n := r.IntN(13); {
			case n == 10 && len(tr.running) > 0:
				tr.rest(r.IntN(len(tr.running)))
			case n == 11 && len(tr.idle) > 0:
				tr.wake(r.IntN(len(tr.idle)))
			case n == 12 && len(tr.idle) > 0:
				tr.leave(r.IntN(len(tr.idle)))
			case n < 5:
				a := toolyard.Agent("flood")
				if r.IntN(3) == 0 {
					a = toolyard.Agent(fmt.Sprint("agent ", r.IntN(5)))
				}
				p := []toolyard.Priority{toolyard.Interactive, toolyard.Bulk}[r.IntN(2)]
				tr.arrive(a, p, r.IntN(8) == 0)
			case n < 8:
				tr.start()
			case len(tr.running) > 0:
				tr.done(r.IntN(len(tr.running)))
			}
		}
		tr.empty()
	}
}

// TestAQuietAgentWaitsForOneTurn: however many batches of another wait, a new agent's is the next but one at most.
func TestAQuietAgentWaitsForOneTurn(t *testing.T) {
	tr := newTrial(t, Limits{Running: 1, AgentRunning: 1, Waiting: 10_000, AgentWaiting: 10_000})
	for range 1_000 {
		tr.arrive("flood", toolyard.Interactive, false)
	}
	tr.start()
	tr.arrive("quiet", toolyard.Interactive, false)
	for starts := 1; ; starts++ {
		tr.done(0)
		tr.start()
		if tr.running[0].Agent == "quiet" {
			if starts > 2 {
				t.Errorf("the quiet agent's batch was number %d", starts)
			}
			return
		}
	}
}
