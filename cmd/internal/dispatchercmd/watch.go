package dispatchercmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/events"
)

// watchTime is how an event's time is shown: where the watcher is.
const watchTime = "15:04:05.000"

func (s *std) watchCommand() *cobra.Command {
	var ref agentRef
	var all, asJSON, plain bool
	cmd := &cobra.Command{
		Use:   "watch [flags] BATCH | --all | --agent AGENT",
		Short: "Follow batches as they run",
		Long: `watch BATCH shows a batch live on a terminal, until it is complete: each call with a bar, and keys to open a call, to
cancel it or all calls, and to approve or deny one that waits for a person. Whoever leaves the view changes nothing.

Elsewhere, and with --plain, it prints what has happened to a batch so far and then each event as it is stored, a line
each, until the batch is complete. No event is left out and none comes twice.

watch --all, and watch --agent AGENT without a batch, print the events of all batches (of that agent) from now on
until they are interrupted. That is a live feed: if events are missing, because this connection was lost or too slow,
it says so. Watch one batch, or replay it, to see all of it.

--json prints CloudEvents, one a line, as --events writes them; what is missing is then said on standard error. With
--all and --agent, what was stored of a batch before its first event, or is missing, stands in front of it: what is
printed can be replayed.

Exit status: 0 the batch is complete (or --all was interrupted, its normal end), 2 there is no such batch, 130
interrupted.`,
		Example: `  dispatcher watch 01a1ffbe-8b20-73de-9775-9db112e2296a
  dispatcher watch --all
  dispatcher watch --agent reviewer --json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			show := eventPrinter{s: s, out: s.out, json: asJSON}
			switch {
			case len(args) > 1:
				return cli.Usagef("dispatcher watch takes one BATCH, not %d; see dispatcher watch --help", len(args))
			case len(args) == 1 && all:
				return cli.Usagef("BATCH and --all exclude each other")
			case len(args) == 0 && !all && !cmd.Flags().Changed("agent"):
				return cli.Usagef("name a BATCH, or say --all or --agent AGENT; see dispatcher watch --help")
			case len(args) == 1:
				k, err := ref.key(args[0])
				if err != nil {
					return err
				}
				return s.attach(cmd.Context(), &ref.systemFlags, "watch", func(c *client.Client) error {
					k, err := ref.whole(cmd.Context(), c, k)
					if err != nil {
						return err
					}
					if in, out, ok := s.hasScreen(); ok && !asJSON && !plain {
						return s.watchLive(cmd.Context(), c, k, in, out)
					}
					return show.batch(cmd.Context(), c, k)
				})
			}
			agent := toolyard.Agent("")
			if cmd.Flags().Changed("agent") {
				if err := toolyard.CheckName("--agent", ref.agent); err != nil {
					return err
				}
				agent = toolyard.Agent(ref.agent)
			}
			err := s.attach(cmd.Context(), &ref.systemFlags, "watch", func(c *client.Client) error {
				return show.all(cmd.Context(), c, agent)
			})
			if errors.Is(err, cli.ErrInterrupted) {
				return nil // nothing else ends it
			}
			return err
		},
	}
	ref.add(cmd, "batch")
	cmd.Flags().BoolVar(&all, "all", false, "follow all batches, of --agent if that is given, from now on")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print CloudEvents, one a line")
	cmd.Flags().BoolVar(&plain, "plain", false, "print lines on a terminal too, in place of the live view")
	return cmd
}

// eventPrinter prints events as they come.
type eventPrinter struct {
	s    *std
	out  io.Writer
	json bool
}

func (p *eventPrinter) batch(ctx context.Context, c *client.Client, k toolyard.BatchKey) error {
	batch := c.Batch(k)
	if !p.json {
		log, err := p.s.log.Logger(p.s.err)
		if err != nil {
			return err
		}
		p.out = p.s.bars.over(p.s.out)
		defer p.s.bars.watch(ctx, batch, log)()
	}
	for e, err := range batch.Watch(ctx) {
		if err != nil {
			return misnamed(err)
		}
		if err := p.print(e); err != nil {
			return err
		}
		if !p.json {
			p.s.bars.claimed(e)
		}
	}
	return nil
}

func (p *eventPrinter) all(ctx context.Context, c *client.Client, agent toolyard.Agent) error {
	happening, err := c.Watch(ctx, agent)
	if err != nil {
		return err
	}
	if !p.json {
		whose := "all batches"
		if agent != "" {
			whose = "the batches of agent " + cli.OneLine(string(agent))
		}
		if _, err := fmt.Fprintf(p.s.out, "watching %s from now on\n", whose); err != nil {
			return err
		}
	}
	told := newTold()
	for e, err := range happening {
		if err != nil {
			return err
		}
		if p.json {
			err = p.whole(ctx, c, e, told)
		} else {
			err = p.print(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// whole prints an event as JSON, and before it what is stored of its batch and was not printed: when it is the batch's
// first, and where some are missing. Where events of all batches are missing, it does so for those that are under way:
// nothing more may come of them.
func (p *eventPrinter) whole(ctx context.Context, c *client.Client, e client.Event, told *told) error {
	k := e.Batch
	if k == (toolyard.BatchKey{}) {
		if err := p.print(e); err != nil {
			return err
		}
		for _, k := range told.underWay() {
			if err := p.stored(ctx, c, k, told); err != nil {
				return err
			}
		}
		return nil
	}
	if e.Type == "" {
		return p.print(e)
	}
	if !told.of(k).begun || e.Gap != "" {
		if err := p.stored(ctx, c, k, told); err != nil {
			return err
		}
	}
	if !told.add(k, e.JSON) {
		return nil
	}
	e.Gap = ""
	return p.print(e)
}

// stored prints what is stored of a batch and was not printed. What cannot be read now is tried again at the next
// event.
func (p *eventPrinter) stored(ctx context.Context, c *client.Client, k toolyard.BatchKey, told *told) error {
	told.of(k).begun = false
	for raw, err := range c.Batch(k).Events(ctx) {
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			_, err = fmt.Fprintf(p.s.err, "%s\n",
				cli.OneLine(fmt.Sprintf("what is stored of %s cannot be read, and events of it are missing: %v", k, err)))
			return err
		}
		if !told.add(k, raw) {
			continue
		}
		if _, err := fmt.Fprintf(p.out, "%s\n", display.EscapeJSON(raw)); err != nil {
			return err
		}
	}
	told.of(k).begun = true
	return nil
}

// told is which events were printed of the batches of late.
type told struct {
	batches map[toolyard.BatchKey]*toldBatch
	order   []toolyard.BatchKey
	events  int
}

// toldBatch is what was printed of one batch: its events, by their ids. begun says that nothing is missing before them,
// and over that the last one is among them.
type toldBatch struct {
	ids         map[string]bool
	begun, over bool
}

const (
	// maxTold is of how many batches it is known what was printed.
	maxTold = 10_000
	// maxToldEvents is of how many events of these batches it is known. Of long batches fewer are.
	maxToldEvents = 200_000
)

func newTold() *told { return &told{batches: map[toolyard.BatchKey]*toldBatch{}} }

func (t *told) of(k toolyard.BatchKey) *toldBatch {
	b := t.batches[k]
	if b == nil {
		if len(t.order) == maxTold {
			t.forget(k)
		}
		b = &toldBatch{ids: map[string]bool{}}
		t.batches[k], t.order = b, append(t.order, k)
	}
	return b
}

// forget drops the batch that began first of those that are over, and without any of all, but never the one that goes
// on. Of one that is under way more is to come, and would begin with all that was printed.
func (t *told) forget(but toolyard.BatchKey) {
	oldest := slices.IndexFunc(t.order, func(k toolyard.BatchKey) bool { return k != but && t.batches[k].over })
	if oldest < 0 {
		oldest = slices.IndexFunc(t.order, func(k toolyard.BatchKey) bool { return k != but })
	}
	k := t.order[oldest]
	t.events -= len(t.batches[k].ids)
	delete(t.batches, k)
	t.order = slices.Delete(t.order, oldest, oldest+1)
}

// add notes a CloudEvent, and reports whether it is new.
func (t *told) add(k toolyard.BatchKey, line []byte) bool {
	var e struct {
		ID   string      `json:"id"`
		Type events.Type `json:"type"`
		Data struct {
			Completed bool `json:"completed"`
		} `json:"data"`
	}
	_ = json.Unmarshal(line, &e) // data of another form says nothing here
	b := t.of(k)
	if b.ids[e.ID] {
		return false
	}
	b.ids[e.ID] = true
	for t.events++; t.events > maxToldEvents && len(t.order) > 1; {
		t.forget(k)
	}
	b.over = b.over || e.Type == events.BatchRefused || e.Type == events.Results && e.Data.Completed
	return true
}

// underWay are the batches of which more events may be stored than were printed.
func (t *told) underWay() (all []toolyard.BatchKey) {
	for _, k := range t.order {
		if !t.batches[k].over {
			all = append(all, k)
		}
	}
	return all
}

func (p *eventPrinter) print(e client.Event) error {
	if e.Gap != "" {
		to, about := p.out, ""
		if p.json {
			to = p.s.err
		}
		if e.Batch != (toolyard.BatchKey{}) {
			about = " of " + e.Batch.String()
		}
		if _, err := fmt.Fprintf(to, "%s\n", cli.OneLine(fmt.Sprintf("%s events%s may be missing here: %s",
			e.Time.Local().Format(watchTime), about, e.Gap))); err != nil {
			return err
		}
	}
	switch {
	case e.Batch == (toolyard.BatchKey{}):
		return nil // it was about a gap
	case !p.json:
		text := cli.OneLine(fmt.Sprintf("%s %s %s", e.Time.Local().Format(watchTime), e.Batch, e.What))
		if cli.IsTerminal(p.s.out) && !p.s.verbose {
			text = fold(cli.ShortIDs(text), fits(p.s.out), len(watchTime)+1)
		}
		_, err := fmt.Fprintf(p.out, "%s\n", text)
		return err
	case e.Type == "": // what cannot be read has no form to be printed in
		_, err := fmt.Fprintf(p.s.err, "%s\n", cli.OneLine(e.What))
		return err
	}
	_, err := fmt.Fprintf(p.out, "%s\n", display.EscapeJSON(e.JSON))
	return err
}
