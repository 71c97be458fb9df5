package admission

import (
	"encoding/json"
	"strings"

	"github.com/toolyard/toolyard"
)

// How long the rates of dependencies in one report may be. A report is one message, and NATS refuses one that is too
// long: then nothing of anybody with a quota or a rate would start. A call names its host itself, and any number of
// hosts; how many tools and agents there are is up to others.
const (
	MaxDependencyBytes = 512 << 10 // bytes of a dispatcher's report for dependencies in use; calls to more do not begin
	dependencyPart     = 2         // the part of what others leave, as a divisor, that one agent's calls may fill
	usageBytes         = 112       // of one dependency's usage at most, with what separates it from others
)

// rateRoom has the dependencies that stand in the next report, or did in the last one, by the agent that brought them
// there.
type rateRoom struct {
	of    map[Scope]toolyard.Agent
	bytes int
	each  map[toolyard.Agent]int
}

func newRateRoom() rateRoom {
	return rateRoom{of: map[Scope]toolyard.Agent{}, each: map[toolyard.Agent]int{}}
}

// needs returns the dependency of a call that has a rate, unless it is there, and how many bytes it takes at most.
func (o *rateRoom) needs(c *rateCall) (s Scope, bytes int) {
	for _, r := range c.under {
		if _, there := o.of[r.scope]; !there && strings.HasPrefix(string(r.scope), dependencyPrefix) {
			return r.scope, scopeBytes(r.scope)
		}
	}
	return "", 0
}

func scopeBytes(s Scope) int {
	n := 6*len(s) + len(`""`) // as JSON escapes it at worst
	if encoded, err := json.Marshal(string(s)); err == nil {
		n = len(encoded)
	}
	return n + usageBytes
}

// past returns the dependency of a call for which the report has no room.
func (o *rateRoom) past(c *rateCall) (s Scope, past bool) {
	s, n := o.needs(c)
	own := o.each[c.key.Agent]
	left := MaxDependencyBytes - (o.bytes - own) // never so little that an agent with few dependencies finds no room
	return s, n > 0 && own+n > left/dependencyPart
}

// take notes the dependency of a call that waits or runs.
func (o *rateRoom) take(c *rateCall) {
	if s, n := o.needs(c); n > 0 {
		o.of[s] = c.key.Agent
		o.bytes += n
		o.each[c.key.Agent] += n
	}
}

// keep forgets the dependencies that neither stand in a report nor may in the next one.
func (o *rateRoom) keep(stands func(Scope) bool) {
	for s, agent := range o.of {
		if stands(s) {
			continue
		}
		n := scopeBytes(s)
		delete(o.of, s)
		o.bytes -= n
		if o.each[agent] -= n; o.each[agent] == 0 {
			delete(o.each, agent)
		}
	}
}
