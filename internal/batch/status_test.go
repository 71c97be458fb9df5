package batch

import (
	"reflect"
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

// TestTheViewOfABatchThatWasGivenUp: its owner could only reply, so that no event has the results of the calls that
// were open. Who looks at the batch sees what was replied, in whatever order its chains are read, also without a plan.
func TestTheViewOfABatchThatWasGivenUp(t *testing.T) {
	calls := []toolyard.Call{{ID: "c1", Tool: "t"}, {ID: "c2", Tool: "t"}, {ID: "c3", Tool: "t"}}
	submitted := Record{Chain: ChainSubmission, Seq: 1, Body: events.Submitted{Batch: toolyard.Batch{Calls: calls}}}
	planned := events.Planned{Groups: []events.Group{{Calls: []int{0, 1, 2}}}}
	for _, c := range calls {
		planned.Calls = append(planned.Calls, events.PlannedCall{ID: c.ID, Tool: c.Tool, Pool: "default"})
	}
	plan := Record{Chain: ChainBatch, Seq: 2, Body: planned}
	fine := toolyard.Result{CallID: "c1", Output: "fine"}
	lost := []toolyard.Result{{Index: 1, CallID: "c2", IsError: true, Code: toolyard.InternalError},
		{Index: 2, CallID: "c3", IsError: true, Code: toolyard.InternalError}}
	finish := func(index int, res toolyard.Result) Record {
		return Record{Chain: ChainItem, Index: index, Seq: uint64(10 + index),
			Body: events.Finish(events.End{Result: res})}
	}
	late := finish(2, toolyard.Result{Index: 2, CallID: "c3", Output: "too late"})
	reply := func(seq uint64, completed bool, results ...toolyard.Result) Record {
		return Record{Chain: ChainReply, Seq: seq, Index: results[0].Index, Body: events.Reply{Results: results,
			Completed: completed}}
	}
	none := toolyard.Result{CallID: "c1", IsError: true, Code: toolyard.InternalError}
	for name, c := range map[string]struct {
		records []Record
		want    []toolyard.Result
	}{
		"in the order of time": {[]Record{submitted, plan, finish(0, fine), reply(1, false, fine),
			reply(2, true, lost...), late}, append([]toolyard.Result{fine}, lost...)},
		"replies first": {[]Record{submitted, reply(1, false, fine), reply(2, true, lost...), plan, finish(0, fine),
			late}, append([]toolyard.Result{fine}, lost...)},
		"without a plan": {[]Record{submitted, reply(1, true, append([]toolyard.Result{none}, lost...)...)},
			append([]toolyard.Result{none}, lost...)},
	} {
		s := State{}
		for _, r := range c.records {
			if err := s.Apply(r); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if v := s.View(); v.Status != toolyard.StatusCompleted || !reflect.DeepEqual(v.Results, c.want) {
			t.Errorf("%s: it is %s with\n%+v, want\n%+v", name, v.Status, v.Results, c.want)
		}
	}
}
