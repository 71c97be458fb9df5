package broker

import (
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/ticket"
)

// TicketQueue is the stored tickets of one workspace: those of all its queues, if it has several shards.
type TicketQueue struct {
	Workspace toolyard.Workspace
	ticket.Queue
	// Revision grows with every change of the queue that takes new tickets, which is in the shard Home. Home grows when
	// the system gets more shards.
	Revision uint64
	Home     int
	// Former grows with every change of the queues in former shards, for as long as they are the same. Formers is how
	// many former shards there are. It gets smaller when the oldest one no longer counts, and Former may then too.
	Former  uint64
	Formers int
}

// Includes reports whether a queue was read when all was stored that another reading of it has.
func (q TicketQueue) Includes(other TicketQueue) bool {
	if q.Home != other.Home {
		return q.Home > other.Home
	}
	return q.Revision >= other.Revision && (q.Formers < other.Formers || q.Former >= other.Former)
}

// Newer reports whether a queue includes another reading of it, and more.
func (q TicketQueue) Newer(other TicketQueue) bool {
	return q.Includes(other) && !other.Includes(q)
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
