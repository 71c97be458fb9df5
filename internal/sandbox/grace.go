package sandbox

import (
	"context"
	"time"
)

// DefaultGrace is the time that a command has to clean up between SIGTERM and SIGKILL.
const DefaultGrace = time.Second

type graceKey struct{}

// WithGrace returns a context that sets this time. A caller that waits for the end of a call knows how long it may
// take.
func WithGrace(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, graceKey{}, d)
}

func graceOf(ctx context.Context) time.Duration {
	if d, ok := ctx.Value(graceKey{}).(time.Duration); ok {
		return d
	}
	return DefaultGrace
}
