package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
)

// Rates decides when calls begin that are under a rate. It is beside [Quotas], and its use stands in the same reports:
// a call is reserved, reported, and begins when the report has come back and there is room beside what others had
// reported before. So no rate is ever passed, but by calls that go on after a takeover.
//
// Of the calls that share a rate, that of the agent goes first whose last one began there the longest ago; an agent's
// own calls go in the order in which they came. Between dispatchers there are rounds: one that has begun a call of each
// of its agents leaves room to the others, until they have done so too or have not used it for a while.
//
// It is pure, and not safe for concurrent use.
type Rates struct {
	grants Grants
	used   map[Scope]*rateUse
	others map[string]map[Scope]Usage // by dispatcher
	known  bool
	calls  map[uint64]*rateCall
	// waiting and reserved are in the order of coming, and in that of reserving.
	waiting, reserved []*rateCall
	// granted and refused were decided, and nobody has taken them yet.
	granted []RateGrant
	refused []RateRefusal
	turn    uint64
	room    rateRoom
	looks   int // of one [Rates.Advance] at calls that may be the next one
}

// rateCall is calls that begin together: one, or those of one message.
type rateCall struct {
	id     uint64
	key    RateKey
	calls  int
	under  []rated
	came   time.Time
	held   Scope  // the rate that held it up last
	report uint64 // the report that has it, while it is reserved; 0 while none has
	state  rateState
	place  int // among those that wait, as [Rates.lines] has found them
}

type rateState int

const (
	rateWaits rateState = iota
	rateReserved
	rateRuns
	rateRefused
)

// RateGrant says that calls may begin. Held is the rate for which they have waited; "" if they have not.
type RateGrant struct {
	ID     uint64
	Held   Scope
	Waited time.Duration
}

// RateRefusal says that calls would wait for too long, or have. Or too many do, or use too much: then Limit says which
// limit is met.
type RateRefusal struct {
	ID         uint64
	Held       Scope
	Rate       Rate
	Limit      string
	Waited     time.Duration
	RetryAfter time.Duration
}

// rateUse is what is used of a rate.
type rateUse struct {
	rate           Rate
	mine           Usage
	second, minute window
	// last is when each agent that waits or runs here began a call last, as a number of turns, and latest the last of
	// all.
	last   map[toolyard.Agent]uint64
	latest uint64
	// waits and runs count the calls of agents that wait here, and that run.
	waits, runs map[toolyard.Agent]int
	// stuck are those of waits that another of their rates held up, as of the last look at all.
	stuck map[toolyard.Agent]int
	round *round
}

// round is this dispatcher's turn among others that have calls that wait.
type round struct {
	left   int               // calls that it may still begin
	others map[string]uint64 // what each of those had begun when the round began, and was to begin
	// yields is since when there is room that is left to others; zero while there is none.
	yields time.Time
}

// NewRates makes rates of which nothing is used. The other dispatchers are not known yet.
func NewRates(g Grants) *Rates {
	return &Rates{grants: g, used: map[Scope]*rateUse{}, others: map[string]map[Scope]Usage{},
		calls: map[uint64]*rateCall{}, room: newRateRoom()}
}

// Bounds reports whether a call is under a rate.
func (r *Rates) Bounds(k RateKey) bool { return len(r.grants.rates(k)) > 0 }

// Dependencies reports whether dependencies have rates.
func (r *Rates) Dependencies() bool { return len(r.grants.Dependencies) > 0 }

// Ask has so many calls wait for their turn, under an id of the caller's. Their grant or refusal comes with
// [Rates.Take]. Calls under no rate begin at once: the rates may have changed since [Rates.Bounds] was asked.
func (r *Rates) Ask(id uint64, k RateKey, calls int, now time.Time) {
	c := &rateCall{id: id, key: k, calls: calls, under: r.grants.rates(k), came: now}
	r.calls[id] = c
	if len(c.under) == 0 {
		c.state = rateRuns
		r.granted = append(r.granted, RateGrant{ID: id})
		return
	}
	r.waiting = append(r.waiting, c)
	r.count(c, 1, now)
	s, after, late := r.estimate(c, now)
	switch full, past := r.room.past(c); {
	case late:
		r.refuse(c, s, after, "", now)
	case len(r.waiting) > MaxRateWaiting:
		r.refuse(c, s, after, fmt.Sprintf("%d calls wait in a dispatcher for their rates, which is the limit",
			MaxRateWaiting), now)
	case past:
		r.refuse(c, full, after, "calls use very many dependencies that have rates now, and there is no room for "+
			"another one", now)
	default:
		r.room.take(c)
	}
}

// Hold counts calls that are in flight already, whatever is used.
func (r *Rates) Hold(id uint64, k RateKey, calls int, now time.Time) {
	c := &rateCall{id: id, key: k, calls: calls, under: r.grants.rates(k), came: now, state: rateRuns}
	r.calls[id] = c
	r.room.take(c)
	for _, s := range c.under {
		u := r.use(s, now)
		u.mine.Calls += s.need(calls)
		u.add(u.runs, k.Agent, 1)
	}
}

// Leave ends calls that have waited or run.
func (r *Rates) Leave(id uint64, now time.Time) {
	c := r.calls[id]
	if c == nil {
		return
	}
	delete(r.calls, id)
	switch c.state {
	case rateWaits:
		r.waiting = without(r.waiting, c)
		r.count(c, -1, now)
	case rateReserved:
		r.reserved = without(r.reserved, c)
		r.reserve(c, -1, now)
		r.count(c, -1, now)
	case rateRuns:
		for _, s := range c.under {
			u := r.use(s, now)
			u.mine.Calls -= s.need(c.calls)
			u.add(u.runs, c.key.Agent, -1)
		}
	}
	r.granted = slices.DeleteFunc(r.granted, func(g RateGrant) bool { return g.ID == id })
	r.refused = slices.DeleteFunc(r.refused, func(g RateRefusal) bool { return g.ID == id })
}

func without(list []*rateCall, c *rateCall) []*rateCall {
	return slices.DeleteFunc(list, func(o *rateCall) bool { return o == c })
}

// need is how many of so many calls count: no more than there is ever room for.
func (s *rated) need(calls int) int {
	for _, most := range []int{s.rate.Calls, s.rate.PerSecond, s.rate.PerMinute} {
		if most > 0 {
			calls = min(calls, most)
		}
	}
	return calls
}

// use is what is used of a rate, as of now.
func (r *Rates) use(s rated, now time.Time) *rateUse {
	u := r.used[s.scope]
	if u == nil {
		u = &rateUse{second: newWindow(time.Second, now), minute: newWindow(time.Minute, now),
			last: map[toolyard.Agent]uint64{}, waits: map[toolyard.Agent]int{}, runs: map[toolyard.Agent]int{},
			stuck: map[toolyard.Agent]int{}}
		r.used[s.scope] = u
	}
	u.rate = s.rate
	u.at(now)
	return u
}

func (u *rateUse) at(now time.Time) {
	u.second.at(now)
	u.minute.at(now)
}

func (u *rateUse) begin(calls int, own bool) {
	u.second.begin(calls, own)
	u.minute.begin(calls, own)
	if own {
		u.mine.Begun += uint64(calls)
	}
}

// add counts calls of an agent among those that wait or run here. A new agent comes before the one that was served just
// now, and behind all that have waited for longer; one without calls loses its turn.
func (u *rateUse) add(to map[toolyard.Agent]int, a toolyard.Agent, calls int) {
	if _, known := u.last[a]; !known {
		u.last[a] = max(u.latest, 1) - 1
	}
	if to[a] += calls; to[a] == 0 {
		delete(to, a)
	}
	if u.waits[a] == 0 && u.runs[a] == 0 {
		delete(u.last, a)
	}
}

func (r *Rates) count(c *rateCall, times int, now time.Time) {
	for _, s := range c.under {
		u := r.use(s, now)
		u.add(u.waits, c.key.Agent, times)
	}
}

// reserve counts calls that are to begin, or are not after all.
func (r *Rates) reserve(c *rateCall, times int, now time.Time) {
	for _, s := range c.under {
		u := r.use(s, now)
		u.mine.Calls += times * s.need(c.calls)
		u.mine.Asked += times * s.need(c.calls)
	}
}

// elsewhere is what other dispatchers use of a rate.
func (r *Rates) elsewhere(s Scope) (sum Usage) {
	for _, report := range r.others {
		sum.Calls += report[s].Calls
		sum.Asked += report[s].Asked
	}
	return sum
}

// past returns the first of a call's rates for which there is no room, with more calls than are reserved already.
func (r *Rates) past(c *rateCall, more bool, now time.Time) (rated, bool) {
	for _, s := range c.under {
		u, others := r.use(s, now), r.elsewhere(s.scope)
		need := 0
		if more {
			need = s.need(c.calls)
		}
		asked := u.mine.Asked + others.Asked + need
		switch most := s.rate; {
		case most.Calls > 0 && u.mine.Calls+others.Calls+need > most.Calls,
			most.PerSecond > 0 && sum(&u.second.begun)+asked > most.PerSecond,
			most.PerMinute > 0 && sum(&u.minute.begun)+asked > most.PerMinute:
			return s, true
		}
	}
	return rated{}, false
}

// Advance reserves calls for which there is room, and refuses those that have waited for too long. It reports whether
// calls are reserved that are in no report, and when it is to be asked again if nothing happens before; the zero time
// means never. That is now if there was more to do than it does in one piece: the dispatcher waits for it.
func (r *Rates) Advance(now time.Time) (reserved bool, again time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (again.IsZero() || t.Before(again)) {
			again = t
		}
	}
	if r.known && !r.begin(now) {
		again = now
	}
	refusals := 0
	for _, c := range slices.Clone(r.waiting) {
		s, end := r.deadline(c)
		if !now.Before(end) {
			if refusals++; refusals > rateRefusals {
				earlier(now)
				break
			}
			r.refuse(c, cmp.Or(c.held, s), 0, "", now)
			continue
		}
		earlier(end)
		for _, s := range c.under {
			u := r.use(s, now)
			if s.rate.PerSecond > 0 {
				earlier(u.second.next())
			}
			if s.rate.PerMinute > 0 {
				earlier(u.minute.next())
			}
			if u.round != nil && !u.round.yields.IsZero() {
				earlier(u.round.yields.Add(rateYield))
			}
		}
	}
	return r.Reserves(), again
}

// Reserves reports whether calls are reserved, and in no report yet.
func (r *Rates) Reserves() bool {
	return slices.ContainsFunc(r.reserved, func(c *rateCall) bool { return c.report == 0 })
}

// deadline is when a call that waits is refused, and by which rate.
func (r *Rates) deadline(c *rateCall) (by Scope, at time.Time) {
	for _, s := range c.under {
		if end := c.came.Add(s.rate.wait()); by == "" || end.Before(at) {
			by, at = s.scope, end
		}
	}
	return by, at
}

// before reports whether a call goes before one that came earlier: its agent began one longer ago in the rates that
// both are under.
func (r *Rates) before(c, other *rateCall) bool {
	mine, others := uint64(0), uint64(0)
	for _, s := range c.under {
		if u := r.used[s.scope]; slices.ContainsFunc(other.under, func(o rated) bool { return o.scope == s.scope }) {
			mine, others = max(mine, u.last[c.key.Agent]), max(others, u.last[other.key.Agent])
		}
	}
	return mine < others
}

// yields reports whether a call for which there is room leaves it to other dispatchers.
func (r *Rates) yields(c *rateCall, now time.Time) (rated, bool) {
	for _, s := range c.under {
		u := r.use(s, now)
		waits := map[string]uint64{}
		for id, report := range r.others {
			if n := report[s.scope].Waits; n > 0 {
				waits[id] = report[s.scope].Begun + uint64(n)
			}
		}
		switch {
		case len(waits) == 0:
			u.round = nil
			continue
		case u.round == nil, r.roundIsOver(u.round, s.scope, waits, now):
			u.round = &round{left: max(1, len(u.waits)), others: waits}
		}
		if u.round.left > 0 {
			u.round.yields = time.Time{}
			continue
		}
		if u.round.yields.IsZero() {
			u.round.yields = now
		}
		return s, true
	}
	return rated{}, false
}

// roundIsOver reports whether all others that still wait have begun as many calls as they had agents that waited, or
// have left room unused for a while.
func (r *Rates) roundIsOver(o *round, s Scope, waits map[string]uint64, now time.Time) bool {
	if o.left > 0 {
		return false
	}
	if !o.yields.IsZero() && now.Sub(o.yields) >= rateYield {
		return true
	}
	for id := range waits {
		if until, was := o.others[id]; !was || r.others[id][s].Begun < until {
			return false
		}
	}
	return true
}

// estimate says after how long a call begins at best that came now, by which rate, and whether that is longer than it
// may wait. Each agent is served in its turn, with the calls that no other rate holds up.
func (r *Rates) estimate(c *rateCall, now time.Time) (by Scope, after time.Duration, tooLong bool) {
	for _, s := range c.under {
		u := r.use(s, now)
		ahead, own := 0, max(1, u.waits[c.key.Agent]-u.stuck[c.key.Agent])
		for a, n := range u.waits {
			ahead += max(0, min(n-u.stuck[a], own))
		}
		for _, b := range []struct {
			most int
			span time.Duration
			now  int
		}{
			{s.rate.PerSecond, time.Second, sum(&u.second.begun)},
			{s.rate.PerMinute, time.Minute, sum(&u.minute.begun)},
		} {
			if b.most == 0 || b.now+ahead <= b.most {
				continue
			}
			if at := time.Duration((b.now+ahead-1)/b.most) * b.span; at > after {
				by, after = s.scope, at
			}
		}
	}
	_, end := r.deadline(c)
	return by, after, now.Add(after).After(end)
}

// refuse ends the wait of a call. limit is the one that is met, where that is not the rate.
func (r *Rates) refuse(c *rateCall, by Scope, after time.Duration, limit string, now time.Time) {
	if by == "" {
		by = c.under[0].scope
	}
	if after == 0 {
		_, after, _ = r.estimate(c, now)
	}
	r.waiting = without(r.waiting, c)
	r.count(c, -1, now)
	c.state = rateRefused
	r.refused = append(r.refused, RateRefusal{ID: c.id, Held: by, Rate: r.used[by].rate, Limit: limit,
		Waited: now.Sub(c.came), RetryAfter: max(after, rateRetryAtLeast)})
}

// Settle notes that a report has come back, after all that others had reported before it, and nothing that they have
// reported since. The calls that it reserves begin, or wait on if others were faster.
func (r *Rates) Settle(report uint64, now time.Time) {
	fit := r.reserved[:0:0]
	for _, c := range slices.Backward(r.reserved) { // the last are the first to go
		s, past := r.past(c, false, now)
		if !past {
			fit = append(fit, c)
			continue
		}
		r.reserve(c, -1, now)
		c.state, c.held = rateWaits, s.scope
		at, _ := slices.BinarySearchFunc(r.waiting, c, func(o, c *rateCall) int { return o.came.Compare(c.came) })
		r.waiting = slices.Insert(r.waiting, at, c)
	}
	r.reserved = nil
	for _, c := range slices.Backward(fit) {
		if c.report == 0 || c.report > report {
			r.reserved = append(r.reserved, c)
			continue
		}
		c.state = rateRuns
		for _, s := range c.under {
			u := r.use(s, now)
			u.mine.Asked -= s.need(c.calls)
			u.add(u.runs, c.key.Agent, 1)
			u.add(u.waits, c.key.Agent, -1)
			u.begin(s.need(c.calls), true)
		}
		r.granted = append(r.granted, RateGrant{ID: c.id, Held: c.held, Waited: now.Sub(c.came)})
	}
}

// Awaited reports whether calls wait in other dispatchers.
func (r *Rates) Awaited() bool {
	for _, report := range r.others {
		for _, u := range report {
			if u.Waits > 0 {
				return true
			}
		}
	}
	return false
}

// Take returns what was decided since.
func (r *Rates) Take() (granted []RateGrant, refused []RateRefusal) {
	granted, refused = r.granted, r.refused
	r.granted, r.refused = nil, nil
	return granted, refused
}

// Report adds what is used of rates to a report of that number. It forgets rates of which nothing is used.
func (r *Rates) Report(number uint64, now time.Time, into map[Scope]Usage) {
	for _, c := range r.reserved {
		if c.report == 0 {
			c.report = number
		}
	}
	waits := r.waits()
	for _, s := range slices.Collect(maps.Keys(r.used)) {
		u := r.used[s]
		u.at(now)
		mine := u.mine
		mine.Waits = waits[s]
		mine.Minute = sum(&u.second.own)
		if u.rate.PerMinute > 0 {
			mine.Minute = sum(&u.minute.own)
		}
		if mine != (Usage{Begun: mine.Begun}) {
			into[s] = mine
		} else if sum(&u.minute.begun) == 0 && len(u.waits) == 0 {
			delete(r.used, s)
		}
	}
	r.room.keep(func(s Scope) bool {
		_, stands := into[s]
		u := r.used[s]
		return stands || u != nil && len(u.waits) > 0
	})
}

// waits is how many agents have calls that would take room of a rate. A call that another rate holds up would not: who
// left it room would wait for nothing.
func (r *Rates) waits() map[Scope]int {
	type one struct {
		scope Scope
		agent toolyard.Agent
	}
	seen, out := map[one]bool{}, map[Scope]int{}
	for _, calls := range [][]*rateCall{r.reserved, r.waiting} {
		for _, c := range calls {
			for _, s := range c.under {
				at := one{s.scope, c.key.Agent}
				if !seen[at] && (c.state == rateReserved || c.held == "" || c.held == s.scope) {
					seen[at] = true
					out[s.scope]++
				}
			}
		}
	}
	return out
}

// Heard takes in what another dispatcher reports; nil, that it is gone.
func (r *Rates) Heard(dispatcher string, report map[Scope]Usage, now time.Time) {
	before, met := r.others[dispatcher]
	if report == nil {
		delete(r.others, dispatcher)
		return
	}
	for scope, usage := range report {
		if !scope.ofRate() {
			continue
		}
		if begun := newlyBegun(before, met, scope, usage); begun > 0 {
			u := r.use(rated{scope: scope, rate: r.rateOf(scope)}, now)
			u.begin(begun, false)
		}
	}
	r.others[dispatcher] = report
}

// rateOf is the rate of a scope, as far as it is used here.
func (r *Rates) rateOf(s Scope) (rate Rate) {
	if u := r.used[s]; u != nil {
		rate = u.rate
	}
	return rate
}

// Know says whether all other dispatchers have been heard. While they are not, nothing begins.
func (r *Rates) Know(all bool) { r.known = all }

// Regrant has other rates bound the calls that come from now on, and those that wait. What runs counts against them,
// and so does what has begun.
func (r *Rates) Regrant(g Grants, now time.Time) {
	old := r.calls
	ids := slices.Sorted(maps.Keys(old))
	next := NewRates(g)
	next.others, next.known, next.turn = r.others, r.known, r.turn
	next.granted, next.refused, next.room = r.granted, r.refused, r.room
	for scope, was := range r.used { // also where no call is left; the next report forgets those that are empty
		u := next.use(rated{scope, was.rate}, now)
		u.second, u.minute, u.mine.Begun = was.second, was.minute, was.mine.Begun
		u.at(now)
	}
	for _, id := range ids {
		c := old[id]
		again := &rateCall{id: id, key: c.key, calls: c.calls, under: next.grants.rates(c.key), came: c.came,
			state: c.state}
		next.calls[id] = again
		if c.state != rateRefused {
			next.room.take(again)
		}
		switch c.state {
		case rateRuns:
			for _, s := range again.under {
				u := next.use(s, now)
				u.mine.Calls += s.need(c.calls)
				u.add(u.runs, c.key.Agent, 1)
			}
		case rateRefused:
		case rateWaits, rateReserved:
			again.state = rateWaits
			if len(again.under) == 0 {
				again.state = rateRuns
				next.granted = append(next.granted, RateGrant{ID: id, Held: c.held, Waited: now.Sub(c.came)})
				continue
			}
			next.waiting = append(next.waiting, again)
			next.count(again, 1, now)
		}
	}
	slices.SortStableFunc(next.waiting, func(a, b *rateCall) int { return a.came.Compare(b.came) })
	*r = *next
}

// Load says how many calls wait here for a rate.
func (r *Rates) Load() int { return len(r.waiting) + len(r.reserved) }

// Why says what a refused call ran into, for the model.
func (f *RateRefusal) Why() string {
	if f.Limit != "" {
		return f.Limit + "."
	}
	return fmt.Sprintf("%s: at most %s.", f.Held.Text(), f.Rate)
}

// Detail says so for the operator.
func (f *RateRefusal) Detail() string {
	if f.Limit != "" {
		return f.Limit
	}
	return "waited " + f.Waited.Round(time.Millisecond).String() + " for the rate of " + f.Held.Text()
}
