package dispatchercmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
)

func (s *std) approvalsCommand() *cobra.Command {
	var sys systemFlags
	var agent string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "approvals [flags]",
		Short: "List the calls that wait for a person",
		Long: `approvals lists the calls that wait for a person, of all agents or of one, those that were asked about
last first. "dispatcher approve ID" lets one run, "dispatcher deny ID" ends it. All of an input is shown, with what a
terminal hides as marks; one that is too long to be shown cannot be approved. A call waits without holding anything,
also while dispatchers and workers are stopped or started; it ends as approval_expired when its time is over.

Only batches that say "interactive": true wait for a person; in others an undecided call is denied at once.`,
		Example: `  dispatcher approvals --agent reviewer`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if agent != "" {
				if err := toolyard.CheckName("--agent", agent); err != nil {
					return err
				}
			}
			return s.ask(cmd.Context(), &sys, "approvals", func(ctx context.Context, c *client.Client) error {
				list, err := c.Approvals(ctx, toolyard.Agent(agent))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(s.out, list)
				}
				_, err = orEnded(cmd.Context(), func() (struct{}, error) { return struct{}{}, s.listApprovals(list) })
				return err
			})
		},
	}
	sys.add(cmd)
	cmd.Flags().StringVar(&agent, "agent", "", "only calls of this agent (default: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// listApprovals prints what people are asked, page by page on a terminal.
func (s *std) listApprovals(list []client.Approval) error {
	sheet := s.sheetOf(s.out)
	var lines []string
	for _, a := range list {
		text, _ := described(a, sheet.columns, nil) // the lines say what is wrong
		lines = append(lines, text...)
	}
	lines = append(lines, count(len(list), "call waits", "calls wait"))
	k := &asker{sheet, bufio.NewScanner(s.in)}
	if !s.terminal() || !cli.IsTerminal(s.out) {
		k.rows = len(lines) + 2*minRows
	}
	_, err := k.pages(lines, "[q]uit")
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// decisionFlags are those of approve and deny.
type decisionFlags struct {
	systemFlags
	by, reason string
	json       bool
}

// decided is what --json prints of a decision.
type decided struct {
	ID       string `json:"id"`
	Decision string `json:"decision"`     // allow or deny; empty when it still waits
	By       string `json:"by,omitempty"` // not with --server, which records whom the token names
	Reason   string `json:"reason"`
}

func (d *decisionFlags) add(cmd *cobra.Command) {
	d.systemFlags.add(cmd)
	cmd.Flags().StringVar(&d.by, "by", "",
		"who decides (default: the user of this process; with --server it is the token's)")
	cmd.Flags().StringVar(&d.reason, "reason", "", "why: the model is told")
	cmd.Flags().BoolVar(&d.json, "json", false,
		"print one JSON document: the decision; what is shown and asked goes to standard error")
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
func (s *std) decide(ctx context.Context, done string, d *decisionFlags, is decided,
	do func(context.Context) error) error {
	if err := storeDecision(ctx, do); err != nil {
		if errors.Is(err, client.ErrNoApproval) {
			return &cli.UsageError{Err: err}
		}
		return err
	}
	return s.sayDecided(done, d, is)
}

// storeDecision hands a decision in, and says of one that got no answer that it may be stored.
func storeDecision(ctx context.Context, do func(context.Context) error) error {
	err := within(ctx, do)
	if errors.Is(err, client.ErrUnchecked) || !errors.Is(err, client.ErrNoAnswer) &&
		!errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w. It is not known whether the decision is stored: it is not if \"dispatcher approvals\" still "+
		"lists the call", err)
}

// listApprovals is what of an agent waits for a person.
func listApprovals(ctx context.Context, c *client.Client, agent toolyard.Agent) (list []client.Approval, err error) {
	err = within(ctx, func(ctx context.Context) (err error) {
		list, err = c.Approvals(ctx, agent)
		return err
	})
	return list, err
}

func (s *std) sayDecided(done string, d *decisionFlags, is decided) error {
	if d.json {
		if is.Reason = d.reason; d.server == "" {
			is.By = d.who()
		}
		return printJSON(s.out, is)
	}
	_, err := fmt.Fprintln(s.out, done)
	return err
}

func (s *std) approveCommand() *cobra.Command {
	var d decisionFlags
	var input, hash, remember string
	cmd := &cobra.Command{
		Use:   "approve [flags] ID",
		Short: "Let a call run that waits for a person",
		Long: `approve lets a call run that "dispatcher approvals" lists. It shows all of the call, and asks on a
terminal; elsewhere the command is the yes. --input-sha256 says which input was seen before, and nothing else is
approved then: it is the last line that "dispatcher approvals" prints of a call. What runs is what was shown, to the
byte; with --input it is that instead, checked against the tool's schema and rules first. What is too long to be shown
whole cannot be approved, but with --input. --remember session keeps the approval for the rest of the session: for the
rule that the list shows, and nothing wider. Of a call whose tool asks something, --input is the answer to its form.

A call that does not wait (any longer), or waits with another input, is an error with exit status 2: somebody else has
decided, it was canceled, or its time is over.`,
		Example: `  dispatcher approve agent-1.01a1ffbe-8b20-73de-9775-9db112e2296a.3
  dispatcher approve --input '{"command": "git push --dry-run"}' agent-1.nightly.0`,
		Args: approvalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if remember != "" && remember != "session" {
				return cli.Usagef("--remember %q: use session, or leave it out", remember)
			}
			key, _, err := broker.ParseApprovalID(args[0])
			if err != nil {
				return &cli.UsageError{Err: err}
			}
			decision := client.Decision{Verdict: client.Allow, By: d.who(), Reason: d.reason, InputSHA256: hash,
				ForSession: remember != ""}
			switch {
			case input != "" && hash != "":
				return cli.Usagef("--input and --input-sha256 exclude each other")
			case input != "" && !json.Valid([]byte(input)):
				return cli.Usagef("--input is not JSON: %.100s", input)
			case input != "":
				decision.Input = json.RawMessage(input)
			}
			return s.attach(cmd.Context(), &d.systemFlags, "decision", func(c *client.Client) error {
				if hash == "" && (input == "" || s.terminal()) {
					asks := *s
					if d.json {
						asks.out = s.err
					}
					said, seen, err := asks.askBefore(cmd.Context(), c, key.Agent, args[0], &decision)
					if err != nil {
						return err
					}
					if said != yes {
						return s.sayDecided("not approved: it still waits", &d, decided{ID: args[0]})
					}
					decision.InputSHA256 = seen
				}
				return s.decide(cmd.Context(), "approved: the call runs", &d, decided{ID: args[0], Decision: "allow"},
					func(ctx context.Context) error { return c.Decide(ctx, args[0], decision) })
			})
		},
	}
	d.add(cmd)
	cmd.Flags().StringVar(&input, "input", "", "run this input instead, as `JSON`")
	cmd.Flags().StringVar(&hash, "input-sha256", "",
		"approve without asking, if the call waits with the input of this `HASH`, as dispatcher approvals prints it")
	cmd.Flags().StringVar(&remember, "remember", "", "session: keep the approval for the rest of the session")
	return cmd
}

// askBefore shows a call that waits, or what would run instead of it, and asks on a terminal whether it may run. seen
// is the hash of the input that the call waits with.
func (s *std) askBefore(ctx context.Context, c *client.Client, agent toolyard.Agent, id string, d *client.Decision,
) (said answer, seen string, err error) {
	list, err := listApprovals(ctx, c, agent)
	if err != nil {
		return "", "", err
	}
	at := slices.IndexFunc(list, func(a client.Approval) bool { return a.ID == id })
	if at < 0 {
		return "", "", &cli.UsageError{Err: fmt.Errorf("%w: %s is not on the list; see dispatcher approvals",
			client.ErrNoApproval, id)}
	}
	a := list[at]
	seen = a.InputSHA256
	if d.Input != nil {
		a.Input, a.InputSHA256 = d.Input, ""
	}
	if !d.ForSession {
		a.Remember = ""
	}
	k := &asker{s.sheetOf(s.err), bufio.NewScanner(s.in)}
	text, err := described(a, k.columns, nil)
	if err != nil {
		return "", "", &cli.UsageError{Err: err}
	}
	if !s.terminal() {
		_, err := fmt.Fprintln(s.err, strings.Join(text, "\n"))
		return yes, seen, err
	}
	said, err = orEnded(ctx, func() (answer, error) { return k.ask("May this call run?", text, false) })
	return said, seen, err
}

func (s *std) denyCommand() *cobra.Command {
	var d decisionFlags
	cmd := &cobra.Command{
		Use:     "deny [flags] ID",
		Short:   "End a call that waits for a person as approval_rejected",
		Example: `  dispatcher deny --reason "not on a Friday" agent-1.01a1ffbe-8b20-73de-9775-9db112e2296a.3`,
		Args:    approvalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.attach(cmd.Context(), &d.systemFlags, "decision", func(c *client.Client) error {
				return s.decide(cmd.Context(), "denied: the call ends as approval_rejected", &d,
					decided{ID: args[0], Decision: "deny"}, func(ctx context.Context) error {
						return c.Decide(ctx, args[0],
							client.Decision{Verdict: client.Deny, By: d.who(), Reason: d.reason})
					})
			})
		},
	}
	d.add(cmd)
	return cmd
}
