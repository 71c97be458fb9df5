package broker

import (
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
)

// Queued is what became of one call that was handed to the workers.
type Queued struct {
	// Seq is the message's place in the work queue, by which it can be taken out again; 0 when it is not there any more.
	Seq uint64
	Err error
}

// BadWorkError is one message of the work queue that cannot be run. It has been taken out of the queue, or given back
// when Again is set; the lane goes on. Key and Index are those of its subject. One that only a newer version knows
// wraps [events.ErrNewer], and was given back for as long as it takes until a worker of that version has it.
type BadWorkError struct {
	Key   toolyard.BatchKey
	Index int
	Again bool
	Err   error
}

func (e *BadWorkError) Error() string {
	return fmt.Sprintf("message for call %d of %s: %v", e.Index, e.Key, e.Err)
}

func (e *BadWorkError) Unwrap() error { return e.Err }

// NewerPause is how long a message waits that was given back for a newer version, after so many deliveries. It is short
// also when it has waited for long, since it may be handed to several processes of this version before one of the other
// gets it.
func NewerPause(deliveries uint64) time.Duration {
	return min(firstNewerPause<<min(deliveries, 10), MaxNewerPause)
}

// The pauses of what is given back for a newer version.
const (
	firstNewerPause = 25 * time.Millisecond // doubled with each delivery
	MaxNewerPause   = time.Second
)
