package natsbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// maxInputTries is how often an append to the input chain is tried if other writers conflict.
const maxInputTries = 100

// Input appends calls to an open batch, or closes it. after is the last sequence of the chain that the writer knows, 0
// for none; it returns the new one. If it returns nil, what was appended is accepted. It wraps [ErrClosed] if the batch
// is closed; closing it again is not an error.
func (b *Broker) Input(ctx context.Context, k toolyard.BatchKey, after uint64, body events.Body) (uint64, error) {
	_, closing := body.(events.Closed)
	for range maxInputTries {
		rec, err := b.Append(ctx, k, batch.ChainInput, "", 0, after, body)
		if !errors.Is(err, broker.ErrConflict) {
			return rec.Seq, err
		}
		s := batch.State{Key: k, InputSeq: after}
		if err := b.CatchUp(ctx, &s, batch.ChainInput, 0); err != nil {
			return after, err
		}
		after = s.InputSeq
		switch {
		case s.InputClosed && closing:
			return after, nil
		case s.InputClosed:
			return after, fmt.Errorf("%w: %s", broker.ErrClosed, k)
		}
	}
	return after, fmt.Errorf("append to the input of %s: %d other writers were faster", k, maxInputTries)
}

// CloseInput has an open batch that is refused take no more calls, which would be accepted and have no result. Where
// something of the input is lost, nobody can append to it.
func (b *Broker) CloseInput(ctx context.Context, k toolyard.BatchKey) error {
	_, err := b.Input(ctx, k, 0, events.Closed{By: "dispatcher", Reason: "the batch was refused"})
	if errors.Is(err, broker.ErrDamaged) {
		return nil
	}
	return err
}
