package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

const (
	// MaxControlEvents bounds the control chain of a batch: every owner reads all of it.
	MaxControlEvents = 1_000
	// maxControlConflicts is how often a control event is tried again because another one came first.
	maxControlConflicts = 100
)

// Cancel asks that calls of a batch end as canceled; without calls, all of them. If it returns nil, the request is in
// the log, and the batch's owner acts on it. It wraps [ErrNoBatch], [ErrCompleted] and [ErrNoCall]. Repeating a request
// stores nothing.
func (b *Broker) Cancel(ctx context.Context, k toolyard.BatchKey, reason string, calls ...int) error {
	b, err := b.of(ctx, k)
	if err != nil {
		return err
	}
	calls = slices.Compact(slices.Sorted(slices.Values(calls)))
	if err := b.cancelable(ctx, k, calls); err != nil {
		return err
	}
	return b.control(ctx, k, events.Canceled{Calls: calls, By: b.source, Reason: reason},
		func(earlier events.Body) bool {
			c, ok := earlier.(events.Canceled)
			return ok && covers(c, calls)
		})
}

// Interrupt implements [broker.Control].
//
// A batch is in the index [broker.IndexAfter] behind its plan. Its dispatcher reads the session before the plan and
// again behind the entry in the index; here the session is written before the index is read. So one of the two sees
// the other. The index is read twice only to count the batches that were planned just now.
func (b *Broker) Interrupt(ctx context.Context, a toolyard.Agent, s toolyard.Session, reason string) (batches int,
	err error) {
	wish := events.Interrupted{By: b.source, Reason: reason}
	through := broker.Interrupt{Interrupted: wish}
	_, newest, err := b.newestOfEach(ctx)
	if err != nil {
		return 0, err
	}
	through.Through, through.Others = newest[0], newest[1:]
	if _, err := b.ChangeSession(ctx, a, s, func(v *broker.Session) { v.Interrupt(through) }); err != nil {
		return 0, err
	}
	asked := map[toolyard.BatchKey]bool{}
	if err := b.interrupt(ctx, a, s, &through, asked); err != nil {
		return len(asked), err
	}
	select {
	case <-time.After(2 * broker.IndexAfter):
	case <-ctx.Done():
		return len(asked), context.Cause(ctx)
	}
	err = b.interrupt(ctx, a, s, &through, asked)
	return len(asked), err
}

// interrupt asks those batches of a session to stop that came before the interrupt, that the index has, and that were
// not asked yet.
func (b *Broker) interrupt(ctx context.Context, a toolyard.Agent, s toolyard.Session, by *broker.Interrupt,
	asked map[toolyard.BatchKey]bool) error {
	for f := (broker.Filter{Agent: a, Session: s, Live: true}); ; {
		page, more, err := b.Index().Page(ctx, f)
		if err != nil {
			return err
		}
		for _, e := range page {
			f.After = e.Place
			if asked[e.Key()] {
				continue
			}
			of, submission, err := b.sequence(e.Place)
			if err != nil {
				return err
			}
			if !by.Stops(submission, of.shard) {
				continue
			}
			if err := of.cancelable(ctx, e.Key(), nil); errors.Is(err, broker.ErrCompleted) ||
				errors.Is(err, broker.ErrNoBatch) {
				continue // the index is outdated
			} else if err != nil {
				return err
			}
			if err := b.InterruptBatch(ctx, e.Key(), by.Interrupted); err != nil {
				return err
			}
			asked[e.Key()] = true
		}
		if !more {
			return nil
		}
	}
}

// InterruptBatch implements [broker.Control].
func (b *Broker) InterruptBatch(ctx context.Context, k toolyard.BatchKey, wish events.Interrupted) error {
	b, err := b.of(ctx, k)
	if err != nil {
		return err
	}
	return b.control(ctx, k, wish, func(earlier events.Body) bool {
		_, ok := earlier.(events.Interrupted)
		return ok
	})
}

// control appends a request to a batch's control chain, unless an earlier one covers it, and wakes the batch if it is
// parked.
func (b *Broker) control(ctx context.Context, k toolyard.BatchKey, wish events.Body,
	covered func(events.Body) bool) error {
	control := subjectChain(k, batch.ChainControl, "", 0)
	wake := func() error {
		_, err := b.WakeIfParked(ctx, k)
		return err
	}
	fence := uint64(0) // at the end of the chain: an agent may write one, which ends nothing while the batch runs
	for range maxControlConflicts {
		stored, err := b.forward(ctx, streamEvent, control, 0)
		if err != nil {
			return err
		}
		last := uint64(0)
		for _, m := range stored {
			last = m.seq
			_, r, _, err := b.looking(ctx, m)
			if err != nil {
				return err
			}
			if covered(r.Body) {
				return wake()
			}
		}
		// What stops the batch as a whole is stored once, and nobody's cancels may keep it from that.
		if c, ok := wish.(events.Canceled); ok && len(c.Calls) > 0 && len(stored) >= MaxControlEvents {
			return fmt.Errorf("%w: batch %s has %d control events, the most that it may have; cancel the "+
				"whole batch", broker.ErrFull, k, len(stored))
		}
		_, err = b.Append(ctx, k, batch.ChainControl, "", 0, max(last, fence), wish)
		if err == nil {
			return wake()
		}
		if !errors.Is(err, broker.ErrConflict) {
			return err
		}
		if b.guest == nil {
			end, ok, err := b.hotLast(ctx, streamEvent, control)
			if err != nil {
				return err
			}
			if ok && end.fence() {
				fence = end.seq
			}
		}
	}
	return fmt.Errorf("%s of batch %s: others wrote first %d times: %w", wish.EventType(), k, maxControlConflicts,
		broker.ErrConflict)
}

// covers reports whether an earlier cancel asks for all of these calls; no calls means all.
func covers(c events.Canceled, calls []int) bool {
	if len(c.Calls) == 0 {
		return true
	}
	return len(calls) > 0 && !slices.ContainsFunc(calls, func(i int) bool { return !slices.Contains(c.Calls, i) })
}

// cancelable says why nothing of a batch can be canceled.
func (b *Broker) cancelable(ctx context.Context, k toolyard.BatchKey, calls []int) error {
	m, ok, err := b.submitted(ctx, k)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: %s", broker.ErrNoBatch, k)
	}
	_, sub, _, err := b.record(ctx, m)
	bad, unreadable := errors.AsType[*events.UnreadableError](err) // then it was refused, or will be
	// A whole batch can be canceled without reading it.
	if err != nil && !unreadable && (len(calls) > 0 || !errors.Is(err, events.ErrNewer)) {
		return err
	}
	if body, ok := sub.Body.(events.Submitted); ok && len(calls) > 0 {
		n := len(body.Calls)
		if body.Open {
			s, err := b.Look(ctx, k)
			if err != nil {
				return err
			}
			n += len(s.Input)
		}
		for _, i := range calls {
			switch {
			case 0 <= i && i < n:
			case n == 0:
				return fmt.Errorf("%w: batch %s has no calls yet", broker.ErrNoCall, k)
			default:
				return fmt.Errorf("%w: batch %s has no call %d; its calls are 0 to %d", broker.ErrNoCall, k, i, n-1)
			}
		}
	}
	if m, ok, err = b.last(ctx, streamReply, subjectReply(k)); err != nil || !ok {
		if err == nil && unreadable {
			err = bad
		}
		return err
	}
	_, reply, _, err := b.looking(ctx, m)
	if err != nil {
		return err
	}
	switch body := reply.Body.(type) {
	case events.Refused:
		return fmt.Errorf("%w: %s was refused: %s", broker.ErrCompleted, k, body.Detail)
	case events.Reply:
		if body.Completed {
			return fmt.Errorf("%w: every call of %s has its result", broker.ErrCompleted, k)
		}
	}
	return nil
}
