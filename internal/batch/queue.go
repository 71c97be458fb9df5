package batch

import (
	"cmp"
	"maps"
	"slices"

	"github.com/toolyard/toolyard/internal/events"
)

// What one item has at most.
const (
	MaxItemCalls = 64
	MaxItemBytes = 256 << 10 // of inputs
)

// fewCalls are so few that an item of them is not cut further, however many workers there are: a message costs more
// than the wait for a call that runs beside them.
const fewCalls = 5

// cut makes the items of a group that starts: calls that need no claim and go to the same workers, in as many parts as
// there are workers, so that each of them gets some.
func (m *Machine) cut(g events.Group) (items []events.Item) {
	s := &m.state
	var routes []Route // in the order of their first calls
	calls := map[Route][]int{}
	for _, i := range g.Calls {
		p := s.Plan.Calls[i]
		if p.Claim || !s.Open(i) || s.Calls[i].end > 0 || m.cfg.Alone != nil && m.cfg.Alone(&s.Plan.Calls[i]) {
			continue
		}
		r := Route{Pool: p.Pool, Class: p.Judgement.Class}
		if calls[r] == nil {
			routes = append(routes, r)
		}
		calls[r] = append(calls[r], i)
	}
	for _, r := range routes {
		rest := calls[r]
		most := cmp.Or(m.cfg.ItemCalls, MaxItemCalls)
		parts := max(1, min(m.workers.serving[r], (len(rest)+fewCalls-1)/fewCalls), (len(rest)+most-1)/most)
		size := (len(rest) + parts - 1) / parts
		for len(rest) > 0 {
			n, bytes := 0, 0
			for ; n < min(size, len(rest)); n++ {
				if bytes += len(s.call(rest[n]).Input); n > 0 && bytes > MaxItemBytes {
					break
				}
			}
			if n > 1 {
				items = append(items, rest[:n:n])
			}
			rest = rest[n:]
		}
	}
	return items
}

// width is how many calls of a call's item may run at a time. It follows from the state, so that it is the same for
// every owner.
func (m *Machine) width(i int) int {
	s := &m.state
	item := s.Item(i)
	if len(item) == 1 {
		return 1
	}
	return min(len(item), max(1, s.Plan.MaxConcurrency/m.index.items[m.index.groupOf[i]]))
}

// queueCalls queues calls of a started group, an item in one message, up to the batch's limit of calls in flight. A
// call that is claimed already, by a worker of a former owner, counts as in flight. A call that is queued again goes
// alone: whoever takes it claims it.
func (m *Machine) queueCalls(g events.Group, number uint64) (out []Effect) {
	s := &m.state
	var messages [][]int
	hand := func(calls []int) bool {
		if used := m.inFlight(); used > 0 && used+min(len(calls), m.width(calls[0])) > s.Plan.MaxConcurrency {
			return false
		}
		for _, i := range calls {
			m.flight.queued[i] = m.now
			m.setActive(i, true)
			delete(m.flight.retrying, i)
		}
		messages = append(messages, calls)
		return true
	}
	for _, i := range slices.Sorted(maps.Keys(m.flight.retrying)) {
		if m.mayQueue(i) && !hand([]int{i}) {
			break
		}
	}
	for ; m.flight.next < len(g.Calls); m.flight.next++ {
		i := g.Calls[m.flight.next]
		if m.flight.retrying[i] || !m.mayQueue(i) {
			continue
		}
		item := slices.DeleteFunc(slices.Clone(s.Item(i)), func(i int) bool {
			return m.flight.retrying[i] || !m.mayQueue(i)
		})
		if !hand(item) {
			break
		}
	}
	if len(messages) == 0 {
		return nil
	}
	context := s.Context() // exclusive calls change it, so it is the same for all calls of a group
	for _, calls := range messages {
		out = append(out, m.queue(calls, number, context))
	}
	return out
}

// mayQueue reports whether a call may be handed to workers now.
func (m *Machine) mayQueue(i int) bool {
	_, ends := m.ends.decided[i]
	return m.state.Open(i) && !m.flight.active[i] && !m.approvals.waiting[i] && !ends &&
		!m.log.Before(m.state.Calls[i].NotBefore)
}

// inFlight is how many calls workers may run at a time by the messages that they have.
func (m *Machine) inFlight() (n int) {
	for item, active := range m.flight.inItem {
		n += min(active, m.width(item))
	}
	return n
}

func (m *Machine) queue(calls []int, number uint64, context map[string]string) Queue {
	s, plan := &m.state, m.state.Plan
	first := &plan.Calls[calls[0]]
	req := s.Request(calls[0], nil)
	req.Group, req.Ticket, req.WasConcurrent = m.group, number, m.inFlight() > 1
	req.Context, req.Locks = context, plan.Groups[m.group].Locks
	req.CallTimeoutMS = s.Submission.Options.CallTimeoutMS
	req.Fence = s.Submission.Options.Fence
	req.Overlay = s.overlay(m.group)
	req.RemainingMS = max(0, plan.Deadline.Sub(m.log).Milliseconds())
	req.QueuedAt = m.now
	// A call that has asked is alone. Its worker counts the attempts that have ended with a question like the others.
	req.MaxAttempts = m.cfg.MaxAttempts + s.Calls[calls[0]].questions
	req.Item, req.Expected = s.Calls[calls[0]].Item, s.End(calls[0])
	req.Width = min(len(calls), m.width(calls[0]))
	req.Calls = make([]events.RequestedCall, len(calls))
	for n, i := range calls {
		given := s.call(i)
		c := s.requested(i, s.approved(i))
		c.Input, c.Echo, c.Claim = given.Input, given.Echo, plan.Calls[i].Claim
		if mended := plan.Calls[i].Mended; mended != nil {
			c.Input, c.Mended = mended.Input, mended.What
		}
		if plan.Calls[i].Cached {
			req.Generation = m.tickets.generation
		}
		c.Attempt, c.Unstarted = s.Calls[i].Attempt+1, s.Calls[i].Unstarted
		c.Again = s.Takeovers > 0 || m.lapsed
		if given.Tool != c.Tool {
			c.As = given.Tool
		}
		req.Calls[n] = c
	}
	return Queue{Route: Route{Pool: first.Pool, Class: first.Judgement.Class}, Request: req}
}
