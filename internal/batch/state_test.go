package batch

import (
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// TestAResultOfACallThatCouldNotBeRead: its worker did not know what call it was; the log does.
func TestAResultOfACallThatCouldNotBeRead(t *testing.T) {
	echo := toolyard.Echo(`{"namespace":"n"}`)
	s := State{}
	for i, r := range []Record{
		{Chain: ChainSubmission, Body: events.Submitted{Batch: toolyard.Batch{Calls: []toolyard.Call{{ID: "c1",
			Tool: "alias", Echo: echo}}}}},
		{Chain: ChainBatch, Body: events.Planned{Calls: []events.PlannedCall{{ID: "c1", Tool: "t", Pool: "default"}},
			Groups: []events.Group{{Calls: []int{0}}}}},
		{Chain: ChainItem, Body: events.Finish(events.End{
			Result: toolyard.Result{IsError: true, Code: toolyard.InternalError}})},
	} {
		r.Seq = uint64(i + 1)
		if err := s.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.Calls[0].Result; r.CallID != "c1" || r.Tool != "t" || string(r.Echo) != string(echo) ||
		r.Code != toolyard.InternalError {
		t.Errorf("%+v", r)
	}
}

// TestRepliesAreCutByAllThatResultsHold: parts and data count like text.
func TestRepliesAreCutByAllThatResultsHold(t *testing.T) {
	for name, r := range map[string]toolyard.Result{
		"data":  {Content: []toolyard.Content{{Data: make([]byte, MaxReplyBytes)}}},
		"text":  {Content: []toolyard.Content{{Text: string(make([]byte, MaxReplyBytes+1))}}},
		"tools": {Content: []toolyard.Content{{Schema: make([]byte, MaxReplyBytes+1)}}},
		"json":  {Structured: make([]byte, MaxReplyBytes+1)},
	} {
		if got := ResultBytes(&r); got <= MaxReplyBytes {
			t.Errorf("%s: %d bytes", name, got)
		}
	}
}

// TestMayHaveChanged: a group whose call a worker has may have changed its workspace. That is how the log of a batch
// that was given up ends.
func TestMayHaveChanged(t *testing.T) {
	for name, tt := range map[string]struct {
		call Call
		want bool
	}{
		"never claimed":            {Call{Status: Pending}, false},
		"claimed":                  {Call{Status: Claimed, Attempt: 1}, true},
		"given back unstarted":     {Call{Status: Retrying, Attempt: 1, Unstarted: 1}, false},
		"claimed again after that": {Call{Status: Claimed, Attempt: 2, Unstarted: 1}, true},
		"tried in vain":            {Call{Status: Retrying, Attempt: 1}, true},
		"denied":                   {Call{Result: &toolyard.Result{Code: toolyard.PermissionDenied}}, false},
		"run":                      {Call{Result: &toolyard.Result{Code: toolyard.OK, Attempts: 1}}, true},
		"lost":                     {Call{Result: &toolyard.Result{Code: toolyard.OutcomeUnknown}}, true},
	} {
		groups := []events.Group{{Calls: []int{0}, Ticket: true}}
		s := State{Plan: &events.Planned{Groups: groups}, Calls: []Call{tt.call}}
		if got := s.MayHaveChanged(0); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
