package client

import (
	"context"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
)

// MaxReasonBytes is how long the reason of a cancel may be: models read it.
const MaxReasonBytes = batch.MaxReasonBytes

// Errors of Cancel that programs act on.
var (
	// ErrCompleted says that nothing of the batch is left to cancel.
	ErrCompleted = broker.ErrCompleted
	// ErrNoCall says that the batch has no call of that index.
	ErrNoCall = broker.ErrNoCall
)

// Cancel asks for calls of the batch to end as canceled; without any, for all of them. It returns when that is stored,
// and waits for nothing: the results come as always, one for each call, and a call that has its result keeps it. The
// reason is told to the model. It fails with [ErrNoBatch], [ErrCompleted] or [ErrNoCall], and with a
// [*toolyard.InputError] for a reason that cannot be told. Asking for the same again changes nothing.
func (b *Batch) Cancel(ctx context.Context, reason string, calls ...int) error {
	if err := checkReason(reason); err != nil {
		return err
	}
	if err := b.named(); err != nil {
		return err
	}
	return b.c.t.cancel(ctx, b.key, reason, calls)
}
