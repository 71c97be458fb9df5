package dispatchercmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/pause"
	"github.com/toolyard/toolyard/internal/replay"
)

// How running calls are shown on a terminal.
const (
	maxBars   = 8                      // lines; more calls are counted
	barCells  = 10                     // characters of a bar
	barsEvery = 200 * time.Millisecond // between two drawings
	barsAfter = 400 * time.Millisecond // a call that is over sooner is not shown
)

// bars show the progress of running calls below what is printed, on a terminal. What is printed goes through them, so
// that it takes their place and they move down. It is safe for concurrent use; a nil *bars shows nothing.
type bars struct {
	w     io.Writer
	width func() int
	now   func() time.Time

	mu     sync.Mutex
	calls  map[int]*bar
	claims map[int]claim
	// waiting says that the batch waits for its turn; nil when it does not, or nobody says so.
	waiting *client.Waiting
	// asked are the calls that wait for a person who is somewhere else, and their tools.
	asked  map[int]string
	drawn  int // lines below what is printed
	held   int // somebody else writes there
	broken error
}

type bar struct {
	client.Progress
	since time.Time // its first report
	said  string
}

// claim is when an attempt of a call was claimed, as the log has it; the zero claim is none.
type claim struct {
	attempt int
	at      time.Time
}

// ran is how long a call runs: since its claim, or since its first report where it has none. That one may be an old one
// for who joins in the middle. Both clocks may differ.
func (one *bar) ran(c claim, now time.Time) time.Duration {
	since := one.since
	if c.attempt == one.Attempt && !c.at.IsZero() {
		since = c.at
	}
	return max(0, now.Sub(since))
}

// newBars makes bars for what is written to, or nil when nobody sees them.
func newBars(w io.Writer) *bars {
	f, ok := w.(*os.File)
	if !ok || !cli.IsTerminal(w) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &bars{w: w, now: time.Now, calls: map[int]*bar{}, width: func() int { return cli.Columns(f) }}
}

// over is where to print while the bars are there.
func (b *bars) over(w io.Writer) io.Writer {
	if b == nil {
		return w
	}
	return b
}

// Write prints whole lines above the bars.
func (b *bars) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	n, err := b.w.Write(p)
	if bytes.HasSuffix(p, []byte("\n")) {
		b.draw()
	}
	return n, err
}

// watch shows what a batch's calls report until stop is called, which takes all bars away.
func (b *bars) watch(ctx context.Context, batch *client.Batch, log *slog.Logger) (stop func()) {
	if b == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var both sync.WaitGroup
	both.Go(func() {
		for p, err := range batch.Progress(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					log.Debug("progress is not shown any more", "error", err)
				}
				return
			}
			b.report(p)
		}
	})
	both.Go(func() {
		for pause.For(ctx, barsEvery) == nil {
			b.redraw()
		}
	})
	return func() {
		cancel()
		both.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		clear(b.calls)
		b.erase()
	}
}

// watchAsked shows which calls of a batch wait for a person, until stop is called.
func (b *bars) watchAsked(ctx context.Context, batch *client.Batch, log *slog.Logger) (stop func()) {
	if b == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var one sync.WaitGroup
	one.Go(func() {
		seen := newLive(batch.Key(), cli.Paint{})
		for e, err := range batch.Watch(ctx) {
			if err == nil {
				err = seen.apply(e)
			}
			if err != nil {
				if ctx.Err() == nil {
					log.Debug("who waits for a person is not shown any more", "error", err)
				}
				return
			}
			b.ask(seen.waits())
		}
	})
	return func() {
		cancel()
		one.Wait()
		b.ask(nil)
	}
}

// ask takes in which calls wait for a person now; they are drawn when it is time.
func (b *bars) ask(asked map[int]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = asked
}

// report takes a report in; it is drawn when it is time.
func (b *bars) report(p client.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = p.Waiting
	if p.Waiting != nil {
		return
	}
	one := b.calls[p.Index]
	if p.Fraction == 1 { // its result is printed next
		delete(b.calls, p.Index)
		return
	}
	if one == nil || p.Attempt > one.Attempt {
		one = &bar{since: b.now()}
		b.calls[p.Index] = one
	}
	one.take(p)
}

// claimed takes in an event, which may be that a worker has claimed a call.
func (b *bars) claimed(e client.Event) {
	if b == nil || e.Type != string(events.CallClaimed) {
		return
	}
	r, err := replay.Decode(e.JSON, 1)
	if err != nil {
		return // its line says so
	}
	c, ok := r.Record.Body.(events.Claimed)
	if !ok {
		return
	}
	index := c.Call
	if index == 0 { // of the first call of its item
		index = r.Record.Index
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.claims == nil {
		b.claims = map[int]claim{}
	}
	b.claims[index] = claim{c.Attempt, r.Record.Time}
}

// take takes in a report of a run.
func (one *bar) take(p client.Progress) {
	if p.Fraction < 0 {
		p.Fraction = one.Fraction
	}
	one.Progress = p
	if said := lastLine(p.Output); said != "" {
		one.said = said
	}
	if p.Status != "" {
		one.said = p.Status
	}
}

// done is for a call whose result is known.
func (b *bars) done(index int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.calls, index)
}

// hold takes the bars away while somebody else writes on the terminal, until the returned function is called.
func (b *bars) hold() (release func()) {
	if b == nil {
		return func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	b.held++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.held--
	}
}

func (b *bars) redraw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	b.draw()
}

// erase and draw are what a terminal is told. What it does not take is said once, by whoever prints.
func (b *bars) erase() {
	if b.drawn > 0 {
		b.tell(fmt.Sprintf("\x1b[%dA\r\x1b[J", b.drawn)) // up, and everything from there on away
		b.drawn = 0
	}
}

func (b *bars) draw() {
	if b.held > 0 {
		return
	}
	lines := b.lines()
	b.tell(strings.Join(lines, ""))
	b.drawn = len(lines)
}

func (b *bars) tell(s string) {
	if s != "" && b.broken == nil {
		_, b.broken = io.WriteString(b.w, s)
	}
}

// lines are the bars, each with its end.
func (b *bars) lines() (out []string) {
	width, more := b.width(), 0
	for _, i := range slices.Sorted(maps.Keys(b.calls)) {
		one := b.calls[i]
		took := one.ran(b.claims[i], b.now())
		switch {
		case took < barsAfter:
		case len(out) == maxBars:
			more++
		default:
			out = append(out, cut(one.line(took), width-1)+"\n")
		}
	}
	for n, i := range slices.Sorted(maps.Keys(b.asked)) {
		text := fmt.Sprintf("  ? [%d] %s waits for a person: dispatcher approvals", i, b.asked[i])
		if n == maxBars {
			text = fmt.Sprintf("  ? %s more", count(len(b.asked)-n, "call waits", "calls wait"))
		}
		if n <= maxBars {
			out = append(out, cut(text, width-1)+"\n")
		}
	}
	if w := b.waiting; w != nil {
		out = append(out, cut(fmt.Sprintf("  … waits for its turn: %s, %s",
			count(w.Running, "batch runs", "batches run"), count(w.Waiting, "waits", "wait")), width-1)+"\n")
	}
	if more > 0 {
		out = append(out, cut(fmt.Sprintf("  … %s more", count(more, "call runs", "calls run")), width-1)+"\n")
	}
	return out
}

func (one *bar) line(took time.Duration) string {
	how := strings.Repeat(" ", barCells) + "     "
	if one.Fraction > 0 {
		full := int(one.Fraction * barCells)
		how = strings.Repeat("█", full) + strings.Repeat("░", barCells-full) + fmt.Sprintf(" %3.0f%%", 100*one.Fraction)
	}
	again := ""
	if one.Attempt > 1 {
		again = fmt.Sprintf(" (attempt %d)", one.Attempt)
	}
	return strings.TrimRight(fmt.Sprintf("  … [%d] %s%s  %s %4s  %s", one.Index, cli.OneLine(one.Tool), again, how,
		took.Truncate(time.Second), cli.OneLine(one.said)), " ")
}

// cut is a line of so many characters at most: a longer one would take two lines of the terminal.
func cut(line string, most int) string {
	if r := []rune(line); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return line
}

func lastLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range slices.Backward(lines) {
		if strings.TrimSpace(line) != "" {
			return line
		}
	}
	return ""
}
