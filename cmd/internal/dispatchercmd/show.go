package dispatchercmd

import (
	"bytes"
	"cmp"
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
	shownLines      = 3   // lines of an output that a person is shown
	shownErrorLines = 6   // lines of an error that a person is shown
	shownDiffLines  = 20  // lines of a diff that a person is shown
	shownChars      = 100 // of a value in a list
	shownTool       = 24  // characters of the column of tools: a longer name takes what it needs
	shownTime       = 8   // characters of the column of times

	outputIndent = "      | "
	detailIndent = "      "
)

// show prints a batch for a person, as it goes.
type show struct {
	w       io.Writer
	bars    *bars
	on      bool
	verbose bool
	lines   int // how many of an output are shown; 0: shownLines
	paint   cli.Paint
	columns int
	batch   toolyard.Batch
	err     error
	// group is each call's group, and groups how many calls each has; known once the batch is planned, which one that
	// is given up may never be.
	group   map[int]int
	groups  [][]int
	current int
	// tool and index are how wide the columns of tools and indexes are.
	tool, index int
	failed      []toolyard.Result
}

func newShow(w io.Writer, b toolyard.Batch, on bool) *show {
	s := &show{w: w, on: on, batch: b, current: -1, columns: cli.Columns(w), index: len(fmt.Sprint(len(b.Calls)-1)) + 2}
	for _, c := range b.Calls {
		if n := utf8.RuneCountInString(cli.OneLine(c.Tool)); n <= shownTool {
			s.tool = max(s.tool, n)
		}
	}
	return s
}

// lines prints lists and the like.
func (s *std) lines() *show {
	return &show{w: s.out, on: true, paint: s.paint(), verbose: s.verbose, columns: cli.Columns(s.out)}
}

// printf prints unless nothing is to be printed, or could be; end reports that.
func (s *show) printf(format string, args ...any) {
	if s.on && s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

func (s *show) begin(k toolyard.BatchKey) {
	s.printf("%s\n", s.paint.Bold(fmt.Sprintf("batch %s · agent %s · %s", cli.OneLine(string(k.ID)),
		cli.OneLine(string(k.Agent)), count(len(s.batch.Calls), "call"))))
}

func (s *show) plan(v toolyard.BatchView) {
	s.groups, s.group = v.Groups, map[int]int{}
	for g, calls := range v.Groups {
		for _, i := range calls {
			s.group[i] = g
		}
	}
	surface := ""
	if s.verbose {
		surface = fmt.Sprintf(" · surface %.12s", v.Surface)
	}
	partition := cmp.Or(s.batch.Options.Partition, toolyard.Consecutive)
	s.printf("%s, %s%s\n", partition, count(len(v.Groups), "group"), surface)
}

func (s *show) result(r toolyard.Result) {
	s.bars.done(r.Index)
	if r.IsError {
		s.failed = append(s.failed, r)
	}
	if !s.on {
		return
	}
	if g, planned := s.group[r.Index]; planned && g != s.current {
		s.current = g
		s.printf("\n%s\n", s.paint.Bold(fmt.Sprintf("group %d · %s %s", g+1, count(len(s.groups[g]), "call"),
			how(s.groups[g]))))
	}
	mark, outcome := s.paint.Good("✓"), s.paint.Good("ok")
	if r.IsError {
		mark, outcome = s.paint.Bad("✗"), s.paint.Bad(string(r.Code))
	} else if r.Code != "" {
		outcome += " (" + string(r.Code) + ")"
	}
	s.printf("  %s %*s %-*s  %*s  %s\n", mark, s.index, fmt.Sprintf("[%d]", r.Index), s.tool, cli.OneLine(r.Tool),
		shownTime, cli.HumanMS(r.DurationMS), outcome)
	if s.verbose {
		s.details(r)
	}
	s.printf("%s", s.excerpt(r.Text(), r.IsError))
	for _, line := range changed(r, s.columns-len(detailIndent)) {
		s.printf("%s%s\n", detailIndent, s.paint.Diff(line))
	}
	if r.Truncated {
		s.printf("%s… offloaded as %s\n", detailIndent, r.Blob)
	}
}

// how says how the calls of a group run.
func how(calls []int) string {
	if len(calls) > 1 {
		return "together"
	}
	return "alone"
}

// details prints how a call went, and through which phases.
func (s *show) details(r toolyard.Result) {
	about := []string{string(r.Class), "queued " + cli.HumanMS(r.QueueMS), "executed " + cli.HumanMS(r.ExecuteMS)}
	if r.ApprovalWaitMS > 0 {
		about = append(about, "waited "+cli.HumanMS(r.ApprovalWaitMS)+" for a person")
	}
	if r.Attempts > 1 {
		about = append(about, fmt.Sprintf("attempt %d", r.Attempts))
	}
	if r.Cache != "" {
		about = append(about, "cache "+string(r.Cache))
	}
	if r.Isolation != "" {
		about = append(about, "isolation "+r.Isolation)
	}
	if r.Worker != "" {
		about = append(about, "worker "+cli.OneLine(r.Worker))
	}
	var phases []string
	for _, f := range r.Phases {
		p := string(f.Phase) + " " + cli.HumanMS(f.MS)
		if f.Outcome == toolyard.OutcomeFailed {
			p += " ✗"
		}
		phases = append(phases, p)
	}
	for _, list := range [][]string{about, phases} {
		for _, line := range joined(list, s.columns-len(detailIndent)) {
			s.printf("%s%s\n", detailIndent, s.paint.Dim(line))
		}
	}
}

// joined puts parts on lines of at most so many characters, and breaks none of them.
func joined(parts []string, columns int) (lines []string) {
	line := ""
	for _, p := range parts {
		if line != "" && utf8.RuneCountInString(line)+3+utf8.RuneCountInString(p) > columns {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " · "
		}
		line += p
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// changed is the diff in a result's data, in lines; nil where there is none.
func changed(r toolyard.Result, columns int) []string {
	var data struct {
		Diff string `json:"diff"`
	}
	if r.IsError || len(r.Structured) == 0 || json.Unmarshal(r.Structured, &data) != nil ||
		!strings.HasPrefix(data.Diff, "--- ") {
		return nil
	}
	return display.DiffLines(data.Diff, columns, shownDiffLines)
}

func (s *show) end(v toolyard.BatchView) error {
	if n := v.Notice; n != nil {
		if n.Context != "" {
			s.printf("\nhooks add:\n%s", s.excerpt(n.Context, false))
		}
		if n.Stop {
			s.printf("\nhooks ask the agent to stop: %s\n", cli.OneLine(n.Reason))
		}
	}
	s.advise()
	status := s.paint.Good
	if len(s.failed) > 0 || v.Status != toolyard.StatusCompleted {
		status = s.paint.Warn
	}
	s.printf("\n%s: %s, %s\n", status(string(v.Status)), count(len(v.Results)-len(s.failed), "result"),
		count(len(s.failed), "error"))
	return s.err
}

// excerpt is the beginning of an output, indented, on lines that fit a terminal. An error is wrapped, and not cut.
func (s *show) excerpt(text string, whole bool) string {
	width, most := max(s.columns-len(outputIndent)-1, 1), cmp.Or(s.lines, shownLines)
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		line = strings.ReplaceAll(cli.Printable(line), "\t", "  ")
		if whole {
			lines = append(lines, cli.Wrap(line, width)...)
			continue
		}
		lines = append(lines, cut(line, width))
	}
	if whole {
		most = shownErrorLines
	}
	var b strings.Builder
	for _, line := range lines[:min(len(lines), most)] {
		fmt.Fprintf(&b, "%s%s\n", s.paint.Dim(outputIndent), cut(line, width))
	}
	if more := len(lines) - most; more > 0 {
		fmt.Fprintf(&b, "%s%s\n", s.paint.Dim(outputIndent), s.paint.Dim("… "+count(more, "line")+" more"))
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
