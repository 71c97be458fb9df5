package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// fullPause is the pause before an operation that a full stream refused is repeated.
const fullPause = 500 * time.Millisecond

// RetryFull repeats an operation that is refused with [ErrFull] until there is room, or ctx ends: the error then wraps
// its cause and [ErrFull]. Other batches end in the meantime, and make room.
func RetryFull(ctx context.Context, log *slog.Logger, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, ErrFull) {
			return err
		}
		log.Warn("a stream is full; waiting for room", "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(fullPause):
		}
	}
}
