package dispatchercmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/display"
)

// How much of an output a person is shown; --json has all of it.
const (
	shownLines     = 3
	shownDiffLines = 20
	shownChars     = 100
)

// show prints a batch for a person, as it goes.
type show struct {
	w     io.Writer
	bars  *bars
	on    bool
	batch toolyard.Batch
	err   error
	// group is each call's group, and groups how many calls each has; known once the batch is planned.
	group   map[int]int
	groups  [][]int
	current int
	failed  int
}

func newShow(w io.Writer, b toolyard.Batch, on bool) *show {
	return &show{w: w, on: on, batch: b, current: -1}
}

// printf prints unless nothing is to be printed, or could be; end reports that.
func (s *show) printf(format string, args ...any) {
	if s.on && s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

func (s *show) begin(k toolyard.BatchKey) {
	s.printf("batch %s · agent %s · %s\n", cli.OneLine(string(k.ID)), cli.OneLine(string(k.Agent)),
		count(len(s.batch.Calls), "call"))
}

func (s *show) plan(v toolyard.BatchView) {
	s.groups, s.group = v.Groups, map[int]int{}
	for g, calls := range v.Groups {
		for _, i := range calls {
			s.group[i] = g
		}
	}
	s.printf("%s, %s · surface %.12s\n", s.batch.Options.Partition, count(len(v.Groups), "group"), v.Surface)
}

func (s *show) result(r toolyard.Result) {
	s.bars.done(r.Index)
	if r.IsError {
		s.failed++
	}
	if !s.on {
		return
	}
	if g := s.group[r.Index]; g != s.current {
		s.current = g
		how := "alone"
		if n := len(s.groups[g]); n > 1 {
			how = "together"
		}
		s.printf("\ngroup %d · %s %s\n", g+1, count(len(s.groups[g]), "call"), how)
	}
	mark, outcome := "✓", "ok"
	if r.IsError {
		mark, outcome = "✗", string(r.Code)
	} else if r.Code != "" {
		outcome += " (" + string(r.Code) + ")"
	}
	s.printf("  %s [%d] %s  %s  %s  %s ms (queued %s, executed %s)\n", mark, r.Index, cli.OneLine(r.Tool), r.Class,
		outcome,
		millis(r.DurationMS), millis(r.QueueMS), millis(r.ExecuteMS))
	var phases []string
	for _, f := range r.Phases {
		p := string(f.Phase) + " " + millis(f.MS)
		if f.Outcome == toolyard.OutcomeFailed {
			p += " ✗"
		}
		phases = append(phases, p)
	}
	s.printf("      %s\n", strings.Join(phases, " · "))
	s.printf("%s", excerpt(r.Text()))
	for _, line := range changed(r) {
		s.printf("      %s\n", line)
	}
	if r.Truncated {
		s.printf("      … offloaded as %s\n", r.Blob)
	}
}

// changed is the diff in a result's data, in lines; nil where there is none.
func changed(r toolyard.Result) []string {
	var data struct {
		Diff string `json:"diff"`
	}
	if r.IsError || len(r.Structured) == 0 || json.Unmarshal(r.Structured, &data) != nil ||
		!strings.HasPrefix(data.Diff, "--- ") {
		return nil
	}
	return display.DiffLines(data.Diff, shownChars, shownDiffLines)
}

func (s *show) end(v toolyard.BatchView) error {
	if n := v.Notice; n != nil {
		if n.Context != "" {
			s.printf("\nhooks add:\n%s", excerpt(n.Context))
		}
		if n.Stop {
			s.printf("\nhooks ask the agent to stop: %s\n", cli.OneLine(n.Reason))
		}
	}
	s.printf("\n%s: %s, %s\n", v.Status, count(len(v.Results)-s.failed, "result"), count(s.failed, "error"))
	return s.err
}

// excerpt is the beginning of an output, indented, on lines that fit a terminal.
func excerpt(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	var b strings.Builder
	for _, line := range lines[:min(len(lines), shownLines)] {
		line = strings.ReplaceAll(cli.Printable(line), "\t", "  ")
		if utf8.RuneCountInString(line) > shownChars {
			line = string([]rune(line)[:shownChars]) + "…"
		}
		fmt.Fprintf(&b, "      | %s\n", line)
	}
	if more := len(lines) - shownLines; more > 0 {
		fmt.Fprintf(&b, "      | … %s more\n", count(more, "line"))
	}
	return b.String()
}

// count says how many; more is the word for several, where it does not just end in s.
func count(n int, what string, more ...string) string {
	switch {
	case n == 1:
		return "1 " + what
	case len(more) > 0:
		return fmt.Sprintf("%d %s", n, more[0])
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func millis(ms float64) string {
	if ms >= 100 {
		return fmt.Sprintf("%.0f", ms)
	}
	return fmt.Sprintf("%.2f", ms)
}

// printJSON prints a document in which nothing acts on a terminal, and nothing is invisible there.
func printJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(display.EscapeJSON(text.Bytes()))
	return err
}
