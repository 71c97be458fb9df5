package api

import "sync"

// gate bounds how many requests of a kind are under way, in all and for each agent.
type gate struct {
	most, mostEach int

	mu   sync.Mutex
	all  int
	each map[string]int
}

func newGate(most, mostEach int) *gate {
	return &gate{most: most, mostEach: mostEach, each: map[string]int{}}
}

// enter lets a caller in, until leave is called, once. Callers who may be anybody are bounded together only.
func (g *gate) enter(c caller) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	agent := string(c.agent)
	if g.all >= g.most {
		return nil, newProblem(429, "", "%d requests of this kind are under way, the most that this server has; try again later", g.all).again()
	}
	most := g.mostEach
	if c.grant.streams > 0 {
		most = min(most, c.grant.streams)
	}
	if !c.any && g.each[agent] >= most {
		return nil, newProblem(429, "", "%d requests of this kind of agent %s are under way, the most that its token may have; try again later", g.each[agent], agent).again()
	}
	g.all++
	g.each[agent]++
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.all--
		if g.each[agent]--; g.each[agent] == 0 {
			delete(g.each, agent)
		}
	}), nil
}
