package replay

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTimelinesFit: on a narrow terminal no line of a call is too long, each call has its line with its end, and bars
// of one batch have one width and stand below each other. On a wide one nothing changes.
func TestTimelinesFit(t *testing.T) {
	logs := map[string]logged{"everything": whole()}
	for _, file := range fixtures(t) {
		logs[filepath.Base(file)] = readLog(t, file)
	}
	for name, log := range logs {
		r := play(log)
		usual := r.Text()
		if got := r.Draw(Look{Columns: 500}); got != usual {
			t.Errorf("%s: on 500 columns it is\n%s\nand not\n%s", name, got, usual)
		}
		longest := 0
		for line := range strings.SplitSeq(usual, "\n") {
			if strings.Contains(line, "|") {
				longest = max(longest, utf8.RuneCountInString(line))
			}
		}
		if longest <= 60 {
			t.Fatalf("%s: no line of a call has more than 60 characters: nothing is tested", name)
		}
		for _, columns := range []int{60, 72, 80, longest - 1, longest} {
			text := r.Draw(Look{Columns: columns})
			bars, begins := map[int]bool{}, map[int]bool{}
			calls := 0
			for line := range strings.SplitSeq(text, "\n") {
				if !strings.HasPrefix(line, "  ✓ [") && !strings.HasPrefix(line, "  ✗ [") &&
					!strings.HasPrefix(line, "  … [") {
					continue
				}
				calls++
				if n := utf8.RuneCountInString(line); n > columns {
					t.Errorf("%s: on %d columns a line has %d: %s", name, columns, n, line)
				}
				if !strings.Contains(line, " ms") && !strings.HasSuffix(line, "open") {
					t.Errorf("%s: on %d columns a call has no time: %s", name, columns, line)
				}
				if parts := strings.Split(line, "|"); len(parts) == 3 {
					bars[utf8.RuneCountInString(parts[1])] = true
					begins[utf8.RuneCountInString(parts[0])] = true
				}
			}
			if calls != len(r.state.Calls) {
				t.Errorf("%s: on %d columns there are lines of %d calls, and not of %d:\n%s", name, columns, calls,
					len(r.state.Calls), text)
			}
			if len(bars) > 1 {
				t.Errorf("%s: on %d columns bars have the widths %v", name, columns, bars)
			}
			if len(begins) > 1 {
				t.Errorf("%s: on %d columns bars begin in the columns %v:\n%s", name, columns, begins, text)
			}
			if columns == longest && text != usual {
				t.Errorf("%s: where all fits it is\n%s\nand not\n%s", name, text, usual)
			}
		}
	}
}

// TestABriefTimelineHasNoPhases: it is the usual one without the lines of phases.
func TestABriefTimelineHasNoPhases(t *testing.T) {
	r := play(whole())
	usual, brief := r.Text(), r.Draw(Look{Brief: true})
	if !strings.Contains(usual, "resolve_tool ") || strings.Contains(brief, "resolve_tool ") {
		t.Errorf("the usual one is\n%s\nand the brief one\n%s", usual, brief)
	}
	for line := range strings.SplitSeq(brief, "\n") {
		if !strings.Contains(usual, line+"\n") {
			t.Errorf("only the brief one has the line %q", line)
		}
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"abcdef", 6, "abcdef"}, {"abcdef", 5, "ab…ef"}, {"abcdefg", 4, "ab…g"}, {"äöüß", 3, "ä…ß"}, {"abc", 2, "ab"},
		{"abc", 0, ""}, {"abc", -1, ""}, {"", 0, ""}} {
		if got := Middle(c.text, c.most); got != c.want {
			t.Errorf("Middle(%q, %d) is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
