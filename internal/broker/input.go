package broker

import (
	"errors"
)

// ErrClosed is wrapped when calls are appended to a batch that is closed.
var ErrClosed = errors.New("the batch is closed")
