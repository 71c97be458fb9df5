package broker

import (
	"errors"
)

// ErrNoSystem says that no dispatcher has ever run on the NATS system.
var ErrNoSystem = errors.New("no dispatcher has set this NATS system up yet; start one (dispatcher serve)")
