package dispatchercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/replay"
)

// rerun is what --rerun --json prints.
type rerun struct {
	// Of is the batch that was recorded; Batch the one that ran its calls again.
	Of          toolyard.BatchKey   `json:"of"`
	Batch       toolyard.BatchView  `json:"batch"`
	Differences []replay.Difference `json:"differences"`
}

func (s *std) replayCommand() *cobra.Command {
	var ref agentRef
	var asJSON, again, allowWrites bool
	cmd := &cobra.Command{
		Use:   "replay [flags] BATCH|FILE|-",
		Short: "Show from its log how a batch ran, and check that the log is true",
		Long: `replay reads the log of a batch again: a FILE as --events writes it, or what the streams hold of BATCH.
It draws the groups and calls over time, and checks what must always hold: no group started before all results of the
groups before it, one result a call, replies without a gap and equal to the results, one end. It changes nothing. A
file may have the events of several batches and agents, as watch --all --json writes them: each batch is replayed for
itself, and --json prints an array then.

--rerun then hands the recorded calls in again, as a new batch at --nats or --server with the same agent, session,
workspace and options, and shows which results are different now. It refuses to when any of the calls was not
READ_ONLY; --allow-writes overrides that.

Exit status: 0 the log is consistent (whatever --rerun finds), 1 the log contradicts itself, or the system failed, 2
it cannot be read, or may not be run again.`,
		Example: `  dispatcher run --events log.jsonl batch.json && dispatcher replay log.jsonl
  dispatcher replay --json 01a1ffbe-8b20-73de-9775-9db112e2296a
  dispatcher replay --rerun --nats nats://10.0.0.7:4222 log.jsonl`,
		Args: cli.OneArg("one BATCH or FILE (- for standard input)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if allowWrites && !again {
				return cli.Usagef("--allow-writes is for --rerun")
			}
			reports, err := s.readLog(cmd.Context(), args[0], &ref)
			if err != nil {
				return err
			}
			if again && len(reports) != 1 {
				return cli.Usagef("%s has %d batches; --rerun takes the log of one", args[0], len(reports))
			}
			if again {
				return s.rerun(cmd.Context(), reports[0], &ref.systemFlags, allowWrites, asJSON)
			}
			return s.printReports(reports, asJSON)
		},
	}
	ref.add(cmd, "batch")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.Flags().BoolVar(&again, "rerun", false, "hand the recorded calls in again and show what is different")
	cmd.Flags().BoolVar(&allowWrites, "allow-writes", false,
		"with --rerun: also if some of the calls were not READ_ONLY")
	return cmd
}

// printReports prints what logs say, and is an error when one of them contradicts itself.
func (s *std) printReports(reports []*replay.Report, asJSON bool) error {
	var err error
	switch {
	case asJSON && len(reports) == 1:
		err = printJSON(s.out, reports[0])
	case asJSON:
		err = printJSON(s.out, reports)
	default:
		for i, r := range reports {
			text := s.timeline(r)
			if i > 0 {
				text = "\n" + text
			}
			if _, err = io.WriteString(s.out, text); err != nil {
				break
			}
		}
	}
	for _, r := range reports {
		switch {
		case err != nil || r.Contradiction == nil:
		case len(reports) == 1:
			err = contradiction(r)
		default:
			err = fmt.Errorf("batch %s of agent %s: %w", r.Batch.ID, r.Batch.Agent, contradiction(r))
		}
	}
	return err
}

// timeline draws what a log says. On a terminal it fits, and is brief unless more is asked for.
func (s *std) timeline(r *replay.Report) string {
	columns := fits(s.out)
	brief := columns > 0 && !s.verbose
	text := cli.Printable(r.Draw(replay.Look{Columns: columns, Brief: brief}))
	if brief {
		text = cli.ShortIDs(text)
	}
	return paintTimeline(s.paint(), fold(text, columns, 2))
}

// paintTimeline paints lines by what they begin with.
func paintTimeline(p cli.Paint, text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		mark, call, _ := strings.Cut(strings.TrimPrefix(line, "  "), " [")
		switch {
		case strings.HasPrefix(line, "batch "), strings.HasPrefix(line, "group "), line == "replies":
			lines[i] = p.Bold(line)
		case strings.HasPrefix(line, "contradiction: "):
			lines[i] = p.Bad(line)
		case strings.HasPrefix(line, "      "): // of a call
			lines[i] = p.Dim(line)
		case mark == "✓":
			lines[i] = "  " + p.Good(mark) + " [" + call
		case mark == "✗":
			lines[i] = "  " + p.Bad(mark) + " [" + call
		case mark == "…":
			lines[i] = "  " + p.Warn(mark) + " [" + call
		}
	}
	return strings.Join(lines, "\n")
}

func contradiction(r *replay.Report) error {
	if r.Contradiction.Newer != "" {
		return fmt.Errorf("this version cannot follow the log: %w", r.Contradiction)
	}
	return fmt.Errorf("the log contradicts itself: %w", r.Contradiction)
}

// readLog replays a file, or the batch of that name.
func (s *std) readLog(ctx context.Context, name string, ref *agentRef) ([]*replay.Report, error) {
	if name == "-" {
		return replayFile(ctx, name, func() (io.ReadCloser, error) { return io.NopCloser(s.in), nil })
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && !info.IsDir():
		return replayFile(ctx, name, func() (io.ReadCloser, error) { return os.Open(name) })
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid):
		return nil, cli.Usagef("%s: %w", name, errors.Unwrap(err))
	}
	k, err := ref.key(name)
	if err != nil {
		return nil, err
	}
	if asShown(name) {
		if err := s.attach(ctx, &ref.systemFlags, "replay", func(c *client.Client) (err error) {
			k, err = ref.whole(ctx, c, k)
			return err
		}); err != nil {
			return nil, err
		}
	}
	report, err := s.replayStored(ctx, k, &ref.systemFlags)
	if errors.Is(err, client.ErrNoBatch) {
		return nil, cli.Usagef("%q is no file, and at %s there is no such batch of agent %q", name, ref.where(),
			whose(k.Agent))
	}
	if err != nil {
		return nil, fmt.Errorf("%q is no file; as the id of a batch: %w", name, err)
	}
	return []*replay.Report{report}, nil
}

// replayFile replays what is opened, which may be a pipe: its other end may say nothing.
func replayFile(ctx context.Context, name string, open func() (io.ReadCloser, error)) ([]*replay.Report, error) {
	return orEnded(ctx, func() ([]*replay.Report, error) {
		f, err := open()
		if err != nil {
			return nil, cli.Usagef("%s: %w", name, errors.Unwrap(err))
		}
		defer func() { _ = f.Close() }() // it was only read
		var all replay.All
		for e, err := range replay.Read(f) {
			if err != nil {
				return nil, inFile(name, err)
			}
			all.Add(e)
		}
		return all.Reports(), nil
	})
}

// replayStored replays what the streams hold of a batch. Over NATS that is what the server stored, with its times; over
// HTTP it is the same events, with the times at which they were written.
func (s *std) replayStored(ctx context.Context, k toolyard.BatchKey, sys *systemFlags) (*replay.Report, error) {
	if sys.server != "" {
		return s.replayServed(ctx, k, sys)
	}
	if err := sys.check(); err != nil {
		return nil, err
	}
	var p replay.Replay
	err := s.overBroker(ctx, &sys.natsFlags, "replay", func(b *natsbroker.Broker) error {
		for tail := b.Tail(k); ; {
			l, ok, err := tail.Next(ctx)
			if err != nil || !ok || p.Add(replay.Event{Record: l.Record, Meta: l.Meta}) != nil {
				return err // what contradicts itself is in the report
			}
		}
	})
	return p.Report(), err
}

func (s *std) replayServed(ctx context.Context, k toolyard.BatchKey, sys *systemFlags) (*replay.Report, error) {
	var p replay.Replay
	err := s.attach(ctx, sys, "replay", func(c *client.Client) error {
		place := uint64(0)
		for raw, err := range c.Batch(k).Events(ctx) {
			if err != nil {
				return err
			}
			place++
			e, err := replay.Decode(raw, place)
			if err != nil {
				return err
			}
			if p.Add(e) != nil {
				return nil // the report has it
			}
		}
		return nil
	})
	return p.Report(), err
}

// rerun hands the recorded calls in again and shows what is different.
func (s *std) rerun(ctx context.Context, report *replay.Report, sys *systemFlags, allowWrites, asJSON bool) error {
	if report.Contradiction != nil {
		return contradiction(report)
	}
	batch, err := report.Rerun(allowWrites)
	if acts, ok := errors.AsType[*replay.ActsError](err); ok {
		return cli.Usagef("%w; --allow-writes runs them all the same", acts)
	}
	if err != nil {
		return err
	}
	log, err := s.log.Logger(s.err)
	if err != nil {
		return err
	}
	out := rerun{Of: toolyard.BatchKey{Agent: report.Batch.Agent, ID: report.Batch.ID}}
	err = s.attach(ctx, sys, "rerun", func(c *client.Client) error {
		b, err := s.handIn(ctx, c, batch, sys.goesOn, log)
		if err != nil {
			return err
		}
		for _, err := range b.Results(ctx) {
			if err != nil {
				s.cutOff(ctx, b, outputFlags{goesOn: sys.goesOn}, log)
				return turnedAway(err)
			}
		}
		out.Batch, err = b.View(ctx)
		return err
	})
	if err != nil {
		return err
	}
	out.Differences = report.Differences(out.Batch.Results)
	if asJSON {
		return printJSON(s.out, out)
	}
	p := s.lines()
	p.printf("batch %s ran again as %s: %s\n", cli.OneLine(out.Of.String()), cli.OneLine(string(out.Batch.ID)),
		count(len(out.Batch.Results), "result"))
	for _, d := range out.Differences {
		p.printf("  %s\n", cli.OneLine(d.Text()))
	}
	calls := map[int]bool{}
	for _, d := range out.Differences {
		calls[d.Index] = true
	}
	switch n := len(calls); n {
	case 0:
		p.printf("no result is different\n")
	default:
		p.printf("%s of %s different\n", count(n, "result"), fmt.Sprint(len(out.Batch.Results)))
	}
	return p.err
}
