package sandbox

import (
	"context"
	"time"
)

// DefaultGrace is how long a command has to clean up after it was told to stop, before it is killed.
const DefaultGrace = time.Second

type graceKey struct{}

// WithGrace returns a context under which commands have this long between being told to stop (SIGTERM) and being
// killed: whoever waits for the end of a call knows how long it may take.
func WithGrace(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, graceKey{}, d)
}

func graceOf(ctx context.Context) time.Duration {
	if d, ok := ctx.Value(graceKey{}).(time.Duration); ok {
		return d
	}
	return DefaultGrace
}
