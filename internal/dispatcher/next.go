//go:build nextversion

package dispatcher

import (
	"context"

	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// note appends what the next version writes behind a plan.
func (d *Dispatcher) note(ctx context.Context, r *runner, s batch.State) (batch.State, error) {
	return d.becomeOwner(ctx, r, s, events.Noted{Note: "planned by the next version"})
}
