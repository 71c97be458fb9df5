package admission

import "github.com/toolyard/toolyard"

// Lanes says in which lane of the work queues an agent's calls are queued. Workers serve the lanes in turn, so agents that
// share one wait for each other. An agent gets the lane where the fewest batches run when its first batch starts, and keeps
// it while it has one: who floods has a lane to itself while there are more lanes than such agents. It is not safe for
// concurrent use.
type Lanes struct {
	// home is an agent's lane among equals. It is the same in every dispatcher, so that these tend to the same lane.
	home  func(toolyard.Agent) int
	load  []int // batches that run, by lane
	seats map[toolyard.Agent]*seat
}

type seat struct{ lane, batches int }

// NewLanes makes n lanes without agents. home gives each agent one of them.
func NewLanes(n int, home func(toolyard.Agent) int) *Lanes {
	return &Lanes{home: home, load: make([]int, n), seats: map[toolyard.Agent]*seat{}}
}

// Enter is told of a batch that begins to run.
func (l *Lanes) Enter(a toolyard.Agent) {
	s := l.seats[a]
	if s == nil {
		s = &seat{lane: l.home(a)}
		for lane, n := range l.load {
			if n < l.load[s.lane] {
				s.lane = lane
			}
		}
		l.seats[a] = s
	}
	s.batches++
	l.load[s.lane]++
}

// Leave is told of a batch that runs no more.
func (l *Lanes) Leave(a toolyard.Agent) {
	s := l.seats[a]
	s.batches--
	l.load[s.lane]--
	if s.batches == 0 {
		delete(l.seats, a)
	}
}

// Of is the lane of an agent's calls.
func (l *Lanes) Of(a toolyard.Agent) int {
	if s := l.seats[a]; s != nil {
		return s.lane
	}
	return l.home(a)
}
