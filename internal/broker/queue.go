package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// Queued is the outcome of queueing one call.
type Queued struct {
	// Seq is the message's sequence in the work queue, by which it can be removed again; 0 if it is no longer there.
	Seq uint64
	Err error
}

// BadWorkError is one message of the work queue that cannot be run. It has been removed from the queue, or given back
// if Again is set; the lane continues. Key and Index are those of its subject. A message that only a newer version
// knows wraps [events.ErrNewer], and is given back until a worker of that version gets it.
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

// NewerPause is the pause before a message is redelivered that was given back for a newer version, after a number of
// deliveries. It stays short, since several processes of this version may get the message before one of the other does.
func NewerPause(deliveries uint64) time.Duration {
	return min(firstNewerPause<<min(deliveries, 10), MaxNewerPause)
}

// The pauses of messages that are given back for a newer version.
const (
	firstNewerPause = 25 * time.Millisecond // doubled with each delivery
	MaxNewerPause   = time.Second
)

// Delivery is a message of the work queue that one worker has.
type Delivery struct {
	events.Requested
	// Deliveries counts the deliveries, including this one.
	Deliveries uint64
	// Received is when it came to this process, and Stored when the queue got it, by the server's clock.
	Received, Stored time.Time
	// OwnerWait is how long the batch's owner may be silent before another dispatcher gets the batch.
	OwnerWait time.Duration
	// Trace is the trace context of the batch, if it has one.
	Trace traceparent.Context
	// DeliveryMessage answers it.
	DeliveryMessage
}

// DeliveryMessage is the message below a [Delivery].
type DeliveryMessage interface {
	// Alive tells the queue that the call is in work. An error means that another worker may have it by now. An answer
	// proves nothing, since the queue answers any sender.
	Alive(ctx context.Context) error
	// Reconnected reports whether the connection has been restored since the message came. The server may have
	// restarted then, and may have delivered it to another worker as if for the first time.
	Reconnected() bool
	// Done has the message removed from the queue, in a moment. It waits for no answer, and may return why that of an
	// earlier message failed.
	Done() error
	// Return gives the message back, for another worker, after a pause.
	Return(pause time.Duration) error
}

// Key is the batch's.
func (d *Delivery) Key() toolyard.BatchKey { return toolyard.BatchKey{Agent: d.Agent, ID: d.Batch} }

// Fresh reports whether the message was stored so soon after it was queued that, by the clocks of both, its owner
// cannot have lost the batch in between. If the clocks differ it is not fresh, which costs a claim.
func (d *Delivery) Fresh() bool {
	late, limit := d.Stored.Sub(d.QueuedAt), Heartbeat(d.OwnerWait)
	return -limit < late && late < limit
}
