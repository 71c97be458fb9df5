package api

import "github.com/toolyard/toolyard/internal/quota"

// enter lets a caller in, until leave is called, once. Callers who may be anybody are bounded together only.
func enter(q *quota.Quota, c caller) (leave func(), err error) {
	own := c.grant.streams
	if c.any {
		own = -1
	}
	leave, full := q.Enter(c.agent, own)
	switch {
	case full == nil:
		return leave, nil
	case full.OfAgent:
		return nil,
			newProblem(429, "",
				"%d requests of this kind of agent %s are under way, the most that its token may have; try again later",
				full.Count, c.agent).again()
	}
	return nil,
		newProblem(429, "", "%d requests of this kind are under way, the most that this server has; try again later",
			full.Count).again()
}
