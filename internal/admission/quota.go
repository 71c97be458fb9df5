package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pattern"
)

// Quota bounds what the batches of an agent, or of a team, use in all dispatchers together. What is 0 is not bounded.
type Quota struct {
	// Batches is how many of them dispatchers run at a time, open and idle ones included.
	Batches int
	// Calls is how many of their calls are in flight. A batch reserves as many as it may run at a time.
	Calls int
	// CallsPerMinute is how many calls begin in a minute. A batch begins all of its calls at once; one that has more
	// begins when no other has in the last minute.
	CallsPerMinute int
	// CallsPerSecond is how many calls begin in any second. Each waits for its turn by itself: see [Rates].
	CallsPerSecond int
	// WaitingBytes is how long the inputs are together that wait in dispatchers.
	WaitingBytes int
}

// Grant gives agents a quota: those of a name, or with a prefix if it ends in "*".
type Grant struct {
	Agents string
	Quota
}

// The limits of quotas.
const (
	MaxGrants = 1_000         // quotas of agents, of teams, and rates of tools, and of dependencies
	MaxQuota  = 1_000_000_000 // what one quota may be
)

// ParseGrant reads a grant: AGENTS=KEY:N,KEY:N, of the keys batches, calls, calls-per-minute, calls-per-second and
// waiting-bytes.
func ParseGrant(text string) (g Grant, err error) {
	agents, list, ok := strings.Cut(text, "=")
	g.Agents = agents
	if !ok || list == "" {
		return g, fmt.Errorf("%q: write AGENTS=KEY:N,KEY:N", text)
	}
	if err := pattern.Check(agents); err != nil {
		return g, fmt.Errorf("%q: the name of agents: %w", text, err)
	}
	return g, parseKeys(text, list, []key{{"batches", &g.Batches, MaxQuota}, {"calls", &g.Calls, MaxQuota},
		{"calls-per-minute", &g.CallsPerMinute, MaxQuota}, {"calls-per-second", &g.CallsPerSecond, MaxQuota},
		{"waiting-bytes", &g.WaitingBytes, MaxQuota}})
}

// matches reports whether a grant is for an agent.
func (g *Grant) matches(a toolyard.Agent) bool { return pattern.Matches(g.Agents, string(a)) }

// Grants are the quotas of a system. The first that matches an agent counts, in either list.
type Grants struct {
	// Agents gives each agent that matches a quota of its own. Teams gives all that match one that they share.
	Agents, Teams []Grant
	// Tools and Dependencies give each tool, and each dependency, that matches a rate of its own.
	Tools, Dependencies []NamedRate
	// Budgets bound what batches use in all.
	Budgets Budgets
}

// Any reports whether there are quotas or rates.
func (g *Grants) Any() bool { return len(g.Agents)+len(g.Teams)+len(g.Tools)+len(g.Dependencies) > 0 }

// Scope is whose use is bounded: an agent's, or a team's.
type Scope string

// agentPrefix and teamPrefix begin the scopes of quotas.
const (
	agentPrefix = "agent "
	teamPrefix  = "team "
)

// scoped is one bound that an agent is under.
type scoped struct {
	scope Scope
	quota *Quota
}

// of returns the bounds that an agent is under.
func (g *Grants) of(a toolyard.Agent) (out []scoped) {
	for i := range g.Agents {
		if g.Agents[i].matches(a) {
			out = append(out, scoped{Scope(agentPrefix + a), &g.Agents[i].Quota})
			break
		}
	}
	for i := range g.Teams {
		if g.Teams[i].matches(a) {
			return append(out, scoped{Scope(teamPrefix + g.Teams[i].Agents), &g.Teams[i].Quota})
		}
	}
	return out
}

// Usage is what the batches of a scope use in one dispatcher.
type Usage struct {
	// Batches and Calls include those of batches that are to start.
	Batches int `json:"batches,omitempty"`
	Calls   int `json:"calls,omitempty"`
	// Bytes wait there.
	Bytes int `json:"bytes,omitempty"`
	// Asked is how many calls are to begin, Minute how many have begun there in the last minute, or in the last second
	// where only that is bounded, and Begun how many ever.
	Asked  int    `json:"asked,omitempty"`
	Minute int    `json:"minute,omitempty"`
	Begun  uint64 `json:"begun,omitempty"`
	// Waits is how many agents have calls that wait there for a rate, and for no other one at the moment.
	Waits int `json:"waits,omitempty"`
}

// scopeUse is what a scope uses: in this dispatcher, and what is known of others.
type scopeUse struct {
	mine Usage
	// minute has the calls that began in the last minute.
	minute window
}

func (u *scopeUse) begin(calls int, own bool) {
	u.minute.begin(calls, own)
	if own {
		u.mine.Begun += uint64(calls)
	}
}

// unused reports whether nothing is known of the scope that matters.
func (u *scopeUse) unused() bool {
	return u.mine == Usage{Begun: u.mine.Begun} && sum(&u.minute.begun) == 0
}

// Quotas keeps what agents and teams use within what they may. Dispatchers tell each other in one order what they use,
// and a batch of a bounded agent starts in two steps. First it is reserved: it counts, and that is reported. When the
// report has come back, after all that others reported before it, the batch starts if there is room beside those. So of
// two dispatchers that reserve what is left, the second one in that order sees the first. Batches, calls and calls a
// minute are never past a quota, but for batches that are taken over, which start whatever is used. Bytes that wait are
// as they were reported last, and may be past a quota by what came meanwhile.
//
// While the others are not known nothing of a bounded agent starts. It is not safe for concurrent use.
type Quotas struct {
	grants Grants
	used   map[Scope]*scopeUse
	others map[string]map[Scope]Usage // by dispatcher
	known  bool
}

// NewQuotas makes quotas of which nothing is used. The other dispatchers are not known yet.
func NewQuotas(g Grants) *Quotas {
	return &Quotas{grants: g, used: map[Scope]*scopeUse{}, others: map[string]map[Scope]Usage{}}
}

// Heard takes in what another dispatcher reports; nil, that it is gone.
func (q *Quotas) Heard(dispatcher string, report map[Scope]Usage, now time.Time) {
	before, met := q.others[dispatcher]
	for scope, u := range report {
		if scope.ofRate() {
			continue
		}
		if begun := newlyBegun(before, met, scope, u); begun > 0 {
			q.use(scope, now).begin(begun, false)
		}
	}
	if report == nil {
		delete(q.others, dispatcher)
		return
	}
	q.others[dispatcher] = report
}

// newlyBegun is how many calls of a scope a dispatcher has begun since its report before, if that was met.
func newlyBegun(before map[Scope]Usage, met bool, scope Scope, u Usage) int {
	was, ok := before[scope]
	switch {
	case ok && u.Begun >= was.Begun:
		return int(min(u.Begun-was.Begun, uint64(u.Minute)))
	case met && !ok:
		return int(min(u.Begun, uint64(u.Minute)))
	}
	return u.Minute // it may have begun them at any time that still counts
}

// Know says whether all other dispatchers have been heard.
func (q *Quotas) Know(all bool) { q.known = all }

// use is what a scope uses, as of now.
func (q *Quotas) use(s Scope, now time.Time) *scopeUse {
	u := q.used[s]
	if u == nil {
		u = &scopeUse{minute: newWindow(time.Minute, now)}
		q.used[s] = u
	}
	u.minute.at(now)
	return u
}

// elsewhere is what other dispatchers use of a scope.
func (q *Quotas) elsewhere(s Scope) (sum Usage) {
	for _, report := range q.others {
		u := report[s]
		sum.Batches += u.Batches
		sum.Calls += u.Calls
		sum.Bytes += u.Bytes
		sum.Asked += u.Asked
	}
	return sum
}

// Concurrency is how many calls of a batch of an agent may be in flight, of so many that it may have by itself.
func (q *Quotas) Concurrency(a toolyard.Agent, calls int) int {
	for _, s := range q.grants.of(a) {
		if s.quota.Calls > 0 {
			calls = min(calls, s.quota.Calls)
		}
	}
	return calls
}

// MayWait says why a batch may not wait here; "" if it may.
func (q *Quotas) MayWait(a toolyard.Agent, bytes int) string {
	for _, s := range q.grants.of(a) {
		most := s.quota.WaitingBytes
		have := q.elsewhere(s.scope).Bytes
		if u := q.used[s.scope]; u != nil {
			have += u.mine.Bytes
		}
		if most > 0 && have > 0 && have+bytes > most {
			return fmt.Sprintf("inputs of %d bytes of %s wait, and the quota is %d", have, s.scope, most)
		}
	}
	return ""
}

// wait counts a batch that waits here, and waited one that does no longer.
func (q *Quotas) wait(b *Batch, now time.Time) { q.add(b, now, Usage{Bytes: b.Bytes}) }

func (q *Quotas) waited(b *Batch, now time.Time) { q.add(b, now, Usage{Bytes: -b.Bytes}) }

// bounded reports whether an agent has a quota, or its team.
func (q *Quotas) bounded(a toolyard.Agent) bool { return len(q.grants.of(a)) > 0 }

// mayReserve reports whether there is room for a batch that waits, as far as is known.
func (q *Quotas) mayReserve(b *Batch, now time.Time) bool {
	if !q.bounded(b.Key.Agent) {
		return true
	}
	return q.known && q.full(b, now) == ""
}

// full is the first scope in which there is no room for a batch that waits, beside all that are known; "" if there is
// room.
func (q *Quotas) full(b *Batch, now time.Time) Scope {
	q.reserve(b, now)
	defer q.cancel(b, now)
	return q.past(b, now)
}

// fits reports whether a batch that is reserved is within all quotas, beside all others that are known.
func (q *Quotas) fits(b *Batch, now time.Time) bool { return q.past(b, now) == "" }

// past is the first scope in which it is not.
func (q *Quotas) past(b *Batch, now time.Time) Scope {
	for _, s := range q.grants.of(b.Key.Agent) {
		u, others := q.use(s.scope, now), q.elsewhere(s.scope)
		begin := sum(&u.minute.begun) + u.mine.Asked + others.Asked
		switch most := s.quota; {
		case most.Batches > 0 && u.mine.Batches+others.Batches > most.Batches,
			most.Calls > 0 && u.mine.Calls+others.Calls > most.Calls,
			most.CallsPerMinute > 0 && begin > most.CallsPerMinute && begin > b.Begins:
			return s.scope
		}
	}
	return ""
}

// reserves is how many calls of a batch may be in flight.
func (q *Quotas) reserves(b *Batch) int { return q.Concurrency(b.Key.Agent, b.Calls) }

// reserve counts a batch that is to start here, and cancel one that is not after all.
func (q *Quotas) reserve(b *Batch, now time.Time) {
	q.add(b, now, Usage{Batches: 1, Calls: q.reserves(b), Asked: b.Begins})
}

func (q *Quotas) cancel(b *Batch, now time.Time) {
	q.add(b, now, Usage{Batches: -1, Calls: -q.reserves(b), Asked: -b.Begins})
}

// start counts the calls of a batch that was reserved, and end a batch that is over or goes elsewhere.
func (q *Quotas) start(b *Batch, now time.Time) {
	q.add(b, now, Usage{Asked: -b.Begins})
	q.Begin(b.Key.Agent, b.Begins, now)
}

func (q *Quotas) end(b *Batch, now time.Time) {
	q.add(b, now, Usage{Batches: -1, Calls: -q.reserves(b)})
}

// Begin counts calls of an agent that begin.
func (q *Quotas) Begin(a toolyard.Agent, calls int, now time.Time) {
	for _, s := range q.grants.of(a) {
		q.use(s.scope, now).begin(calls, true)
	}
}

func (q *Quotas) add(b *Batch, now time.Time, more Usage) {
	for _, s := range q.grants.of(b.Key.Agent) {
		u := q.use(s.scope, now)
		u.mine.Batches += more.Batches
		u.mine.Calls += more.Calls
		u.mine.Bytes += more.Bytes
		u.mine.Asked += more.Asked
	}
}

// ofScope is the quota of a scope; nil if it has none any more.
func (g *Grants) ofScope(s Scope) *Quota {
	team, isTeam := strings.CutPrefix(string(s), teamPrefix)
	for i := range g.Teams {
		if isTeam && g.Teams[i].Agents == team {
			return &g.Teams[i].Quota
		}
	}
	agent, isAgent := strings.CutPrefix(string(s), agentPrefix)
	for i := range g.Agents {
		if isAgent && g.Agents[i].matches(toolyard.Agent(agent)) {
			return &g.Agents[i].Quota
		}
	}
	return nil
}

// bounded is what others must know of what is used: what the quota bounds.
func (q *Quota) bounded(u Usage) (out Usage) {
	if q == nil {
		return out
	}
	if q.Batches > 0 {
		out.Batches = u.Batches
	}
	if q.Calls > 0 {
		out.Calls = u.Calls
	}
	if q.WaitingBytes > 0 {
		out.Bytes = u.Bytes
	}
	if q.CallsPerMinute > 0 {
		out.Asked, out.Minute, out.Begun = u.Asked, u.Minute, u.Begun
	}
	return out
}

// report is what this dispatcher uses, for the others. It forgets scopes of which nothing has happened for a minute. A
// report is one message, which must not be too long: it has only what is bounded.
func (q *Quotas) report(now time.Time) map[Scope]Usage {
	out := map[Scope]Usage{}
	for _, s := range slices.Collect(maps.Keys(q.used)) {
		u := q.used[s]
		if u.minute.at(now); u.unused() {
			delete(q.used, s)
			continue
		}
		mine := u.mine
		mine.Minute = sum(&u.minute.own)
		if mine = q.grants.ofScope(s).bounded(mine); mine != (Usage{Begun: mine.Begun}) {
			out[s] = mine
		}
	}
	return out
}
