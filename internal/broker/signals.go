package broker

import (
	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// AbortNotice tells workers to stop calls at once. That they are to end stands in the log.
type AbortNotice struct {
	Agent toolyard.Agent   `json:"agent"`
	Batch toolyard.BatchID `json:"batch"`
	Calls []int            `json:"calls"`
	Code  toolyard.Code    `json:"code"`
	// Culprit is the call that failed, for sibling_canceled; Reason is why somebody canceled, and By who did.
	Culprit string `json:"culprit,omitempty"`
	Reason  string `json:"reason,omitempty"`
	By      string `json:"by,omitempty"`
}

// MaxProgressBytes is how long one message about progress may be. A longer one is not sent, and not read.
const MaxProgressBytes = 128 << 10

// Progress is what a worker tells of a running call.
type Progress struct {
	Index  int    `json:"index"`
	CallID string `json:"call_id"`
	Tool   string `json:"tool"`
	Worker string `json:"worker"`
	// Attempt and Delivery say which run of the call this is: a later one has the greater attempt, or the same and the
	// greater delivery.
	Attempt  int    `json:"attempt"`
	Delivery uint64 `json:"delivery"`
	tool.Progress
	// LostBytes is how much of the output before this piece was left out, in bytes.
	LostBytes int `json:"lost_bytes,omitempty"`
	// Waiting says that the batch waits for its turn. Then there is nothing else, and the index is -1.
	Waiting *Waiting `json:"waiting,omitempty"`
}

// Waiting is what a dispatcher tells of a batch that waits there for its turn.
type Waiting struct {
	// Running is how many batches run in the dispatcher, and Waiting how many wait, this one included.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
}

// Runs says which run of each call is told about: the newest that is known, while the call is not over.
type Runs map[int]run

type run struct {
	attempt  int
	delivery uint64
	over     bool
}

// Take reports whether a report is of the newest run that is known, of a call that is not over.
func (r Runs) Take(p Progress) bool {
	known, this := r[p.Index], run{attempt: p.Attempt, delivery: p.Delivery}
	if known.over || this.attempt < known.attempt || this.attempt == known.attempt && this.delivery < known.delivery {
		return false
	}
	r[p.Index] = this
	return true
}

// Over says that a call has its result.
func (r Runs) Over(index int) { r[index] = run{over: true} }
