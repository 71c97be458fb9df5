package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// storedSum is what streams have taken and still have.
type storedSum struct {
	messages uint64 // stored ever, deleted ones too
	bytes    uint64 // still there
}

// storedIn adds up all streams of a server. Each run begins on a server without streams of others.
func storedIn(ctx context.Context, nc *nats.Conn) (sum storedSum, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return sum, err
	}
	list := js.ListStreams(ctx)
	for s := range list.Info() {
		sum.messages += s.State.LastSeq
		sum.bytes += s.State.Bytes
	}
	if list.Err() != nil {
		return sum, fmt.Errorf("list the streams: %w", list.Err())
	}
	return sum, nil
}
