package admission

import "github.com/toolyard/toolyard"

// Lanes assigns agents to the lanes of the work queues. Workers serve the lanes in turn, so agents in one lane wait
// for each other. An agent gets the lane where the fewest batches run when its first batch starts, and keeps it
// while it has one: an agent that floods has a lane to itself while there are more lanes than such agents. It is
// not safe for concurrent use.
type Lanes struct {
	// home is an agent's lane among equals. It is the same in every dispatcher, so that these tend to the same lane.
	preferred func(toolyard.Agent) int
	load      []int // batches that run, by lane
	assigned  map[toolyard.Agent]*assignment
}

type assignment struct{ lane, batches int }

// NewLanes makes n lanes without agents. preferred gives an agent's lane among equals.
func NewLanes(n int, home func(toolyard.Agent) int) *Lanes {
	return &Lanes{preferred: home, load: make([]int, n), assigned: map[toolyard.Agent]*assignment{}}
}

// Enter counts a batch that starts.
func (l *Lanes) Enter(a toolyard.Agent) {
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
func (l *Lanes) Leave(a toolyard.Agent) {
	s := l.assigned[a]
	s.batches--
	l.load[s.lane]--
	if s.batches == 0 {
		delete(l.assigned, a)
	}
}

// Of returns the lane of an agent's calls.
func (l *Lanes) Of(a toolyard.Agent) int {
	if s := l.assigned[a]; s != nil {
		return s.lane
	}
	return l.preferred(a)
}
