package client

import (
	"context"
	"time"

	"github.com/toolyard/toolyard"
)

// DeadLetter is a message that could not be used, or a batch that was given up. Whoever waited for results has been
// answered where that was possible; this is the record for people.
type DeadLetter struct {
	// Kind is submission, call or batch.
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

// DeadLetters returns so many dead letters at most, the newest first.
func (c *Client) DeadLetters(ctx context.Context, most int) ([]DeadLetter, error) {
	return c.t.deadLetters(ctx, most)
}
