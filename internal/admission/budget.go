package admission

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/pattern"
)

// Amount is what calls use of a budget, or may use.
type Amount struct {
	// Calls are executions that were started, or may have been. MS is how long the tools ran, in milliseconds, Bytes
	// how long the results are that agents read, and Cost what the tools' declarations say.
	Calls int64 `json:"calls,omitempty"`
	MS    int64 `json:"ms,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	Cost  int64 `json:"cost,omitempty"`
}

// Plus and Minus add and take off an amount.
func (a Amount) Plus(b Amount) Amount {
	return Amount{a.Calls + b.Calls, a.MS + b.MS, a.Bytes + b.Bytes, a.Cost + b.Cost}
}

// Minus takes an amount off.
func (a Amount) Minus(b Amount) Amount {
	return Amount{a.Calls - b.Calls, a.MS - b.MS, a.Bytes - b.Bytes, a.Cost - b.Cost}
}

// Budget is what may be used of each resource. What is 0 is not bounded.
type Budget struct {
	Amount
	// Per is the period in which that may be used: it begins with the first call, and the next with the first call
	// after its end. 0: it is all there is.
	Per time.Duration `json:"per,omitempty"`
}

// String says what may be used.
func (b Budget) String() string {
	var out []string
	for _, r := range []struct {
		most int64
		what string
	}{{b.Calls, "calls"}, {b.MS / 1_000, "seconds"}, {b.Bytes, "bytes"}, {b.Cost, "cost"}} {
		if r.most > 0 {
			out = append(out, fmt.Sprintf("%d %s", r.most, r.what))
		}
	}
	if b.Per > 0 {
		out = append(out, fmt.Sprintf("in %g hours", b.Per.Hours()))
	}
	return strings.Join(out, ", ")
}

// BudgetKind is whose use a budget bounds.
type BudgetKind string

// The kinds: of each agent, of all agents of a name together, of each of their sessions, and of each of their batches.
const (
	BudgetOfAgent   BudgetKind = "agent"
	BudgetOfTeam    BudgetKind = "team"
	BudgetOfSession BudgetKind = "session"
	BudgetOfBatch   BudgetKind = "batch"
)

// BudgetKinds lists them.
var BudgetKinds = []BudgetKind{BudgetOfAgent, BudgetOfTeam, BudgetOfSession, BudgetOfBatch}

// BudgetGrant gives agents, teams, sessions or batches a budget: those of agents of a name, or with a prefix if it ends
// in "*".
type BudgetGrant struct {
	Kind   BudgetKind
	Agents string
	Budget
}

// The limits of budgets. An account is one message, and names are what agents choose.
const (
	MaxBudget        = 1_000_000_000_000 // what one budget may be, in its unit
	MaxBudgetHours   = 24 * 366          // the period of a budget
	MaxBudgetBatches = 2_048             // batches under way that one budget knows; calls of others do not begin
	maxBudgetClosed  = 1_024             // lines of batches that are over which an account remembers
	maxLinesBytes    = 640 << 10         // of the lines of one account; calls of further batches do not begin
	maxClosedBytes   = 128 << 10         // of the lines of batches that are over; those that ended first are forgotten
	budgetClosedFor  = 10 * time.Minute  // for which it does
	lineBytes        = 256               // of a line of which something was used, beside the names in it
	closedBytes      = 40                // of a line of a batch that is over, beside the names in it
)

// ParseBudget reads a budget: KIND AGENTS=KEY:N,KEY:N, of the kinds agent, team, session and batch, and the keys calls,
// seconds, bytes, cost and per-hours.
func ParseBudget(text string) (g BudgetGrant, err error) {
	kind, rest, _ := strings.Cut(text, " ")
	g.Kind = BudgetKind(kind)
	if !slices.Contains(BudgetKinds, g.Kind) {
		return g, fmt.Errorf("%q: a budget is of one of %q", text, BudgetKinds)
	}
	agents, list, ok := strings.Cut(strings.TrimSpace(rest), "=")
	g.Agents = agents
	if !ok || list == "" {
		return g, fmt.Errorf("%q: write %s AGENTS=KEY:N,KEY:N", text, kind)
	}
	if err := pattern.Check(agents); err != nil {
		return g, fmt.Errorf("%q: the name of agents: %w", text, err)
	}
	var calls, seconds, bytes, cost, hours int
	err = parseKeys(text, list, []key{{"calls", &calls, MaxBudget}, {"seconds", &seconds, MaxBudget / 1_000},
		{"bytes", &bytes, MaxBudget}, {"cost", &cost, MaxBudget}, {"per-hours", &hours, MaxBudgetHours}})
	g.Amount = Amount{int64(calls), int64(seconds) * 1_000, int64(bytes), int64(cost)}
	g.Per = time.Duration(hours) * time.Hour
	switch {
	case err != nil:
	case g.Amount == Amount{}:
		err = fmt.Errorf("%q bounds nothing: name calls, seconds, bytes or cost", text)
	case hours > 0 && (g.Kind == BudgetOfSession || g.Kind == BudgetOfBatch):
		err = fmt.Errorf("%q: a budget of a %s has no per-hours", text, g.Kind)
	}
	return g, err
}

// Budgets are the budgets of a system. Of each kind the first that matches an agent counts.
type Budgets []BudgetGrant

// Owed is one budget that a batch is under. Account is the name of its account; empty for a budget of the batch alone,
// which needs none.
type Owed struct {
	Kind    BudgetKind
	Account string
	Budget  Budget
}

// Of returns the budgets of a batch: that of the batch itself first.
func (g Budgets) Of(a toolyard.Agent, s toolyard.Session) (out []Owed) {
	for _, kind := range []BudgetKind{BudgetOfBatch, BudgetOfSession, BudgetOfAgent, BudgetOfTeam} {
		for i := range g {
			if g[i].Kind != kind || !pattern.Matches(g[i].Agents, string(a)) {
				continue
			}
			o := Owed{Kind: kind, Budget: g[i].Budget}
			switch kind {
			case BudgetOfBatch:
			case BudgetOfSession:
				o.Account = SessionAccount(a, s)
			case BudgetOfAgent:
				o.Account = AgentAccount(a)
			case BudgetOfTeam:
				o.Account = TeamAccount(g[i].Agents)
			}
			out = append(out, o)
			break
		}
	}
	return out
}

// SessionAccount, AgentAccount and TeamAccount name the accounts of a session, of an agent and of a team. Names are
// escaped where two of them stand in one text: a name may have any character.
func SessionAccount(a toolyard.Agent, s toolyard.Session) string {
	return fmt.Sprintf("session %s of %s", url.PathEscape(string(s)), url.PathEscape(string(a)))
}

// AgentAccount names the account of an agent.
func AgentAccount(a toolyard.Agent) string { return "agent " + string(a) }

// TeamAccount names the account of all agents of a name.
func TeamAccount(agents string) string { return "team " + agents }

// Text names the budget for people.
func (o *Owed) Text() string {
	if o.Account == "" {
		return "this batch"
	}
	return o.Account
}

// Account is what is known of a budget that several batches share: a value that their owners change by compare and set.
// The zero Account is a new one.
//
// Each batch under way has a line of its own, which its owner sets to what the batch's log says. So whoever owns a
// batch next sets the same, and nothing is counted twice. When a batch is over, its line is closed: after its last
// reply, behind which no owner sets one.
type Account struct {
	// Limit is the budget as it was when the account changed last, for readers.
	Limit Budget `json:"limit"`
	// Since is when the period began, and Used what batches have used in it that are over.
	Since time.Time       `json:"since,omitzero"`
	Used  Amount          `json:"used,omitzero"`
	Lines map[string]Line `json:"lines,omitempty"`
	// Closed are the lines that were closed not long ago, with the time: a former owner that was silent sets none
	// again.
	Closed map[string]time.Time `json:"closed,omitempty"`
}

// Line is what one batch has used, and what it may use with the calls that are in flight. Before is what it had used
// when the period began. Term is that of the owner who has set it.
type Line struct {
	Used     Amount `json:"used,omitzero"`
	Before   Amount `json:"before,omitzero"`
	Reserved Amount `json:"reserved,omitzero"`
	Term     int    `json:"term,omitempty"`
	// Until is when the calls in flight are over at the latest, and End when the batch is. An owner that does not know
	// of the budget closes no line: it counts for no longer than lineGrace behind these.
	Until time.Time `json:"until,omitzero"`
	End   time.Time `json:"end,omitzero"`
}

// lineGrace is how much longer a line counts than its batch says. Clocks differ, and an end takes a while.
const lineGrace = 10 * time.Minute

// LineOf names the line of a batch.
func LineOf(k toolyard.BatchKey) string {
	return url.PathEscape(string(k.Agent)) + "/" + url.PathEscape(string(k.ID))
}

// Holder is who sets a line: an owner of the batch. Term is how often the batch was taken over before. Until and End
// are those of the line.
type Holder struct {
	Line       string
	Term       int
	Until, End time.Time
}

// ErrPassed says that a batch has another owner, or is over: who sets its line is a former owner.
var ErrPassed = errors.New("another owner has set the batch's line since, or closed it")

// Total is what is used of the account in its period, and what is reserved.
func (a *Account) Total() (used, reserved Amount) {
	used = a.Used
	for _, l := range a.Lines {
		used, reserved = used.Plus(l.Used.Minus(l.Before)), reserved.Plus(l.Reserved)
	}
	return used, reserved
}

// copied is the account with a map of its own, and in the period of a time.
func (a *Account) copied(b Budget, now time.Time) Account {
	out := *a
	out.Limit, out.Lines = b, maps.Clone(a.Lines)
	if out.Lines == nil {
		out.Lines = map[string]Line{}
	}
	for name, l := range out.Lines {
		switch {
		case !l.End.IsZero() && now.After(l.End.Add(lineGrace)):
			out.Used = out.Used.Plus(l.Used.Minus(l.Before))
			delete(out.Lines, name)
		case !l.Until.IsZero() && now.After(l.Until.Add(lineGrace)):
			l.Reserved = Amount{}
			out.Lines[name] = l
		}
	}
	switch {
	case out.Since.IsZero(), now.Before(out.Since): // who began the period had a clock that was ahead
		out.Since = now.UTC()
	case b.Per > 0 && now.Sub(out.Since) >= b.Per:
		out.Since, out.Used = now.UTC(), Amount{}
		for name, l := range out.Lines {
			l.Before = l.Used
			out.Lines[name] = l
		}
	}
	return out
}

// At is the account as it stands at a time, for whoever looks at it. It is stored only when a call is reserved or
// settled: behind the end of its period nothing is used, and what batches had reserved that are over is there again.
func (a *Account) At(now time.Time) Account {
	out := a.copied(a.Limit, now)
	out.Since = a.Since // the next period begins with a call
	return out
}

// Reserve sets a batch's line to what it has used and reserved so far, and reserves as many of the calls to come as
// fit, in their order. It returns how many, and which resource the next one is past; "" if all fit. A former owner gets
// [ErrPassed]: it knows of fewer calls than the next one.
func (a *Account) Reserve(h Holder, b Budget, used, reserved Amount, calls []Amount, now time.Time,
) (next Account, fit int, past string, err error) {
	next = a.copied(b, now)
	l, known := next.Lines[h.Line]
	if _, closed := a.Closed[h.Line]; closed || l.Term > h.Term {
		return *a, 0, "", ErrPassed
	}
	if !known && !next.hasLineFor(h.Line) {
		return *a, 0, "batches under way", nil
	}
	l.Used, l.Reserved, l.Term, l.Until, l.End = used, reserved, h.Term, h.Until, h.End
	if known && next.Since.After(a.Since) { // a period has begun
		l.Before = used
	}
	next.Lines[h.Line] = l
	for _, c := range calls {
		if past = next.past(b, c); past != "" {
			return next, fit, past, nil
		}
		l.Reserved = l.Reserved.Plus(c)
		next.Lines[h.Line] = l
		fit++
	}
	return next, fit, "", nil
}

// past says which resource of the budget a further call is past; "" if there is room for it.
func (a *Account) past(b Budget, call Amount) string {
	used, reserved := a.Total()
	return b.past(used.Plus(reserved), call)
}

// past says which resource a further call is past, beside what is used: it needs all that it is known to use, and
// something of what nobody knows before.
func (b Budget) past(used, call Amount) string {
	switch most := b.Amount; {
	case most.Calls > 0 && used.Calls+call.Calls > most.Calls:
		return "calls"
	case most.Cost > 0 && used.Cost+call.Cost > most.Cost:
		return "cost"
	case most.MS > 0 && used.MS >= most.MS:
		return "seconds"
	case most.Bytes > 0 && used.Bytes >= most.Bytes:
		return "bytes"
	}
	return ""
}

// Fit is how many of the calls to come fit into a budget of one batch, and which resource the next one is past.
func (b Budget) Fit(used, reserved Amount, calls []Amount) (fit int, past string) {
	used = used.Plus(reserved)
	for _, c := range calls {
		if past = b.past(used, c); past != "" {
			return fit, past
		}
		used = used.Plus(c)
		fit++
	}
	return fit, ""
}

// Settle sets a batch's line to what it has used and reserved. A former owner gets [ErrPassed].
func (a *Account) Settle(h Holder, b Budget, used, reserved Amount, now time.Time) (Account, error) {
	next, _, _, err := a.Reserve(h, b, used, reserved, nil, now)
	return next, err
}

// Abandon ends the line of a batch that was given up, if it has one: its log cannot be followed, so all that was
// reserved may have been used.
func (a *Account) Abandon(line string, now time.Time) Account {
	l := a.Lines[line]
	return a.Close(line, l.Used.Plus(l.Reserved), now)
}

// Close ends the line of a batch that is over, if it has one: what it has used stays.
func (a *Account) Close(line string, used Amount, now time.Time) Account {
	l, ok := a.Lines[line]
	if !ok {
		return *a
	}
	next := *a
	next.Closed = maps.Clone(a.Closed)
	if next.Closed == nil {
		next.Closed = map[string]time.Time{}
	}
	maps.DeleteFunc(next.Closed, func(_ string, at time.Time) bool { return now.Sub(at) > budgetClosedFor })
	forgetClosed(next.Closed, line)
	next.Closed[line] = now.UTC()
	next.Lines = maps.Clone(a.Lines)
	delete(next.Lines, line)
	next.Used = a.Used.Plus(used).Minus(l.Before)
	return next
}

// forgetClosed makes room for one line that is closed: who has been silent for longest is the least likely to come
// back.
func forgetClosed(closed map[string]time.Time, line string) {
	bytes := bytesOf(maps.Keys(closed), closedBytes) + nameBytes(line) + closedBytes
	oldest := slices.SortedFunc(maps.Keys(closed), func(x, y string) int {
		return cmp.Or(closed[x].Compare(closed[y]), strings.Compare(x, y))
	})
	for _, name := range oldest {
		if len(closed) < maxBudgetClosed && bytes <= maxClosedBytes {
			return
		}
		bytes -= nameBytes(name) + closedBytes
		delete(closed, name)
	}
}

// hasLineFor reports whether an account has room for one more line.
func (a *Account) hasLineFor(name string) bool {
	return len(a.Lines) < MaxBudgetBatches &&
		bytesOf(maps.Keys(a.Lines), lineBytes)+nameBytes(name)+lineBytes <= maxLinesBytes
}

// bytesOf is how long lines are that have so much beside their names.
func bytesOf(names iter.Seq[string], beside int) (n int) {
	for name := range names {
		n += nameBytes(name) + beside
	}
	return n
}

// nameBytes is how long the name of a line is. Of its characters, JSON escapes one.
func nameBytes(name string) int { return len(name) + len(`u0026`)*strings.Count(name, "&") }

// Renews is when the next period begins, if there is one.
func (a *Account) Renews() (time.Time, bool) {
	return a.Since.Add(a.Limit.Per), a.Limit.Per > 0 && !a.Since.IsZero()
}

// Left says what is used of an account, for people: "12 of 1000 calls, 3.5 of 60 seconds".
func (a *Account) Left() string {
	used, reserved := a.Total()
	var out []string
	for _, r := range []struct {
		used, reserved, most, unit int64
		what                       string
	}{
		{used.Calls, reserved.Calls, a.Limit.Calls, 1, "calls"}, {used.MS, reserved.MS, a.Limit.MS, 1_000, "seconds"},
		{used.Bytes, reserved.Bytes, a.Limit.Bytes, 1, "bytes"}, {used.Cost, reserved.Cost, a.Limit.Cost, 1, "cost"},
	} {
		if r.most == 0 {
			continue
		}
		text := fmt.Sprintf("%g of %d %s", float64(r.used)/float64(r.unit), r.most/r.unit, r.what)
		if r.reserved > 0 {
			text += fmt.Sprintf(" and %g reserved", float64(r.reserved)/float64(r.unit))
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}
