package natsbroker_test

import (
	"testing"

	"github.com/toolyard/toolyard/internal/broker"
)

// TestOnlyTheNewestRunIsToldAbout: no report of an older run of a restarted call is shown, whichever worker sends it,
// and none of a call that has its result.
func TestOnlyTheNewestRunIsToldAbout(t *testing.T) {
	r := broker.Runs{}
	for i, step := range []struct {
		index, attempt int
		delivery       uint64
		over, want     bool
	}{
		{0, 1, 1, false, true},
		{0, 1, 1, false, true},
		{1, 1, 1, false, true},
		{0, 1, 2, false, true},  // delivered again, to another worker
		{0, 1, 1, false, false}, // the first one does not know
		{0, 2, 1, false, true},  // another attempt
		{0, 1, 2, false, false},
		{0, 1, 9, false, false},
		{1, 1, 1, false, true}, // another call is not touched
		{0, 2, 1, true, false}, // it has its result
		{0, 2, 1, false, false},
		{0, 3, 1, false, false},
		{1, 1, 1, false, true},
	} {
		if step.over {
			r.Over(step.index)
			continue
		}
		if got := r.Take(broker.Progress{Index: step.index, Attempt: step.attempt,
			Delivery: step.delivery}); got != step.want {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
}
