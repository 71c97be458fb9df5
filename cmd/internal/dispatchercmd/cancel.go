package dispatchercmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

// The one arguments of commands.
var (
	fileArg     = cli.OneArg("one FILE (- for standard input)")
	batchArg    = cli.OneArg("the id of one batch")
	approvalArg = cli.OneArg("the id of one approval, as dispatcher approvals lists them")
	sessionArg  = cli.OneArg("the name of one session")
)

// misnamed makes an error about what was named wrongly one of usage.
func misnamed(err error) error {
	if errors.Is(err, client.ErrNoBatch) {
		return cli.Usagef("%w; dispatcher batches lists those that there are, and --agent says whose it is", err)
	}
	for _, is := range []error{client.ErrCompleted, client.ErrNoCall} {
		if errors.Is(err, is) {
			return &cli.UsageError{Err: err}
		}
	}
	return err
}

// canceled is what --json prints of a cancel that is stored. Without calls it is about all of them.
type canceled struct {
	Agent  toolyard.Agent   `json:"agent"`
	Batch  toolyard.BatchID `json:"batch"`
	Reason string           `json:"reason"`
	Calls  []int            `json:"calls"`
}

func (s *std) cancelCommand() *cobra.Command {
	var ref agentRef
	var calls []int
	var reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel [flags] BATCH",
		Short: "Cancel a batch, or some of its calls",
		Long: `cancel asks for the calls of a batch that have no result to end as canceled, or only for those named with
--call. It returns when that is stored, and waits for nothing: whoever waits for the batch gets a result for every
call, as always. A call that has its result keeps it.

A batch that is completed, and one or a call that does not exist, are errors with exit status 2.`,
		Example: `  dispatcher cancel 01a1ffbe-8b20-73de-9775-9db112e2296a
  dispatcher cancel --agent reviewer --call 3 --call 4 --reason "no longer needed" nightly-review`,
		Args: batchArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.NotEmpty(cmd.Flags(), "call"); err != nil {
				return err
			}
			k, err := ref.key(args[0])
			if err != nil {
				return err
			}
			return s.ask(cmd.Context(), &ref.systemFlags, "cancel", func(ctx context.Context, c *client.Client) error {
				k, err := ref.whole(ctx, c, k)
				if err != nil {
					return err
				}
				if err := c.Batch(k).Cancel(ctx, reason, calls...); err != nil {
					return misnamed(err)
				}
				if asJSON {
					return printJSON(s.out, canceled{k.Agent, k.ID, reason, append([]int{}, calls...)})
				}
				what := "all calls without a result end as canceled"
				if len(calls) > 0 {
					what = fmt.Sprintf("calls %v end as canceled, unless they have their result", calls)
				}
				_, err = fmt.Fprintf(s.out, "cancel of batch %s is stored: %s\n", cli.OneLine(k.String()), what)
				return err
			})
		},
	}
	ref.add(cmd, "batch")
	cmd.Flags().IntSliceVar(&calls, "call", nil, "cancel only the call of this index; may be repeated")
	cmd.Flags().StringVar(&reason, "reason", "", "why: the model is told")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document: what is stored")
	return cmd
}
