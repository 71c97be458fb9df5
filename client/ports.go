package client

import "github.com/toolyard/toolyard/internal/broker"

// store is what a client needs of the store.
type store interface {
	broker.Log
	broker.Inbox
	broker.Control
	broker.Registry
	broker.Sessions
	broker.Budgets
	broker.Indexed
	broker.Approvals
	broker.Asking
	broker.Blobs
	broker.DeadLetters
	broker.Live
	broker.Link
}
