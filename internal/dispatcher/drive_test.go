package dispatcher

import (
	"errors"
	"testing"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/ticket"
)

// TestAnAnswerToAnEarlierQuestion: a ticket that was granted, or refused, before the batch left the queue says
// nothing about the one that it stands in line for now.
func TestAnAnswerToAnEarlierQuestion(t *testing.T) {
	r := &runner{ticketRequests: 2}
	for _, err := range []error{nil, ticket.ErrPassed, errors.New("lost")} {
		inputs, got := r.ticketAnswer(t.Context(), grantAnswer{take: 1, t: ticket.Ticket{N: 7}, err: err})
		if got != nil || len(inputs) != 0 {
			t.Errorf("an answer with %v: %v, and %v is brought in", err, got, inputs)
		}
	}
	inputs, err := r.ticketAnswer(t.Context(), grantAnswer{take: 2, wanted: batch.TakeTicket{Group: 1},
		t: ticket.Ticket{N: 8, Holder: ticket.Holder{Group: 1}}})
	if err != nil || len(inputs) != 1 || inputs[0] != (batch.Granted{Group: 1, Ticket: 8}) {
		t.Errorf("the answer that counts: %v, and %v is brought in", err, inputs)
	}
}
