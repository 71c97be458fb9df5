package admission

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"
)

// How much [Rates.Advance] does in one piece, in which the dispatcher stands still.
const (
	rateLooks    = 20_000 // looks at calls that wait for a rate, before a dispatcher does something else
	rateRefusals = 50     // calls that have waited for a rate for too long and are refused, before it does so
)

// rateQueue is the calls of one key that wait, which go in the order in which they came.
type rateQueue struct {
	calls []*rateCall
	last  uint64 // when their agent began a call last, or earlier
}

// rateLine is the calls that wait for the same rates, but for those of their agents. It is a heap: which of two such
// calls goes first depends on no other, so that one need not look at all of them to find the first.
type rateLine []*rateQueue

func (l rateLine) Len() int { return len(l) }

func (l rateLine) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(l[i].last, l[j].last), cmp.Compare(l[i].calls[0].place, l[j].calls[0].place)) < 0
}

func (l rateLine) Swap(i, j int) { l[i], l[j] = l[j], l[i] }

// Push makes a line a heap. Nothing joins one.
func (l *rateLine) Push(any) {}

// Pop drops the last queue.
func (l *rateLine) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// lines are the calls that wait.
func (r *Rates) lines() (out []*rateLine) {
	queues, lines := map[RateKey]*rateQueue{}, map[string]*rateLine{}
	for n, c := range r.waiting {
		c.place = n
		if q := queues[c.key]; q != nil {
			q.calls = append(q.calls, c)
			continue
		}
		q := &rateQueue{calls: []*rateCall{c}, last: r.lastTurn(c)}
		queues[c.key] = q
		var key strings.Builder
		for _, s := range c.under {
			if !s.scope.ofAgent() {
				key.WriteString(string(s.scope) + "\x00")
			}
		}
		if lines[key.String()] == nil {
			lines[key.String()] = &rateLine{}
			out = append(out, lines[key.String()])
		}
		*lines[key.String()] = append(*lines[key.String()], q)
	}
	for _, l := range out {
		heap.Init(l)
	}
	return out
}

// ofAgent reports whether the scope is that of the rate of one agent.
func (s Scope) ofAgent() bool { return strings.HasPrefix(string(s), ratePrefix+agentPrefix) }

// lastTurn is when the agent of a call that waits began one last, under the rates that it shares with others.
func (r *Rates) lastTurn(c *rateCall) (last uint64) {
	for _, s := range c.under {
		if !s.scope.ofAgent() {
			last = max(last, r.used[s.scope].last[c.key.Agent])
		}
	}
	return last
}

// begin reserves calls until there is room for none. It reports false if there may be room for more.
func (r *Rates) begin(now time.Time) bool {
	defer func() {
		r.waiting = slices.DeleteFunc(r.waiting, func(c *rateCall) bool { return c.state != rateWaits })
	}()
	r.looks = 0
	lines := r.lines()
	for {
		var l *rateLine
		lines, l = r.next(lines, now)
		if l == nil {
			break
		}
		c := (*l)[0].calls[0]
		r.turn++
		for _, s := range c.under {
			u := r.use(s, now)
			u.last[c.key.Agent], u.latest = r.turn, r.turn
			if u.round != nil {
				u.round.left--
			}
		}
		r.reserve(c, 1, now)
		c.state, c.report = rateReserved, 0
		r.reserved = append(r.reserved, c)
		if (*l)[0].calls = (*l)[0].calls[1:]; len((*l)[0].calls) > 0 {
			heap.Fix(l, 0)
		} else {
			heap.Pop(l)
		}
		if r.looks > rateLooks {
			return false
		}
	}
	r.noteHeld(now)
	return true
}

// noteHeld notes what holds up the calls that wait: of those of one key, what holds up the first.
func (r *Rates) noteHeld(now time.Time) {
	for _, u := range r.used {
		clear(u.stuck)
	}
	held := map[RateKey]Scope{}
	for _, c := range r.waiting {
		if c.state != rateWaits {
			continue
		}
		by, known := held[c.key]
		if !known {
			r.mayBegin(c, now)
			by = c.held
			held[c.key] = by
		}
		c.held = by
		for _, s := range c.under {
			if by != "" && by != s.scope {
				r.used[s.scope].stuck[c.key.Agent]++
			}
		}
	}
}

// next is the line whose first call begins next, nil if there is room for none, and the lines that are left. A queue
// without room leaves its line: what begins leaves no more room than there was.
func (r *Rates) next(lines []*rateLine, now time.Time) (left []*rateLine, best *rateLine) {
	left = lines[:0]
	for _, l := range lines {
		for len(*l) > 0 {
			q := (*l)[0]
			if last := r.lastTurn(q.calls[0]); last > q.last { // its agent has begun one since
				q.last = last
				heap.Fix(l, 0)
			} else if r.mayBegin(q.calls[0], now) {
				break
			} else {
				heap.Pop(l)
			}
		}
		if len(*l) > 0 {
			left = append(left, l)
		}
	}
	slices.SortFunc(left, func(a, b *rateLine) int {
		return cmp.Compare((*a)[0].calls[0].place, (*b)[0].calls[0].place)
	})
	for _, l := range left {
		if best == nil || r.before((*l)[0].calls[0], (*best)[0].calls[0]) {
			best = l
		}
	}
	return left, best
}

// mayBegin reports whether there is room for a call, and notes what holds it up.
func (r *Rates) mayBegin(c *rateCall, now time.Time) bool {
	r.looks++
	if s, past := r.past(c, true, now); past {
		c.held = s.scope
		if u := r.used[s.scope]; u.round != nil { // there is nothing to leave to others
			u.round.yields = time.Time{}
		}
		return false
	}
	s, waits := r.yields(c, now)
	if waits {
		c.held = s.scope
	}
	return !waits
}
