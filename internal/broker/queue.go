package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
)

// Queued is what became of one call that was handed to the workers.
type Queued struct {
	// Seq is the message's place in the work queue, by which it can be taken out again; 0 when it is not there any
	// more.
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

// Delivery is a message of the work queue in the hands of one worker.
type Delivery struct {
	events.Requested
	// Deliveries counts them, this one included.
	Deliveries uint64
	// Received is when it came to this process, and Stored when the queue got it, by the server's clock.
	Received, Stored time.Time
	// OwnerWait is how long the batch's owner may be silent before another gets the batch.
	OwnerWait time.Duration
	// DeliveryMessage is how it is answered.
	DeliveryMessage
}

// DeliveryMessage is the message under a [Delivery].
type DeliveryMessage interface {
	// Alive tells the queue that the call is in work. An error means that it may be another's by now; an answer proves
	// nothing, since the queue answers whoever says so.
	Alive(ctx context.Context) error
	// Reconnected reports whether the connection has been restored since the message came. The server may have been
	// restarted then, and have handed it to another worker as if for the first time.
	Reconnected() bool
	// Done takes the message out of the queue.
	Done(ctx context.Context) error
	// Return gives the message back, for another worker, after a pause.
	Return(pause time.Duration) error
}

// Key is the batch's.
func (d *Delivery) Key() toolyard.BatchKey { return toolyard.BatchKey{Agent: d.Agent, ID: d.Batch} }

// Fresh reports whether the message was stored so soon after it was queued that its owner cannot have lost the batch in
// between, as the clocks of both say. When they do not agree it is not fresh, which costs a claim.
func (d *Delivery) Fresh() bool {
	late, limit := d.Stored.Sub(d.QueuedAt), Heartbeat(d.OwnerWait)
	return -limit < late && late < limit
}
