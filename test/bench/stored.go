package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// storedSum is what streams have taken and still have.
type storedSum struct {
	messages uint64 // stored ever, deleted ones too
	bytes    uint64 // still there
}

// blocksIn is how many bytes the blocks of messages have that NATS servers keep below a directory.
func blocksIn(dir string) (sum int64, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*", "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	for _, name := range names {
		info, err := os.Stat(name)
		if err == nil {
			sum += info.Size()
		} else if !errors.Is(err, fs.ErrNotExist) { // one that is gone was replaced or deleted meanwhile
			return 0, err
		}
	}
	return sum, err
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
