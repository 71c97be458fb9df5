package batch

import (
	"fmt"

	"github.com/toolyard/toolyard"
)

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

// limit ends calls that were kept back because of a rate.
func (m *Machine) limit(in Limited) {
	for _, i := range in.Calls {
		if !m.MayHand(i) {
			continue
		}
		m.ends.decided[i] = &ending{verdict: verdict{
			Stop: Stop{Code: toolyard.RateLimited}, text: in.Why, detail: in.Detail, retryable: true,
			retryAfterMS: in.RetryAfterMS,
			advice:       fmt.Sprintf("The same call may succeed when you repeat it after %d ms.", in.RetryAfterMS)}}
	}
}

// Active reports whether workers may have a call, or are to get it.
func (m *Machine) Active(i int) bool { return m.flight.active[i] }

// MayHand reports whether a call that is kept back may still be handed to workers.
func (m *Machine) MayHand(i int) bool {
	_, ends := m.ends.decided[i]
	return m.flight.held[i] && !ends && m.state.Open(i)
}
