package worker

import (
	"errors"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// TestOwnResultsKeepTheEcho: those that a worker makes without the pipeline.
func TestOwnResultsKeepTheEcho(t *testing.T) {
	r := &running{d: &broker.Delivery{}, call: events.RequestedCall{ID: "c", Tool: "t", Attempt: 1,
		Echo: toolyard.Echo(`{"a":1}`)}}
	w := &Worker{}
	for _, res := range []toolyard.Result{w.ended(r, toolyard.PhaseSchedule, toolyard.InternalError, "m",
		errors.New("why")),
		w.toolUnavailable(r)} {
		if string(res.Echo) != `{"a":1}` || res.CallID != "c" || !res.IsError {
			t.Errorf("%+v", res)
		}
	}
}
