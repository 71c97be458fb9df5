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

// Said is what a log was last told of something that goes on. The zero value is nothing.
type Said string

// Level is the level at which a log is told of it now: a warning, or debug where that is what it was told last.
func (s *Said) Level(text string) slog.Level {
	if *s == Said(text) {
		return slog.LevelDebug
	}
	*s = Said(text)
	return slog.LevelWarn
}

// RetryFull repeats an operation that is refused with [ErrFull] until there is room, or ctx ends: the error then wraps
// its cause and [ErrFull]. Other batches end in the meantime, and make room.
func RetryFull(ctx context.Context, log *slog.Logger, do func() error) error {
	for said := Said(""); ; {
		err := do()
		if !errors.Is(err, ErrFull) {
			return err
		}
		log.Log(ctx, said.Level(err.Error()), "a stream is full; waiting for room", "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(fullPause):
		}
	}
}
