package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// The width of what is printed, in characters.
const (
	UsualColumns = 80  // where nothing says how wide a terminal is
	minColumns   = 20  // a narrower terminal gets lines of so many all the same
	maxColumns   = 100 // longer lines of text are hard to read
)

// IsTerminal reports whether a person is at the other end of a stream.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Columns is how wide what is written to a stream may be.
func Columns(stream any) int {
	if f, ok := stream.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return max(columns, minColumns)
		}
	}
	return UsualColumns
}

// TextColumns is how wide a text may be: no wider than can be read well.
func TextColumns(stream any) int { return min(Columns(stream), maxColumns) }

// Color is the flag that says when colours are printed.
type Color struct{ when string }

const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// Add adds the flag.
func (c *Color) Add(f *pflag.FlagSet) {
	c.when = colorAuto
	f.Var(c, "color", "when to print colours: auto (on a terminal, unless NO_COLOR is set), always or never")
}

// String, Set and Type make it a flag.
func (c *Color) String() string { return c.when }

// Set refuses what is no such word.
func (c *Color) Set(when string) error {
	switch when {
	case colorAuto, colorAlways, colorNever:
		c.when = when
		return nil
	}
	return fmt.Errorf("use %s, %s or %s", colorAuto, colorAlways, colorNever)
}

// Type is the word for a value in the help.
func (c *Color) Type() string { return "WHEN" }

// For returns how texts for a stream are painted.
func (c *Color) For(w io.Writer) Paint {
	switch c.when {
	case colorAlways:
		return Paint{on: true}
	case colorNever:
		return Paint{}
	}
	return Paint{on: IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Paint puts colours around texts, or leaves them as they are.
type Paint struct{ on bool }

func (p Paint) put(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Good, Bad, Warn, Dim and Bold are the meanings that colours have here.
func (p Paint) Good(text string) string { return p.put("32", text) }

// Bad is for what failed.
func (p Paint) Bad(text string) string { return p.put("31", text) }

// Warn is for what somebody should look at.
func (p Paint) Warn(text string) string { return p.put("33", text) }

// Dim is for what matters less.
func (p Paint) Dim(text string) string { return p.put("2", text) }

// Bold is for headings.
func (p Paint) Bold(text string) string { return p.put("1", text) }

// Diff paints a line of a diff by what it begins with.
func (p Paint) Diff(line string) string {
	switch {
	case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "@@ "):
		return p.Dim(line)
	case strings.HasPrefix(line, "+ "):
		return p.Good(line)
	case strings.HasPrefix(line, "- "):
		return p.Bad(line)
	}
	return line
}

// Wrap breaks a text into lines of at most so many characters, between words. A word that is longer stays whole.
func Wrap(text string, columns int) []string {
	var lines []string
	line, width := "", 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if width > 0 && width+1+n > columns {
			lines, line, width = append(lines, line), "", 0
		}
		if width > 0 {
			line, width = line+" ", width+1
		}
		line, width = line+word, width+n
	}
	if width > 0 || len(lines) == 0 {
		lines = append(lines, line)
	}
	return lines
}

// entry is the beginning of a line of a list: what comes before its text.
var entry = regexp.MustCompile(`^\s+(\S+( \S+)*  +)?`)

// Reflow wraps the paragraphs of a text. Lines that begin with a blank stay as they are, unless they are too long: then
// what goes on stands below the beginning of their text.
func Reflow(text string, columns int) string {
	var out []string
	paragraph := ""
	end := func() {
		if paragraph != "" {
			out = append(out, Wrap(paragraph, columns)...)
			paragraph = ""
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case line == "", strings.HasPrefix(line, " "), strings.HasPrefix(line, "\t"):
			end()
			if utf8.RuneCountInString(line) <= columns {
				out = append(out, line)
				continue
			}
			head := entry.FindString(line)
			at := utf8.RuneCountInString(head)
			for i, part := range Wrap(line[len(head):], max(columns-at, minColumns)) {
				if i > 0 {
					head = strings.Repeat(" ", at)
				}
				out = append(out, head+part)
			}
		default:
			paragraph += " " + line
		}
	}
	end()
	return strings.Join(out, "\n")
}

// Cell is a text of a table, and what paints it; nil leaves it as it is.
type Cell struct {
	Text  string
	Paint func(string) string
}

// Painted is a text as the cell's is painted.
func (c Cell) Painted(text string) string {
	if c.Paint == nil {
		return text
	}
	return c.Paint(text)
}

// Table writes rows in columns that are as wide as their widest text, two blanks apart. The last column is wrapped
// between words where a line would have more than so many characters.
func Table(rows [][]Cell, indent string, columns int) string {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if i < len(row)-1 {
				widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
			}
		}
	}
	var out strings.Builder
	for _, row := range rows {
		line, at := indent, utf8.RuneCountInString(indent)
		for i, c := range row {
			if i < len(row)-1 {
				line += c.Painted(c.Text) + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.Text)+2)
				at += widths[i] + 2
				continue
			}
			for j, part := range Wrap(c.Text, max(columns-at, minColumns)) {
				if j > 0 {
					line += "\n" + strings.Repeat(" ", at)
				}
				line += c.Painted(part)
			}
		}
		for part := range strings.SplitSeq(line, "\n") {
			out.WriteString(strings.TrimRight(part, " ") + "\n")
		}
	}
	return out.String()
}

// Human says how long something took, in the unit that a person would use, with two or three digits.
func Human(d time.Duration) string {
	round := func(unit time.Duration) float64 { return float64(d) / float64(unit) }
	switch {
	case d < 0:
		return "-" + Human(-d)
	case d < time.Microsecond:
		return "0 ms"
	case round(time.Microsecond) < 999.5:
		return fmt.Sprintf("%.0f µs", round(time.Microsecond))
	case round(time.Millisecond) < 9.95:
		return fmt.Sprintf("%.1f ms", round(time.Millisecond))
	case round(time.Millisecond) < 999.5:
		return fmt.Sprintf("%.0f ms", round(time.Millisecond))
	case round(time.Second) < 9.95:
		return fmt.Sprintf("%.1f s", round(time.Second))
	case round(time.Second) < 59.5:
		return fmt.Sprintf("%.0f s", round(time.Second))
	}
	seconds := int64(math.Round(d.Seconds()))
	switch {
	case seconds < 3600:
		return fmt.Sprintf("%d min %d s", seconds/60, seconds%60)
	case seconds < 48*3600:
		return fmt.Sprintf("%d h %d min", seconds/3600, seconds/60%60)
	}
	return fmt.Sprintf("%d days", seconds/(24*3600))
}

// HumanMS is [Human] for milliseconds.
func HumanMS(ms float64) string { return Human(time.Duration(ms * float64(time.Millisecond))) }

// uuid is an id that this project makes. Its last digits are random, its first ones a time.
var uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// ShortIDs shortens the ids in a text that this project has made to their random end: enough to tell them apart.
func ShortIDs(text string) string {
	return uuid.ReplaceAllStringFunc(text, func(id string) string { return "…" + id[len(id)-8:] })
}
