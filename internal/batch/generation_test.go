package batch

import (
	"testing"
	"time"

	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestGenerationsOfCalls: the worker of a call whose tool declares a cache learns the generation of the ticket that the
// call runs under, also when the plan starts its group and after a takeover; the workers of others learn nothing.
func TestGenerationsOfCalls(t *testing.T) {
	now := time.Unix(1_000, 0)
	known := Config{Reserved: true, Generation: 5}
	ticket := uint64(10)
	for name, c := range map[string]struct {
		cached, planned, adopted bool
		cfg                      Config
		want                     uint64
	}{
		"granted":                     {cached: true, want: 7},
		"granted without a cache":     {},
		"started by the plan":         {cached: true, planned: true, cfg: known, want: 5},
		"started by an unknown plan":  {cached: true, planned: true, cfg: Config{Reserved: true}},
		"started without a cache":     {planned: true, cfg: known},
		"taken over, of a later term": {cached: true, planned: true, adopted: true, want: 7},
	} {
		sub, planned := planFor("r", nil, now)
		planned.Groups[0].Ticket, planned.Calls[0].Cached = true, c.cached
		if c.planned {
			planned.Start = &events.Started{Group: 0, Ticket: ticket}
		}
		var s State
		seq := uint64(0)
		stored := func(r Record) Record {
			seq++
			r.Seq, r.Time = seq, now
			return r
		}
		log := []Record{stored(Record{Chain: ChainSubmission, Body: events.Submitted{Batch: sub}}),
			stored(Record{Chain: ChainBatch, Body: planned})}
		if c.adopted {
			log = append(log, stored(Record{Chain: ChainBatch, Body: events.Adopted{Owner: "next", Takeover: 1}}))
		}
		for _, r := range log {
			must.OK(t, s.Apply(r))
		}
		c.cfg.WorkerWait, c.cfg.MaxAttempts, c.cfg.OpenIdle = time.Minute, 3, time.Minute
		m := New(c.cfg, s)
		queued := []events.Requested{}
		var inputs []Input
		for range 5 {
			effects, err := m.Step(now, inputs...)
			must.OK(t, err)
			inputs = nil
			for _, e := range effects {
				switch e := e.(type) {
				case TakeTicket:
					inputs = append(inputs, Granted{Group: e.Group, Ticket: ticket, Generation: 7})
				case Append:
					inputs = append(inputs, Stored{stored(Record{Chain: e.Chain, Index: e.Index, Body: e.Body})})
				case Queue:
					queued = append(queued, e.Request)
				}
			}
		}
		if len(queued) != 1 || queued[0].Ticket != ticket || queued[0].Generation != c.want {
			t.Errorf("%s: it was queued %d times: %+v, want generation %d", name, len(queued), queued, c.want)
		}
	}
}
