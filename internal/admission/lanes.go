package admission

import "github.com/toolyard/toolyard"

// Lanes assigns agents to the lanes of the work queues. Workers serve the lanes in turn, so agents in one lane wait for
// each other. An agent gets the lane with the fewest running batches when its first batch starts, and keeps it while it
// has a batch. So an agent with a flood of batches has its own lane as long as there are more lanes than such agents.
//
// Bulk batches have the last lane, and count there like others: agents get it for interactive ones when all other lanes
// have as many. So the calls of bulk batches have one turn among those of all lanes that have calls, and no more,
// however many there are. Lanes is not safe for concurrent use.
type Lanes struct {
	// preferred is an agent's lane if several have equally few batches. It is the same in every dispatcher, so that
	// they choose the same lane.
	preferred func(toolyard.Agent) int
	load      []int // running batches, by lane
	assigned  map[toolyard.Agent]*assignment
}

type assignment struct{ lane, batches int }

// NewLanes makes n lanes without agents. home returns an agent's lane if several have equally few batches.
func NewLanes(n int, home func(toolyard.Agent) int) *Lanes {
	return &Lanes{preferred: home, load: make([]int, n), assigned: map[toolyard.Agent]*assignment{}}
}

// Enter counts a batch that starts.
func (l *Lanes) Enter(a toolyard.Agent, p toolyard.Priority) {
	if p == toolyard.Bulk {
		l.load[len(l.load)-1]++
		return
	}
	s := l.assigned[a]
	if s == nil {
		s = &assignment{lane: l.preferred(a)}
		for lane, n := range l.load {
			if n < l.load[s.lane] {
				s.lane = lane
			}
		}
		l.assigned[a] = s
	}
	s.batches++
	l.load[s.lane]++
}

// Leave counts a batch that has ended.
func (l *Lanes) Leave(a toolyard.Agent, p toolyard.Priority) {
	if p == toolyard.Bulk {
		l.load[len(l.load)-1]--
		return
	}
	s := l.assigned[a]
	s.batches--
	l.load[s.lane]--
	if s.batches == 0 {
		delete(l.assigned, a)
	}
}

// Of returns the lane of an agent's calls.
func (l *Lanes) Of(a toolyard.Agent, p toolyard.Priority) int {
	if p == toolyard.Bulk {
		return len(l.load) - 1
	}
	if s := l.assigned[a]; s != nil {
		return s.lane
	}
	return l.preferred(a)
}
