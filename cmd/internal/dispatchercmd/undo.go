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
	a := acting{out: outputFlags{one: errNotUndone}}
	var u client.Undoing
	var group int
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
			k, err := a.ref.key(args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("group") {
				if group < 1 {
					return cli.Usagef("--group %d: use the number of a group as submit shows it, from 1 on", group)
				}
				u.Group = new(group - 1)
			}
			return s.actOn(cmd.Context(), &a, "undo", k, u.Batch)
		},
	}
	f := cmd.Flags()
	f.IntVar(&group, "group", 0, "set the workspace back to what it was before group `N`, counted from 1 "+
		"as submit shows them (default: the first that could change it)")
	f.BoolVar(&u.Force, "force", false, "set it back although others have changed it since: that is lost")
	f.BoolVar(&u.Final, "final", false, "keep no snapshot of what the workspace is now")
	a.add(cmd)
	return cmd
}

// acting are the flags of a command whose batch acts on another one.
type acting struct {
	ref         agentRef
	id          string
	interactive bool
	tags        []string
	out         outputFlags
}

func (a *acting) add(cmd *cobra.Command) {
	a.ref.add(cmd, "batch")
	f := cmd.Flags()
	f.BoolVar(&a.interactive, "interactive", false, "a person can be asked whether it may be done")
	f.StringVar(&a.id, "id", "", "the id of the batch that does it (default: a new one)")
	f.StringArrayVar(&a.tags, "tag", nil, "do it on a worker that has this `TAG`; may be repeated")
	f.BoolVar(&a.out.json, "json", false, "print one JSON document: the batch with its results")
}

// actOn hands in the batch that is made of another one, and shows what comes of it.
func (s *std) actOn(ctx context.Context, a *acting, command string, k toolyard.BatchKey,
	made func(of toolyard.BatchView) (toolyard.Batch, error)) error {
	return s.attach(ctx, &a.ref.systemFlags, command, func(c *client.Client) error {
		k, err := a.ref.whole(ctx, c, k)
		if err != nil {
			return err
		}
		view, err := c.Batch(k).View(ctx)
		if err != nil {
			return misnamed(err)
		}
		b, err := made(view)
		if err != nil {
			return err
		}
		b.ID, b.Interactive = toolyard.BatchID(a.id), a.interactive
		for _, t := range a.tags {
			b.Options.Tags = append(b.Options.Tags, toolyard.Tag(t))
		}
		a.out.goesOn = a.ref.goesOn
		return s.follow(ctx, c, b, a.out)
	})
}
