package natsbroker

import (
	"context"
	"strconv"
	"sync"

	"github.com/toolyard/toolyard/internal/gate"
)

// forgotten is the position up to which the work queue may contain messages whose delivery the server has lost.
//
// A server without replicas writes to disk ten times a second what its consumers have delivered. A server that is
// killed loses the last of this, and delivers those messages again at once, as if for the first time. If a stream has
// replicas, a message is delivered only after a majority has recorded that. A restarted server has new connections. So
// a message that was queued before this connection was made may have been delivered before.
type forgotten struct {
	mu    gate.Gate
	known bool
	// reconnects identifies the connection for which upTo is known.
	reconnects, upTo uint64
	// acknowledged is what is known of such a connection's messages that are acknowledged.
	acknowledged acknowledged
}

// note records the end of the work queue when the connection was made.
func (f *forgotten) note(reconnects, last uint64) {
	f.known, f.reconnects, f.upTo = true, reconnects, last
}

// look reads the end of the work queue, if that has not been done for this connection. The caller holds the lock.
func (f *forgotten) look(ctx context.Context, b *Broker) error {
	now := b.Reconnects()
	if f.known && f.reconnects == now {
		return nil
	}
	end, err := b.callsEnd(ctx)
	if err == nil {
		f.note(now, end)
	}
	return err
}

// end is where the work queue ended when this connection was made, which reconnects identifies. No lock is held then.
func (f *forgotten) end(ctx context.Context, b *Broker) (reconnects, upTo uint64, err error) {
	if err := f.mu.LockWithin(ctx); err != nil {
		return 0, 0, err
	}
	defer f.mu.Unlock()
	err = f.look(ctx, b)
	return f.reconnects, f.upTo, err
}

// mayHaveForgotten reports whether a message of the work queue may have been delivered before, although the server
// counts no delivery. It returns true on error.
func (b *Broker) mayHaveForgotten(ctx context.Context, seq uint64) bool {
	if b.Settings().Replicas > 1 {
		return false
	}
	f := b.forgotten
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.look(ctx, b) != nil || seq <= f.upTo
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

// earlier is where the stream of submissions ended when its server was first asked over a connection.
type earlier struct {
	mu    sync.Mutex
	known bool
	// reconnects identifies the connection for which upTo is known.
	reconnects, upTo uint64
}

// note records the end of the stream when the connection was made.
func (e *earlier) note(reconnects, last uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known, e.reconnects, e.upTo = true, reconnects, last
}

// has reports whether a submission may have been stored before this connection was made. It returns true on error.
func (e *earlier) has(ctx context.Context, b *Broker, seq uint64) bool {
	now := b.Reconnects()
	e.mu.Lock()
	known, upTo := e.known && e.reconnects == now, e.upTo
	e.mu.Unlock()
	if known {
		return seq <= upTo
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	end, err := b.streamEnd(ctx, b.name(streamBatch))
	if err == nil {
		e.note(now, end)
	}
	return err != nil || seq <= end
}
