package broker

import (
	"time"

	"github.com/toolyard/toolyard"
)

const (
	// MaxDeadLetters is how many dead letters are kept; the oldest are dropped first.
	MaxDeadLetters = 10_000
	// MaxDeadDataBytes bounds the message data in a dead letter.
	MaxDeadDataBytes = 4 << 10
	// MaxDeadCauseBytes bounds the cause in a dead letter.
	MaxDeadCauseBytes = 2 << 10
)

// The kinds of dead letters.
const (
	DeadSubmission = "submission" // a message on the batch stream that cannot be read
	DeadCall       = "call"       // a message on the work queue that cannot be read
	DeadBatch      = "batch"      // a batch that was given up: its open calls ended as internal_error
)

// DeadLetter records a message that could not be used, or a batch that was given up. It is for people: anyone who
// waited for a result has been answered if possible.
type DeadLetter struct {
	Kind  string           `json:"kind"`
	Time  time.Time        `json:"time"`
	Agent toolyard.Agent   `json:"agent,omitempty"`
	Batch toolyard.BatchID `json:"batch,omitempty"`
	Call  *int             `json:"call,omitempty"`
	// Cause says why it could not be used, and By who found that.
	Cause string `json:"cause"`
	By    string `json:"by"`
	// Subject and Seq are the position of the message.
	Subject string `json:"subject"`
	Seq     uint64 `json:"sequence"`
	// Bytes is the length of the message's data; Data is its beginning, or DataBase64 if that is not text.
	Bytes      int    `json:"bytes"`
	Data       string `json:"data,omitempty"`
	DataBase64 []byte `json:"data_base64,omitempty"`
}
