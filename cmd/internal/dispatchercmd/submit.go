package dispatchercmd

import (
	"time"

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
	var workspace string
	cmd := &cobra.Command{
		Use:   "submit [flags] FILE|-",
		Short: "Hand a batch to a running system and show its results",
		Long: `submit hands the batch in FILE to the dispatchers at --nats or --server, waits for the results and prints them
in the order of the calls. FILE is what "dispatcher run" takes.

Once it is handed in the batch runs to its end, whether or not anybody waits. The same --id again, with the same
content, runs nothing and shows the same results.

A batch can tighten the operator's permission rules, with --deny and --ask, and never loosen them. A rule that names no tool is refused.

The inputs of calls are stored as FILE has them, with any secrets in them, until the batch's lifetime is over. Results and all other
events have their secrets taken out.`,
		Example: `  dispatcher submit examples/explore.json
  dispatcher submit --nats nats://10.0.0.7:4222 --agent reviewer --format openai response.json
  TOOLYARD_TOKEN=... dispatcher submit --server https://tools.example.com batch.json`,
		Args: fileArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := s.log.Logger(s.err)
			if err != nil {
				return err
			}
			format, err := resultFormat(out.format, out.json)
			if err != nil {
				return err
			}
			batch, err := in.read(cmd.Context(), s.in, args[0], toolyard.Workspace(workspace))
			if err != nil {
				return err
			}
			if err := out.open(); err != nil {
				return err
			}
			defer out.close(log)
			if _, _, err := perms.Rules(nil); err != nil {
				return err
			}
			batch.Options.Deny = append(batch.Options.Deny, perms.Deny...)
			batch.Options.Ask = append(batch.Options.Ask, perms.Ask...)
			if sys.server != "" && sys.token != "" && in.unowned {
				batch.Agent = "" // the token says whose it is
			}
			return s.attach(cmd.Context(), &sys, "toolyard submit", func(c *client.Client) error {
				return s.follow(cmd.Context(), c, batch, out, format)
			})
		},
	}
	sys.add(cmd)
	cmd.Flags().StringVar(&workspace, "workspace", "",
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

func (s *std) serveCommand() *cobra.Command {
	var o serveFlags
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Dispatch batches for agents and workers until it is stopped",
		Long: `serve dispatches batches. By itself it embeds a NATS server that keeps its streams in --data and listens
for workers and agents on --nats-listen. That asks them for credentials, which it makes at its first start ("dispatcher
creds" makes more); commands of the same user find them. With --nats URL it uses the NATS system there, beside any number
of other dispatchers. --with-worker adds a worker to the process: then one machine needs nothing else.

Permission rules that deny or ask hold for the calls of all workers. --allow and --permission-mode are for the worker in this
process, with --with-worker; other workers have their own.

Agents use it over NATS, or over HTTP on --listen: docs/http.md and /openapi.json there say how. Without --token-file
that is for this machine only.

The addresses are printed when it is ready. SIGHUP has the files of --rules and --tools read again; what is wrong with
one is logged, and what was read before holds. SIGTERM ends it tidily: the batches that it owned go on with another
dispatcher, or when it is started again.`,
		Example: `  dispatcher serve --with-worker --workspace default=.
  dispatcher serve --nats nats://10.0.0.7:4222 --replicas 3
  dispatcher serve --listen 0.0.0.0:8080 --token-file tokens`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.serve(cmd.Context(), o) },
	}
	o.add(cmd.Flags())
	return cmd
}

// shutdownTimeout bounds the end of the HTTP server.
const shutdownTimeout = 5 * time.Second
