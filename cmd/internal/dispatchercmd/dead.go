package dispatchercmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
)

// defaultDead is how many dead letters are listed.
const defaultDead = 20

func (s *std) deadCommand() *cobra.Command {
	var sys systemFlags
	var asJSON bool
	var most int
	cmd := &cobra.Command{
		Use:   "dead [flags]",
		Short: "List messages that could not be used, and batches that were given up",
		Long: fmt.Sprintf(`dead lists dead letters, the newest first:

  submission  a message on the batch stream that is no batch, or none that can be read
  call        a message on the work queue that no worker can read
  batch       a batch whose log could not be followed: its open calls ended as internal_error

Each says where the message stood, why it could not be used, and shows the beginning of its data. Whoever waited for
results has been answered where that was possible: nothing waits for a dead letter, and nothing needs to be done to
the queues. The newest %d are kept, for as long as batches are.`, broker.MaxDeadLetters),
		Example: `  dispatcher dead
  dispatcher dead --limit 1 --json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 || most > broker.MaxDeadLetters {
				return cli.Usagef("--limit %d: use 1 to %d", most, broker.MaxDeadLetters)
			}
			return s.ask(cmd.Context(), &sys, "dead", func(ctx context.Context, c *client.Client) error {
				letters, err := c.DeadLetters(ctx, most)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(s.out, letters)
				}
				return s.showDead(letters)
			})
		},
	}
	sys.add(cmd)
	cmd.Flags().IntVar(&most, "limit", defaultDead, "how many to list")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// showDead prints dead letters for a person. Nothing in them is to be trusted, a terminal's control characters least.
func (s *std) showDead(letters []client.DeadLetter) error {
	p := s.lines()
	for _, l := range letters {
		about := cli.OneLine(l.Kind)
		if l.Batch != "" {
			about += fmt.Sprintf("  %s/%s", cli.OneLine(string(l.Agent)), cli.OneLine(string(l.Batch)))
		}
		if l.Call != nil {
			about += fmt.Sprintf(" [%d]", *l.Call)
		}
		p.printf("%s  %s  message %d on %s, %d bytes\n", l.Time.Format(time.RFC3339), about, l.Seq,
			cli.OneLine(l.Subject), l.Bytes)
		p.printf("  found by %s: %s\n", cli.OneLine(l.By), cli.OneLine(l.Cause))
		switch {
		case l.Data != "":
			p.printf("  | %s\n", cut(cli.OneLine(l.Data), shownChars))
		case len(l.DataBase64) > 0:
			p.printf("  | no text; --json has its beginning\n")
		}
	}
	p.printf("%s\n", count(len(letters), "dead letter"))
	if p.err != nil {
		return fmt.Errorf("print the dead letters: %w", p.err)
	}
	return nil
}
