//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"fmt"
)

func newBwrap(context.Context, Options) (*runner, error) {
	return nil, fmt.Errorf("%w: todo", ErrNoIsolation)
}
