package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/worker"
)

// noEnv marks a flag that no environment variable sets: what it does must stand where an operator reads it.
const noEnv = "toolyard-no-environment"

// unsandboxedFlag takes the sandbox away.
const unsandboxedFlag = "dangerously-run-unsandboxed"

// Sandbox are the flags that say what stands around commands, and what they may use.
type Sandbox struct {
	Backend     string
	UID         int
	Read        []string
	AllowNet    []string
	MemoryMiB   int64
	Processes   int
	UnixSockets bool
	Unsandboxed bool

	// Started is told of each command that was to run in the sandbox; an error says that nothing of it has run. Nil:
	// nobody is told.
	Started func(error)

	box sandbox.Sandbox
}

// told is a sandbox that tells of each start.
type told struct {
	sandbox.Sandbox
	started func(error)
}

func (t told) Run(ctx context.Context, p sandbox.Policy, c sandbox.Command, s sandbox.Streams) (sandbox.Result, error) {
	res, err := t.Sandbox.Run(ctx, p, c, s)
	t.started(err)
	return res, err
}

// Add adds the flags.
func (s *Sandbox) Add(f *pflag.FlagSet) {
	defer Topic(f, TopicSandbox)()
	f.StringVar(&s.Backend, "sandbox", sandbox.Auto,
		"what isolates commands: auto, native, bwrap, or on macOS seatbelt; where it does not work no command runs")
	f.IntVar(&s.UID, "sandbox-uid", sandbox.DefaultUID,
		"whom commands run as on this machine when the worker is root; nothing else may belong to that user and group")
	f.StringArrayVar(&s.Read, "sandbox-read", nil,
		"a `DIR` beside the system's that commands can read; may be repeated")
	f.StringArrayVar(&s.AllowNet, "sandbox-allow-net", nil,
		"a `HOST:PORT` that commands can reach, through a proxy; may be repeated (default: none)")
	f.Int64Var(&s.MemoryMiB, "sandbox-memory", sandbox.DefaultMemory>>20,
		"the memory of one command with all that it starts, in MiB")
	f.IntVar(&s.Processes, "sandbox-processes", sandbox.DefaultProcesses, "the processes and threads of one command")
	f.BoolVar(&s.UnixSockets, "sandbox-unix-sockets", false,
		"let commands make Unix sockets; those then also reach services of this machine that listen in the workspace")
	f.BoolVar(&s.Unsandboxed, unsandboxedFlag, false,
		"run commands with the worker's own rights and nothing around them; not settable by an environment variable")
	if err := f.SetAnnotation(unsandboxedFlag, noEnv, []string{}); err != nil {
		panic(err) // the flag was added one line above
	}
}

// Box is the sandbox that the flags ask for; the same one each time.
func (s *Sandbox) Box() (sandbox.Sandbox, error) {
	if s.box != nil {
		return s.box, nil
	}
	if s.Unsandboxed {
		s.box = sandbox.Unsandboxed{}
		return s.box, nil
	}
	box, err := sandbox.Open(sandbox.Options{Backend: s.Backend, UID: s.UID, UnixSockets: s.UnixSockets})
	if err != nil {
		return nil, Usagef("--sandbox, --sandbox-uid: %w", err)
	}
	if s.box = box; s.Started != nil {
		s.box = told{box, s.Started}
	}
	return s.box, nil
}

// Policy is what every command may use, beside its workspace.
func (s *Sandbox) Policy() (sandbox.Policy, error) {
	const most = sandbox.MaxMemory >> 20
	switch {
	case s.MemoryMiB < 0 || s.MemoryMiB > most:
		return sandbox.Policy{}, Usagef("--sandbox-memory %d: use 1 to %d", s.MemoryMiB, most)
	case s.Processes < 0 || s.Processes > sandbox.MaxProcesses:
		return sandbox.Policy{}, Usagef("--sandbox-processes %d: use 1 to %d", s.Processes, sandbox.MaxProcesses)
	}
	p := sandbox.Policy{Limits: sandbox.Limits{Memory: s.MemoryMiB << 20, Processes: s.Processes},
		Network: sandbox.Network{Allow: s.AllowNet}}
	for _, place := range s.AllowNet {
		if err := sandbox.CheckPlace(place); err != nil {
			return p, Usagef("--sandbox-allow-net: %w", err)
		}
	}
	for _, dir := range s.Read {
		abs, err := Dir("--sandbox-read", dir)
		if err != nil {
			return p, err
		}
		p.Read = append(p.Read, abs)
	}
	return p, nil
}

// apply tries the sandbox and sets what a worker may announce. A machine that cannot isolate is no error: its worker
// runs everything but commands, and says why.
func (s *Sandbox) apply(cfg *worker.Config, log *slog.Logger) error {
	box, err := s.Box()
	if err != nil {
		return err
	}
	if log == nil {
		log = slog.Default()
	}
	if s.Unsandboxed {
		log.Warn("commands run WITHOUT a sandbox on this worker: they can do whatever it can", "flag", unsandboxedFlag)
	}
	caps, err := box.Probe(context.Background())
	cfg.Isolation, cfg.Unsandboxed = caps.Isolation(), s.Unsandboxed && err == nil
	if err != nil {
		log.Warn("this worker cannot isolate commands and will run none", "error", err)
		cfg.NoIsolation = err.Error()
	}
	return nil
}
