package dispatchercmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/shard"
)

func (s *std) workersCommand() *cobra.Command {
	var sys systemFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "workers [flags]",
		Short: "List the live workers of a running system",
		Long: `workers lists the live workers with their pools, hosts, slots, tools and versions, what they found to be down,
why they cannot isolate commands, and the names of tools that several offer. Ids are shortened to their end; -v prints
them whole.`,
		Example: "  dispatcher workers\n  dispatcher workers --json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.ask(cmd.Context(), &sys, "workers", func(ctx context.Context, c *client.Client) error {
				workers, err := c.Workers(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(s.out, workers)
				}
				p := s.lines()
				for _, w := range workers {
					p.worker(&w)
				}
				p.printf("%s\n", count(len(workers), "worker"))
				if p.err != nil {
					return fmt.Errorf("print the workers: %w", p.err)
				}
				return nil
			})
		},
	}
	sys.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// worker prints a worker: who it is, and then a line for each thing about it.
func (s *show) worker(w *client.Worker) {
	id := cli.OneLine(w.ID)
	if !s.verbose {
		id = cli.ShortIDs(id)
	}
	s.printf("%s\n", s.paint.Bold(fmt.Sprintf("%s  pool %s  %s, %d busy", id, cli.OneLine(string(w.Pool)),
		count(w.Slots, "slot"), w.Busy)))
	var rows [][]cli.Cell
	add := func(what, text string, paint func(string) string) {
		rows = append(rows, []cli.Cell{{Text: what, Paint: s.paint.Dim}, {Text: cli.OneLine(text), Paint: paint}})
	}
	add("host", cmp.Or(w.Host, "unknown"), nil)
	add("runs", fmt.Sprintf("%s of %s, in %s", count(w.Tools, "tool"), listed(w.Classes), w.Isolation), nil)
	if w.NoIsolation != "" {
		add("isolation", w.NoIsolation, s.paint.Warn)
	}
	if len(w.Workspaces) > 0 {
		add("workspaces", listed(w.Workspaces), nil)
	}
	if len(w.Shards) > 0 {
		add("shards", shard.Set(w.Shards).String(), nil)
	}
	if len(w.Tags) > 0 {
		add("tags", listed(w.Tags), nil)
	}
	add("version", fmt.Sprintf("%s, wire version %d", cmp.Or(w.Version, "unknown"), w.WireVersion), nil)
	for _, r := range w.Remarks {
		add("remark", r.String(), s.paint.Warn)
	}
	for _, dependency := range slices.Sorted(maps.Keys(w.Breakers)) {
		add("down", fmt.Sprintf("%s is down, not tried until %s", dependency,
			w.Breakers[dependency].Format(time.RFC3339)), s.paint.Bad)
	}
	for _, conflict := range w.Conflicts {
		add("conflict", conflict, s.paint.Warn)
	}
	s.printf("%s", cli.Table(rows, "  ", s.columns))
}

// listed are words with commas.
func listed[T ~string](words []T) string { return strings.Join(listOf(words), ", ") }
