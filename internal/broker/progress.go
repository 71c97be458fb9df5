package broker

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// prefixProgress starts the subject on which the progress of a batch's calls is told: ty.progress.<agent>.<batch>. It is core
// NATS: nothing is stored, and who does not listen misses it.
const prefixProgress = "ty.progress."

// progressBuffer is how many reports wait for a reader of progress. More are dropped.
const progressBuffer = 256

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

// aboutBatch is the index of what is told of a batch, and of none of its calls.
const aboutBatch = -1

// TellWaiting tells whoever listens that a batch waits for its turn.
func (b *Broker) TellWaiting(k toolyard.BatchKey, w Waiting) error {
	return b.Report(k, Progress{Index: aboutBatch, Waiting: &w})
}

// Report tells whoever listens how a call of a batch goes on. It waits for nobody.
func (b *Broker) Report(k toolyard.BatchKey, p Progress) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	if len(data) > MaxProgressBytes {
		return fmt.Errorf("progress of call %d of %s has %d bytes; at most %d are sent", p.Index, k, len(data), MaxProgressBytes)
	}
	if err := b.nc.Publish(prefixProgress+keyTokens(k), data); err != nil {
		return fmt.Errorf("tell progress: %w", err)
	}
	return nil
}

// ProgressFeed is what is told about the calls of one batch, from its making on. Reports may be missing.
type ProgressFeed struct {
	C   chan *nats.Msg
	sub *nats.Subscription
}

// FollowProgress starts a feed of the progress of a batch's calls.
func (b *Broker) FollowProgress(k toolyard.BatchKey) (*ProgressFeed, error) {
	f := &ProgressFeed{C: make(chan *nats.Msg, progressBuffer)}
	var err error
	if f.sub, err = b.nc.ChanSubscribe(prefixProgress+keyTokens(k), f.C); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", prefixProgress+keyTokens(k), err)
	}
	return f, nil
}

// Read is [ReadProgress].
func (f *ProgressFeed) Read(m *nats.Msg) (p Progress, ok bool) { return ReadProgress(m) }

// ReadProgress reads a message about progress. What cannot be read is nobody's loss: it says nothing that stays.
func ReadProgress(m *nats.Msg) (p Progress, ok bool) {
	if len(m.Data) > MaxProgressBytes || json.Unmarshal(m.Data, &p) != nil {
		return Progress{}, false
	}
	return p, p.Index >= 0 && p.Index < toolyard.MaxCallsPerBatch || p.Index == aboutBatch && p.Waiting != nil
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

// Stop ends the feed.
func (f *ProgressFeed) Stop() error {
	if err := f.sub.Unsubscribe(); err != nil {
		return fmt.Errorf("unsubscribe from %s: %w", f.sub.Subject, err)
	}
	return nil
}
