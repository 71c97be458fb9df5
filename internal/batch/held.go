package batch

import "fmt"

// hold notes that calls are kept back from the work queue.
func (m *Machine) hold(in Held) {
	for _, i := range in.Calls {
		m.flight.held[i] = true
	}
}

// handed notes that calls go to the work queue now: their wait there begins.
func (m *Machine) handed(in Handed) {
	for _, i := range in.Calls {
		delete(m.flight.held, i)
		if _, queued := m.flight.queued[i]; queued {
			m.flight.queued[i] = m.now
		}
	}
}

// limit ends calls that were kept back because of a rate or a budget.
func (m *Machine) limit(in Limited) {
	for _, i := range in.Calls {
		if !m.MayHand(i) {
			continue
		}
		v := verdict{Stop: Stop{Code: in.Code}, text: in.Why, detail: in.Detail, retryAfterMS: in.RetryAfterMS,
			advice: "Do without it, and without other calls that need the same."}
		if in.RetryAfterMS > 0 {
			v.retryable = true
			v.advice = fmt.Sprintf("The same call may succeed when you repeat it after %d ms.", in.RetryAfterMS)
		}
		m.ends.decided[i] = &ending{verdict: v}
	}
}

// Active reports whether workers may have a call, or are to get it.
func (m *Machine) Active(i int) bool { return m.flight.active[i] }

// MayHand reports whether a call that is kept back may still be handed to workers.
func (m *Machine) MayHand(i int) bool {
	_, ends := m.ends.decided[i]
	return m.flight.held[i] && !ends && m.state.Open(i)
}
