package batch

import (
	"time"

	"github.com/toolyard/toolyard/internal/events"
)

// First returns the start of a group that waits for nothing, which a new batch's plan then says itself; nil when there
// is none. reserve is asked for the ticket that the group needs; it returns its number if it is granted at once.
func First(cfg Config, s State, planned events.Planned, now time.Time, workers Observed,
	reserve func(TakeTicket) (number uint64, ok bool)) (*events.Started, error) {
	if err := s.Apply(Record{Chain: ChainBatch, Seq: s.BatchSeq + 1, Time: now, Body: planned}); err != nil {
		return nil, err
	}
	m := New(cfg, s)
	effects, err := m.Step(now, workers)
	if err != nil {
		return nil, err
	}
	for _, e := range effects {
		if take, ok := e.(TakeTicket); ok {
			if number, ok := reserve(take); ok {
				effects, err = m.Step(now, Granted{Group: take.Group, Ticket: number})
			}
			break
		}
	}
	for _, e := range effects {
		if a, ok := e.(Append); ok && a.Chain == ChainBatch {
			return events.StartOf(a.Body), err
		}
	}
	return nil, err
}
