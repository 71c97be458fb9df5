package dispatcher

import (
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// TestBackgroundState: how a background call stands follows from its log. Nobody waits for one that was given up.
func TestBackgroundState(t *testing.T) {
	planned := func(c batch.Call) *batch.State {
		return &batch.State{Plan: &events.Planned{}, Calls: []batch.Call{c}}
	}
	over := planned(batch.Call{Result: &toolyard.Result{}})
	over.Completed = true
	parked := planned(batch.Call{})
	parked.Parked = true
	givenUp := planned(batch.Call{})
	givenUp.Completed = true
	for name, c := range map[string]struct {
		s    *batch.State
		want broker.BackgroundState
	}{
		"not planned":           {&batch.State{}, broker.BackgroundQueued},
		"planned":               {planned(batch.Call{}), broker.BackgroundQueued},
		"claimed":               {planned(batch.Call{Status: batch.Claimed}), broker.BackgroundRunning},
		"waits for a person":    {planned(batch.Call{Status: batch.Waiting}), broker.BackgroundWaiting},
		"parked":                {parked, broker.BackgroundWaiting},
		"refused":               {&batch.State{Refused: &events.Refused{Detail: "x"}}, broker.BackgroundRefused},
		"over":                  {over, broker.BackgroundOver},
		"given up":              {givenUp, broker.BackgroundRefused},
		"given up, not planned": {&batch.State{Completed: true}, broker.BackgroundRefused},
	} {
		a := backgroundState(c.s)
		if a.State != c.want || (a.Problem != "") != (c.want == broker.BackgroundRefused) ||
			(a.Result != nil) != (c.want == broker.BackgroundOver) {
			t.Errorf("%s: %+v, want %s", name, a, c.want)
		}
	}
}
