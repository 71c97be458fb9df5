package natsbroker

import (
	"context"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// Log reads what is stored about a batch, in the order of [Tail].
func (b *Broker) Log(ctx context.Context, k toolyard.BatchKey) ([]broker.Logged, error) {
	var out []broker.Logged
	for t := b.Tail(k); ; {
		l, ok, err := t.Next(ctx)
		if err != nil {
			return out, err
		}
		if !ok {
			return out, nil
		}
		out = append(out, l)
	}
}
