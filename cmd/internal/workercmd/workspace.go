package workercmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/place"
)

func workspaceCommand(out io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workspace",
		Short: "Say whether a workspace is in quarantine, and end that",
		Long: `A workspace is in quarantine when a command has left something in it that runs or is obeyed by itself, and that could not be
taken away. Every call in it ends as sandbox_violation, on every worker, until an operator has looked at it: docs/quarantine.md.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(statusCommand(out), clearCommand(out))
	return cmd
}

func statusCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:     "status DIR...",
		Short:   "Say whether workspaces are in quarantine, and why",
		Example: `  worker workspace status /srv/web`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, dirs []string) error {
			for _, dir := range dirs {
				err := inWorkspace(dir, func(r *place.Root) error {
					q, err := r.Quarantined()
					if err != nil {
						return err
					}
					text := "in use as usual"
					if q != nil {
						text = fmt.Sprintf("in quarantine since %s: %s", q.Since.Format(time.RFC3339),
							cli.OneLine(q.Why))
						if len(q.Places) > 0 {
							text += "; look at " + cli.OneLine(strings.Join(q.Places, ", "))
						}
					}
					_, err = fmt.Fprintf(out, "%s: %s\n", cli.OneLine(r.Dir()), text)
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func clearCommand(out io.Writer) *cobra.Command {
	keep := false
	cmd := &cobra.Command{
		Use:   "clear DIR",
		Short: "End a workspace's quarantine",
		Long: `clear ends the quarantine of the workspace in DIR. It refuses while something is there that the quarantine is about: look at it and take
it away, or say with --keep that it stays. Workers see it at their next call; none has to be started anew.`,
		Example: `  worker workspace clear /srv/web`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return inWorkspace(args[0], func(r *place.Root) error {
				if err := r.ClearQuarantine(keep); err != nil {
					return fmt.Errorf("%s stays in quarantine: %w", r.Dir(), err)
				}
				_, err := fmt.Fprintf(out, "%s: in use as usual\n", cli.OneLine(r.Dir()))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false,
		"what the quarantine is about stays where it is, and is protected from now on")
	return cmd
}

// inWorkspace does something with a directory that is held for it.
func inWorkspace(dir string, do func(*place.Root) error) error {
	abs, err := cli.Dir("DIR", dir)
	if err != nil {
		return err
	}
	r, err := place.Hold(abs, nil)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read through
	return do(r)
}
