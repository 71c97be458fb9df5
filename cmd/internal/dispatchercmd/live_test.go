package dispatchercmd

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/tool"
)

// watched is a batch in the middle of everything, at a time.
func watched() (*live, time.Time) {
	now := time.Date(2026, 11, 23, 8, 0, 12, 0, time.UTC)
	l := newLive(toolyard.BatchKey{Agent: "a", ID: "01a1ffbe-8b20-73de-9775-9db112e2296a"}, cli.Paint{})
	calls := []toolyard.Call{{Tool: "glob", Input: []byte(`{"pattern":"*"}`)}, {Tool: "grep", Input: []byte(`{}`)},
		{Tool: "bash", Input: []byte(`{"command":"make\u001b[2J"}`)}, {Tool: "write_file", Input: []byte(`{}`)},
		{Tool: "b\x1b[2J", Input: []byte(`{}`)}}
	l.state.Submission, l.state.SubmittedAt = &toolyard.Batch{Calls: calls}, now.Add(-12*time.Second)
	l.state.Plan = &events.Planned{Groups: []events.Group{{Calls: []int{0, 1}}, {Calls: []int{2}}, {Calls: []int{3}},
		{Calls: []int{4}}}}
	for _, c := range calls {
		l.state.Plan.Calls = append(l.state.Plan.Calls, events.PlannedCall{Tool: c.Tool})
	}
	l.state.Closed = true
	l.state.Calls = []batch.Call{
		{Status: batch.Finished, Result: &toolyard.Result{DurationMS: 2.5849, Output: "x\n\x1b[2Jy"}},
		{Status: batch.Finished, Result: &toolyard.Result{IsError: true, Code: toolyard.Timeout, DurationMS: 2000}},
		{Status: batch.Claimed, Worker: "w", Attempt: 1, ClaimedAt: now.Add(-9 * time.Second)},
		{Status: batch.Waiting}, {Status: batch.Pending},
	}
	l.report(client.Progress{Index: 2, Tool: "bash", Attempt: 1, Progress: tool.Progress{}}, now.Add(-4*time.Second))
	l.report(client.Progress{Index: 2, Tool: "bash", Attempt: 1,
		Progress: tool.Progress{Fraction: 0.5, Status: "linking\x1b[2J"}}, now)
	return l, now
}

// TestLiveView: a line for each call with a bar, in any size of the screen, and nothing acts on the terminal.
func TestLiveView(t *testing.T) {
	l, now := watched()
	want := strings.Split(`batch …12e2296a · agent a · running · 2 of 5 calls · 12 s

group 1 · together
> ✓ [0] glob       ████████████████   2.6 ms  ok
  ✗ [1] grep       ████████████████    2.0 s  timeout
group 2 · alone
  … [2] bash       ████████░░░░░░░░    9.0 s  linking`+"\ufffd"+`[2J
group 3 · alone
  ? [3] write_file ░░░░░░░░░░░░░░░░           waits for a person
group 4 · alone
  · [4] b`+"\ufffd"+`[2J      ░░░░░░░░░░░░░░░░           waits

call [3] waits for a person: press a
↑↓ select · enter open · c cancel · C cancel all · a approve or deny · q leave`, "\n")
	if d := cmp.Diff(want, l.lines(80, len(want), now)); d != "" {
		t.Errorf("the screen (-want +got):\n%s", d)
	}
	for _, opened := range []bool{false, true} {
		for columns := 20; columns <= 120; columns += 20 {
			for rows := 5; rows <= 40; rows += 7 {
				for call := range 5 {
					l.selected, l.opened = call, opened
					got := l.lines(columns, rows, now)
					if len(got) != rows {
						t.Fatalf("%d lines on a screen of %d", len(got), rows)
					}
					for _, line := range got {
						if utf8.RuneCountInString(line) > columns || strings.ContainsAny(line, "\x1b\r\n") {
							t.Fatalf("a line of %d columns on a screen of %d: %q", utf8.RuneCountInString(line),
								columns, line)
						}
					}
					if shown := strings.Join(got, "\n"); !opened && !strings.Contains(shown, "> ") {
						t.Fatalf("the selected call %d is not shown in %d rows:\n%s", call, rows, shown)
					}
				}
			}
		}
	}
	l.selected, l.opened = 2, true
	if text := strings.Join(l.lines(80, 30, now), "\n"); !strings.Contains(text, "make⟨U+001B escape⟩[2J") {
		t.Errorf("an opened call:\n%s", text)
	}
	empty := newLive(toolyard.BatchKey{ID: "b"}, cli.Paint{})
	if text := strings.Join(empty.lines(80, 10, now), "\n"); !strings.Contains(text, "not planned yet") {
		t.Errorf("before the plan:\n%s", text)
	}
	empty.state.Refused = &events.Refused{Detail: "too many\x1b[2J batches"}
	if text := strings.Join(empty.lines(80, 10, now), "\n"); !strings.Contains(text,
		"it was refused: too many\ufffd[2J batches") {
		t.Errorf("a refusal:\n%s", text)
	}
	for _, k := range []liveKey{keyUp, keyDown, keyTop, keyBottom, keyOpen, keyCancel, keyApprove, keyAll, keyYes} {
		empty.key(k) // must not panic where there is no call
		empty.lines(80, 10, now)
	}
}

// TestLiveKeys: keys move, open, and ask to be sure before something is canceled.
func TestLiveKeys(t *testing.T) {
	nothing := liveDeed{decide: -1}
	for _, c := range []struct {
		name string
		keys []liveKey
		want liveDeed
		note string
	}{
		{"a running call is canceled", []liveKey{keyDown, keyDown, keyCancel, keyYes},
			liveDeed{cancel: []int{2}, decide: -1}, ""},
		{"not sure", []liveKey{keyBottom, keyCancel, keyOther, keyYes}, nothing, ""},
		{"one is asked", []liveKey{keyBottom, keyUp, keyCancel}, nothing, "cancel call [3] write_file? y or n"},
		{"one that is over", []liveKey{keyCancel, keyYes}, nothing, ""},
		{"all", []liveKey{keyAll, keyYes}, liveDeed{cancel: []int{}, decide: -1}, ""},
		{"beyond the ends", []liveKey{keyUp, keyDown, keyDown, keyDown, keyDown, keyDown, keyDown, keyCancel, keyYes},
			liveDeed{cancel: []int{4}, decide: -1}, ""},
		{"approve finds the call that waits", []liveKey{keyApprove}, liveDeed{decide: 3}, ""},
		{"back closes, and then leaves", []liveKey{keyOpen, keyBack, keyBack}, liveDeed{quit: true, decide: -1}, ""},
		{"ctrl-C, whatever is asked", []liveKey{keyAll, keyStop}, liveDeed{interrupt: true, decide: -1},
			"cancel all calls that have no result? y or n"},
	} {
		l, _ := watched()
		var got liveDeed
		for _, k := range c.keys {
			got = l.key(k)
		}
		if d := cmp.Diff(c.want, got, cmp.AllowUnexported(liveDeed{})); d != "" || c.note != "" && l.note != c.note {
			t.Errorf("%s: %s, note %q", c.name, d, l.note)
		}
	}
	for sent, want := range map[string][]liveKey{"\x1b[A": {keyUp},
		"\x1bOB": {keyDown}, "\x1b": {keyBack},
		"\x1b[15~": {keyOther}, "jk": {keyDown, keyUp}, "\x1ba\x1b[B\x1b": {keyBack, keyApprove, keyDown, keyBack},
		"\x03": {keyStop}, "ü": {keyOther}, "\r": {keyOpen}} {
		if got := keysOf(sent); !slices.Equal(got, want) {
			t.Errorf("%q is %q, want %q", sent, got, want)
		}
	}
}
