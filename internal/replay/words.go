package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
)

// maxListed bounds the calls, groups or replies in one line.
const maxListed = 12

// Words describes an event in one line. s is the fold of the batch so far, with or without this event, for the names of
// tools; it may be nil.
func Words(r batch.Record, s *batch.State) string {
	call := func() string {
		calls := r.Calls()
		if len(calls) != 1 {
			return ranges(calls)
		}
		name := fmt.Sprintf("[%d]", calls[0])
		if s != nil && s.Plan != nil && calls[0] >= 0 && calls[0] < len(s.Plan.Calls) {
			name += " " + plain(s.Plan.Calls[calls[0]].Tool)
		}
		return name
	}
	if s != nil && s.Plan != nil && r.Chain == batch.ChainItem && r.Pool != "" && r.Index < len(s.Plan.Calls) &&
		r.Pool != s.Plan.Calls[r.Index].Pool {
		return fmt.Sprintf("[%d] an event for pool %s, where the call is none of its: it changes nothing", r.Index,
			r.Pool)
	}
	switch b := r.Body.(type) {
	case events.Submitted:
		return fmt.Sprintf("submitted: %s in workspace %s, session %s%s", count(len(b.Calls), "call"),
			plain(string(b.Workspace)), plain(string(b.Session)), when(b.Open, ", open for more"))
	case events.Refused:
		return fmt.Sprintf("refused (%d): %s", b.Status, plain(b.Detail))
	case events.Planned:
		start := ""
		if b.Start != nil {
			start = "; " + startWords(*b.Start)
		}
		return fmt.Sprintf("planned by %s: %s %s, %s%s%s", plain(b.Owner), count(len(b.Groups), "group"),
			groupList(b.Groups), plain(string(b.Partition)), answered(b.Results), start)
	case events.Extended:
		return fmt.Sprintf("%s more planned: %s from %d on %s%s%s", count(len(b.Calls), "call"),
			count(len(b.Groups), "group"), b.FirstGroup+
				1, groupList(b.Groups), answered(b.Results), when(b.Closed, "; these were the last"))
	case events.Appended:
		return fmt.Sprintf("%s appended", count(len(b.Calls), "call"))
	case events.Closed:
		return "closed by " + plain(b.By) + because(b.Reason)
	case events.Adopted:
		return fmt.Sprintf("adopted by %s (takeover %d)", plain(b.Owner), b.Takeover)
	case events.Canceled:
		what := "the whole batch"
		if len(b.Calls) > 0 {
			what = ranges(b.Calls)
		}
		return fmt.Sprintf("cancel of %s asked by %s%s", what, plain(b.By), because(b.Reason))
	case events.Interrupted:
		return "the session was interrupted by " + plain(b.By) + because(b.Reason)
	case events.Parked:
		return fmt.Sprintf("parked: only people can move it on; %s of its time are left",
			(time.Duration(b.RemainingMS) * time.Millisecond).Round(time.Millisecond))
	case events.Waiting:
		return call() + " waits for a person" + because(b.Reason)
	case events.Decided:
		said := "no"
		switch {
		case b.Answers:
			return fmt.Sprintf("%s %s answers what its tool asked%s", call(), plain(b.By), because(b.Reason))
		case b.Decision == events.Approve:
			said = "yes"
		case b.Decision == events.Supersede:
			return fmt.Sprintf("%s waits no longer: %s%s", call(), plain(b.By), because(b.Reason))
		}
		return fmt.Sprintf("%s %s says %s%s%s%s", call(), plain(b.By), said,
			when(b.Edited != "", ", with another input"), when(b.Remember != "", ", for the whole "+plain(b.Remember)),
			because(b.Reason))
	case events.Started:
		return startWords(b)
	case events.Settled:
		return "settled without running: " + outcomes(b.Results)
	case events.Claimed:
		return fmt.Sprintf("%s claimed by %s, attempt %d", call(), plain(b.Worker), b.Attempt)
	case events.Returned:
		return fmt.Sprintf("%s given back by %s, not started", call(), plain(b.Worker))
	case events.AttemptFailed:
		return fmt.Sprintf("%s attempt %d failed, to be repeated: %s%s", call(), b.Attempt, b.Code, because(b.Reason))
	case events.Finished:
		results := b.Results()
		said := make([]string, len(results))
		for n := range results {
			res := &results[n]
			said[n] = fmt.Sprintf("[%d] %s finished: %s in %s ms%s", res.Index, plain(res.Tool), outcome(res),
				millis(res.DurationMS), by(res.Worker))
		}
		return strings.Join(said, "; ")
	case events.Reply:
		indices := make([]int, len(b.Results))
		for i := range b.Results {
			indices[i] = b.Results[i].Index
		}
		return strings.TrimSpace("replied "+ranges(indices)) + when(b.Completed, " · the batch is complete")
	case events.Newer:
		return fmt.Sprintf("an event that only a newer version knows (%s, wire version %d)", plain(string(b.Type)),
			b.Needs())
	case events.Unreadable:
		if s != nil && s.EndsInput(r) {
			return "closed by something that cannot be read: " + plain(b.Problem)
		}
		return "something that cannot be read, and changes nothing: " + plain(b.Problem)
	}
	return string(r.Body.EventType())
}

func startWords(s events.Started) string {
	return fmt.Sprintf("group %d started%s%s", s.Group+1, ticketWords(s.Ticket), itemWords(s.Items))
}

// itemWords shows items of several calls: ", in items [0-4] [5-9]".
func itemWords(items []events.Item) string {
	if len(items) == 0 {
		return ""
	}
	var out strings.Builder
	for _, item := range items[:min(len(items), maxListed)] {
		out.WriteString(" " + ranges(item))
	}
	return ", in items" + out.String() + when(len(items) > maxListed, " …")
}

// groupList shows groups by the indices of their calls: [0-2] [3].
func groupList(groups []events.Group) string {
	var out []string
	for _, g := range groups[:min(len(groups), maxListed)] {
		out = append(out, ranges(g.Calls))
	}
	if more := len(groups) - maxListed; more > 0 {
		out = append(out, fmt.Sprintf("… %d more", more))
	}
	return strings.Join(out, " ")
}

// ranges shows indices: [0-2,5].
func ranges(indices []int) string {
	if len(indices) == 0 {
		return ""
	}
	indices = slices.Sorted(slices.Values(indices))
	var parts []string
	for from := 0; from < len(indices); {
		to := from
		for to+1 < len(indices) && indices[to+1] == indices[to]+1 {
			to++
		}
		part := fmt.Sprint(indices[from])
		if to > from {
			part += fmt.Sprintf("-%d", indices[to])
		}
		parts = append(parts, part)
		from = to + 1
	}
	if more := len(parts) - maxListed; more > 0 {
		parts = append(parts[:maxListed], fmt.Sprintf("… %d more", more))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func answered(results []toolyard.Result) string {
	if len(results) == 0 {
		return ""
	}
	return "; answered at once: " + outcomes(results)
}

func outcomes(results []toolyard.Result) string {
	var out []string
	for i := range results[:min(len(results), maxListed)] {
		out = append(out, fmt.Sprintf("[%d] %s", results[i].Index, outcome(&results[i])))
	}
	if more := len(results) - maxListed; more > 0 {
		out = append(out, fmt.Sprintf("… %d more", more))
	}
	return strings.Join(out, ", ")
}

// outcome is a result's code, or "ok".
func outcome(r *toolyard.Result) string {
	switch {
	case r.Code == "":
		return "ok"
	case !r.IsError:
		return "ok (" + plain(string(r.Code)) + ")"
	}
	return plain(string(r.Code))
}

func ticketWords(n uint64) string {
	if n == 0 {
		return ", no ticket"
	}
	return fmt.Sprintf(", ticket %d", n)
}

func by(worker string) string {
	if worker == "" {
		return ""
	}
	return " by " + plain(worker)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + plain(reason)
}

func when(holds bool, text string) string {
	if holds {
		return text
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// plain keeps a text on one line. The printer handles terminal escapes.
func plain(s string) string { return strings.Join(strings.Fields(s), " ") }

func millis(ms float64) string {
	if ms >= 100 || ms <= -100 {
		return fmt.Sprintf("%.0f", ms)
	}
	return fmt.Sprintf("%.2f", ms)
}
