package sandbox

import (
	"context"
	"errors"
)

// IsolationNone is the value of [Capabilities.Isolation] if a tool is not isolated.
const IsolationNone = "none"

// Capabilities is what a backend has proven that it can do here. The zero value is the strictest: no isolation.
type Capabilities struct {
	// Backend is the name of the backend that was probed, such as "bwrap".
	Backend string
	// Layers are the layers that isolate a process, such as "userns", "pid", "net", "seccomp". Empty: no isolation,
	// whatever Backend says.
	Layers []string
	// Missing are further layers that this machine does not support, each as "name: why".
	Missing []string
}

// Isolation is the name for results, events and a worker's registration: the backend's name, or [IsolationNone] if
// there is no layer. Without proof it is "none", because a worker that claims to isolate is sent commands.
func (c Capabilities) Isolation() string {
	if c.Backend == "" || len(c.Layers) == 0 {
		return IsolationNone
	}
	return c.Backend
}

// Sandbox is one way to isolate a process. It is safe for concurrent use.
type Sandbox interface {
	// Name is the backend's name, the same on every machine.
	Name() string
	// Probe runs a real command and says which layers work. An error means that this machine cannot isolate commands;
	// its text is one line that says what to do about it. Probe leaves nothing behind and is cheap enough to call for
	// each call.
	Probe(ctx context.Context) (Capabilities, error)
	// Run runs a command under a policy until it ends, exceeds a limit or ctx ends, and returns when all of its
	// processes are gone. An error means that nothing of the command has run: it wraps [ErrNoIsolation],
	// [ErrViolation], [ErrNotStarted] or [ErrBusy], or is the cause of ctx.
	Run(ctx context.Context, p Policy, c Command, s Streams) (Result, error)
}

// ErrNoIsolation is wrapped by an error about a machine that cannot isolate commands.
var ErrNoIsolation = errors.New("no isolation")
