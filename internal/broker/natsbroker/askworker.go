package natsbroker

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
)

// A worker's account receives the requests of dispatchers to its pool, and can answer only under the pool's own
// subjects. So a request has one of these as its reply subject, with a nonce.

// poolOf is the pool in the name of a worker with its own account, which is <pool>.<rest>. Other names have none.
func poolOf(worker string) string {
	pool, _, ok := strings.Cut(worker, ".")
	if !ok || broker.CheckPool(toolyard.Pool(pool)) != nil {
		return broker.NoPool
	}
	return pool
}

// askWorkers sends a request to a pool's workers, and returns the first answer. [nats.ErrNoResponders] says that no
// worker listens.
func (b *Broker) askWorkers(ctx context.Context, pool, subject string, data []byte) (*nats.Msg, error) {
	reply := prefixAnswer + pool + "." + broker.NewID()
	sub, err := b.nc.SubscribeSync(reply)
	if err != nil {
		return nil, fmt.Errorf("listen for the answer: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails when the connection is closed
	if err := b.nc.PublishRequest(subject, reply, data); err != nil {
		return nil, err
	}
	m, err := sub.NextMsgWithContext(ctx)
	if err == nil && len(m.Data) == 0 && m.Header.Get(statusHeader) == statusNoResponders {
		err = nats.ErrNoResponders
	}
	return m, err
}
