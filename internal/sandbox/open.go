package sandbox

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// The backends that an operator can choose from.
const (
	Auto     = "auto"     // native, else bwrap, else refuse
	Native   = "native"   // namespaces made by this program itself
	Bwrap    = "bwrap"    // namespaces made by bubblewrap
	Seatbelt = "seatbelt" // macOS's sandbox-exec; only if it is asked for, since it holds less
)

// DefaultUID is the user as which the commands of a root worker run on the machine: a user and group that no
// distribution assigns.
const DefaultUID = 65_530

// Options are an operator's decisions about sandboxes. The zero value is the strictest.
type Options struct {
	// Backend is one of the names above. Empty: [Auto].
	Backend string
	// UID is the user as which commands run on the machine if the worker is root, with the group of the same number. 0:
	// [DefaultUID]. An ordinary worker's commands run as its own user.
	UID int
	// UnixSockets lets commands make Unix sockets. They then reach every service that listens on one in a directory
	// that they can see, above all the workspace.
	UnixSockets bool
}

// Open makes the sandbox for the options. It does not test it: see [Sandbox].Probe.
func Open(o Options) (Sandbox, error) {
	if o.UID == 0 {
		o.UID = DefaultUID
	}
	const most = 1<<31 - 1
	if o.UID < 0 || o.UID > most {
		return Refuse{}, fmt.Errorf("%d is no id of an ordinary user; use 1 to %d", o.UID, most)
	}
	backends := Backends(o)
	if o.Backend == "" || o.Backend == Auto {
		return &first{of: slices.DeleteFunc(backends, func(s Sandbox) bool { return s.Name() == Seatbelt })}, nil
	}
	i := slices.IndexFunc(backends, func(s Sandbox) bool { return s.Name() == o.Backend })
	switch {
	case i >= 0:
		return backends[i], nil
	case o.Backend == Native || o.Backend == Bwrap || o.Backend == Seatbelt:
		return Refuse{Why: fmt.Sprintf("there is no sandbox %s on %s on %s", o.Backend, runtime.GOOS, runtime.GOARCH)},
			nil
	}
	return Refuse{}, fmt.Errorf("%q is no sandbox backend; use %s, %s, %s or %s", o.Backend, Auto, Native, Bwrap,
		Seatbelt)
}

// Backends are all possible backends of this system, in the order in which [Auto] tries them.
func Backends(o Options) []Sandbox {
	if o.UID == 0 {
		o.UID = DefaultUID
	}
	return open(o)
}

// first is the first backend of a list that works here. It is determined once, because a worker announces it.
type first struct {
	of     []Sandbox
	mu     sync.Mutex
	chosen Sandbox
	err    error
}

func (f *first) Name() string { return Auto }

func (f *first) choose(ctx context.Context) (Sandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.chosen != nil || f.err != nil {
		return f.chosen, f.err
	}
	var why []string
	for _, s := range f.of {
		_, err := s.Probe(ctx)
		if err == nil {
			f.chosen = s
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // not an answer to cache
		}
		why = append(why, strings.TrimPrefix(err.Error(), ErrNoIsolation.Error()+": "))
	}
	f.err = fmt.Errorf("%w: %s", ErrNoIsolation, strings.Join(why, "; "))
	return nil, f.err
}

func (f *first) Probe(ctx context.Context) (Capabilities, error) {
	s, err := f.choose(ctx)
	if err != nil {
		return Capabilities{}, err
	}
	return s.Probe(ctx)
}

func (f *first) Run(ctx context.Context, p Policy, c Command, st Streams) (Result, error) {
	s, err := f.choose(ctx)
	if err != nil {
		return Result{}, err
	}
	return s.Run(ctx, p, c, st)
}
