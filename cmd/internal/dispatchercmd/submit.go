package dispatchercmd

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// defaultURL is where dispatcher serve listens for NATS clients unless it is told otherwise.
const defaultURL = "nats://127.0.0.1:4222"

func (s *std) submitCommand() *cobra.Command {
	var in batchFlags
	var out outputFlags
	var perms cli.Permissions
	var sys systemFlags
	var workspace toolyard.Workspace
	cmd := &cobra.Command{
		Use:   "submit [flags] FILE|-",
		Short: "Hand a batch to a running system and show its results",
		Long: `submit hands the batch in FILE to the dispatchers at --nats or --server, waits for the results and
prints them in the order of the calls. FILE is what "dispatcher run" takes.

Once it is handed in the batch runs to its end, whether or not anybody waits: whoever interrupts the wait is told how
to watch the batch, and how to cancel it. The same --id again, with the same
content, runs nothing and shows the same results.

A batch can tighten the operator's permission rules, with --deny and --ask, and never loosen them. A rule that names
no tool is refused.

The inputs of calls are stored as FILE has them, with any secrets in them, until the batch's lifetime is over. Results
and all other events have their secrets taken out.`,
		Example: `  dispatcher submit examples/explore.json
  dispatcher submit --nats nats://10.0.0.7:4222 --agent reviewer --format openai response.json
  TOOLYARD_TOKEN=... dispatcher submit --server https://tools.example.com batch.json`,
		Args: fileArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return s.withBatch(ctx, args[0], workspace, &in, &out, func(batch toolyard.Batch, _ *slog.Logger) error {
				if _, _, err := perms.Rules(nil); err != nil {
					return err
				}
				batch.Options.Deny = append(batch.Options.Deny, perms.Deny...)
				batch.Options.Ask = append(batch.Options.Ask, perms.Ask...)
				if sys.byToken(!in.unowned) {
					batch.Agent = ""
				}
				out.goesOn = sys.goesOn
				return s.attach(ctx, &sys, "submit", func(c *client.Client) error {
					return s.follow(ctx, c, batch, out)
				})
			})
		},
	}
	sys.add(cmd)
	cmd.Flags().StringVar((*string)(&workspace), "workspace", "",
		"the name of the workspace that the calls act on (default: FILE's, or \"default\")")
	cmd.Flags().BoolVar(&in.interactive, "interactive", false,
		"a person can be asked: calls that need one wait for dispatcher approve, and are not denied")
	cmd.Flags().BoolVar(&in.supersede, "supersede", false,
		"end the calls of the session's other batches that wait for a person: the session goes on without them")
	in.add(cmd.Flags())
	in.addPlace(cmd.Flags())
	out.add(cmd)
	perms.AddTightening(cmd.Flags())
	return cmd
}
