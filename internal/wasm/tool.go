package wasm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/builtin"
	"github.com/toolyard/toolyard/internal/command"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/tool"
)

// program is one tool.
type program struct {
	tool.Declaration
	spec    *manifest.Wasm
	runtime wazero.Runtime
	module  wazero.CompiledModule
	memory  int64
	output  int64
	files   int
}

// New makes the tool of a manifest's module, and compiles it. It fails if the module cannot be read or run.
func New(t manifest.Tool) (tool.Tool, error) {
	l := t.Wasm.Limits
	p := &program{Declaration: t.Declaration, spec: t.Wasm, memory: cmp.Or(l.MemoryMiB<<20, DefaultMemory),
		output: cmp.Or(l.OutputBytes, DefaultOutput), files: cmp.Or(l.Files, DefaultFiles)}
	code, err := load(t.Wasm.File, t.Wasm.SHA256, p.memory)
	if err == nil {
		p.runtime, p.module, err = compile(context.Background(), code)
	}
	if err != nil {
		return tool.Tool{}, fmt.Errorf("tool %q: wasm.file: %w", t.Name, err)
	}
	return tool.Raw(tool.Tool{Declaration: t.Declaration, Check: p.check, Run: p.run})
}

// check finds errors that would otherwise only show when the module runs.
func (p *program) check(_ context.Context, env tool.Env, input json.RawMessage) error {
	if _, err := p.spec.Arguments(input); err != nil {
		return err
	}
	m, err := p.mount(env)
	if err != nil {
		return err
	}
	m.close()
	return nil
}

// mount opens the directories that the module may read.
func (p *program) mount(env tool.Env) (*mounts, error) {
	m := &mounts{config: wazero.NewFSConfig(), left: p.files}
	if p.NeedsWorkspace() {
		dir, err := builtin.OpenShown(env)
		if err != nil {
			return nil, err
		}
		m.add(dir, "/")
	}
	for _, name := range slices.Sorted(maps.Keys(p.spec.Read)) {
		dir, err := builtin.OpenDir(p.spec.Read[name])
		if err != nil {
			m.close()
			return nil, &tool.Error{Code: toolyard.SetupRequired, Err: err, Message: fmt.Sprintf(
				"this worker cannot open what %s has to read as %s; an operator must set that up", p.Name, name)}
		}
		m.add(dir, name)
	}
	return m, nil
}

func (p *program) run(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Output, error) {
	args, err := p.spec.Arguments(input)
	if err != nil {
		return tool.Output{}, err
	}
	m, err := p.mount(env)
	if err != nil {
		return tool.Output{}, err
	}
	defer m.close()
	if env.CommitPoint != nil {
		if err := env.CommitPoint(); err != nil {
			return tool.Output{}, err
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	said := &command.Streams{Progress: env.Progress}
	budget := &atomic.Int64{}
	budget.Store(p.output)
	var stdin io.Reader = strings.NewReader("")
	if p.spec.Stdin == "json" {
		stdin = bytes.NewReader(input)
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithArgs(append([]string{p.Name}, args...)...).WithFSConfig(m.config).WithStdin(stdin).
		WithStdout(limited{said.Stdout(), budget, stop}).WithStderr(limited{said.Stderr(), budget, stop}).
		WithRandSource(rand.Reader).WithSysWalltime().WithSysNanotime().
		WithNanosleep(func(ns int64) { _ = pause.For(ctx, time.Duration(ns)) }) // the module is ended with the context
	vars := command.Environment(p.spec.Env, env)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		config = config.WithEnv(name, vars[name])
	}
	memory := &allocator{limit: uint64(p.memory)}
	sandbox.Mark(ctx, Isolation)
	err = p.start(experimental.WithMemoryAllocator(ctx, memory), config)
	if err := p.ended(ctx, err, memory, m); err != nil {
		if errors.Is(context.Cause(ctx), errOutput) {
			return tool.Output{Text: said.CutOff(env)}, err
		}
		return tool.Output{Text: said.All()}, err
	}
	return said.Output(p.spec.Output)
}

// start runs the module to its end.
func (p *program) start(ctx context.Context, config wazero.ModuleConfig) (err error) {
	instance, err := p.runtime.InstantiateModule(ctx, p.module, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, instance.Close(context.WithoutCancel(ctx))) }()
	_, err = instance.ExportedFunction(start).Call(ctx)
	return err
}

// errOutput is why a module is stopped that writes too much.
var errOutput = errors.New("it wrote too much")

// ended turns the end of a module into the call's error; nil for success.
func (p *program) ended(ctx context.Context, err error, memory *allocator, m *mounts) error {
	exit, exited := errors.AsType[*sys.ExitError](err)
	tooMuch := errors.Is(context.Cause(ctx), errOutput) // it may have ended by itself before it was stopped
	if !tooMuch && (err == nil || exited && exit.ExitCode() == 0) {
		return nil
	}
	fail := func(format string, args ...any) error {
		why := fmt.Sprintf(format, args...)
		if memory.refused {
			why += fmt.Sprintf("; it asked for more than the %d MiB of memory that it may have", p.memory>>20)
		}
		if m.refused {
			why += fmt.Sprintf("; it opened more than the %d files that it may have open at a time", p.files)
		}
		return tool.Failed(err, "%s", why)
	}
	switch {
	case tooMuch:
		return fail("the program was stopped: it wrote more than %d bytes", p.output)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case exited:
		return fail("the program ended with exit status %d", exit.ExitCode())
	}
	why, _, _ := strings.Cut(err.Error(), "\n") // below it is where it was, which is for the operator
	return fail("the program crashed: %s", why)
}

// limited is a stream that stops the module once both streams together have had their budget.
type limited struct {
	to   io.Writer
	left *atomic.Int64
	stop context.CancelCauseFunc
}

func (l limited) Write(b []byte) (int, error) {
	if left := l.left.Add(-int64(len(b))); left < 0 {
		l.stop(errOutput)
		return 0, errOutput
	}
	return l.to.Write(b)
}

// allocator gives a module its memory, and notes when it asks for more than it may have.
type allocator struct {
	limit   uint64
	refused bool
	memory  []byte
}

func (a *allocator) Allocate(_, _ uint64) experimental.LinearMemory { return a }

// Reallocate grows the memory to size bytes. Nil refuses it: the module is told, and goes on without.
func (a *allocator) Reallocate(size uint64) []byte {
	switch have := uint64(cap(a.memory)); {
	case size > a.limit:
		a.refused = true
		return nil
	case size > have:
		grown := make([]byte, size, min(max(size, 2*have), a.limit))
		copy(grown, a.memory)
		a.memory = grown
	default:
		a.memory = a.memory[:size]
	}
	return a.memory
}

// Free gives the memory back.
func (a *allocator) Free() { a.memory = nil }
