package dispatchercmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
)

// interrupted is what --json prints of an interrupt that is stored: in so many batches.
type interrupted struct {
	Agent   toolyard.Agent   `json:"agent,omitempty"`
	Session toolyard.Session `json:"session"`
	Reason  string           `json:"reason"`
	Batches int              `json:"batches"`
	// Calls is how many calls were ended with --resolve.
	Calls *int `json:"calls,omitempty"`
}

func (s *std) interruptCommand() *cobra.Command {
	var ref agentRef
	var reason string
	var resolve, asJSON bool
	cmd := &cobra.Command{
		Use:   "interrupt [flags] SESSION",
		Short: "Stop what a session's batches have not begun, and what may be stopped",
		Long: `interrupt asks all batches of a session that are not complete to stop: calls that have not begun end as
canceled, and so do calls that wait for a person. A running call is stopped if its tool says so ("interrupt_behavior":
"cancel"), and waited for otherwise: "dispatcher cancel" stops it all the same. Every call gets a result, as always.

With --resolve it stops nothing, and only ends the calls that wait for a person, as "submit --supersede" does: they end
as approval_expired, and the model is told that nobody decided before the session went on. What runs, and what has not
begun, goes on.

It returns when that is stored. The session goes on with its next batch.`,
		Example: `  dispatcher interrupt --agent reviewer --reason "the user said something else" s-1
  dispatcher interrupt --resolve --agent reviewer s-1`,
		Args: sessionArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			agent, session, err := ref.session(args[0])
			if err != nil {
				return err
			}
			return s.attach(cmd.Context(), &ref.systemFlags, "interrupt", func(c *client.Client) error {
				if resolve {
					is := interrupted{Agent: agent, Session: session, Reason: reason}
					return s.resolve(cmd.Context(), c, is, asJSON)
				}
				n, err := c.Interrupt(cmd.Context(), agent, session, reason)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(s.out, interrupted{Agent: agent, Session: session, Reason: reason, Batches: n})
				}
				if n == 0 {
					_, err = fmt.Fprintf(s.out, "session %s of %s has no batches under way; nothing was interrupted\n",
						cli.OneLine(args[0]), cli.OneLine(whose(agent)))
					return err
				}
				_, err = fmt.Fprintf(s.out, "interrupt of session %s of %s is stored in %s\n", cli.OneLine(args[0]),
					cli.OneLine(whose(agent)), count(n, "batch", "batches"))
				return err
			})
		},
	}
	ref.add(cmd, "session")
	cmd.Flags().StringVar(&reason, "reason", "", "why: the model is told")
	cmd.Flags().BoolVar(&resolve, "resolve", false, "stop nothing, and only end the calls that wait for a person")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document: what is stored")
	return cmd
}

// resolve ends what waits for a person in a session, and says so.
func (s *std) resolve(ctx context.Context, c *client.Client, is interrupted, asJSON bool) error {
	done, err := c.Resolve(ctx, is.Agent, is.Session, person(), is.Reason)
	if err != nil {
		return err
	}
	if asJSON {
		is.Batches, is.Calls = done.Batches, &done.Calls
		return printJSON(s.out, is)
	}
	of := fmt.Sprintf("session %s of %s", cli.OneLine(string(is.Session)), cli.OneLine(whose(is.Agent)))
	if done.Calls == 0 {
		_, err = fmt.Fprintf(s.out, "no call of %s waits for a person; nothing was ended\n", of)
		return err
	}
	_, err = fmt.Fprintf(s.out, "%s of %s waited for a person; that is over, in %s\n", count(done.Calls, "call"), of,
		count(done.Batches, "batch", "batches"))
	return err
}

func (s *std) sessionCommand() *cobra.Command {
	var ref agentRef
	var asJSON, alone, forget bool
	cmd := &cobra.Command{
		Use:   "session [flags] SESSION",
		Short: "Show what is kept of a session, or change it",
		Long: `session shows what is kept of a conversation between its batches: whether somebody is there to ask, the deferred
tools that it has loaded, what people have allowed for the rest of it, what its tools have set, and what is used of the
budgets that it shares. A session that nothing was kept of is shown as a new one. What is changed here counts from the
session's next batch on.`,
		Example: `  dispatcher session --agent reviewer s-1
  dispatcher session --agent reviewer --forget s-1`,
		Args: sessionArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			agent, session, err := ref.session(args[0])
			if err != nil {
				return err
			}
			return s.ask(cmd.Context(), &ref.systemFlags, "session", func(ctx context.Context, c *client.Client) error {
				v, err := c.Session(ctx, agent, session)
				if err == nil && cmd.Flags().Changed("alone") {
					v, err = c.SetUnattended(ctx, agent, session, alone)
				}
				if err == nil && forget {
					v, err = c.Forget(ctx, agent, session)
				}
				switch {
				case err != nil:
					return err
				case asJSON:
					return printJSON(s.out, v)
				}
				p := s.lines()
				p.printf("session %s of %s\n", cli.OneLine(args[0]), cli.OneLine(whose(agent)))
				if v.Unattended {
					p.printf("  alone: nobody is asked\n")
				}
				for _, list := range []struct {
					what  string
					items []string
				}{{"loaded", v.Loaded}, {"allowed", v.Remembered}} {
					for _, item := range list.items {
						p.printf("  %s: %s\n", list.what, cli.OneLine(item))
					}
				}
				for _, k := range slices.Sorted(maps.Keys(v.Context)) {
					p.printf("  set: %s = %s\n", cli.OneLine(k), cut(cli.OneLine(v.Context[k]), shownChars))
				}
				for _, b := range v.Budgets {
					renews := ""
					if !b.Renews.IsZero() {
						renews = ", all of it again at " + b.Renews.Local().Format(time.RFC3339)
					}
					p.printf("  budget of %s: %s used%s\n", cli.OneLine(b.Of), b.Left, renews)
				}
				if v.Changed.IsZero() && len(v.Budgets) == 0 {
					p.printf("  nothing is kept of it\n")
				}
				return p.err
			})
		},
	}
	ref.add(cmd, "session")
	cmd.Flags().BoolVar(&alone, "alone", false, "whether the session has nobody to ask, whatever its batches say")
	cmd.Flags().BoolVar(&forget, "forget", false, "ask again for all that people have allowed in it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func (s *std) batchesCommand() *cobra.Command {
	var sys systemFlags
	var agent, session, status string
	var limit int
	var after uint64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "batches [flags]",
		Short: "List batches by agent, session and status",
		Long: `batches lists batches from the index, the newest first: in the order in which they were submitted, the last one
first. The index is written by the batches' owners and may be a moment behind: "dispatcher watch" and
"dispatcher replay" read the log itself.`,
		Example: `  dispatcher batches --agent reviewer --status waiting`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := client.Filter{Agent: toolyard.Agent(agent), Session: toolyard.Session(session),
				Status: toolyard.Status(status), After: after, Limit: limit}
			if status != "" && !slices.Contains(toolyard.Statuses, f.Status) {
				return cli.Usagef("--status %q: use one of %q", status, toolyard.Statuses)
			}
			if limit < 1 || limit > broker.MaxListed {
				return cli.Usagef("--limit %d: use 1 to %d", limit, broker.MaxListed)
			}
			for _, n := range []struct{ flag, name string }{{"--agent", agent}, {"--session", session}} {
				if n.name != "" {
					if err := toolyard.CheckName(n.flag, n.name); err != nil {
						return err
					}
				}
			}
			return s.attach(cmd.Context(), &sys, "batches", func(c *client.Client) error {
				page, more, err := c.Batches(cmd.Context(), f)
				if err != nil {
					return err
				}
				if asJSON {
					if page == nil {
						page = []client.BatchInfo{}
					}
					return printJSON(s.out, struct {
						Batches []client.BatchInfo `json:"batches"`
						More    bool               `json:"more"`
					}{page, more})
				}
				p := s.lines()
				short := cli.IsTerminal(s.out) && !s.verbose && unambiguous(page)
				p.printf("%s", cli.Table(s.batchRows(page, short, time.Now()), "", p.columns))
				p.printf("%s", count(len(page), "batch", "batches"))
				if more {
					p.printf("; more with --after %d", page[len(page)-1].Cursor)
				}
				p.printf("\n")
				return p.err
			})
		},
	}
	f := cmd.Flags()
	sys.add(cmd)
	f.StringVar(&agent, "agent", "", "only batches of this agent")
	f.StringVar(&session, "session", "", "only batches of this session")
	f.StringVar(&status, "status", "", "only batches that are open, running, waiting, completed or canceled")
	f.IntVar(&limit, "limit", 100, "how many to list")
	f.Uint64Var(&after, "after", 0, "go on behind this place: a page says which (default: begin with the newest)")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// unambiguous reports whether the ids of batches differ when they are shortened.
func unambiguous(page []client.BatchInfo) bool {
	seen := map[string]bool{}
	for _, b := range page {
		id := cli.ShortIDs(string(b.ID))
		if seen[id] {
			return false
		}
		seen[id] = true
	}
	return true
}

// batchRows are batches as a table: how long ago each was submitted, and what is not as usual about it.
func (s *std) batchRows(page []client.BatchInfo, short bool, now time.Time) (rows [][]cli.Cell) {
	paint := s.paint()
	for _, b := range page {
		when := cli.Human(max(0, now.Sub(b.Submitted))) + " ago"
		if s.verbose {
			when = b.Submitted.Format(time.RFC3339)
		}
		status := map[toolyard.Status]func(string) string{toolyard.StatusCompleted: paint.Good,
			toolyard.StatusWaiting: paint.Warn, toolyard.StatusCanceled: paint.Dim}[b.Status]
		about := count(b.Calls, "call")
		if s.verbose || b.Session != toolyard.DefaultSession {
			about += ", session " + cli.OneLine(string(b.Session))
		}
		if s.verbose || b.Workspace != toolyard.DefaultWorkspace {
			about += ", workspace " + cli.OneLine(string(b.Workspace))
		}
		id := cli.OneLine(string(b.ID))
		if short {
			id = cli.ShortIDs(id)
		}
		rows = append(rows, []cli.Cell{{Text: when, Paint: paint.Dim}, {Text: string(b.Status), Paint: status},
			{Text: cli.OneLine(string(b.Agent)) + "/" + id}, {Text: about}})
	}
	return rows
}
