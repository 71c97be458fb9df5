package replay

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// All replays the events of any number of batches, mixed as in a feed, each batch by itself. The zero All is ready.
type All struct {
	order []*one
	byKey map[toolyard.BatchKey]*one
	last  *one
}

// one is the replay of one batch.
type one struct {
	Replay
	key   toolyard.BatchKey // zero while the batch is unknown
	begun bool              // its submission was added
	lost  int               // events before its submission
}

// Add adds the next event.
func (a *All) Add(e Event) {
	o := a.replayOf(e)
	_, first := e.Body.(events.Submitted)
	o.begun = o.begun || first
	if !o.begun {
		o.lost++
	}
	_ = o.Replay.Add(e) // the report includes the error
	a.last = o
}

// replayOf returns the batch of an event. An event that does not name its batch belongs to that of the event before it.
func (a *All) replayOf(e Event) *one {
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

// Reports returns the reports of all batches, in the order in which they appeared. If there are several, a missing
// submission is not a contradiction: the feed began after the batch, and the batch is not checked.
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
