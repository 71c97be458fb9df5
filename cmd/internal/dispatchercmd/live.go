package dispatchercmd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/replay"
)

// liveBar is how many characters the bar of a call has.
const liveBar = 16

// liveKey is a key that the live view knows.
type liveKey string

const (
	keyUp      liveKey = "up"
	keyDown    liveKey = "down"
	keyTop     liveKey = "top"
	keyBottom  liveKey = "bottom"
	keyOpen    liveKey = "open"
	keyBack    liveKey = "back"
	keyCancel  liveKey = "cancel"
	keyAll     liveKey = "cancel all"
	keyApprove liveKey = "approve"
	keyYes     liveKey = "yes"
	keyQuit    liveKey = "quit"
	keyStop    liveKey = "interrupt" // ctrl-C
	keyOther   liveKey = ""
)

// liveDeed is what a key asks to be done outside of the view.
type liveDeed struct {
	quit, interrupt bool
	// cancel has the calls to cancel; empty and not nil: all.
	cancel []int
	// decide is the call that a person is to be asked about; -1: none.
	decide int
}

// live is one batch as a person watches it: what is stored of it, what its calls report, and where the person looks. It
// knows no clock and no terminal.
type live struct {
	paint cli.Paint
	state batch.State
	seq   uint64
	// running has the reports of calls, and when the first one came.
	running map[int]*bar
	waiting *client.Waiting

	selected int
	opened   bool
	top      int // the first line that is shown of an opened call
	// sure is what a person is asked about before it is done.
	sure *liveDeed
	note string
}

func newLive(k toolyard.BatchKey, paint cli.Paint) *live {
	return &live{paint: paint, state: batch.State{Key: k}, running: map[int]*bar{}}
}

// apply takes in a stored event.
func (l *live) apply(e client.Event) error {
	l.seq++
	r, err := replay.Decode(e.JSON, l.seq)
	if err != nil {
		return fmt.Errorf("read an event of the batch: %w", err)
	}
	if l.seq == 1 { // where it is the token's, this says whose
		l.state.Key.Agent = e.Batch.Agent
	}
	if err := l.state.Apply(r.Record); err != nil {
		return err
	}
	maps.DeleteFunc(l.running, func(i int, _ *bar) bool {
		return i < len(l.state.Calls) && l.state.Calls[i].Result != nil
	})
	return nil
}

// report takes in what a running call says.
func (l *live) report(p client.Progress, now time.Time) {
	if l.waiting = p.Waiting; p.Waiting != nil {
		return
	}
	if p.Index < len(l.state.Calls) && l.state.Calls[p.Index].Result != nil || p.Fraction == 1 {
		delete(l.running, p.Index)
		return
	}
	one := l.running[p.Index]
	if one == nil || p.Attempt > one.Attempt {
		one = &bar{since: now}
		l.running[p.Index] = one
	}
	one.take(p)
}

// calls is how many there are, as far as is known.
func (l *live) calls() int { return len(l.state.Calls) }

// tool is what a call was for.
func (l *live) tool(i int) string { return cli.OneLine(l.state.Plan.Calls[i].Tool) }

// key takes in a key, and says what is to be done.
func (l *live) key(k liveKey) liveDeed {
	nothing := liveDeed{decide: -1}
	if k == keyStop {
		return liveDeed{interrupt: true, decide: -1}
	}
	if l.sure != nil {
		deed := *l.sure
		l.sure, l.note = nil, ""
		if k == keyYes {
			return deed
		}
		l.note = "not canceled"
		return nothing
	}
	l.note = ""
	last := l.calls() - 1
	move := func(by int) {
		if l.opened {
			l.top = max(0, l.top+by)
			return
		}
		l.selected = max(0, min(l.selected+by, last))
	}
	switch k {
	case keyUp:
		move(-1)
	case keyDown:
		move(1)
	case keyTop:
		move(-l.calls())
	case keyBottom:
		if !l.opened {
			move(l.calls())
		}
	case keyOpen:
		l.opened, l.top = !l.opened && last >= 0, 0
	case keyBack:
		if !l.opened {
			return liveDeed{quit: true, decide: -1}
		}
		l.opened = false
	case keyQuit:
		return liveDeed{quit: true, decide: -1}
	case keyCancel:
		if last < 0 || l.state.Calls[l.selected].Result != nil {
			l.note = "this call has its result"
			break
		}
		l.sure = &liveDeed{cancel: []int{l.selected}, decide: -1}
		l.note = fmt.Sprintf("cancel call [%d] %s? y or n", l.selected, l.tool(l.selected))
	case keyAll:
		if l.state.Completed {
			l.note = "the batch is complete"
			break
		}
		l.sure = &liveDeed{cancel: []int{}, decide: -1}
		l.note = "cancel all calls that have no result? y or n"
	case keyApprove:
		if i := l.asked(); i >= 0 {
			return liveDeed{decide: i}
		}
		l.note = "no call waits for a person"
	}
	return nothing
}

// asked is the call that a person is asked about: the selected one, or else the first; -1: none.
func (l *live) asked() int {
	waits := func(c batch.Call) bool { return c.Status == batch.Waiting }
	if l.selected < l.calls() && waits(l.state.Calls[l.selected]) {
		return l.selected
	}
	return slices.IndexFunc(l.state.Calls, waits)
}

// waits has the calls that wait for a person, and their tools.
func (l *live) waits() map[int]string {
	asked := map[int]string{}
	for i, c := range l.state.Calls {
		if c.Status == batch.Waiting {
			asked[i] = l.tool(i)
		}
	}
	return asked
}

// lines are what a screen of that size shows.
func (l *live) lines(columns, rows int, now time.Time) []string {
	head, foot := l.head(columns, now), l.foot(columns)
	room := max(rows-len(head)-len(foot), 1)
	var body []string
	if l.opened {
		body = l.detail(l.selected, columns)
		l.top = max(0, min(l.top, len(body)-room))
		body = body[l.top:]
	} else {
		var at int
		body, at = l.list(columns, now)
		from := max(0, min(at-room/2, len(body)-room))
		body = body[from:]
	}
	body = body[:min(len(body), room)]
	return slices.Concat(head, body, slices.Repeat([]string{""}, max(0, rows-len(head)-len(body)-len(foot))), foot)
}

func (l *live) head(columns int, now time.Time) []string {
	done := 0
	for _, c := range l.state.Calls {
		if c.Result != nil {
			done++
		}
	}
	parts := []string{"batch " + cli.ShortIDs(cli.OneLine(string(l.state.Key.ID))),
		"agent " + cli.OneLine(string(l.state.Key.Agent)), string(l.state.Status()),
		fmt.Sprintf("%d of %s", done, count(l.calls(), "call"))}
	switch {
	case l.state.Refused != nil:
		parts[2] = "refused"
	case l.waiting != nil && l.state.Plan == nil:
		parts = append(parts, fmt.Sprintf("waits for its turn behind %s", count(l.waiting.Running, "batch", "batches")))
	case !l.state.SubmittedAt.IsZero() && !l.state.Completed:
		parts = append(parts, cli.Human(max(0, now.Sub(l.state.SubmittedAt))))
	}
	return []string{l.paint.Bold(cut(strings.Join(parts, " · "), columns)), ""}
}

func (l *live) foot(columns int) []string {
	keys := "↑↓ select · enter open · c cancel · C cancel all · a approve or deny · q leave"
	if l.opened {
		keys = "↑↓ scroll · enter close · c cancel · a approve or deny · q leave"
	}
	note := cut(l.note, columns)
	if l.note == "" && l.asked() >= 0 {
		note = cut(fmt.Sprintf("call [%d] waits for a person: press a", l.asked()), columns)
	}
	return []string{l.paint.Warn(note), l.paint.Dim(cut(keys, columns))}
}

// list is a line for each call, by group, and where the selected one stands.
func (l *live) list(columns int, now time.Time) (lines []string, at int) {
	if r := l.state.Refused; r != nil {
		return cli.Wrap("it was refused: "+cli.OneLine(r.Detail), columns), 0
	}
	if l.state.Plan == nil {
		return []string{"the batch is not planned yet"}, 0
	}
	tool := 0
	for i := range l.state.Plan.Calls {
		tool = max(tool, min(utf8.RuneCountInString(l.tool(i)), shownTool))
	}
	for g, group := range l.state.Plan.Groups {
		lines = append(lines, l.paint.Bold(fmt.Sprintf("group %d · %s", g+1, how(group.Calls))))
		for _, i := range group.Calls {
			if i == l.selected {
				at = len(lines)
			}
			lines = append(lines, l.line(i, tool, columns, now))
		}
	}
	return lines, at
}

// line is one call.
func (l *live) line(i, tool, columns int, now time.Time) string {
	pointer := " "
	if i == l.selected {
		pointer = ">"
	}
	c := l.state.Calls[i]
	mark, full, took, said, paint := "·", 0.0, "", "waits", l.paint.Dim
	one := l.running[i]
	switch {
	case c.Result != nil && c.Result.IsError:
		mark, full, took, said, paint = "✗", 1, cli.HumanMS(c.Result.DurationMS), string(c.Result.Code), l.paint.Bad
	case c.Result != nil:
		mark, full, took, said, paint = "✓", 1, cli.HumanMS(c.Result.DurationMS), "ok", l.paint.Good
	case c.Status == batch.Waiting:
		mark, said, paint = "?", "waits for a person", l.paint.Warn
	case c.Status == batch.Retrying:
		mark, said, paint = "…", "failed, and is tried again", l.paint.Warn
	case one != nil:
		took = cli.Human(one.ran(claim{c.Attempt, c.ClaimedAt}, now))
		mark, full, said, paint = "…", one.Fraction, cli.OneLine(one.said), same
		if one.Attempt > 1 {
			said = strings.TrimSpace(fmt.Sprintf("attempt %d %s", one.Attempt, said))
		}
	case c.Status == batch.Claimed:
		one = &bar{since: now}
		took = cli.Human(one.ran(claim{one.Attempt, c.ClaimedAt}, now))
		mark, said, paint = "…", "runs", same
	}
	cells := int(full*liveBar + 0.5)
	text := fmt.Sprintf("%s %s [%d] %-*s ", pointer, mark, i, tool, cut(l.tool(i), tool))
	after := fmt.Sprintf(" %*s  %s", shownTime, took, said)
	left := columns - utf8.RuneCountInString(text)
	if left <= liveBar { // no room for a bar
		return cut(text+after, columns)
	}
	return text + paint(strings.Repeat("█", cells)) + l.paint.Dim(strings.Repeat("░", liveBar-cells)) +
		paint(cut(after, left-liveBar))
}

// same paints nothing.
func same(text string) string { return text }

// detail is all that is known of a call.
func (l *live) detail(i, columns int) []string {
	if l.state.Plan == nil || i >= l.calls() {
		return nil
	}
	c, planned := l.state.Calls[i], l.state.Plan.Calls[i]
	lines := []string{l.paint.Bold(fmt.Sprintf("[%d] %s", i, l.tool(i))),
		fmt.Sprintf("  %s (%s)", planned.Judgement.Class, cli.OneLine(planned.Judgement.Why))}
	if c.Worker != "" {
		lines = append(lines, fmt.Sprintf("  worker %s, attempt %d", cli.ShortIDs(cli.OneLine(c.Worker)), c.Attempt))
	}
	lines = append(lines, "", "input")
	input, err := display.Lines(l.state.Inputs()[i], display.Options{Columns: columns - 2})
	for _, line := range input {
		lines = append(lines, "  "+line)
	}
	if err != nil {
		lines = append(lines, "  ! "+cli.OneLine(err.Error()))
	}
	if one := l.running[i]; one != nil && c.Result == nil && one.said != "" {
		lines = append(lines, "", "it says", "  "+cli.OneLine(one.said))
	}
	if c.Result != nil {
		lines = append(lines, "", "result "+cmp.Or(string(c.Result.Code), "ok"))
		for line := range strings.SplitSeq(strings.TrimRight(c.Result.Text(), "\n"), "\n") {
			lines = append(lines, "  "+strings.ReplaceAll(cli.Printable(line), "\t", "  "))
		}
		for _, line := range changed(*c.Result, columns-2) {
			lines = append(lines, "  "+l.paint.Diff(line))
		}
	}
	for j, line := range lines {
		if !strings.Contains(line, "\x1b") {
			lines[j] = cut(line, columns)
		}
	}
	return lines
}
