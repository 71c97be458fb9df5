package dispatchercmd

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/report"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// tooLong are the lines of a text that have more than so many characters.
func tooLong(text string, columns int) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if utf8.RuneCountInString(line) > columns {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestFold: lines that fit stay to the byte. Longer ones are broken between words, all of which are there, and only a
// word that is longer than a line loses its middle.
func TestFold(t *testing.T) {
	word := strings.Repeat("w", 58) + "end"
	for _, c := range []struct {
		text            string
		columns, indent int
		want            string
	}{
		{"  two  blanks\n\n    stay\n", 60, 2, "  two  blanks\n\n    stay\n"},
		{"long lines " + word, 0, 2, "long lines " + word},
		{"  aa bb cc dd", 8, 2, "  aa bb\n    cc\n    dd"},
		{"aa bb cc dd ee", 8, 3, "aa bb cc\n   dd ee"},
		{"first\n  aäa bßb c\nlast", 9, 1, "first\n  aäa bßb\n   c\nlast"},
		{"by " + word + " now", 60, 2, "by\n  " + word[:29] + "…" + word[len(word)-28:] + "\n  now"},
	} {
		if got := fold(c.text, c.columns, c.indent); got != c.want {
			t.Errorf("fold(%q, %d, %d) is\n%s\nand not\n%s", c.text, c.columns, c.indent, got, c.want)
		}
	}
}

// TestFitTable: a table that fits is as ever. In one that does not, the longest texts lose their middle, and the
// columns still stand below each other.
func TestFitTable(t *testing.T) {
	long := "mcp__a_server_of_ours__a_tool_with_a_long_name"
	rows := []string{"TOOL\tCALLS\tBY", "grep\t1\tmode", long + "\t1024\t" + strings.Repeat("rule ", 12) + "end"}
	if a, b := fitTable(rows, 0), fitTable(rows, 500); a != b || len(tooLong(a, 100)) != 1 ||
		!strings.Contains(a, long) {
		t.Errorf("without a limit it is\n%s\nand on a wide terminal\n%s", a, b)
	}
	for _, columns := range []int{60, 61, 80, 100} {
		got := fitTable(rows, columns)
		lines := strings.Split(got, "\n")
		at := strings.Index(lines[0], "CALLS")
		if len(tooLong(got, columns)) > 0 || len(lines) != 4 || !strings.HasPrefix(lines[2], "mcp__") ||
			!strings.HasSuffix(lines[2], "end") || strings.Index(lines[1], "1") != at ||
			utf8.RuneCountInString(lines[2][:strings.Index(lines[2], "1024")]) != at {
			t.Errorf("on %d columns it is\n%s", columns, got)
		}
	}
	least := []string{"a\tb", strings.Repeat("x", 30) + "\t" + strings.Repeat("y", 30)}
	if got := fitTable(least, 10); !strings.Contains(got, "xxxxx…xxxx  yyyyy…yyyy\n") {
		t.Errorf("where not even the least fits it is\n%s", got)
	}
}

// TestReportFits: no line of a report is too long for a terminal, but a rule, which is to be copied. Off a terminal
// nothing is cut.
func TestReportFits(t *testing.T) {
	tool, rule := "mcp__tracker__"+strings.Repeat("long_", 10)+"name", "bash("+strings.Repeat("make all ", 10)+")"
	times := report.Times{Count: 3, P50MS: 1234.5, P99MS: 9876, MaxMS: 65000}
	r := report.Report{
		Batches: report.Batches{Total: 1234567, Completed: 1234000, Canceled: 567},
		Calls:   report.Calls{Total: 9876543, Failed: 12345, Retried: 345, RetriesHelped: 123},
		Tools:   []report.Tool{{Tool: tool, Calls: 12345, Failed: 89, Times: times}, {Tool: "grep", Calls: 1}},
		Codes: []report.Code{{Code: toolyard.SchemaValidationFailed, Calls: 12,
			Tools: []report.Count{{Name: tool, Count: 7}, {Name: "grep", Count: 5}}}},
		Denied:      []report.Count{{Name: "rule deny: " + rule, Count: 3}},
		NeverCalled: []report.Unused{{Tool: tool, Batches: 3, Tokens: 1234}},
		Questions:   report.Questions{Asked: 3, Allowed: 3, Rules: []report.Count{{Name: rule, Count: 3}}},
		Cut:         true, Oldest: time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC),
	}
	text := func(columns int) string {
		var out strings.Builder
		must.OK(t, printReport(&out, cli.Paint{}, &r, columns))
		return out.String()
	}
	piped := text(0)
	if !strings.Contains(piped, "\nOlder batches of the period are left out: the oldest that counts is of "+
		"2026-11-23T08:00:00Z\n") {
		t.Errorf("it does not say what is left out:\n%s", piped)
	}
	if n := strings.Count(piped, tool); n != 3 || len(tooLong(piped, 80)) < 4 || piped != text(500) {
		t.Errorf("off a terminal a long name stands there %d times, want 3:\n%s", n, piped)
	}
	for _, columns := range []int{60, 80, 100} {
		got := text(columns)
		long := slices.DeleteFunc(tooLong(got, columns), func(line string) bool {
			return strings.HasPrefix(line, `  - "`+rule+`" # 3 questions`)
		})
		if len(long) > 0 || !strings.Contains(got, rule) {
			t.Errorf("on %d columns these lines are too long: %q\n%s", columns, long, got)
		}
	}
}

// TestARulesOwnTextIsQuoted: what a terminal acts on, or does not show, is an escape in the rules that a report has to
// be copied: a rule names a path that a model may have chosen.
func TestARulesOwnTextIsQuoted(t *testing.T) {
	const rule = "write_file(./a\u202eb\u009b2J\u200bc\U000e0041 \"d\" é)"
	r := report.Report{Questions: report.Questions{Asked: 1, Allowed: 1, Rules: []report.Count{{Name: rule, Count: 1}}}}
	var out strings.Builder
	must.OK(t, printReport(&out, cli.Paint{}, &r, 0))
	for _, r := range out.String() {
		if r != '\n' && !strconv.IsPrint(r) {
			t.Errorf("the report has %U:\n%s", r, out.String())
		}
	}
	file := out.String()[strings.Index(out.String(), "allow:\n"):]
	var rules struct{ Allow []string }
	if err := yaml.Unmarshal([]byte(file), &rules); err != nil || len(rules.Allow) != 1 || rules.Allow[0] != rule {
		t.Errorf("%q is read as %q, %v", file, rules.Allow, err)
	}
}

// TestTimelinesAndReportsHaveColours: headings and marks have those of the other commands, and a table's head does not
// move because of them.
func TestTimelinesAndReportsHaveColours(t *testing.T) {
	var color cli.Color
	must.OK(t, color.Set("always"))
	paint := color.For(io.Discard)
	got := paintTimeline(paint, "batch b · 2 calls\n\ngroup 1 · 2 calls together\n  ✓ [0] read_file READ_ONLY ok |█| +1 ms\n"+
		"      1 attempt\n  ✗ [1] glob READ_ONLY timeout | | +2 ms\n  … [2] glob READ_ONLY queued | | open\n\nreplies\n"+
		"  +1 ms [0]\n  … 3 more\n\ncontradiction: it is\n")
	want := "\x1b[1mbatch b · 2 calls\x1b[0m\n\n\x1b[1mgroup 1 · 2 calls together\x1b[0m\n" +
		"  \x1b[32m✓\x1b[0m [0] read_file READ_ONLY ok |█| +1 ms\n\x1b[2m      1 attempt\x1b[0m\n" +
		"  \x1b[31m✗\x1b[0m [1] glob READ_ONLY timeout | | +2 ms\n" +
		"  \x1b[33m…\x1b[0m [2] glob READ_ONLY queued | | open\n\n\x1b[1mreplies\x1b[0m\n  +1 ms [0]\n  … 3 more\n\n" +
		"\x1b[31mcontradiction: it is\x1b[0m\n"
	if got != want {
		t.Errorf("a timeline is\n%q\nand not\n%q", got, want)
	}
	var out strings.Builder
	section(&out, paint, 80, "TOOL\tCALLS", []string{"read_file\t2"}, func(row string) string { return row })
	if got, want := out.String(), "\n\x1b[1mTOOL       CALLS\x1b[0m\nread_file  2\n"; got != want {
		t.Errorf("a table is\n%q\nand not\n%q", got, want)
	}
}
