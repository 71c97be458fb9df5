package natsbroker

import (
	"context"
	"strconv"

	"github.com/toolyard/toolyard/internal/gate"
)

// forgotten is the position up to which the work queue may contain messages whose delivery the server has lost.
//
// A server without replicas writes to disk ten times a second what its consumers have delivered. A server that is
// killed loses the last of this, and delivers those messages again at once, as if for the first time. If a stream has
// replicas, a message is delivered only after a majority has recorded that. A restarted server has new connections. So
// a message that was queued before this connection was made may have been delivered before.
type forgotten struct {
	earlier
	// acknowledged is what is known of such a connection's messages that are acknowledged.
	acknowledged acknowledged
}

// earlier is where a stream ended when its server was first asked over a connection.
type earlier struct {
	mu    gate.Gate
	known bool
	// reconnects identifies the connection for which upTo is known.
	reconnects, upTo uint64
}

// note records the end of the stream when the connection was made.
func (e *earlier) note(reconnects, last uint64) {
	e.known, e.reconnects, e.upTo = true, reconnects, last
}

// look reads the end of the stream, if that has not been done for this connection. The caller holds the lock.
func (e *earlier) look(ctx context.Context, b *Broker, end func(context.Context) (uint64, error)) error {
	now := b.Reconnects()
	if e.known && e.reconnects == now {
		return nil
	}
	last, err := end(ctx)
	if err == nil {
		e.note(now, last)
	}
	return err
}

// has reports whether a message may have been stored before this connection was made. It returns true on error.
func (e *earlier) has(ctx context.Context, b *Broker, seq uint64, end func(context.Context) (uint64, error)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.look(ctx, b, end) != nil || seq <= e.upTo
}

// end is where the work queue ended when this connection was made, which reconnects identifies. No lock is held then.
func (f *forgotten) end(ctx context.Context, b *Broker) (reconnects, upTo uint64, err error) {
	if err := f.mu.LockWithin(ctx); err != nil {
		return 0, 0, err
	}
	defer f.mu.Unlock()
	err = f.look(ctx, b, b.callsEnd)
	return f.reconnects, f.upTo, err
}

// mayHaveForgotten reports whether a message of the work queue may have been delivered before, although the server
// counts no delivery. It returns true on error.
func (b *Broker) mayHaveForgotten(ctx context.Context, seq uint64) bool {
	return b.Settings().Replicas <= 1 && b.forgotten.has(ctx, b, seq, b.callsEnd)
}

// isEarlier reports whether a submission may have been stored before this connection was made. It returns true on
// error.
func (b *Broker) isEarlier(ctx context.Context, seq uint64) bool {
	return b.earlier.has(ctx, b, seq, b.submissionsEnd)
}

// callsEnd is the sequence of the last message that the work queue has ever received.
func (b *Broker) callsEnd(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if b.guest == nil {
		return b.streamEnd(ctx, b.name(streamCall))
	}
	m, err := b.question(ctx, opEnd, b.shard, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(m.Data), 10, 64)
}

// submissionsEnd is the sequence of the last submission or wake that was ever stored.
func (b *Broker) submissionsEnd(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return b.streamEnd(ctx, b.name(streamBatch))
}
