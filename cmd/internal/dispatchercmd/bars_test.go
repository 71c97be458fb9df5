package dispatchercmd

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/tool"
)

// screen is what a terminal shows after it was told all that: as much of one as bars need.
func screen(t *testing.T, told string) []string {
	t.Helper()
	lines, row, column := []string{""}, 0, 0
	for len(told) > 0 {
		var up int
		if n, err := fmt.Sscanf(told, "\x1b[%dA", &up); n == 1 && err == nil {
			if row -= up; row < 0 {
				t.Fatal("up beyond the first line")
			}
			told = told[strings.Index(told, "A")+1:]
			continue
		}
		if rest, ok := strings.CutPrefix(told, "\x1b[J"); ok {
			lines = append(lines[:row], lines[row][:column])
			told = rest
			continue
		}
		switch told[0] {
		case '\x1b':
			t.Fatalf("a terminal is told %q", told[:min(len(told), 10)])
		case '\r':
			column = 0
		case '\n':
			if row++; row == len(lines) {
				lines = append(lines, "")
			}
			column = 0
		default:
			lines[row] = lines[row][:column] + told[:1] // what is overwritten is never longer here
			column++
		}
		told = told[1:]
	}
	return lines
}

func running(index, attempt int, fraction float64, status, output string) client.Progress {
	return client.Progress{Index: index, Tool: "t", Attempt: attempt,
		Progress: tool.Progress{Fraction: fraction, Status: status, Output: output}}
}

// TestBarsLeaveNothingBehind: what is printed stands there as if there had been no bars, which are below it, and in the
// end gone.
func TestBarsLeaveNothingBehind(t *testing.T) {
	var out bytes.Buffer
	now := time.Now()
	b := &bars{w: &out, width: func() int { return 60 }, now: func() time.Time { return now }, calls: map[int]*bar{}}
	say := func(text string) {
		if _, err := fmt.Fprint(b, text); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(want ...string) {
		t.Helper()
		if got := strings.Join(screen(t, out.String()), "\n"); got != strings.Join(append(want, ""), "\n") {
			t.Errorf("the screen shows\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	}
	say("one\n")
	b.report(running(3, 1, 0, "", ""))
	b.report(running(1, 1, 0.5, "half\nway \x1b[31m", ""))
	b.redraw()
	shows("one") // too soon
	now = now.Add(2 * time.Second)
	b.redraw()
	shows("one", "  … [1] t  █████░░░░░  50%   2s  half way \uFFFD[31m", "  … [3] t                    2s")
	say("two\nthree\n")
	b.report(running(3, 1, -1, "", "a\nlast line\n\n"))
	b.report(running(1, 1, 1, "", ""))
	b.redraw()
	shows("one", "two", "three", "  … [3] t                    2s  last line")
	release := b.hold()
	say("a question: ")
	say("y\n")
	b.redraw()
	shows("one", "two", "three", "a question: y")
	release()
	b.report(running(3, 2, 0.999, strings.Repeat("long ", 50), ""))
	now = now.Add(time.Minute)
	b.redraw()
	lines := screen(t, out.String())
	if bar := []rune(lines[4]); len(bar) != 59 || !strings.HasPrefix(lines[4],
		"  … [3] t (attempt 2)  █████████░ 100%") {
		t.Errorf("a long line has %d characters: %s", len(bar), lines[4])
	}
	for i := range 20 {
		b.report(running(10+i, 1, 0, "", ""))
	}
	now = now.Add(time.Second)
	b.redraw()
	if lines := screen(t, out.String()); len(lines) != 4+maxBars+1+1 ||
		!strings.Contains(lines[4+maxBars], "13 calls run more") {
		t.Errorf("many calls: %q", lines)
	}
	for i := range 40 {
		b.done(i)
	}
	b.ask(map[int]string{5: "u", 2: "t"})
	b.redraw()
	shows("one", "two", "three", "a question: y", "  ? [2] t waits for a person: dispatcher approvals",
		"  ? [5] u waits for a person: dispatcher approvals")
	many := map[int]string{}
	for i := range 10 {
		many[i] = "t"
	}
	b.ask(many)
	b.redraw()
	if lines := screen(t, out.String()); len(lines) != 4+maxBars+1+1 || lines[4+maxBars] != "  ? 2 calls wait more" {
		t.Errorf("many that wait: %q", lines)
	}
	b.ask(nil)
	say("four\n")
	shows("one", "two", "three", "a question: y", "four")
}

// TestNobodySeesBars: where nobody watches, nothing is told and what is printed is untouched.
func TestNobodySeesBars(t *testing.T) {
	var out bytes.Buffer
	b := newBars(&out)
	if b != nil {
		t.Fatal("a buffer is no terminal")
	}
	if b.over(&out) != &out {
		t.Error("what is printed goes another way")
	}
	b.done(0)
	b.hold()()
	b.watch(t.Context(), nil, nil)()
	b.watchAsked(t.Context(), nil, nil)()
}

// TestWhoJoinsInTheMiddle sees how long a call runs from its claim on, and not from the first report that was heard. A
// claim of an earlier attempt says nothing about this one.
func TestWhoJoinsInTheMiddle(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 12, 0, time.UTC)
	b := &bars{w: io.Discard, width: func() int { return 60 }, now: func() time.Time { return now },
		calls: map[int]*bar{}}
	b.claimed(client.Event{Type: string(events.CallClaimed), JSON: []byte(`{"specversion":"1.0","id":"e",` +
		`"source":"/worker/w","type":"dev.toolyard.call.claimed.v1","subject":"a/b/2","time":"2026-11-23T08:00:00Z",` +
		`"datacontenttype":"application/json","data":{"worker":"w","attempt":1}}`)})
	for attempt, want := range map[int]string{1: "15s", 2: "3s"} {
		clear(b.calls)
		b.report(running(2, attempt, 0.5, "", ""))
		now = now.Add(3 * time.Second)
		if lines := strings.Join(b.lines(), ""); !strings.Contains(lines, " "+want) {
			t.Errorf("attempt %d: %q, want %s", attempt, lines, want)
		}
		now = now.Add(-3 * time.Second)
	}
	now = now.Add(-time.Hour) // another clock
	if lines := strings.Join(b.lines(), ""); strings.Contains(lines, "-") {
		t.Errorf("%q", lines)
	}
}
