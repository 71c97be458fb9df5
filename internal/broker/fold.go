package broker

import (
	"errors"
)

// ErrNoBatch is wrapped when there is no submission of that key, or no longer.
var ErrNoBatch = errors.New("no such batch")
