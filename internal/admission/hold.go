package admission

import (
	"cmp"
	"time"

	"github.com/toolyard/toolyard"
)

// How long batches pass one that waits for room in a quota. What is smaller finds room sooner, and new ones may come
// without end.
const (
	quotaPatience = 5 * time.Second        // for which smaller batches pass one that waits for room in a quota
	maxQuotaHold  = 2 * time.Minute        // for which they are held back until it has room, at a time
	quotaLook     = 100 * time.Millisecond // between two looks at all batches that wait for room in quotas
)

// quotaHold is what is done in a scope for batches that wait for room there: when others have passed one of them for
// long enough, the others are held back until it fits. That is in vain while something goes on for longer, an open
// batch that is idle, say: then the others pass again, for as long as they were held back. Both take longer the next
// time.
type quotaHold struct {
	// holder is the batch for which others are held back since a time; the zero key: they are not, until then at least.
	holder toolyard.BatchKey
	since  time.Time
	until  time.Time
	// oldest is the one that was passed for the longest, and held is that of holder, if it waits for nothing but this
	// scope: both as of the last look.
	oldest, held *arrival
}

// holdBack decides for which batches others are held back from now on. It looks at all agents that wait, so not at each
// start.
func (r *Queue) holdBack(now time.Time) {
	if now.Sub(r.looked) < quotaLook {
		return
	}
	r.looked = now
	for _, h := range r.holds {
		h.oldest, h.held = nil, nil
	}
	for p := range priorities {
		for _, l := range r.turns[p] {
			if l.running >= r.limits.AgentRunning || !r.quotas.bounded(l.agent) {
				continue
			}
			r.lookAt(&l.waiting[p][0], now)
		}
	}
	for s, h := range r.holds {
		if h.step(now); h.oldest == nil && h.held == nil {
			delete(r.holds, s)
		}
	}
}

// lookAt notes for what an agent's next batch waits.
func (r *Queue) lookAt(a *arrival, now time.Time) {
	full := r.quotas.full(&a.Batch, now)
	for _, s := range r.quotas.grants.of(a.Key.Agent) {
		if h := r.holds[s.scope]; h != nil && h.holder == a.Key && (full == "" || full == s.scope) {
			h.held = a
		}
	}
	if full == "" {
		return
	}
	if a.passed.IsZero() {
		a.passed, a.hold = now, quotaPatience
	}
	h := r.holds[full]
	if h == nil {
		h = &quotaHold{}
		r.holds[full] = h
	}
	if h.oldest == nil || a.passed.Before(h.oldest.passed) {
		h.oldest = a
	}
}

// step begins and ends holds.
func (h *quotaHold) step(now time.Time) {
	none := toolyard.BatchKey{}
	switch {
	case h.holder == none:
	case h.held == nil: // it has started, is gone, or waits for something else
		h.holder, h.until = none, now
	case now.Sub(h.since) >= h.held.hold: // in vain, and the next turn is that of another one
		h.holder, h.until = none, now.Add(h.held.hold)
		h.held.passed, h.held.hold = now, min(2*h.held.hold, maxQuotaHold)
	}
	if h.holder == none && h.oldest != nil && !now.Before(h.until) && now.Sub(h.oldest.passed) >= quotaPatience {
		h.holder, h.since = h.oldest.Key, now
	}
}

// release ends the holds for a batch that is to start.
func (r *Queue) release(k toolyard.BatchKey, now time.Time) {
	for _, h := range r.holds {
		if h.holder == k {
			h.holder, h.until = toolyard.BatchKey{}, now
		}
	}
}

// heldBack reports whether a batch may not start because others are held back for another one. Of two batches for
// which others are held back, each in a scope of both, only the later one may not: else neither could.
func (r *Queue) heldBack(b *Batch) bool {
	if len(r.holds) == 0 {
		return false
	}
	var own, others *quotaHold // the first ones
	for _, s := range r.quotas.grants.of(b.Key.Agent) {
		h := r.holds[s.scope]
		if h == nil || h.holder == (toolyard.BatchKey{}) {
			continue
		}
		first := &others
		if h.holder == b.Key {
			first = &own
		}
		if *first == nil || h.before(*first) {
			*first = h
		}
	}
	return others != nil && (own == nil || others.before(own))
}

// before reports whether others are held back for longer here. Of those that begin at once one is the first, too.
func (h *quotaHold) before(o *quotaHold) bool {
	return cmp.Or(h.since.Compare(o.since), cmp.Compare(h.holder.Agent, o.holder.Agent),
		cmp.Compare(h.holder.ID, o.holder.ID)) < 0
}
