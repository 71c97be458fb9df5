package broker

import (
	"context"

	"github.com/nats-io/nats.go"
)

// AppendMessage is the primitive under Append, for tests that repeat a message.
func (b *Broker) AppendMessage(ctx context.Context, stream string, expected uint64, msg *nats.Msg) (uint64, error) {
	return b.append(ctx, stream, expected, msg)
}
