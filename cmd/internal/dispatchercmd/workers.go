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
)

func (s *std) workersCommand() *cobra.Command {
	var sys systemFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "workers [flags]",
		Short: "List the live workers of a running system, what they found to be down, and tool names that several " +
			"offer",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.attach(cmd.Context(), &sys, "toolyard workers", func(c *client.Client) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), setupTimeout)
				defer cancel()
				workers, err := c.Workers(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(s.out, workers)
				}
				p := &show{w: s.out, on: true}
				for _, w := range workers {
					var classes, workspaces []string
					for _, c := range w.Classes {
						classes = append(classes, string(c))
					}
					for _, ws := range w.Workspaces {
						workspaces = append(workspaces, cli.OneLine(string(ws)))
					}
					p.printf("%s  pool %s  host %s  %s, %d busy  %s  %s  workspaces %s  isolation %s", cli.OneLine(w.ID),
						cli.OneLine(string(w.Pool)), cli.OneLine(cmp.Or(w.Host, "unknown")),
						count(w.Slots, "slot"), w.Busy, count(w.Tools, "tool"),
						strings.Join(classes, ","), strings.Join(workspaces, ","), cli.OneLine(w.Isolation))
					p.printf("  version %s, wire version %d\n", cli.OneLine(cmp.Or(w.Version, "unknown")),
						w.WireVersion)
					if len(w.Tags) > 0 {
						tags := make([]string, len(w.Tags))
						for i, t := range w.Tags {
							tags[i] = cli.OneLine(string(t))
						}
						p.printf("  tags %s\n", strings.Join(tags, ", "))
					}
					for _, r := range w.Remarks {
						p.printf("  %s\n", cli.OneLine(r.String()))
					}
					for _, dependency := range slices.Sorted(maps.Keys(w.Breakers)) {
						p.printf("  %s is down, not tried until %s\n", cli.OneLine(dependency),
							w.Breakers[dependency].Format(time.RFC3339))
					}
					for _, conflict := range w.Conflicts {
						p.printf("  conflict: %s\n", cli.OneLine(conflict))
					}
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
