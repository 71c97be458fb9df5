package broker

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// AbortNotice tells workers to stop calls at once. The log says that these calls must end.
type AbortNotice struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	Calls []int            `json:"calls"`
	Code  toolyard.Code    `json:"code"`
	// Culprit is the call that failed, for sibling_canceled. Reason is why somebody canceled, and By who did.
	Culprit string `json:"culprit,omitempty"`
	Reason  string `json:"reason,omitempty"`
	By      string `json:"by,omitempty"`
}

// MaxProgressBytes is the longest progress message. A longer one is not sent, and not read.
const MaxProgressBytes = 128 << 10

// Progress is a worker's report about a running call.
type Progress struct {
	Index  int    `json:"index"`
	CallID string `json:"call_id"`
	Tool   string `json:"tool"`
	Worker string `json:"worker"`
	// Attempt and Delivery identify the run of the call: a later run has the greater attempt, or the same attempt and
	// the greater delivery.
	Attempt  int    `json:"attempt"`
	Delivery uint64 `json:"delivery"`
	tool.Progress
	// LostBytes is how many bytes of output were left out before this piece.
	LostBytes int `json:"lost_bytes,omitempty"`
	// Waiting says that the batch waits for its turn. All other fields are then empty, and the index is -1.
	Waiting *Waiting `json:"waiting,omitempty"`
}

// Waiting is a dispatcher's report about a batch that waits there for its turn.
type Waiting struct {
	// Running is how many batches run in the dispatcher, and Waiting how many wait, including this one.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
}

// Runs has the newest known run of each call, until the call is over.
type Runs map[int]run

type run struct {
	attempt  int
	delivery uint64
	over     bool
}

// Take reports whether a report is of the newest known run of a call that is not over.
func (r Runs) Take(p Progress) bool {
	known, this := r[p.Index], run{attempt: p.Attempt, delivery: p.Delivery}
	if known.over || this.attempt < known.attempt || this.attempt == known.attempt && this.delivery < known.delivery {
		return false
	}
	r[p.Index] = this
	return true
}

// Over records that a call has its result.
func (r Runs) Over(index int) { r[index] = run{over: true} }
