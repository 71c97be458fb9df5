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
