package broker

import (
	"errors"
)

// ErrStopped is returned by what takes messages when it was stopped, or the connection was closed.
var ErrStopped = errors.New("stopped")
