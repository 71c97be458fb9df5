// Package pause waits for a time to pass, unless a context ends. It also reads which pause a server asks for.
//
// Authority: none. Ordering: none. Failure: a pause that a context has ended returns its cause.
package pause

import (
	"context"
	"time"
)

// For waits so long. The error is the cause of the context, if that ends before.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
