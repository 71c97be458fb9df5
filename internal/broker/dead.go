package broker

import (
	"time"

	"github.com/toolyard/toolyard"
)

const (
	// MaxDeadLetters is how many dead letters are kept; the oldest go first.
	MaxDeadLetters = 10_000
	// MaxDeadDataBytes is how much of a message's data a dead letter has.
	MaxDeadDataBytes = 4 << 10
	// MaxDeadCauseBytes is how long the cause in a dead letter may be.
	MaxDeadCauseBytes = 2 << 10
)

// The kinds of dead letters.
const (
	DeadSubmission = "submission" // a message on the batch stream that cannot be read
	DeadCall       = "call"       // a message on the work queue that cannot be read
	DeadBatch      = "batch"      // a batch that was given up: its open calls ended as internal_error
)

// DeadLetter is what is known of a message that could not be used, or of a batch that was given up. It is a record for
// people: whoever waited for a result has been answered where that was possible.
type DeadLetter struct {
	Kind  string           `json:"kind"`
	Time  time.Time        `json:"time"`
	Agent toolyard.Agent   `json:"agent,omitempty"`
	Batch toolyard.BatchID `json:"batch,omitempty"`
	Call  *int             `json:"call,omitempty"`
	// Cause says why it could not be used, and By who found so.
	Cause string `json:"cause"`
	By    string `json:"by"`
	// Subject and Seq are where the message stood.
	Subject string `json:"subject"`
	Seq     uint64 `json:"sequence"`
	// Bytes is how long the message's data was; Data is its beginning, DataBase64 instead when that is no text.
	Bytes      int    `json:"bytes"`
	Data       string `json:"data,omitempty"`
	DataBase64 []byte `json:"data_base64,omitempty"`
}
