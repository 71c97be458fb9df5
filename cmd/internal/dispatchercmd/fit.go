package dispatchercmd

import (
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/replay"
)

const (
	fitColumns = 60 // a narrower terminal gets lines of so many all the same
	fitCell    = 10 // characters of a table's column that are left at least when it is cut
)

// fits is how many characters the lines of what is written to a terminal may have; 0: it is none, and nothing is cut.
func fits(w io.Writer) int {
	if !cli.IsTerminal(w) {
		return 0
	}
	return max(cli.Columns(w), fitColumns)
}

// fold breaks the lines of a text that are too long for a terminal between words. What goes on is indented by so many
// more than the line. Words that are too long lose their middle. With 0 columns the text stays as it is.
func fold(text string, columns, indent int) string {
	if columns <= 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if utf8.RuneCountInString(line) <= columns {
			continue
		}
		rest := strings.TrimLeft(line, " ")
		begin := len(line) - len(rest)
		head, after := strings.Repeat(" ", begin), strings.Repeat(" ", begin+indent)
		words := strings.Fields(rest)
		for j, word := range words {
			words[j] = replay.Middle(word, columns-len(after))
		}
		first := true
		var out []string
		for len(words) > 0 {
			room, with := columns-len(after), after
			if first {
				room, with, first = columns-len(head), head, false
			}
			part := cli.Wrap(strings.Join(words, " "), room)[0]
			out = append(out, with+part)
			words = words[len(strings.Fields(part)):]
		}
		lines[i] = strings.Join(out, "\n")
	}
	return strings.Join(lines, "\n")
}

// fitTable writes rows, whose cells have tabs between them, in columns two blanks apart. Where lines would have more
// than so many characters, cells of the widest columns lose their middle.
func fitTable(rows []string, columns int) string {
	cells := make([][]string, len(rows))
	var widths []int
	for i, row := range rows {
		cells[i] = strings.Split(row, "\t")
		for j, cell := range cells[i] {
			if j == len(widths) {
				widths = append(widths, 0)
			}
			widths[j] = max(widths[j], utf8.RuneCountInString(cell))
		}
	}
	for columns > 0 {
		total, widest := -2, 0
		for j, w := range widths {
			total += w + 2
			if w > widths[widest] {
				widest = j
			}
		}
		if total <= columns || widths[widest] <= fitCell {
			break
		}
		widths[widest]--
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range cells {
		for j, cell := range row {
			row[j] = replay.Middle(cell, widths[j])
		}
		_, _ = io.WriteString(w, strings.Join(row, "\t")+"\n") // a strings.Builder takes everything
	}
	_ = w.Flush()
	return out.String()
}
