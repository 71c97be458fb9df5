package worker

import "github.com/toolyard/toolyard/internal/broker"

// Broker is what a worker needs of the store.
type Broker interface {
	broker.Log
	broker.Queue
	broker.Registry
	broker.Blobs
	broker.Asking
	broker.Children
	broker.Signals
	broker.Backgrounds
	broker.Link
}
