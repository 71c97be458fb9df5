package server

import "github.com/toolyard/toolyard/internal/broker"

// Broker is what the tools that are offered are read from.
type Broker interface {
	broker.Registry
	broker.Blobs
}
