//go:build !nextversion

package dispatcher

import (
	"context"

	"github.com/toolyard/toolyard/internal/batch"
)

// note appends what the next version writes behind a plan.
func (d *Dispatcher) note(_ context.Context, _ *runner, s batch.State) (batch.State, error) {
	return s, nil
}
