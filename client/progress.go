package client

import (
	"context"
	"errors"
	"iter"

	"github.com/toolyard/toolyard/tool"
)

// Progress is one report of a running call: a fraction of 0 when its tool starts, 1 when the tool has ended, however
// that was, and what the tool says in between.
type Progress struct {
	Index  int    `json:"index"`
	CallID string `json:"call_id"`
	Tool   string `json:"tool"`
	Worker string `json:"worker"`
	// Attempt counts the executions of the call, from 1: a greater one begins anew.
	Attempt int `json:"attempt"`
	tool.Progress
	// LostBytes is how much of the output before this piece was left out, in bytes.
	LostBytes int `json:"lost_bytes,omitempty"`
	// Waiting says that the batch waits for its turn in a dispatcher. Then there is nothing else, and Index is -1.
	Waiting *Waiting `json:"waiting,omitempty"`
}

// Waiting is how many batches run in the dispatcher where a batch waits, and how many wait, that one included.
type Waiting struct {
	Running int `json:"running"`
	Waiting int `json:"waiting"`
}

// Progress yields what running calls report from now on, and that the batch waits for its turn while it does, and ends
// when the batch is complete. It is for people who wait: reports are told a few times a second at most, are stored
// nowhere, and may be missing. Of a call that was started again, or has its result, nothing older is yielded where that
// can be told.
func (b *Batch) Progress(ctx context.Context) iter.Seq2[Progress, error] {
	return func(yield func(Progress, error) bool) {
		give := func(p Progress) bool { return yield(p, nil) }
		err := b.named()
		if l := b.listening.Swap(nil); l != nil {
			b.keep()
			err = progressOf(l.Progress(ctx), give)
		} else if err == nil {
			err = b.c.t.progress(ctx, b.key, b.stored, give)
		}
		if err != nil && !errors.Is(err, errLeft) {
			yield(Progress{}, err)
		}
	}
}
