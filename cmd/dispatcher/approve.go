package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
)

func (s *std) approvalsCommand() *cobra.Command {
	var sys systemFlags
	var agent string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "approvals [flags]",
		Short: "List the calls that wait for a person",
		Long: `approvals lists the calls that wait for a person, of all agents or of one, those that were asked about last
first. "dispatcher approve ID" lets one run, "dispatcher deny ID" ends it. A call waits without holding anything, also
while dispatchers and workers are stopped or started; it ends as approval_expired when its time is over.

Only batches that say "interactive": true wait for a person; in others an undecided call is denied at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if agent != "" {
				if err := toolyard.CheckName("--agent", agent); err != nil {
					return err
				}
			}
			return s.attach(cmd.Context(), &sys, "toolyard approvals", func(c *client.Client) error {
				ctx, stop := context.WithTimeout(cmd.Context(), setupTimeout)
				defer stop()
				list, err := c.Approvals(ctx, toolyard.Agent(agent))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(s.out, list)
				}
				p := &show{w: s.out, on: true}
				for _, a := range list {
					p.approval(a)
				}
				p.printf("%s\n", count(len(list), "call waits", "calls wait"))
				return p.err
			})
		},
	}
	sys.add(cmd)
	cmd.Flags().StringVar(&agent, "agent", "", "only calls of this agent (default: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// approval prints what a person is asked. Nothing in it is to be trusted, a terminal's control characters least.
func (s *show) approval(a client.Approval) {
	s.printf("%s\n  %s, %s", a.ID, cli.OneLine(a.Tool), a.Class)
	if a.Destructive {
		s.printf(", may do what cannot be undone")
	}
	s.printf("; call %d of batch %s, agent %s, session %s\n", a.Index, cli.OneLine(string(a.Batch)), cli.OneLine(string(a.Agent)), cli.OneLine(string(a.Session)))
	s.printf("%s", excerpt(string(a.Input)))
	s.printf("  %s\n  asked %s, expires %s\n", cli.OneLine(a.Reason), a.AskedAt.Format(time.RFC3339), a.Expires.Format(time.RFC3339))
	if a.Remember != "" {
		s.printf("  for the session: %s\n", cli.OneLine(a.Remember))
	}
}

// decisionFlags are those of approve and deny.
type decisionFlags struct {
	systemFlags
	by, reason string
}

func (d *decisionFlags) add(cmd *cobra.Command) {
	d.systemFlags.add(cmd)
	cmd.Flags().StringVar(&d.by, "by", "", "who decides (default: the user of this process; with --server it is the token's)")
	cmd.Flags().StringVar(&d.reason, "reason", "", "why: the model is told")
}

// who is the person who decides.
func (d *decisionFlags) who() string {
	if d.by != "" {
		return d.by
	}
	return person()
}

// person names the user of this process.
func person() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// decide hands a decision in, and says so.
func (s *std) decide(ctx context.Context, sys *systemFlags, done string, do func(context.Context, *client.Client) error) error {
	return s.attach(ctx, sys, "toolyard decision", func(c *client.Client) error {
		short, stop := context.WithTimeout(ctx, setupTimeout)
		defer stop()
		if err := do(short, c); err != nil {
			if errors.Is(err, client.ErrNoApproval) {
				return &cli.UsageError{Err: err}
			}
			return err
		}
		_, err := fmt.Fprintln(s.out, done)
		return err
	})
}

func (s *std) approveCommand() *cobra.Command {
	var d decisionFlags
	var input, remember string
	cmd := &cobra.Command{
		Use:   "approve [flags] ID",
		Short: "Let a call run that waits for a person",
		Long: `approve lets a call run that "dispatcher approvals" lists. What runs is what was shown, to the byte; with --input
it is that instead, checked against the tool's schema and rules first. --remember session keeps the approval for the
rest of the session: for the rule that the list shows, and nothing wider.

A call that does not wait (any longer) is an error with exit status 2: somebody else has decided, it was canceled, or its
time is over.`,
		Example: `  dispatcher approve agent-1.01a1ffbe-8b20-73de-9775-9db112e2296a.3
  dispatcher approve --input '{"command": "git push --dry-run"}' agent-1.nightly.0`,
		Args: approvalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if remember != "" && remember != "session" {
				return cli.Usagef("--remember %q: use session, or leave it out", remember)
			}
			decision := client.Decision{By: d.who(), Reason: d.reason, ForSession: remember != ""}
			if input != "" {
				if !json.Valid([]byte(input)) {
					return cli.Usagef("--input is not JSON: %.100s", input)
				}
				decision.Input = json.RawMessage(input)
			}
			return s.decide(cmd.Context(), &d.systemFlags, "approved: the call runs", func(ctx context.Context, c *client.Client) error {
				return c.Approve(ctx, args[0], decision)
			})
		},
	}
	d.add(cmd)
	cmd.Flags().StringVar(&input, "input", "", "run this input instead, as `JSON`")
	cmd.Flags().StringVar(&remember, "remember", "", "session: keep the approval for the rest of the session")
	return cmd
}

func (s *std) denyCommand() *cobra.Command {
	var d decisionFlags
	cmd := &cobra.Command{
		Use:     "deny [flags] ID",
		Short:   "End a call that waits for a person as approval_rejected",
		Example: `  dispatcher deny --reason "not on a Friday" agent-1.01a1ffbe-8b20-73de-9775-9db112e2296a.3`,
		Args:    approvalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.decide(cmd.Context(), &d.systemFlags, "denied: the call ends as approval_rejected", func(ctx context.Context, c *client.Client) error {
				return c.Deny(ctx, args[0], client.Decision{By: d.who(), Reason: d.reason})
			})
		},
	}
	d.add(cmd)
	return cmd
}
