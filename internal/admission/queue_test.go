package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
)

// trial drives a queue and checks its properties.
type trial struct {
	t      *testing.T
	queue  *Queue
	limits Limits
	// waiting are the new batches by agent, in the order in which they came; ahead those under way.
	waiting map[toolyard.Agent][]toolyard.BatchID
	ahead   []toolyard.BatchKey
	running []toolyard.BatchKey
	idle    []toolyard.BatchKey
	// passed counts, for each agent that could have started, how often each other agent started before it.
	passed map[toolyard.Agent]map[toolyard.Agent]int
	n      int
	log    []string
}

func newTrial(t *testing.T, l Limits) *trial {
	return &trial{t: t, queue: NewQueue(l), limits: l, waiting: map[toolyard.Agent][]toolyard.BatchID{},
		passed: map[toolyard.Agent]map[toolyard.Agent]int{}}
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

func (tr *trial) arrive(a toolyard.Agent, underWay bool) {
	defer tr.settle()
	tr.n++
	k := toolyard.BatchKey{Agent: a, ID: toolyard.BatchID(fmt.Sprint(tr.n))}
	tr.log = append(tr.log, fmt.Sprintf("+%s/%s", k, map[bool]string{true: "!"}[underWay]))
	before, all := len(tr.waiting[a]), tr.waits()
	said := tr.queue.WouldReject(k.Agent)
	away, why := tr.queue.Add(k, underWay)
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
	tr.waiting[a] = append(tr.waiting[a], k.ID)
	switch {
	case before == tr.limits.AgentWaiting:
		if why != AgentFull || away != k {
			tr.fail("%s came where %d of its agent wait: %q, %s", k, before, why, away)
		}
	case all == tr.limits.Waiting:
		if why != QueueFull {
			tr.fail("%s came where %d wait: %q", k, all, why)
		}
		for other, w := range tr.waiting {
			if len(w) > len(tr.waiting[away.Agent]) {
				tr.fail("%s was turned away, and %s has more waiting", away, other)
			}
		}
	case why != Admitted:
		tr.fail("%s was turned away without need: %s", away, why)
	}
	if why != Admitted {
		w := tr.waiting[away.Agent]
		if w[len(w)-1] != away.ID {
			tr.fail("%s was turned away, which is not its agent's newest", away)
		}
		tr.waiting[away.Agent] = w[:len(w)-1]
	}
}

// eligible are the agents that have a new batch which their own cap lets start.
func (tr *trial) eligible() (out []toolyard.Agent) {
	for a, w := range tr.waiting {
		if len(w) > 0 && tr.runs(a) < tr.limits.AgentRunning {
			out = append(out, a)
		}
	}
	return out
}

func (tr *trial) start() {
	defer tr.settle()
	could := tr.eligible()
	k, ok := tr.queue.Next()
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
	if !slices.Contains(could, k.Agent) || tr.waiting[k.Agent][0] != k.ID {
		tr.fail("started %s, which is not the next of an agent that may start", k)
	}
	tr.waiting[k.Agent] = tr.waiting[k.Agent][1:]
	delete(tr.passed, k.Agent)
	for _, a := range could {
		if a == k.Agent {
			continue
		}
		if tr.passed[a] == nil {
			tr.passed[a] = map[toolyard.Agent]int{}
		}
		if tr.passed[a][k.Agent]++; tr.passed[a][k.Agent] > 1 {
			tr.fail("%s started twice while %s waited for its turn", k.Agent, a)
		}
	}
}

// settle drops the counts of agents that cannot start a batch now.
func (tr *trial) settle() {
	could := tr.eligible()
	for a := range tr.passed {
		if !slices.Contains(could, a) {
			delete(tr.passed, a)
		}
	}
}

func (tr *trial) done(i int) {
	k := tr.running[i]
	tr.log = append(tr.log, "-"+k.String())
	tr.queue.Remove(k)
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
	tr.queue.Remove(k)
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
		len(tr.queue.turns) != 0 {
		tr.fail("an empty room holds %+v", tr.queue)
	}
}

// TestRoomExhaustively plays every sequence of steps of a small room: two agents, every arrival, start and end.
func TestQueueExhaustively(t *testing.T) {
	const depth = 6
	steps := []func(*trial){
		func(tr *trial) { tr.arrive("a", false) },
		func(tr *trial) { tr.arrive("b", false) },
		func(tr *trial) { tr.arrive("a", true) },
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
	for n := range pow(len(steps), depth) {
		tr := newTrial(t, l)
		for range depth {
			steps[n%len(steps)](tr)
			n /= len(steps)
		}
		tr.empty()
		played++
	}
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
				tr.arrive(a, r.IntN(8) == 0)
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
		tr.arrive("flood", false)
	}
	tr.start()
	tr.arrive("quiet", false)
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
