package workercmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/place"
	"github.com/toolyard/toolyard/internal/sandbox"
)

func workspaceCommand(out io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workspace",
		Short: "Say whether a workspace is in quarantine, and end that",
		Long: `A workspace is in quarantine when a command has left something in it that runs or is obeyed by itself,
and that could not be taken away. Every call in it ends as sandbox_violation, on every worker, until an operator has
looked at it: docs/quarantine.md.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(statusCommand(out), clearCommand(out))
	return cmd
}

func statusCommand(out io.Writer) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "status DIR...",
		Short:   "Say whether workspaces are in quarantine, and why",
		Example: `  worker workspace status /srv/web`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("%s takes one DIR or more; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, dirs []string) error {
			found := []workspaceState{}
			for _, dir := range dirs {
				err := inWorkspace(dir, func(r *place.Root) error {
					q, err := r.Quarantined()
					if err != nil {
						return err
					}
					w := workspaceState{Dir: r.Dir()}
					if q != nil {
						w.Since, w.Why, w.Places = &q.Since, q.Why, q.Places
					}
					if found = append(found, w); asJSON {
						return nil
					}
					_, err = fmt.Fprintf(out, "%s: %s\n", cli.OneLine(w.Dir), w.text())
					return err
				})
				if err != nil {
					return err
				}
			}
			if asJSON {
				return json.NewEncoder(out).Encode(found)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// workspaceState is what --json prints of a workspace. Without Since it is in use as usual.
type workspaceState struct {
	Dir    string     `json:"dir"`
	Since  *time.Time `json:"quarantined_since,omitempty"`
	Why    string     `json:"why,omitempty"`
	Places []string   `json:"places,omitempty"`
}

func (w *workspaceState) text() string {
	if w.Since == nil {
		return "in use as usual"
	}
	text := fmt.Sprintf("in quarantine since %s: %s", w.Since.Format(time.RFC3339), cli.OneLine(w.Why))
	if len(w.Places) > 0 {
		text += "; look at " + cli.OneLine(strings.Join(w.Places, ", "))
	}
	return text
}

func clearCommand(out io.Writer) *cobra.Command {
	keep := false
	cmd := &cobra.Command{
		Use:   "clear DIR",
		Short: "End a workspace's quarantine",
		Long: `clear ends the quarantine of the workspace in DIR. It refuses while something is there that the
quarantine is about: look at it and take it away, or say with --keep that it stays. What else is left of the command is
undone. Workers see it at their next call; none has to be started anew.`,
		Example: `  worker workspace clear /srv/web`,
		Args:    cli.OneArg("one DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inWorkspace(args[0], func(r *place.Root) error {
				if err := r.ClearQuarantine(keep); err != nil {
					return fmt.Errorf("%s stays in quarantine: %w", r.Dir(), err)
				}
				// A worker does that too, before its next command. By then somebody may have made what it takes away.
				if err := sandbox.Recover(cmd.Context(), r); err != nil {
					return fmt.Errorf("%s was taken out of quarantine, and what is left of the command is not undone: %w",
						r.Dir(), err)
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
