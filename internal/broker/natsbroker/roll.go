package natsbroker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/version"
)

const (
	// subjectRoll is the subject of requests that each dispatcher answers.
	subjectRoll = "ty.roll"
	// rollTimeout is how long the answers are waited for: how many come is not known.
	rollTimeout = 500 * time.Millisecond
	// maxRoll bounds the dispatchers that are heard.
	maxRoll = 1024
)

// sourceDispatcher begins the source of what a dispatcher writes.
const sourceDispatcher = "/dispatcher/"

// answerRoll says who this dispatcher is, until it takes no more submissions. An answer that cannot be sent ends
// nothing: who asks counts this dispatcher among those that are silent. Nothing waits until the server has the
// subscription: a dispatcher that starts without a connection serves as soon as it has one, and who asks asks again.
func (b *Broker) answerRoll(all *submissionsOf) error {
	sub, err := b.nc.Subscribe(subjectRoll, func(m *nats.Msg) {
		answer, err := json.Marshal(broker.Dispatcher{ID: strings.TrimPrefix(b.source, sourceDispatcher),
			Version: b.build, WireVersion: version.Wire, Shards: b.view().Served(), Only: b.serves})
		if err != nil {
			all.give(taken{err: fmt.Errorf("say which shards are served: %w", err)})
			return
		}
		_ = m.Respond(answer) // it fails when nobody waits for it, or when the connection is closed
	})
	if err != nil {
		return fmt.Errorf("listen for who asks for dispatchers: %w", err)
	}
	context.AfterFunc(all.ended, func() {
		_ = sub.Unsubscribe() // it fails when the connection is closed
	})
	return nil
}

// Dispatchers asks all dispatchers who they are, and returns those that answer in time, by id.
func (b *Broker) Dispatchers(ctx context.Context) (out []broker.Dispatcher, err error) {
	inbox := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("ask for dispatchers: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails when the connection is closed
	if err := b.nc.PublishRequest(subjectRoll, inbox, nil); err != nil {
		return nil, fmt.Errorf("ask for dispatchers: %w", err)
	}
	waiting, cancel := context.WithTimeout(ctx, rollTimeout)
	defer cancel()
	for len(out) < maxRoll {
		m, err := sub.NextMsgWithContext(waiting)
		switch {
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			slices.SortFunc(out, func(x, y broker.Dispatcher) int { return cmp.Compare(x.ID, y.ID) })
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("ask for dispatchers: %w", err)
		case len(m.Data) == 0 && m.Header.Get(statusHeader) == statusNoResponders:
			return nil, nil
		}
		var d broker.Dispatcher
		if err := json.Unmarshal(m.Data, &d); err != nil {
			return nil, fmt.Errorf("a dispatcher says unreadably who it is: %w", err)
		}
		out = append(out, d)
	}
	return nil, fmt.Errorf("%w: more than %d dispatchers", broker.ErrFull, maxRoll)
}

// Served reads who serves each shard.
func (b *Broker) Served(ctx context.Context) ([]broker.ServedShard, error) {
	dispatchers, err := b.Dispatchers(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := b.Workers(ctx)
	if err != nil {
		return nil, err
	}
	return broker.ServedShards(dispatchers, workers, b.view().Served()), nil
}
