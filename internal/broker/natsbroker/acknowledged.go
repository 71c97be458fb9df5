package natsbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard/internal/gate"
)

// A server without replicas that is killed, or loses power, may have stored that a consumer has an acknowledgement, and
// not that the message was removed for it. When it starts again the message is there and counts, and is delivered to
// nobody. For a stream with replicas the server looks for such messages itself, and for an interest stream when it
// starts.

// acknowledged is how far the lanes were looked at for such messages. Its lock is none that a delivery waits for.
type acknowledged struct {
	mu gate.Gate
	// reconnects identifies the connection that this is about.
	known      bool
	reconnects uint64
	// deleted: of what was queued before that connection nothing is stored any more that is acknowledged.
	deleted bool
	// lanes has the sequence up to which each was looked at.
	lanes map[string]uint64
}

// DeleteAcknowledged deletes such messages from the work queues, and returns how many. It looks at the queues only
// until all that was delivered before this connection was made is acknowledged.
func (b *Broker) DeleteAcknowledged(ctx context.Context) (n int, err error) {
	if s := b.Settings(); s.Replicas > 1 || s.InMemory {
		return 0, nil
	}
	each, err := b.all(ctx)
	for _, one := range each {
		deleted, failed := one.deleteAcknowledged(ctx)
		n, err = n+deleted, errors.Join(err, failed)
	}
	return n, err
}

func (b *Broker) deleteAcknowledged(ctx context.Context) (n int, err error) {
	reconnects, upTo, err := b.forgotten.end(ctx, b)
	if err != nil {
		return 0, err
	}
	a := &b.forgotten.acknowledged
	if err := a.mu.LockWithin(ctx); err != nil {
		return 0, err
	}
	defer a.mu.Unlock()
	if !a.known || a.reconnects != reconnects {
		a.known, a.reconnects, a.deleted, a.lanes = true, reconnects, false, map[string]uint64{}
	}
	if a.deleted {
		return 0, nil
	}
	calls, err := b.js.Stream(ctx, b.name(streamCall))
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", b.name(streamCall), err)
	}
	lanes, err := consumersOf(ctx, calls)
	if err != nil {
		return 0, err
	}
	all := true
	for _, lane := range lanes {
		// What was queued later is removed when it is acknowledged, as long as this connection lasts.
		if floor := min(lane.AckFloor.Stream, upTo); floor > a.lanes[lane.Name] {
			deleted, err := b.deleteUpTo(ctx, calls, lane.Config.FilterSubject, floor)
			if n += deleted; err != nil {
				return n, err
			}
			a.lanes[lane.Name] = floor
		}
		all = all && lane.AckFloor.Stream >= min(lane.Delivered.Stream, upTo)
	}
	a.deleted = all
	return n, nil
}

// deleteUpTo deletes the messages on the subjects of a lane up to the one up to which all are acknowledged.
func (b *Broker) deleteUpTo(ctx context.Context, calls jetstream.Stream, subjects string, floor uint64,
) (n int, err error) {
	for at := calls.CachedInfo().State.FirstSeq; at <= floor; {
		m, err := calls.GetMsg(ctx, at, jetstream.WithGetMsgSubject(subjects))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && m.Sequence > floor {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("read the messages of %s up to %d: %w", subjects, floor, err)
		}
		if err := b.Unqueue(ctx, b.numbered(m.Sequence)); err != nil {
			return n, err
		}
		n, at = n+1, m.Sequence+1
	}
	return n, nil
}
