package dispatchercmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

var errNotUndone = errors.New("the batch was not undone")

func (s *std) undoCommand() *cobra.Command {
	ref, out := agentRef{}, outputFlags{one: errNotUndone}
	var u client.Undoing
	var group int
	var tags []string
	var id string
	cmd := &cobra.Command{
		Use:   "undo [flags] BATCH",
		Short: "Set a workspace back to what it was before a batch",
		Long: `undo sets a workspace back to what it was before a batch, or before one group of it. The batch must be
over, and have been handed in with --snapshot.

What sets the workspace back is a batch of its own, of the same agent: it waits for its turn in the workspace, stands
in the log, and needs permission for undo_workspace as for any other tool (--allow undo_workspace at the worker, or a
person with --interactive).

A workspace that others have changed since is left as it is, and what they have changed is named; --force sets it back
all the same. The undoing is kept undoable itself, unless --final is set.

The exit status is 1 when the workspace was not set back.`,
		Example: `  dispatcher undo 01a1ffbe-8b20-73de-9775-9db112e2296a
  dispatcher undo --agent reviewer --group 3 nightly-review`,
		Args: batchArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := ref.key(args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("group") {
				if group < 1 {
					return cli.Usagef("--group %d: use the number of a group as submit shows it, from 1 on", group)
				}
				u.Group = new(group - 1)
			}
			for _, t := range tags {
				u.Tags = append(u.Tags, toolyard.Tag(t))
			}
			u.ID = toolyard.BatchID(id)
			return s.actOn(cmd.Context(), &ref, "undo", k, out, u.Batch)
		},
	}
	ref.add(cmd, "batch")
	f := cmd.Flags()
	f.IntVar(&group, "group", 0, "set the workspace back to what it was before group `N`, counted from 1 "+
		"as submit shows them (default: the first that could change it)")
	f.BoolVar(&u.Force, "force", false, "set it back although others have changed it since: that is lost")
	f.BoolVar(&u.Final, "final", false, "keep no snapshot of what the workspace is now")
	f.BoolVar(&u.Interactive, "interactive", false, "a person can be asked whether it may be set back")
	f.StringVar(&id, "id", "", "the id of the batch that undoes the other (default: a new one)")
	f.StringArrayVar(&tags, "tag", nil, "set it back on a worker that has this `TAG`; may be repeated")
	f.BoolVar(&out.json, "json", false, "print one JSON document: the batch with its results")
	return cmd
}

// actOn hands in a batch that acts on another one, and shows what comes of it.
func (s *std) actOn(ctx context.Context, ref *agentRef, command string, k toolyard.BatchKey, out outputFlags,
	make func(of toolyard.BatchView) (toolyard.Batch, error)) error {
	return s.attach(ctx, &ref.systemFlags, command, func(c *client.Client) error {
		k, err := whole(ctx, c, k)
		if err != nil {
			return err
		}
		view, err := c.Batch(k).View(ctx)
		if err != nil {
			return misnamed(err)
		}
		b, err := make(view)
		if err != nil {
			return err
		}
		return s.follow(ctx, c, b, out)
	})
}
