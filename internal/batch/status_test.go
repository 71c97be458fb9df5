package batch

import (
	"slices"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// TestAnOpenBatchIsOpenBeforeItsPlan: until it is closed, or refused.
func TestAnOpenBatchIsOpenBeforeItsPlan(t *testing.T) {
	s := State{Submission: &toolyard.Batch{Open: true}}
	if got := s.Status(); got != toolyard.StatusOpen {
		t.Errorf("opened, it is %q", got)
	}
	s.InputClosed = true
	if got := s.Status(); got != toolyard.StatusRunning {
		t.Errorf("closed, it is %q", got)
	}
	s.Plan = &events.Planned{}
	if got := s.Status(); got != toolyard.StatusRunning {
		t.Errorf("closed, and its owner has not seen it, it is %q", got)
	}
	s = State{Submission: &toolyard.Batch{}}
	if got := s.Status(); got != toolyard.StatusRunning {
		t.Errorf("handed in whole, it is %q", got)
	}
}

// TestACancelThatCameTooLate: the calls were canceled by an interrupt, the batch is over, and then it is canceled. It
// stays completed, in whatever order its chains are read: its status was said when it was over.
func TestACancelThatCameTooLate(t *testing.T) {
	canceled := toolyard.Result{IsError: true, Code: toolyard.Canceled}
	first := []Record{
		{Chain: ChainSubmission, Seq: 1, Body: events.Submitted{Batch: toolyard.Batch{Calls: []toolyard.Call{{ID: "c1",
			Tool: "t"}}}}},
		{Chain: ChainBatch, Seq: 2, Body: events.Planned{
			Calls:  []events.PlannedCall{{ID: "c1", Tool: "t", Pool: "default"}},
			Groups: []events.Group{{Calls: []int{0}}}}},
	}
	end := Record{Chain: ChainItem, Seq: 4, Body: events.Finish(events.End{Result: canceled})}
	reply := Record{Chain: ChainReply, Seq: 1, Body: events.Reply{Results: []toolyard.Result{canceled},
		Completed: true}}
	for name, c := range map[string]struct {
		control []Record
		want    toolyard.Status
	}{
		"canceled": {[]Record{{Chain: ChainControl, Seq: 3, Body: events.Canceled{By: "agent"}}},
			toolyard.StatusCanceled},
		"canceled twice": {[]Record{{Chain: ChainControl, Seq: 3, Body: events.Canceled{By: "agent"}},
			{Chain: ChainControl, Seq: 5, Body: events.Canceled{By: "agent"}}}, toolyard.StatusCanceled},
		"interrupted": {[]Record{{Chain: ChainControl, Seq: 3, Body: events.Interrupted{By: "agent"}}},
			toolyard.StatusCompleted},
		"interrupted, then canceled": {[]Record{{Chain: ChainControl, Seq: 3, Body: events.Interrupted{By: "agent"}},
			{Chain: ChainControl, Seq: 5, Body: events.Canceled{By: "agent"}}}, toolyard.StatusCompleted},
		"canceled in part, then canceled": {[]Record{{Chain: ChainControl, Seq: 3, Body: events.Canceled{By: "agent",
			Calls: []int{0}}}, {Chain: ChainControl, Seq: 5, Body: events.Canceled{By: "agent"}}},
			toolyard.StatusCompleted},
	} {
		for order, records := range map[string][]Record{
			"control first": slices.Concat(first, c.control, []Record{end, reply}),
			"control last":  slices.Concat(first, []Record{end, reply}, c.control),
		} {
			s := State{}
			for _, r := range records {
				if err := s.Apply(r); err != nil {
					t.Fatalf("%s, %s: %v", name, order, err)
				}
			}
			if got := s.Status(); got != c.want {
				t.Errorf("%s, %s: it is %q; want %q", name, order, got, c.want)
			}
		}
	}
}
