package dispatchercmd

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/natsd"
)

func (s *std) credsCommand() *cobra.Command {
	var data, agent, pool string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "creds [flags]",
		Short: "Make credentials for an agent, or for the workers of a pool",
		Long: `creds makes credentials for the embedded NATS server whose streams are in --data, and prints the file
that has them. They are for one agent, or for the workers of one pool. The running server takes them at once. Where
they are there already, it prints the file.

An agent with them hands in batches under its name, and reads the results. A worker with them runs the calls of its
pool. Neither reads or writes anything else. Whoever has the file has these rights: give it to nobody else.`,
		Example: `  dispatcher creds --agent reviewer
  dispatcher creds --pool words --data /var/lib/toolyard`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (agent == "") == (pool == "") {
				return cli.Usagef("say for whom: --agent NAME, or --pool NAME")
			}
			p, err := poolNamed("--pool", pool)
			if agent != "" {
				p, err = agentNamed("--agent", agent)
			}
			if err != nil {
				return err
			}
			dir, err := cli.DataDir(data)
			if err != nil {
				return err
			}
			path, err := natsd.FindCreds(cli.CredsDir(dir), p)
			if errors.Is(err, fs.ErrNotExist) {
				return cli.Usagef("--data %s: there is no store of an embedded server with keys to sign with; "+
					"dispatcher serve makes them at its first start", dir)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s.out, struct {
					File string `json:"file"`
				}{path})
			}
			_, err = fmt.Fprintln(s.out, path)
			return err
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "the `NAME` of the agent")
	cmd.Flags().StringVar(&pool, "pool", "", "the `NAME` of the pool")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document: the file")
	cmd.Flags().StringVar(&data, "data", "",
		"where the embedded NATS server keeps its streams (default: toolyard in the user's state directory)")
	return cmd
}
