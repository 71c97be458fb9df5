package natsbroker

import (
	"context"
	"strconv"

	"github.com/toolyard/toolyard/internal/gate"
)

// forgotten is up to where the work queue may hold messages that were handed out, and of which the server does not
// know.
//
// A server that keeps a stream alone writes ten times a second what its consumers have handed out. One that is killed
// forgets the last of it, and hands it out again as if for the first time, at once. Where a stream has replicas, a
// message is handed out only after a majority knows of it. A restarted server has new connections: so what was in the
// queue before this connection stood may have been handed out.
type forgotten struct {
	mu    gate.Gate
	known bool
	// reconnects is the connection for which upTo is known.
	reconnects, upTo uint64
}

// note takes in where the work queue ended when the connection stood.
func (f *forgotten) note(reconnects, last uint64) {
	f.known, f.reconnects, f.upTo = true, reconnects, last
}

// mayHaveForgotten reports whether a message of the work queue may have been handed out before, though the server
// counts no delivery. In doubt it may.
func (b *Broker) mayHaveForgotten(ctx context.Context, seq uint64) bool {
	if b.settings.Replicas > 1 {
		return false
	}
	f := b.forgotten
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := b.Reconnects(); !f.known || f.reconnects != now {
		end, err := b.callsEnd(ctx)
		if err != nil {
			return true
		}
		f.note(now, end)
	}
	return seq <= f.upTo
}

// callsEnd is the sequence of the last message that the work queue has ever got.
func (b *Broker) callsEnd(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if b.guest == nil {
		return b.streamEnd(ctx, streamCall)
	}
	m, err := b.question(ctx, opEnd, nil, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(m.Data), 10, 64)
}
