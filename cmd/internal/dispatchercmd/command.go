// Package dispatchercmd is the command line of the dispatcher, for the programs dispatcher and toolyard.
//
// Its subcommands cover one machine (run: everything in one process, one batch), a service (serve) and what is done to
// a service from outside (submit, watch, replay, cancel, approve, explain, tools). See --help of each.
package dispatchercmd

import (
	"io"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/provider"
)

// std are the standard streams.
type std struct {
	in       io.Reader
	out, err io.Writer
	log      cli.Log
	// color says when what is printed is painted, and verbose whether it says all that is known.
	color   cli.Color
	verbose bool
	// terminal reports whether a person is at the other end of in and err.
	terminal func() bool
	// bars show running calls below what is printed to out; nil where nobody sees them.
	bars *bars
}

// addStyle adds the flags of how results are printed.
func (s *std) addStyle(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicOutput)()
	s.color.Add(f)
	f.BoolVarP(&s.verbose, "verbose", "v", false, "print more: each call's class, times and phases, and whole ids")
}

// paint is how texts for standard output are painted.
func (s *std) paint() cli.Paint { return s.color.For(s.out) }

// Command makes the command tree. The streams are those of the process.
func Command(in io.Reader, out, errw io.Writer) *cobra.Command {
	s := &std{in: in, out: out, err: errw, bars: newBars(out), terminal: func() bool {
		return cli.IsTerminal(in) &&
			cli.IsTerminal(errw)
	}}
	root := &cobra.Command{
		Use:   "dispatcher",
		Short: "Runs the tool calls of AI agents on a pool of workers",
		Long: `dispatcher takes the tool calls that a model emitted in one turn, works out which of them may run
together, has workers run them, and answers every one of them in order.

Every flag can also be set by an environment variable (--max-concurrency is TOOLYARD_MAX_CONCURRENCY) or by a key of a
YAML file (--config; the key is the flag's name). A flag that may be repeated takes one value a line in the
environment, a list in the file.

Exit status: 0 done (a tool's error is a result), 1 the system failed, or a call did and --fail-on-error is set, 2 the
input or the flags are wrong, 130 interrupted, 141 the reader of its output has closed it.`,
		Example: `  dispatcher run --permission-mode accept_edits batch.json
  dispatcher serve --with-worker --workspace default=.
  dispatcher submit batch.json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(out)
	s.log.Add(root.PersistentFlags())
	s.addStyle(root.PersistentFlags())
	cli.WithSettings(root)
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{RunGroup, "Run and serve", []*cobra.Command{s.runCommand(), s.serveCommand(), s.mcpCommand()}},
		{"batches", "Batches", []*cobra.Command{s.submitCommand(), s.explainCommand(), s.watchCommand(),
			s.replayCommand(), s.batchesCommand(), s.cancelCommand(), s.undoCommand(), s.overlayCommand(),
			s.interruptCommand(),
			s.sessionCommand()}},
		{"people", "Decisions of people", []*cobra.Command{s.approvalsCommand(), s.approveCommand(), s.denyCommand(),
			s.relayCommand()}},
		{"look", "Look at a system", []*cobra.Command{s.doctorCommand(), s.workersCommand(), s.toolsCommand(),
			s.deadCommand(), s.reportCommand(), s.limitsCommand(), s.benchCommand()}},
		{"operate", "Set up and keep", []*cobra.Command{s.initCommand(), s.initAuthCommand(), s.credsCommand(),
			s.settingsCommand(), s.spreadCommand(), s.backupCommand(), s.restoreCommand(), s.exportCommand(),
			s.verifyCommand(), s.signingKeyCommand()}},
		{cli.ProgramGroup, "This program", []*cobra.Command{cli.ManCommand("dispatcher")}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	cli.WithHelp(root, out)
	cli.WithCompletion(root, completions())
	return root
}

// RunGroup is the group of the commands that run calls.
const RunGroup = "run"

// completions are the words that flags take.
func completions() map[string][]string {
	results := []string{string(provider.Native), string(provider.Anthropic), string(provider.OpenAI),
		string(provider.OpenAIChat), string(provider.Gemini)}
	out := cli.Words()
	maps.Copy(out, map[string][]string{
		"input-format": results, "run format": results, "submit format": results,
		"tools format": strings.Split(toolFormats(" "), " "), "export format": {formatJSONLines, formatParquet},
		"partition": listOf(toolyard.Strategies),
		"on-error":  {string(toolyard.CancelGroup), string(toolyard.Continue)},
		"priority":  {string(toolyard.Interactive), string(toolyard.Bulk)},
		"status":    listOf(toolyard.Statuses), "export status": listOf(exportStatuses),
		"replicas": {"1", "3", "5"}, "remember": {"session"},
	})
	return out
}

func listOf[T ~string](words []T) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return out
}
