package dispatchercmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/display"
	"github.com/toolyard/toolyard/internal/policy"
)

// inputIndent is what each line of an input stands behind.
const inputIndent = "      "

// How long a page is.
const (
	usualRows = 24 // of a terminal that does not say how many it has
	minRows   = 5  // a lower one gets pages of so many lines all the same
)

// sheet is where a person is shown something.
type sheet struct {
	w             io.Writer
	columns, rows int
	paint         cli.Paint
}

func (s *std) sheetOf(w io.Writer) sheet {
	on := sheet{w, cli.UsualColumns, usualRows, s.color.For(w)}
	if f, ok := w.(*os.File); ok {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 && rows > 0 {
			on.columns, on.rows = columns, rows
		}
	}
	return on
}

// painted is a line that a person is shown of a call: comparisons have colours, as everywhere.
func (s sheet) painted(line string) string {
	of, ok := strings.CutPrefix(line, inputIndent)
	switch {
	case !ok:
		return line
	case strings.HasPrefix(of, "! "):
		return inputIndent + s.paint.Bad(of)
	}
	return inputIndent + s.paint.Diff(of)
}

// described is a call as a person is asked about it, in lines. An error that wraps [display.ErrPart] says that not all
// of it can be shown: then the lines say so, and nobody may approve it. before is what a file has now that the call
// would write.
func described(a client.Approval, columns int, before *string) (lines []string, err error) {
	add := func(indent, format string, args ...any) {
		for _, line := range display.Fold(fmt.Sprintf(format, args...), columns-len(indent)) {
			lines = append(lines, indent+line)
		}
	}
	add("", "%s", a.ID)
	undo := ""
	if a.Destructive {
		undo = ", may do what cannot be undone"
	}
	add("  ", "%s, %s%s; call %d of batch %s, agent %s, session %s, workspace %s", a.Tool, a.Class, undo, a.Index,
		a.Batch, a.Agent, a.Session, a.Workspace)
	input, err := display.Lines(a.Input, display.Options{Columns: columns - len(inputIndent), SHA256: a.InputSHA256,
		Before: before, Form: a.Form})
	marked := false
	put := func(all []string) {
		for _, line := range all {
			marked = marked || line != ascii(line) || strings.HasPrefix(line, ">")
			lines = append(lines, inputIndent+line)
		}
	}
	put(input)
	if a.Diff != "" && before == nil { // else the input is compared with what is there
		add("  ", "what it would change, as things stood when it was asked about:")
		put(display.DiffLines(a.Diff, columns-len(inputIndent), display.MaxDiffLines))
	}
	if err != nil {
		add(inputIndent, "! %s; nobody can approve it", err)
	}
	if marked {
		lines = append(lines, inputIndent+"("+display.Legend, inputIndent+" "+display.LegendFolded+")")
	}
	if a.Reason != "" {
		add("  ", "%s", a.Reason)
	}
	add("  ", "asked %s, expires %s", a.AskedAt.Format(time.RFC3339), a.Expires.Format(time.RFC3339))
	if a.Remember != "" {
		add("  ", "for the session: %s", a.Remember)
	}
	lines = append(lines, "  input sha256:")
	add("  ", "%s", a.InputSHA256)
	return lines, err
}

// ascii is a text without what is not ASCII.
func ascii(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return -1
		}
		return r
	}, text)
}

// answer is what a person says.
type answer string

const (
	yes        answer = "yes"
	no         answer = "no"
	forSession answer = "session"
	silent     answer = "" // the terminal says nothing any more
)

// asker asks a person at a terminal.
type asker struct {
	sheet
	in *bufio.Scanner
}

// ask shows a call, page by page, and returns what the person says about it. Yes is taken when all of it has been
// shown.
func (k *asker) ask(question string, lines []string, session bool) (answer, error) {
	choices := "[y]es, [n]o, [v]iew it again"
	if session {
		choices += ", yes for the [s]ession"
	}
	lines = append([]string{"", k.paint.Bold(question)}, lines...)
	got, err := k.pages(lines, "[n]o")
	for err == nil && got == "" {
		var said string
		if said, err = k.prompt(choices + ": "); err != nil {
			break
		}
		switch {
		case said == "y" || said == "yes":
			return yes, nil
		case said == "n" || said == "no":
			return no, nil
		case session && (said == "s" || said == "session"):
			return forSession, nil
		case said == "v" || said == "view":
			got, err = k.pages(lines, "[n]o")
		}
	}
	if errors.Is(err, io.EOF) {
		return silent, nil
	}
	return got, err
}

// pages shows lines, as many at a time as there is room for. It returns [no] when the person wants no more of them.
func (k *asker) pages(lines []string, leave string) (answer, error) {
	page := max(k.rows-2, minRows)
	for shown := 0; ; {
		end := min(shown+page, len(lines))
		if len(lines)-end == 1 { // the prompt would take its place
			end = len(lines)
		}
		var text strings.Builder
		for _, line := range lines[shown:end] {
			text.WriteString(k.painted(line) + "\n")
		}
		if _, err := io.WriteString(k.w, text.String()); err != nil {
			return "", err
		}
		if shown = end; shown == len(lines) {
			return "", nil
		}
		for more := false; !more; {
			said, err := k.prompt(fmt.Sprintf("-- %d of %d lines; [Enter] for more, [a]ll of them, %s: ", shown,
				len(lines), leave))
			switch {
			case err != nil:
				return "", err
			case said == "n" || said == "no" || said == "q" || said == "quit":
				return no, nil
			case said == "a" || said == "all":
				page, more = len(lines), true
			case said == "":
				more = true
			}
		}
	}
}

// prompt reads a line; io.EOF says that there is none.
func (k *asker) prompt(text string) (string, error) {
	if _, err := io.WriteString(k.w, text); err != nil {
		return "", err
	}
	if !k.in.Scan() {
		return "", io.EOF
	}
	return strings.ToLower(strings.TrimSpace(k.in.Text())), nil
}

// fileNow is what stands in the file that a call of write_file would replace; nil when that is no text that can be
// compared.
func fileNow(dir string, a client.Approval) *string {
	name, ok := policy.Field(a.Input, "file_path")
	if a.Tool != "write_file" || !ok {
		return nil
	}
	if filepath.IsAbs(name) {
		var err error
		if name, err = filepath.Rel(dir, name); err != nil {
			return nil
		}
	}
	root, err := os.OpenRoot(dir) // nothing outside of the workspace is shown
	if err != nil {
		return nil
	}
	defer func() { _ = root.Close() }() // it was only read
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // it was only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > display.MaxBytes {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, display.MaxBytes+1))
	if text := string(data); err == nil && len(data) <= display.MaxBytes && utf8.Valid(data) {
		return &text
	}
	return nil
}
