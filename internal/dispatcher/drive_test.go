package dispatcher

import (
	"errors"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/ticket"
)

// TestAnAnswerToAnEarlierQuestion: a ticket that was granted, or refused, before the batch left the queue says
// nothing about the one that it stands in line for now.
func TestAnAnswerToAnEarlierQuestion(t *testing.T) {
	r := &runner{ticketRequests: 2}
	for _, err := range []error{nil, ticket.ErrPassed, errors.New("lost")} {
		inputs, got := r.ticketAnswer(t.Context(), &grantAnswer{take: 1, t: ticket.Ticket{N: 7}, err: err})
		if got != nil || len(inputs) != 0 {
			t.Errorf("an answer with %v: %v, and %v is brought in", err, got, inputs)
		}
	}
	inputs, err := r.ticketAnswer(t.Context(), &grantAnswer{take: 2, wanted: batch.TakeTicket{Group: 1},
		t: ticket.Ticket{N: 8, Holder: ticket.Holder{Group: 1}}})
	if err != nil || len(inputs) != 1 || inputs[0] != (batch.Granted{Group: 1, Ticket: 8}) {
		t.Errorf("the answer that counts: %v, and %v is brought in", err, inputs)
	}
}

// TestAnItemOfTheNextOwner: an owner that knows of no item of two calls has lost the batch when both are in one.
func TestAnItemOfTheNextOwner(t *testing.T) {
	r := &runner{m: batch.New(batch.Config{}, batch.State{Plan: &events.Planned{Calls: make([]events.PlannedCall, 3)},
		Calls: []batch.Call{{}, {Item: 1}, {Item: 2}}})}
	finished := func(calls ...int) batch.Record {
		var ends []events.End
		for _, i := range calls {
			ends = append(ends, events.End{Result: toolyard.Result{Index: i}})
		}
		return batch.Record{Chain: batch.ChainItem, Index: 1, Body: events.Finish(ends...)}
	}
	for _, c := range []struct {
		rec  batch.Record
		want bool
	}{
		{finished(1), false}, {finished(2), true}, {finished(1, 2), true},
		{batch.Record{Chain: batch.ChainItem, Index: 1, Body: events.Claimed{Call: 2}}, true},
		{batch.Record{Chain: batch.ChainItem, Index: 1, Body: events.Claimed{}}, false},
		{batch.Record{Chain: batch.ChainControl, Body: events.Canceled{Calls: []int{2}}}, false},
	} {
		if got := r.ofNextOwner(c.rec); got != c.want {
			t.Errorf("%+v: %t", c.rec, got)
		}
	}
}
