package dispatcher

import "github.com/toolyard/toolyard/internal/broker"

// Broker is what a dispatcher needs of the store.
type Broker interface {
	broker.Log
	broker.Inbox
	broker.Control
	broker.Queue
	broker.Tickets
	broker.Registry
	broker.Usages
	broker.Budgets
	broker.Sessions
	broker.Deaths
	broker.Indexed
	broker.Approvals
	broker.Blobs
	broker.DeadLetters
	broker.Space
	broker.Clock
	broker.Asking
	broker.Signals
	broker.Live
	broker.Link
	broker.Guests
	broker.Archives
}
