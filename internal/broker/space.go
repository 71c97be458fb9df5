package broker

import (
	"time"

	"github.com/toolyard/toolyard"
)

// Room describes the disk of the NATS server. Only a dispatcher with the server in its process knows it; the zero Room
// says that nothing prevents storing.
type Room struct {
	// Full says that the remaining space is for batches that are under way. Stalled says that nothing can be stored at
	// all.
	Full    bool `json:"full,omitempty"`
	Stalled bool `json:"stalled,omitempty"`
	// Reason says why, and what to do.
	Reason string `json:"reason,omitempty"`
}

// Fill is how full the store is: its fullest stream or bucket, in percent of its limit.
type Fill struct {
	Stream  string
	Percent int
	// Refusals is the same for the streams in which the refusal of a batch is stored.
	Refusals int
}

// Stock is what stands in the store, for those who watch it.
type Stock struct {
	// Streams is how full each stream is, in percent of its limit. That of a bucket has its prefix, as in KV_.
	Streams map[string]int
	// DeadLetters is how many were ever stored, those included that are gone.
	DeadLetters uint64
	// Queues are the work queues that have workers or had some.
	Queues []WorkQueue
}

// WorkQueue is what stands in the queues of one pool and class.
type WorkQueue struct {
	Pool  toolyard.Pool
	Class toolyard.Class
	// Waiting are the messages that no worker was given, and Taken those that workers have. Oldest is when the oldest
	// of the former was stored; the zero time if there is none.
	Waiting, Taken int
	Oldest         time.Time
}
