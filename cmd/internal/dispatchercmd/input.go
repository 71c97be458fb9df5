package dispatchercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/provider"
)

// batchFlags say how to read a batch and what to change in it.
type batchFlags struct {
	inputFormat    string
	id             string
	agent, session string
	partition      string
	onError        string
	maxConcurrency int
	timeout        time.Duration
	callTimeout    time.Duration
	interactive    bool
	supersede      bool
	repair, dryRun bool
	fence          bool
	snapshot       bool
	namedLocks     bool
	background     time.Duration
	overlay        bool
	tags           []string
	priority       string

	flags   *pflag.FlagSet // that these were added to
	unowned bool           // read: neither the flags nor the file say whose batch it is
}

func (b *batchFlags) add(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicBatch)()
	b.flags = f
	f.BoolVar(&b.dryRun, "dry-run", false,
		"answer each call with what would happen: its class, the permission, and a diff or command; run none")
	f.BoolVar(&b.repair, "repair", false,
		"mend inputs that are no valid JSON, where there is one way to read them")
	f.BoolVar(&b.fence, "fence-outputs", false,
		"put outputs that come from outside between delimiters that no output can forge")
	f.BoolVar(&b.namedLocks, "named-locks", false,
		"have calls take the names that their tools declare in place of the whole workspace, as edit_file does its file")
	f.DurationVar(&b.background, "background-after", 0, fmt.Sprintf("have a command that may change something and is "+
		"not over by then go on as a background call, %s at most; its call ends with the handle", toolyard.MaxBackgroundWait))
	f.StringVar(&b.inputFormat, "input-format", "",
		"the form of FILE: native, anthropic, openai, openai-chat or gemini (default: recognised by its shape)")
	f.StringVar(&b.id, "id", "", "the batch's id; the same id is the same batch (default: FILE's, or a new one)")
	f.StringVar(&b.agent, "agent", "", "whose batch it is (default: FILE's, or \"default\")")
	f.StringVar(&b.session, "session", "", "the conversation (default: FILE's, or \"default\")")
	f.StringVar(&b.partition, "partition", "", "how calls become groups: consecutive, safe_first, sequential or "+
		"ordered_halt (default: FILE's, or consecutive)")
	f.StringVar(&b.onError, "on-error", "", "what a call that fails while executing does to its group, where its "+
		"tool declares that it aborts siblings: cancel_group or continue (default: FILE's, or cancel_group)")
	f.IntVar(&b.maxConcurrency, "max-concurrency", 0,
		fmt.Sprintf("how many calls are in flight, 1 to %d (default: FILE's, or %d)", toolyard.MaxConcurrency,
			toolyard.DefaultMaxConcurrency))
	f.DurationVar(&b.timeout, "timeout", 0,
		"bound the batch; calls not answered by then end as deadline_exceeded (default: FILE's, or 10m)")
	f.DurationVar(&b.callTimeout, "call-timeout", 0, "cap each call under its tool's own timeout")
}

// given reports whether somebody has set a flag: a 0 that is said means no limit to who says it, and is refused.
func (b *batchFlags) given(flag string) bool { return b.flags != nil && b.flags.Changed(flag) }

// addKept adds the flags that have changes of the workspace kept apart.
func (b *batchFlags) addKept(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicBatch)()
	f.BoolVar(&b.snapshot, "snapshot", false, "keep the workspace as it is before each group that may change it, so "+
		"that dispatcher undo can set it back; a call for which that fails does not run")
	f.BoolVar(&b.overlay, "overlay", false, "run the calls on a copy of the workspace, whose changes dispatcher overlay "+
		"commits or drops; a call that could change more than the copy does not run")
}

// addPlace adds the flags that say where a batch runs, and before which others. In a process that runs a batch alone
// there is nothing to choose.
func (b *batchFlags) addPlace(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicBatch)()
	f.StringVar(&b.priority, "priority", "", "interactive, or bulk for a batch that nobody waits for: interactive "+
		"ones go first (default: FILE's, or interactive)")
	b.addKept(f)
	f.StringArrayVar(&b.tags, "tag", nil, "run the calls only on workers that have this `TAG`, beside those that FILE "+
		"asks for; may be repeated")
}

// read reads the batch in a file, applies the flags, and checks it.
func (b *batchFlags) read(ctx context.Context, in io.Reader, path string, workspace toolyard.Workspace) (toolyard.Batch,
	error) {
	format, err := provider.ParseFormat(b.inputFormat)
	if err != nil {
		return toolyard.Batch{}, cli.Usagef("--input-format: %w", err)
	}
	if err := b.check(workspace); err != nil {
		return toolyard.Batch{}, err
	}
	data, err := readFile(ctx, in, path)
	if err != nil {
		return toolyard.Batch{}, err
	}
	batch, _, err := provider.Decode(data, format)
	if err != nil {
		return batch, inFile(path, err)
	}
	if batch.Open {
		return batch, inFile(path, &toolyard.InputError{Field: "open",
			Problem: "is true, but a file is a whole batch; leave it out"})
	}
	if workspace != "" {
		batch.Workspace = workspace
	}
	if err := b.apply(&batch); err != nil {
		return batch, err
	}
	b.unowned = batch.Agent == ""
	batch.Normalize("unnamed") // for Validate; whoever submits gives the real one
	named := batch.ID != "unnamed"
	if err := batch.Validate(); err != nil {
		return batch, inFile(path, err)
	}
	if !named {
		batch.ID = ""
	}
	return batch, nil
}

func (b *batchFlags) apply(batch *toolyard.Batch) error {
	batch.Interactive = batch.Interactive || b.interactive
	batch.Options.Supersede = batch.Options.Supersede || b.supersede
	batch.Options.Repair = batch.Options.Repair || b.repair
	batch.Options.DryRun = batch.Options.DryRun || b.dryRun
	batch.Options.NamedLocks = batch.Options.NamedLocks || b.namedLocks
	batch.Options.Fence = batch.Options.Fence || b.fence
	batch.Options.Snapshot = batch.Options.Snapshot || b.snapshot
	batch.Options.Overlay = batch.Options.Overlay || b.overlay
	for _, d := range []struct {
		flag string
		v    time.Duration
		to   *int64
	}{{"timeout", b.timeout, &batch.Options.TimeoutMS},
		{"call-timeout", b.callTimeout, &batch.Options.CallTimeoutMS},
		{"background-after", b.background, &batch.Options.BackgroundAfterMS}} {
		if d.v < time.Millisecond && (d.v != 0 || b.given(d.flag)) {
			return cli.Usagef("--%s %s: use at least 1ms", d.flag, d.v)
		}
		if d.v > 0 {
			*d.to = d.v.Milliseconds()
		}
	}
	if b.priority != "" {
		batch.Options.Priority = toolyard.Priority(b.priority)
	}
	for _, t := range b.tags {
		if !slices.Contains(batch.Options.Tags, toolyard.Tag(t)) {
			batch.Options.Tags = append(batch.Options.Tags, toolyard.Tag(t))
		}
	}
	if b.id != "" {
		batch.ID = toolyard.BatchID(b.id)
	}
	if b.agent != "" {
		batch.Agent = toolyard.Agent(b.agent)
	}
	if b.session != "" {
		batch.Session = toolyard.Session(b.session)
	}
	if b.partition != "" {
		batch.Options.Partition = toolyard.Strategy(b.partition)
	}
	if b.onError != "" {
		batch.Options.OnError = toolyard.OnError(b.onError)
	}
	if b.maxConcurrency != 0 {
		batch.Options.MaxConcurrency = b.maxConcurrency
	}
	return nil
}

// check says which flag is wrong, so that the file is not blamed for it.
func (b *batchFlags) check(workspace toolyard.Workspace) error {
	for _, n := range []struct{ flag, name string }{
		{"--id", b.id}, {"--agent", b.agent}, {"--session", b.session}, {"--workspace", string(workspace)},
	} {
		if n.name != "" {
			if err := toolyard.CheckName(n.flag, n.name); err != nil {
				return &cli.UsageError{Err: err}
			}
		}
	}
	if s := toolyard.Strategy(b.partition); s != "" && !slices.Contains(toolyard.Strategies, s) {
		return cli.Usagef("--partition %q: use one of %q", b.partition, toolyard.Strategies)
	}
	if o := toolyard.OnError(b.onError); o != "" && o != toolyard.CancelGroup && o != toolyard.Continue {
		return cli.Usagef("--on-error %q: use %q or %q", b.onError, toolyard.CancelGroup, toolyard.Continue)
	}
	if p := toolyard.Priority(b.priority); p != "" && p != toolyard.Interactive && p != toolyard.Bulk {
		return cli.Usagef("--priority %q: use %q or %q", b.priority, toolyard.Interactive, toolyard.Bulk)
	}
	for _, t := range b.tags {
		if err := toolyard.CheckTags("--tag", []toolyard.Tag{toolyard.Tag(t)}, 1); err != nil {
			return &cli.UsageError{Err: err}
		}
	}
	if b.maxConcurrency < 0 || b.maxConcurrency > toolyard.MaxConcurrency ||
		b.maxConcurrency == 0 && b.given("max-concurrency") {
		return cli.Usagef("--max-concurrency %d: use 1 to %d", b.maxConcurrency, toolyard.MaxConcurrency)
	}
	return nil
}

// readFile reads a file up to the size that a batch may have. What a pipe or a person does not send ends with ctx.
func readFile(ctx context.Context, in io.Reader, path string) ([]byte, error) {
	return orEnded(ctx, func() ([]byte, error) { return readAll(in, path) })
}

// orEnded does what may wait for ever for a pipe or a person, until ctx ends. What waits then ends with the process.
func orEnded[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type outcome struct {
		got T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		got, err := do()
		done <- outcome{got, err}
	}()
	select {
	case o := <-done:
		return o.got, o.err
	case <-ctx.Done():
		return *new(T), context.Cause(ctx)
	}
}

func readAll(in io.Reader, path string) ([]byte, error) {
	if path == "" {
		return nil, cli.Usagef("FILE is empty; name a file, or - for standard input")
	}
	if path != "-" {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, cli.Usagef("%s: no such file; name one that is there, or - for standard input", path)
		}
		if err != nil {
			return nil, cli.Usagef("%s: %w", path, errors.Unwrap(err))
		}
		if info.IsDir() {
			return nil, cli.Usagef("%s: is a directory; name a file", path)
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, cli.Usagef("%s: %w", path, errors.Unwrap(err))
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, toolyard.MaxBatchBytes+1))
	if err != nil {
		return nil, cli.Usagef("%s: %w", path, err)
	}
	if len(data) > toolyard.MaxBatchBytes {
		return nil, inFile(path, &toolyard.InputError{TooLarge: true,
			Problem: fmt.Sprintf("the input has more than %d bytes (16 MiB), the most that a batch may have; split it",
				toolyard.MaxBatchBytes)})
	}
	return data, nil
}

// inFile says in which file what is wrong.
func inFile(path string, err error) error {
	if path == "-" {
		path = "standard input"
	}
	return cli.Usagef("%s: %w", path, err)
}

// resultFormat is the form in which results are printed.
func resultFormat(name string, asJSON bool) (provider.Format, error) {
	if name != "" && asJSON {
		return "", cli.Usagef("--format and --json exclude each other")
	}
	f, err := provider.ParseFormat(strings.TrimSpace(name))
	if err != nil {
		return f, cli.Usagef("--format: %w", err)
	}
	return f, nil
}
