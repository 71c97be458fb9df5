package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// A parked batch has no owner and no unacknowledged message. A process that appends something for its owner then reads
// the end of the batch chain: if that is parked, it publishes a wake, which is delivered to a dispatcher like a
// submission. The owner that parks reads once more after it has appended parked, so that one of the two sees the other.
// If a process dies between its append and its wake, the dispatchers' sweep publishes the wake.

// wakeEvery is how often at most a parked batch is sent a wake, whoever asks for one and however often. NATS drops the
// others as duplicates.
const wakeEvery = 5 * time.Second

// Wake asks a dispatcher to continue a parked batch. parked is the sequence of its Parked event.
func (b *Broker) Wake(ctx context.Context, k toolyard.BatchKey, parked uint64) error {
	b, err := b.of(ctx, k)
	if err != nil {
		return err
	}
	msg, err := b.message(ctx, prefixWake+broker.KeyTokens(k), b.meta(ctx, k, about(k)), events.Woken{Parked: parked})
	if err != nil {
		return err
	}
	msg.Header.Set(nats.MsgIdHdr, fmt.Sprintf("wake.%s.%d.%d", broker.KeyTokens(k), parked,
		time.Now().Truncate(wakeEvery).Unix()))
	ack, err := b.publish(ctx, streamBatch, msg) // a wake that is stored twice wakes once
	if err == nil && ack.Duplicate && b.guest == nil {
		// The server tells duplicates apart by the id alone, and an agent may publish any id under its own name.
		var m raw
		if m, err = b.hotAt(ctx, streamBatch, msg.Subject, ack.Sequence); err == nil && m.subject != msg.Subject {
			msg.Header.Del(nats.MsgIdHdr)
			_, err = b.publish(ctx, streamBatch, msg)
		} else if errors.Is(err, jetstream.ErrMsgNotFound) { // it is taken already
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("wake batch %s: %w", k, err)
	}
	return nil
}

// WakeIfParked wakes a batch if it is parked, after something was appended to its log. It reports whether it was.
func (b *Broker) WakeIfParked(ctx context.Context, k toolyard.BatchKey) (parked bool, err error) {
	b, err = b.of(ctx, k)
	if err != nil {
		return parked, err
	}
	seq, err := b.parkedAt(ctx, k)
	if err != nil || seq == 0 {
		return false, err
	}
	return true, b.Wake(ctx, k, seq)
}

// Controlled reports whether anything was requested of a batch after it was parked.
func (b *Broker) Controlled(ctx context.Context, k toolyard.BatchKey) (bool, error) {
	b, err := b.of(ctx, k)
	if err != nil {
		return false, err
	}
	seq, err := b.parkedAt(ctx, k)
	if err != nil || seq == 0 {
		return false, err
	}
	c, ok, err := b.last(ctx, streamEvent, subjectChain(k, batch.ChainControl, "", 0))
	return ok && c.seq > seq, err
}

// parkedAt is the sequence of the event that parks a batch now; 0 if it is not parked.
func (b *Broker) parkedAt(ctx context.Context, k toolyard.BatchKey) (uint64, error) {
	m, ok, err := b.last(ctx, streamEvent, subjectChain(k, batch.ChainBatch, "", 0))
	if err != nil || !ok || m.header.Get(headerType) != string(events.BatchParked) {
		return 0, err
	}
	return m.seq, nil
}

// readWake reads a delivered wake. An invalid one is an [*events.UnreadableError]; one that only a newer version knows
// wraps [events.ErrNewer].
func (b *Broker) readWake(ctx context.Context, m *nats.Msg) (parked uint64, err error) {
	_, body, err := b.decode(ctx, m.Header, m.Data)
	bad := func(format string, args ...any) (uint64, error) {
		return 0, &events.UnreadableError{ID: m.Header.Get(headerID), Problem: fmt.Sprintf(format, args...)}
	}
	if errors.Is(err, events.ErrNewer) {
		return 0, err
	}
	if err != nil {
		return bad("a wake that cannot be read: %v", err)
	}
	woken, ok := body.(events.Woken)
	switch {
	case !ok:
		return bad("%T is no wake", body)
	case woken.Parked == 0:
		return bad("a wake that does not say which parking it is for")
	}
	return woken.Parked, nil
}
