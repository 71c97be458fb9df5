package dispatchercmd

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

var errOverlay = errors.New("that was not done with the overlay")

// maxDiffLines is how many lines of a diff are shown.
const maxDiffLines = 2_000

func (s *std) overlayCommand() *cobra.Command {
	a := acting{out: outputFlags{one: errOverlay, lines: maxDiffLines}}
	var u client.OverlayUse
	cmd := &cobra.Command{
		Use:   "overlay [flags] diff|commit|drop BATCH",
		Short: "Show, commit or drop what a batch has changed in its overlay",
		Long: `overlay is about a batch that was handed in with --overlay: its calls have run on a copy of the workspace. The
batch must be over.

diff says what they have changed there. commit makes those changes in the workspace. If others have changed the same
names since the overlay was made, nothing is changed, and some of those names are given; --force commits all the same.
A commit can be undone with dispatcher undo, by its own id, unless --final is set. drop removes the overlay.

Each is a batch of its own, of the same agent: it waits for its turn in the workspace and stands in the log. commit and
drop need permission for overlay_workspace as for any other tool (--allow overlay_workspace at the worker, or a person
with --interactive).

The exit status is 1 when it was not done.`,
		Example: `  dispatcher overlay diff 01a1ffbe-8b20-73de-9775-9db112e2296a
  dispatcher overlay commit --agent reviewer --interactive nightly-review`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || !slices.Contains(toolyard.OverlayActions, toolyard.OverlayAction(args[0])) {
				return cli.Usagef("give diff, commit or drop, and a batch")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := a.ref.key(args[1])
			if err != nil {
				return err
			}
			u.Action = toolyard.OverlayAction(args[0])
			if u.Action != toolyard.OverlayCommit && (u.Force || u.Final) {
				return cli.Usagef("--force and --final are for commit")
			}
			return s.actOn(cmd.Context(), &a, "overlay", k, u.Batch)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&u.Force, "force", false, "commit although others have changed the same names since: that is lost")
	f.BoolVar(&u.Final, "final", false, "keep no snapshot of what the workspace is before a commit")
	a.add(cmd)
	return cmd
}
