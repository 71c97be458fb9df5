package broker

import (
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/ticket"
)

// TicketQueue is the stored tickets of one workspace.
type TicketQueue struct {
	Workspace toolyard.Workspace
	ticket.Queue
	// Revision grows with every change.
	Revision uint64
}

// FitsTickets returns [ticket.ErrFull] if a queue is too long for one message.
func FitsTickets(q ticket.Queue) error {
	if len(q.Tickets) < certainlyFits {
		return nil
	}
	value, err := json.Marshal(q)
	if err == nil && len(value) > MaxInlineBytes {
		err = fmt.Errorf("%w: it has %d bytes; at most %d are stored", ticket.ErrFull, len(value), MaxInlineBytes)
	}
	return err
}

// certainlyFits is how many tickets with the longest names fit into one message.
const certainlyFits = 256
