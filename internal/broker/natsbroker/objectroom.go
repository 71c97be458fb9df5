package natsbroker

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/toolyard/toolyard/internal/gate"
)

// MaxAnswerBytes is how long the objects are together that a dispatcher reads at a time to answer requests of agents
// and workers. [MaxQuestions] of the longest ones would fill its memory.
const MaxAnswerBytes = 256 << 20

// objectRoom is the part of that room which one request has: that of the longest object which it has read. It is given
// back when the request is answered.
type objectRoom struct {
	all  *semaphore.Weighted
	in   gate.Gate
	held int64
}

type objectRoomKey struct{}

// withObjectRoom has the objects that are read for a request counted, until release.
func withObjectRoom(ctx context.Context, all *semaphore.Weighted) (_ context.Context, release func()) {
	r := &objectRoom{all: all}
	return context.WithValue(ctx, objectRoomKey{}, r), func() {
		r.in.Lock()
		defer r.in.Unlock()
		r.all.Release(r.held)
		r.held = 0
	}
}

// take waits until there is room for an object. Who has too little gives it back first: two that wait for each other's
// would wait for ever.
func (r *objectRoom) take(ctx context.Context, bytes int64) error {
	if err := r.in.LockWithin(ctx); err != nil {
		return err
	}
	defer r.in.Unlock()
	bytes = min(bytes, MaxAnswerBytes)
	if bytes <= r.held {
		return nil
	}
	r.all.Release(r.held)
	r.held = 0
	if r.all.Acquire(ctx, bytes) != nil {
		return context.Cause(ctx)
	}
	r.held = bytes
	return nil
}

// awaitRoom waits until there is room for an object, if it is read for a request.
func (b *Broker) awaitRoom(ctx context.Context, name string) error {
	r, ok := ctx.Value(objectRoomKey{}).(*objectRoom)
	if !ok || b.guest != nil {
		return nil
	}
	size, err := retry(ctx, func(ctx context.Context) (int64, error) {
		info, err := b.blobs.GetInfo(ctx, name)
		if err != nil {
			return 0, err
		}
		return int64(min(info.Size, MaxAnswerBytes)), nil
	})
	if err != nil {
		return err
	}
	return r.take(ctx, size)
}

// awaitPieces waits until there is room for an object that is put together of so many pieces.
func awaitPieces(ctx context.Context, pieces int) error {
	if r, ok := ctx.Value(objectRoomKey{}).(*objectRoom); ok {
		return r.take(ctx, int64(pieces+1)*maxPieceBytes)
	}
	return nil
}
