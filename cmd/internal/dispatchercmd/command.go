// Package dispatchercmd is the command line of the dispatcher, for the programs dispatcher and toolyard.
//
// Its subcommands cover one machine (run: everything in one process, one batch), a service (serve) and what is done to
// a service from outside (submit, watch, replay, cancel, approve, explain, tools). See --help of each.
package dispatchercmd

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// std are the standard streams.
type std struct {
	in       io.Reader
	out, err io.Writer
	log      cli.Log
	// terminal reports whether a person is at the other end of in and err.
	terminal func() bool
	// bars show running calls below what is printed to out; nil where nobody sees them.
	bars *bars
}

// Command makes the command tree. The streams are those of the process.
func Command(in io.Reader, out, errw io.Writer) *cobra.Command {
	s := &std{in: in, out: out, err: errw, bars: newBars(out), terminal: func() bool {
		return isTerminal(in) &&
			isTerminal(errw)
	}}
	root := &cobra.Command{
		Use:   "dispatcher",
		Short: "Runs the tool calls of AI agents on a pool of workers",
		Long: `dispatcher takes the tool calls that a model emitted in one turn, works out which of them
may run together, has workers run them, and answers every one of them in order.

Every flag can also be set by an environment variable (--max-concurrency is
TOOLYARD_MAX_CONCURRENCY) or by a key of a YAML file (--config; the key is the flag's name).
A flag that may be repeated takes one value a line in the environment, a list in the file.

Exit status: 0 done (a tool's error is a result), 1 the system failed, 2 the input or the
flags are wrong, 130 interrupted, 141 the reader of its output has closed it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(out)
	s.log.Add(root.PersistentFlags())
	cli.WithSettings(root)
	root.AddCommand(s.runCommand(), s.serveCommand(), s.mcpCommand(), s.submitCommand(), s.explainCommand(),
		s.toolsCommand(), s.workersCommand(),
		s.watchCommand(), s.replayCommand(), s.cancelCommand(), s.interruptCommand(),
		s.credsCommand(), s.initAuthCommand(),
		s.approvalsCommand(), s.approveCommand(), s.denyCommand(), s.batchesCommand(),
		s.sessionCommand(), s.deadCommand(),
		s.backupCommand(), s.restoreCommand(), s.exportCommand(), s.reportCommand(), s.limitsCommand())
	return root
}
