package dispatchercmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/shard"
)

// spreadTimeout bounds the moves of all leaders. What has moved stays, and the same command again goes on.
const spreadTimeout = 5 * time.Minute

func (s *std) spreadCommand() *cobra.Command {
	var sys natsFlags
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "spread [flags]",
		Short: "Spread the leaders of a system's streams over its NATS servers",
		Long: `spread has the NATS servers lead about as many streams each, and the streams of one kind (the
events of all shards, say) be led by different servers, as far as there are some. Where there are as many shards
as servers, one server leads all of a shard, and the last lines say which: a dispatcher and a worker that serve
this shard (--serve-shards), connected to that server, spare the others the work. Consumers are led where their
stream is. NATS elects leaders without regard to that: after a raise of shards, or when a server was away, one
may lead most of them.

It moves one leader after the other, and only those that make a difference. A stream whose leader moves stores
nothing for a moment; who writes to it asks again, and nothing is lost. Streams of one replica stay.`,
		Example: `  dispatcher spread --dry-run
  dispatcher spread`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.overNATS(cmd.Context(), &sys, "spread", func(nc *nats.Conn) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), spreadTimeout)
				defer cancel()
				b, err := natsbroker.Attach(ctx, nc, "")
				if err != nil {
					return err
				}
				return s.spread(ctx, b, dry, asJSON)
			})
		},
	}
	sys.add(cmd.Flags())
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would move, and move nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document: the moves")
	return cmd
}

// spread moves leaders, and says which.
func (s *std) spread(ctx context.Context, b *natsbroker.Broker, dry, asJSON bool) error {
	all, err := b.Leaders(ctx)
	if err != nil {
		return err
	}
	consumers, err := b.ConsumersOf(ctx, all)
	if err != nil {
		return err
	}
	moves := shard.Spread(all)
	led := shard.After(all, moves)
	moves = append(moves, shard.Join(led, consumers)...)
	p := s.lines()
	for i, m := range moves {
		if !dry {
			if err := b.Lead(ctx, m); err != nil {
				return fmt.Errorf("%d of %d leaders have moved: %w", i, len(moves), err)
			}
		}
		if !asJSON {
			what := strings.TrimSuffix(m.Stream+" "+m.Consumer, " ")
			p.printf("%s: %s to %s\n", cli.OneLine(what), cli.OneLine(m.From), cli.OneLine(m.To))
		}
	}
	if asJSON {
		return printJSON(s.out, append([]shard.Move{}, moves...))
	}
	what := "moved"
	if dry {
		what = "would move"
	}
	servers := map[string]bool{}
	for _, l := range all {
		for _, at := range l.Servers {
			servers[at] = true
		}
	}
	p.printf("%s of %s and %s on %s %s\n", count(len(moves), "leader"), count(len(all), "replicated stream"),
		count(len(consumers), "consumer"), count(len(servers), "server"), what)
	homes := shard.Homes(led)
	for _, n := range slices.Sorted(maps.Keys(homes)) {
		p.printf("shard %d is led by %s\n", n, cli.OneLine(homes[n]))
	}
	return p.err
}
