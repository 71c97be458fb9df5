// Package quota bounds how many things are under way, in all and for each agent. The two doors of the
// dispatcher, HTTP and MCP, ask it; each has its own words for a refusal. It is safe for concurrent use, and keeps
// nothing of an agent that has nothing under way.
package quota

import (
	"fmt"
	"sync"

	"github.com/toolyard/toolyard"
)

// Quota counts what is under way.
type Quota struct {
	most, mostEach int

	mu   sync.Mutex
	all  int
	each map[toolyard.Agent]int
}

// New returns a quota of so many in all, and so many for each agent.
func New(most, mostEach int) *Quota {
	return &Quota{most: most, mostEach: mostEach, each: map[toolyard.Agent]int{}}
}

// FullError says that a bound is reached.
type FullError struct {
	Count int
	// OfAgent says that it is the agent's bound, and not that of all together.
	OfAgent bool
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%d are under way, the most that may be", e.Count)
}

// Enter counts one more, until leave is called, once. own is the agent's own bound, where that is lower than each
// agent's; 0: it has none, negative: it is not bounded but with all others.
func (q *Quota) Enter(agent toolyard.Agent, own int) (leave func(), full *FullError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := q.mostEach
	if own > 0 {
		most = min(most, own)
	}
	switch {
	case q.all >= q.most:
		return nil, &FullError{Count: q.all}
	case own >= 0 && q.each[agent] >= most:
		return nil, &FullError{Count: q.each[agent], OfAgent: true}
	}
	q.all++
	q.each[agent]++
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.all--
		if q.each[agent]--; q.each[agent] == 0 {
			delete(q.each, agent)
		}
	}), nil
}
