package broker

import (
	"errors"
)

// Errors of [Broker.Cancel] that programs act on.
var (
	// ErrCompleted is wrapped when a batch has its last result already.
	ErrCompleted = errors.New("the batch is completed")
	// ErrNoCall is wrapped when a batch has no call of that index.
	ErrNoCall = errors.New("no such call")
)
