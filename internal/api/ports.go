package api

import "github.com/toolyard/toolyard/internal/broker"

// Broker is what the API needs of the store, beside what its client does.
type Broker interface {
	broker.Log
	broker.Inbox
	broker.Blobs
	broker.Live
	broker.Link
}
