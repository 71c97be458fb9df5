package dispatchercmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/recall"
	"github.com/toolyard/toolyard/internal/report"
)

// reportRows is how many rows of a list the text shows. --json has all.
const reportRows = 20

// maxReported is what --limit may say.
const maxReported = 1_000_000

func (s *std) reportCommand() *cobra.Command {
	var sys systemFlags
	var of period
	var most int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "report [flags]",
		Short: "Add up what was run: tools, errors, times, waits, denials, questions",
		Long: `report reads the history that the system keeps and adds it up: which tools are called and how
their calls end, how long phases and waits take, which failures abort other calls, what denies
permission, which rules would have spared people questions, and which tools models are offered and
never call. Batches that are under way count as they are now.

Times are to two digits. The tokens of a definition are an estimate: a quarter of its bytes.
--since and --until take a time like 2026-11-23T08:00:00Z, or how long ago, like 36h; they are about
when a batch was submitted.

Over HTTP (--server) the server adds up the newest batches only, and the report says when there are
others. An agent's token gets a report of the agent's own batches.`,
		Example: `  dispatcher report --since 24h
  dispatcher report --json | jq '.tools[] | select(.failed > 0)'`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := of.check(time.Now()); err != nil {
				return err
			}
			if most < 0 || most > maxReported {
				return cli.Usagef("--limit %d: use 1 to %d, or 0 for all", most, maxReported)
			}
			r, err := s.makeReport(cmd.Context(), &sys, recall.Sum{Period: of.of, Most: most})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(s.out, r)
			}
			return printReport(s.out, s.paint(), &r, fits(s.out))
		},
	}
	f := cmd.Flags()
	sys.add(cmd)
	of.add(f)
	f.IntVar(&most, "limit", 0, "add up the newest `N` batches only; 0: all. Not over HTTP")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// makeReport adds up what a system has run, or has its server do so.
func (s *std) makeReport(ctx context.Context, sys *systemFlags, sum recall.Sum) (r report.Report, err error) {
	if sys.server != "" {
		if sum.Most > 0 {
			return r, cli.Usagef("--limit is for --nats: a server has a limit of its own; leave it out")
		}
		err = s.attach(ctx, sys, "report", func(c *client.Client) error {
			data, err := c.Report(ctx, client.ReportFilter(sum.Period))
			if err != nil {
				return err
			}
			return json.Unmarshal(data, &r)
		})
		return r, err
	}
	err = s.overBroker(ctx, &sys.natsFlags, "report", func(b *natsbroker.Broker) error {
		shown := progress{w: s.err, on: cli.IsTerminal(s.err), last: time.Now()}
		sum.See = func(batches, calls int) error { return shown.show(time.Now(), batches, calls) }
		r, err = recall.AddUp(ctx, b, sum)
		return errors.Join(err, shown.clear())
	})
	return r, err
}

// printReport prints a report for people, on lines of at most so many characters; 0 sets no limit. Rules are whole, to
// be copied.
func printReport(w io.Writer, p cli.Paint, r *report.Report, columns int) error {
	var out strings.Builder
	text := func(format string, args ...any) { out.WriteString(fold(fmt.Sprintf(format, args...), columns, 2)) }
	b, c := &r.Batches, &r.Calls
	text("%s: %d completed, %d canceled, %d refused, %d under way, %d unreadable; %d taken over\n",
		count(b.Total, "batch", "batches"), b.Completed, b.Canceled, b.Refused, b.UnderWay, b.Unreadable, b.TakenOver)
	text("%s: %d failed, %d under way; %d tried again, %d of these with success\n", count(c.Total, "call"), c.Failed,
		c.UnderWay, c.Retried, c.RetriesHelped)
	if r.Cut {
		text("Older batches of the period are left out: the oldest that counts is of %s\n",
			r.Oldest.UTC().Format(time.RFC3339))
	}
	section(&out, p, columns, "TOOL\tCALLS\tFAILED\tRETRIED\tP50\tP99\tLONGEST", r.Tools, func(t report.Tool) string {
		return fmt.Sprintf("%s\t%d\t%d\t%d\t%s", cli.OneLine(t.Tool), t.Calls, t.Failed, t.Retried,
			shownTimes(&t.Times))
	})
	section(&out, p, columns, "CODE\tCALLS\tTOOLS", r.Codes, func(c report.Code) string {
		var tools []string
		for _, t := range c.Tools[:min(3, len(c.Tools))] {
			tools = append(tools, fmt.Sprintf("%s %d", cli.OneLine(t.Name), t.Count))
		}
		return fmt.Sprintf("%s\t%d\t%s", c.Code, c.Calls, strings.Join(tools, ", "))
	})
	section(&out, p, columns, "PHASE\tFAILED\tP50\tP99\tLONGEST", r.Phases, func(f report.Phase) string {
		return fmt.Sprintf("%s\t%d\t%s", f.Phase, f.Failed, shownTimes(&f.Times))
	})
	waits := []struct {
		name  string
		times *report.Times
	}{{"queue", &r.Waits.Queue}, {"ticket", &r.Waits.Ticket}, {"approval", &r.Waits.Approval}}
	section(&out, p, columns, "WAIT FOR\tTIMES\tP50\tP99\tLONGEST", waits, func(v struct {
		name  string
		times *report.Times
	}) string {
		return fmt.Sprintf("%s\t%d\t%s", v.name, v.times.Count, shownTimes(v.times))
	})
	section(&out, p, columns, "FAILURES OF\tABORTED CALLS\tIN GROUPS", r.Aborts, func(a report.Abort) string {
		return fmt.Sprintf("%s\t%d\t%d", cli.OneLine(a.Tool), a.Calls, a.Groups)
	})
	section(&out, p, columns, "DENIED\tWHAT DECIDED", r.Denied, func(c report.Count) string {
		return fmt.Sprintf("%d\t%s", c.Count, cli.OneLine(c.Name))
	})
	section(&out, p, columns, "NEVER CALLED\tOFFERED IN\tTOKENS EACH", r.NeverCalled, func(u report.Unused) string {
		return fmt.Sprintf("%s\t%s\tabout %d", cli.OneLine(u.Tool), count(u.Batches, "batch", "batches"), u.Tokens)
	})
	if q := &r.Questions; q.Asked > 0 {
		text("\nPeople were asked about %s: %d allowed, %d denied, %d superseded, %d unanswered, "+
			"%d open.\n", count(q.Asked, "call"), q.Allowed, q.Denied, q.Superseded, q.Unanswered, q.Open)
		if len(q.Rules) > 0 {
			text("These rules would have spared what they allowed. A file for --rules, if you want that:\n\n")
			out.WriteString("allow:\n")
			for _, rule := range q.Rules[:min(reportRows, len(q.Rules))] {
				// Go's quotes are YAML's, and nothing in them acts on a terminal or is not seen.
				fmt.Fprintf(&out, "  - %s # %s\n", strconv.Quote(rule.Name), count(rule.Count, "question"))
			}
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// section writes a table of the first rows of a list, if it has any.
func section[T any](out *strings.Builder, p cli.Paint, columns int, head string, rows []T, line func(T) string) {
	if len(rows) == 0 {
		return
	}
	lines := []string{head}
	for _, row := range rows[:min(reportRows, len(rows))] {
		lines = append(lines, line(row))
	}
	first, rest, _ := strings.Cut(fitTable(lines, columns), "\n")
	out.WriteString("\n" + p.Bold(first) + "\n" + rest)
	if more := len(rows) - reportRows; more > 0 {
		fmt.Fprintf(out, "and %d more; --json has all\n", more)
	}
}

// shownTimes is the half, the most of 99 in 100 and the longest.
func shownTimes(t *report.Times) string {
	if t.Count == 0 {
		return "-\t-\t-"
	}
	return fmt.Sprintf("%s\t%s\t%s", cli.HumanMS(t.P50MS), cli.HumanMS(t.P99MS), cli.HumanMS(t.MaxMS))
}
