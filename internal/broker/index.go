package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
)

// The index says of each batch where it stands, so that batches are found by agent, session and status. It is written by
// the batch's owner: after the plan, when it parks, and when it is complete. It may be behind the log by one change, and a
// former owner may write it late: whoever needs the truth folds the log.

// MaxListed is how many batches one page of the index has.
const MaxListed = 1_000

// Entry is a batch in the index.
type Entry struct {
	ID        toolyard.BatchID   `json:"id"`
	Agent     toolyard.Agent     `json:"agent"`
	Session   toolyard.Session   `json:"session"`
	Workspace toolyard.Workspace `json:"workspace"`
	Status    toolyard.Status    `json:"status"`
	Calls     int                `json:"calls"`
	Submitted time.Time          `json:"submitted"`
	Changed   time.Time          `json:"changed"`
	// Place grows with each change of the index: what a next page begins behind.
	Place uint64 `json:"-"`
}

// Key is the batch's identity.
func (e *Entry) Key() toolyard.BatchKey { return toolyard.BatchKey{Agent: e.Agent, ID: e.ID} }

// Live reports whether the batch was not complete when the entry was written.
func (e *Entry) Live() bool {
	return e.Status != toolyard.StatusCompleted && e.Status != toolyard.StatusCanceled
}

// PutIndex writes a batch's entry. The returned channel, when it is not nil, says later whether it was stored: who waits for
// nothing loses nothing but the entry.
func (b *Broker) PutIndex(e Entry) (jetstream.PubAckFuture, error) {
	e.Changed = time.Now().UTC()
	value, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode the index of batch %s: %w", e.Key(), err)
	}
	msg := nats.NewMsg("$KV." + bucketIndex + "." + sessionKey(e.Agent, e.Session) + "." + Escape(string(e.ID)))
	msg.Data = value
	f, err := b.js.PublishMsgAsync(msg)
	if err != nil {
		return nil, fmt.Errorf("index batch %s: %w", e.Key(), err)
	}
	return f, nil
}

// Filter says which batches of the index are wanted. What is empty does not matter.
type Filter struct {
	Agent   toolyard.Agent
	Session toolyard.Session
	Status  toolyard.Status
	// Live wants those that are not complete.
	Live bool
	// After is the place behind which the page begins; Limit is at most [MaxListed], which 0 means.
	After uint64
	Limit int
}

// Batches returns a page of the index, those whose entry was changed longest ago first, and whether there are more.
func (b *Broker) Batches(ctx context.Context, f Filter) (page []Entry, more bool, err error) {
	if f.Limit <= 0 || f.Limit > MaxListed {
		f.Limit = MaxListed
	}
	tokens := []string{"*", "*", "*"}
	if f.Agent != "" {
		tokens[0] = Escape(string(f.Agent))
	}
	if f.Session != "" {
		tokens[1] = Escape(string(f.Session))
	}
	err = list(ctx, b.index, strings.Join(tokens, "."), func(_ string, revision uint64, e Entry, bad error) bool {
		if bad != nil || revision <= f.After || f.Status != "" && e.Status != f.Status || f.Live && !e.Live() {
			return true // an entry that cannot be read is one that is not there
		}
		if more = len(page) == f.Limit; !more {
			e.Place = revision
			page = append(page, e)
		}
		return !more
	})
	return page, more, err
}
