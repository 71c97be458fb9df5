package sandbox

import (
	"context"
	"fmt"
)

// Refuse is the backend that runs nothing. Its zero value is ready to use, and it is what a worker has that was given
// no other.
type Refuse struct{}

var _ Sandbox = Refuse{}

// Name is "refuse".
func (Refuse) Name() string { return "refuse" }

// Isolation is [IsolationNone].
func (Refuse) Isolation() string { return IsolationNone }

// Probe always fails, with an error that wraps [ErrNoIsolation].
func (Refuse) Probe(context.Context) (Capabilities, error) {
	return Capabilities{}, fmt.Errorf("%w: this worker has no sandbox backend and so starts no command; "+
		"send batches that use bash to a pool whose workers can isolate commands (\"worker check\" shows what a machine can give)",
		ErrNoIsolation)
}
