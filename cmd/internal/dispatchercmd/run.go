package dispatchercmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/provider"
	"github.com/toolyard/toolyard/internal/traceparent"
)

// runDrainGrace is how long calls may go on after run was interrupted: a person waits.
const runDrainGrace = 500 * time.Millisecond

// eventsGrace is how long the events of a batch that was interrupted may take to be read and written: a person waits.
const eventsGrace = 5 * time.Second

// outputFlags say how results are shown.
type outputFlags struct {
	json   bool
	format string
	events string
	// failOnError makes an error of a call the command's own.
	failOnError bool
	// one is the command's own error when the one call of its batch fails; nil where that is no such command.
	one error
	// lines are how many of an output are shown; 0: few.
	lines int
	// goesOn says what a batch does that nobody follows any more; nil where it ends with the command.
	goesOn func(k toolyard.BatchKey, stored bool) string

	as   provider.Format // what format says
	file *os.File        // of the events, opened before anything runs
}

// open opens the file of the events, so that a path that is wrong is known before anything has run. It waits until
// somebody reads a named pipe, or ctx ends.
func (o *outputFlags) open(ctx context.Context) error {
	if o.events == "" {
		return nil
	}
	flags := os.O_WRONLY | os.O_CREATE // emptied when there is something to write
	if info, err := os.Stat(o.events); err == nil && !info.Mode().IsRegular() {
		flags = os.O_WRONLY // who opens a pipe when it is gone makes no file in its place
	}
	file, err := orEnded(ctx, func() (*os.File, error) {
		f, err := os.OpenFile(o.events, flags, 0o600)
		if err != nil {
			return nil, cli.Usagef("--events: %w", err)
		}
		return f, nil
	})
	o.file = file
	return err
}

// close closes the file when it was not written.
func (o *outputFlags) close(log *slog.Logger) {
	if o.file != nil {
		if err := o.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			log.Warn("the file of the events was not closed", "path", o.events, "error", err)
		}
	}
}

func (o *outputFlags) add(cmd *cobra.Command) {
	defer cli.Topic(cmd.Flags(), cli.TopicOutput)()
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print one JSON document: the batch with its results")
	f.StringVar(&o.format, "format", "",
		"print exactly what goes back to a provider: anthropic, openai, openai-chat, gemini (or native: the results)")
	cli.Alternatives(f, "json", "format")
	f.BoolVar(&o.failOnError, "fail-on-error", false, "end with exit status 1 when a call has failed; without, an error "+
		"of a call is a result like any other")
	f.StringVar(&o.events, "events", "", "write the event log to `PATH`, as JSON lines of CloudEvents; it has the "+
		"inputs as they were handed in, with any secrets in them")
}

func (s *std) runCommand() *cobra.Command {
	var in batchFlags
	var out outputFlags
	var perms cli.Permissions
	var w cli.Worker
	var dir string
	cmd := &cobra.Command{
		Use:   "run [flags] FILE|-",
		Short: "Run one batch with everything in this process, and exit",
		Long: `run starts a NATS server, a dispatcher and a worker in this process, with all streams in memory, runs
the batch in FILE against a directory, prints the results in the order of the calls, and exits.

FILE is a batch in the native form, or what a model emitted: an assistant message of Anthropic, OpenAI (Responses or
Chat Completions) or Gemini, or the whole response around it. Which one is recognised by its shape.

Calls that read inside the workspace need no permission. For others say so: with --allow RULE, or with
--permission-mode accept_edits for edits of files. What nobody decided is asked on a terminal; elsewhere it is denied,
and the model is told.`,
		Example: `  dispatcher run --permission-mode accept_edits examples/explore.json
  dispatcher run --json --workspace . examples/anthropic-message.json
  dispatcher run --format anthropic - < message.json`,
		Args: fileArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.run(cmd.Context(), args[0], dir, in, out, perms, w)
		},
	}
	cmd.Flags().StringVar(&dir, "workspace", ".", "the directory that the calls act on")
	in.add(cmd.Flags())
	out.add(cmd)
	perms.Add(cmd.Flags())
	w.AddSlots(cmd.Flags(), runDrainGrace)
	return cmd
}

func (s *std) run(ctx context.Context, file, dir string, in batchFlags, out outputFlags, perms cli.Permissions,
	w cli.Worker) error {
	return s.withBatch(ctx, file, "", &in, &out, func(batch toolyard.Batch, log *slog.Logger) error {
		dir, err := cli.Dir("--workspace", dir)
		if err != nil {
			return err
		}
		if o := batch.Options; o.Snapshot || o.Overlay || o.Undo {
			return cli.Usagef("%s: options: snapshot, overlay and undo are for a system that stays; hand the batch to "+
				"dispatcher serve with dispatcher submit", file)
		}
		// Whoever is there to ask is at this terminal: nobody else reaches this process.
		batch.Interactive = file != "-" && s.terminal()
		cfg := aloneConfig{workspace: batch.Workspace, dir: dir, maxConcurrency: in.maxConcurrency, perms: &perms,
			worker: &w}
		return withAlone(ctx, log, cfg, func(ctx context.Context, a *alone) error {
			if batch.Interactive {
				asking, stop := context.WithCancel(ctx)
				defer stop()
				go s.askPerson(asking, a.client, batch.Agent, dir, log)
			}
			return s.follow(ctx, a.client, batch, out)
		})
	})
}

// withBatch does something with the batch in a file, when it is known that the results can be printed.
func (s *std) withBatch(ctx context.Context, file string, workspace toolyard.Workspace, in *batchFlags,
	out *outputFlags, do func(toolyard.Batch, *slog.Logger) error) error {
	log, err := s.log.Logger(s.err)
	if err != nil {
		return err
	}
	if out.as, err = resultFormat(out.format, out.json); err != nil {
		return err
	}
	batch, err := in.read(ctx, s.in, file, workspace)
	if err != nil {
		return err
	}
	if err := out.open(ctx); err != nil {
		return err
	}
	defer out.close(log)
	return do(batch, log)
}

// follow hands a batch in and shows its results as they come.
func (s *std) follow(ctx context.Context, c *client.Client, batch toolyard.Batch, out outputFlags) error {
	log, err := s.log.Logger(s.err)
	if err != nil {
		return err
	}
	ctx = client.WithTraceParent(ctx, os.Getenv(traceparent.Env))
	ctx = client.WithTraceState(ctx, os.Getenv(traceparent.StateEnv))
	b, err := s.handIn(client.WithBaggage(ctx, os.Getenv(traceparent.BaggageEnv)), c, batch, out.goesOn, log)
	if err != nil {
		return turnedAway(err)
	}
	show := newShow(s.out, batch, !out.json && out.as == "")
	show.paint, show.verbose, show.lines = s.paint(), s.verbose, out.lines
	if show.on {
		show.bars, show.w = s.bars, s.bars.over(s.out)
	}
	show.begin(b.Key())
	quiet := func() {}
	if show.on {
		quiet = s.bars.watch(ctx, b, log)
	}
	if show.on && batch.Interactive && out.goesOn != nil { // run asks itself
		asked, bars := s.bars.watchAsked(ctx, b, log), quiet
		quiet = func() {
			asked()
			bars()
		}
	}
	defer quiet()
	results, err := collect(ctx, b, show, out.goesOn != nil && out.file == nil)
	quiet()
	if err != nil {
		s.cutOff(ctx, b, out, log)
		return err
	}
	view, unread := b.View(ctx)
	if unread != nil { // what else there is to say of the batch takes no result away
		view = toolyard.BatchView{ID: b.Key().ID, Agent: b.Key().Agent, Session: batch.Session,
			Workspace: batch.Workspace, Status: toolyard.StatusCompleted, Groups: [][]int{}}
		unread = fmt.Errorf("these are all results, and the batch itself cannot be read: %w", unread)
	}
	view.Results = results
	if out.file != nil {
		if err := out.writeEvents(ctx, b.Events(ctx)); err != nil {
			unread = cmp.Or(unread, err)
		} else {
			show.printf("\nevents in %s: with the inputs as they were handed in, unredacted\n", cli.OneLine(out.events))
		}
	}
	if err := errors.Join(s.printResults(ctx, b, view, batch, results, out, show), unread); err != nil {
		return err
	}
	if len(show.failed) > 0 && out.one != nil {
		return out.one
	}
	if n := len(show.failed); out.failOnError && n > 0 {
		return fmt.Errorf("%d of %s failed, and --fail-on-error is set", n, count(len(results), "call"))
	}
	return nil
}

// handIn submits a batch. If it is interrupted, or nobody answers, the batch may have been stored: then it says which
// one that is.
func (s *std) handIn(ctx context.Context, c *client.Client, batch toolyard.Batch,
	goesOn func(toolyard.BatchKey, bool) string, log *slog.Logger) (*client.Batch, error) {
	if batch.ID == "" {
		batch.ID = client.NewBatchID()
	}
	b, err := c.Submit(ctx, batch)
	if err != nil && goesOn != nil && (ctx.Err() != nil || errors.Is(err, client.ErrNoAnswer)) {
		s.sayOfBatch(goesOn(batch.Key(), false), log)
	}
	return b, err
}

// sayOfBatch writes what a person is told of a batch whose command has an error already.
func (s *std) sayOfBatch(text string, log *slog.Logger) {
	if _, err := fmt.Fprint(s.err, text); err != nil {
		log.Warn("standard error cannot be written to", "error", err)
	}
}

// collect shows the results of a batch as they come, and returns them all. With leave it ends when it cannot show them.
func collect(ctx context.Context, b *client.Batch, show *show, leave bool) ([]toolyard.Result, error) {
	results := []toolyard.Result{}
	if leave && show.err != nil {
		return nil, show.err
	}
	for r, err := range b.Results(ctx) {
		if err != nil {
			return nil, turnedAway(err)
		}
		if len(results) == 0 && show.on {
			if view, err := b.View(ctx); err == nil { // or they are shown without their groups
				show.plan(view)
			}
		}
		show.result(r)
		if leave && show.err != nil {
			return nil, show.err
		}
		results = append(results, r)
	}
	return results, nil
}

// cutOff is for a batch whose results are waited for no more: it writes the events so far, and says what goes on. The
// command has an error already, so what fails here is logged.
func (s *std) cutOff(ctx context.Context, b *client.Batch, out outputFlags, log *slog.Logger) {
	if out.file != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventsGrace)
		defer cancel()
		if err := out.writeEvents(late, b.Events(late)); err != nil {
			log.Warn("the events of the batch were not written", "error", err)
		}
	}
	if ctx.Err() != nil && out.goesOn != nil {
		s.sayOfBatch(out.goesOn(b.Key(), true), log)
	}
}

// turnedAway makes an error that is about the batch, and not about room for it, one of usage.
func turnedAway(err error) error {
	_, refused := errors.AsType[*client.RefusedError](err)
	if errors.Is(err, client.ErrOtherContent) || refused && !errors.Is(err, client.ErrFull) {
		return &cli.UsageError{Err: err}
	}
	return err
}

// printResults prints all results where they were not printed as they came.
func (s *std) printResults(ctx context.Context, b *client.Batch, view toolyard.BatchView, batch toolyard.Batch,
	results []toolyard.Result, out outputFlags, show *show) error {
	switch {
	case out.json:
		return printJSON(s.out, view)
	case out.as != "":
		if out.as != provider.Native { // a model sees images, and no references to them
			if err := b.Fill(ctx, results); err != nil {
				return err
			}
		}
		rendered, err := provider.Render(out.as, batch.Calls, results, view.Notice)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.out, "%s\n", rendered)
		return err
	}
	return show.end(view)
}

// writeEvents writes a batch's log as JSON lines. A pipe whose reader has stopped takes them until ctx ends.
func (o *outputFlags) writeEvents(ctx context.Context, log iter.Seq2[[]byte, error]) error {
	_, err := orEnded(ctx, func() (none struct{}, err error) { return none, writeLog(o.file, log) })
	if err != nil {
		return fmt.Errorf("--events %s: %w", o.events, err)
	}
	return nil
}

// writeLog writes a log to a file, and closes that.
func writeLog(to *os.File, log iter.Seq2[[]byte, error]) error {
	if info, err := to.Stat(); err == nil && info.Mode().IsRegular() {
		if err := to.Truncate(0); err != nil {
			return err
		}
	}
	w := bufio.NewWriter(to)
	for e, err := range log {
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n", e)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(w.Flush(), to.Close())
}
