package sandbox

import (
	"context"
	"fmt"
)

// Refuse is the backend that runs nothing. Its zero value is ready to use, and is the backend of a worker without
// another one.
type Refuse struct {
	// Why says what is missing here and how to get it, in one line. Empty: no backend was selected.
	Why string
}

var _ Sandbox = Refuse{}

// Name is "refuse".
func (Refuse) Name() string { return "refuse" }

// Isolation is [IsolationNone].
func (Refuse) Isolation() string { return IsolationNone }

// Probe always fails, with an error that wraps [ErrNoIsolation].
func (r Refuse) Probe(context.Context) (Capabilities, error) { return Capabilities{}, r.refusal() }

// Run runs nothing.
func (r Refuse) Run(context.Context, Policy, Command, Streams) (Result, error) {
	return Result{}, r.refusal()
}

func (r Refuse) refusal() error {
	if r.Why != "" {
		return fmt.Errorf("%w: %s", ErrNoIsolation, r.Why)
	}
	return fmt.Errorf("%w: this worker has no sandbox backend and so starts no command; "+
		"send batches that use bash to a pool whose workers can isolate commands (\"worker check\" shows what a "+
		"machine can give)",
		ErrNoIsolation)
}
