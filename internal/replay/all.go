package replay

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// All takes the events of any number of batches, mixed as a feed has them, and replays each for itself. The zero
// All is ready.
type All struct {
	order []*one
	byKey map[toolyard.BatchKey]*one
	last  *one
}

// one is what an [All] has of one batch.
type one struct {
	Replay
	key   toolyard.BatchKey // zero while nothing says whose it is
	begun bool              // its submission is there
	lost  int               // events before its submission
}

// Add takes the next event.
func (a *All) Add(e Event) {
	o := a.of(e)
	_, first := e.Body.(events.Submitted)
	o.begun = o.begun || first
	if !o.begun {
		o.lost++
	}
	_ = o.Replay.Add(e) // the report has it
	a.last = o
}

// of is the batch of an event. What does not say belongs to the batch of the event before it.
func (a *All) of(e Event) *one {
	k := keyOf(e)
	if o := a.byKey[k]; o != nil {
		return o
	}
	switch {
	case k == toolyard.BatchKey{} && a.last != nil:
		return a.last
	case len(a.order) == 1 && a.order[0].key == toolyard.BatchKey{}: // a submission that does not say whose it is
		a.last = a.order[0]
	default:
		a.last = &one{}
		a.order = append(a.order, a.last)
	}
	if a.byKey == nil {
		a.byKey = map[toolyard.BatchKey]*one{}
	}
	a.last.key = k
	if k != (toolyard.BatchKey{}) {
		a.byKey[k] = a.last
	}
	return a.last
}

func keyOf(e Event) toolyard.BatchKey {
	k, _, _, err := about(e.Meta.Subject)
	if err != nil {
		k = toolyard.BatchKey{}
	}
	if sub, ok := e.Body.(events.Submitted); ok && sub.Agent != "" && sub.ID != "" {
		return sub.Key()
	}
	return k
}

// Reports are those of all batches, in the order in which they appeared. Where there are several, one whose
// submission is missing is no contradiction: the feed began when it was under way, and nothing is checked of it.
func (a *All) Reports() []*Report {
	out := make([]*Report, len(a.order))
	for i, o := range a.order {
		if !o.begun && len(a.order) > 1 {
			s := batch.State{Key: o.key}
			out[i] = &Report{Batch: s.View(), Events: o.lost, Missing: true, Groups: []Group{}, Happened: []Moment{},
				Replies: []Moment{}, state: s}
			out[i].Batch.Status = ""
			continue
		}
		out[i] = o.Report()
	}
	return out
}
