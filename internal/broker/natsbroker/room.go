package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/toolyard/toolyard/internal/broker"
)

// subjectRoom is the subject of requests for the free space of the NATS server.
const subjectRoom = "ty.room"

const (
	// roomTimeout bounds the answer. If there is none, this is known at once, because nobody listens.
	roomTimeout = 300 * time.Millisecond
	// askRoomEvery is how often an unanswered submission asks whether the disk is full.
	askRoomEvery = 500 * time.Millisecond
)

// OnRoom answers in the process that has the NATS server, until the returned function is called.
func (b *Broker) OnRoom(room func() broker.Room, failed func(error)) (func() error, error) {
	sub, err := b.nc.Subscribe(subjectRoom, func(m *nats.Msg) {
		answer, err := json.Marshal(room())
		if err == nil {
			err = m.Respond(answer)
		}
		if err != nil {
			failed(fmt.Errorf("say how much room there is: %w", err))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen for questions about room: %w", err)
	}
	return sub.Unsubscribe, nil
}

// Room asks how much space the NATS server has. Without an answer, nothing is known that prevents storing.
func (b *Broker) Room(ctx context.Context) (r broker.Room, err error) {
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	m, err := b.nc.RequestWithContext(ctx, subjectRoom, nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, nats.ErrTimeout):
		return broker.Room{}, nil
	case err != nil:
		return broker.Room{}, fmt.Errorf("ask how much room there is: %w", err)
	}
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return broker.Room{}, fmt.Errorf("how much room there is was answered unreadably: %w", err)
	}
	return r, nil
}

// unlessStalled ends a context if nothing can be stored, because a server with a full disk does not answer a publish.
func (b *Broker) unlessStalled(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(askRoomEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if r, err := b.Room(ctx); err == nil && r.Stalled {
				stop(&broker.NoRoomError{Reason: r.Reason, Unsure: true})
				return
			}
		}
	}()
	return ctx, func() { stop(nil) }
}
