package builtin

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

type readFileInput struct {
	FilePath string `json:"file_path"`
	Offset   *whole `json:"offset"`
	Limit    *whole `json:"limit"`
}

// span says which lines a read requests.
type span struct{ offset, limit int64 }

func (in readFileInput) span() (s span, err error) {
	if s.offset, err = in.Offset.between("offset", 1, 1, MaxOffset); err != nil {
		return s, err
	}
	s.limit, err = in.Limit.between("limit", DefaultReadLines, 1, MaxReadLines)
	return s, err
}

func readFile() (tool.Tool, error) {
	no := false
	return define(tool.Declaration{
		Name: "read_file",
		Description: fmt.Sprintf("Reads a text file of the workspace. Each line of the output is the line's number, "+
			"a tab, and the line. "+
			"Without offset and limit it starts at line 1 and gives up to %d lines; a last line in [brackets] says "+
			"when more follow and which "+
			"offset continues. Lines longer than %d characters are cut. Binary files, directories and paths outside "+
			"the workspace are refused.",
			DefaultReadLines, MaxLineChars),
		InputSchema: object(
			text("file_path",
				"The file: a path relative to the workspace's directory, or an absolute path inside it.").
				withExamples("src/main.go").required(),
			number("offset", 1, MaxOffset, "The number of the first line to read; lines count from 1.").withDefault(1),
			number("limit", 1, MaxReadLines, "How many lines to read at most.").withDefault(DefaultReadLines),
		),
		Class:              tool.ClassRule{Static: toolyard.ReadOnly},
		ReadOnly:           true,
		Specifier:          tool.Specifier{Path: "file_path"},
		Locks:              []string{tool.FileSpace + ":{file_path}"},
		Interrupt:          tool.Cancel,
		MaxResultSizeChars: -1, // MaxOutputBytes bounds it, and the model pages with offset
		AbortsSiblings:     &no,
	}, checkReadFile, runReadFile)
}

func checkReadFile(_ context.Context, env tool.Env, in readFileInput) error {
	w, err := openWorkspace(env)
	if err != nil {
		return err
	}
	defer w.close()
	if _, err := in.span(); err != nil {
		return err
	}
	t, err := w.resolve("file_path", in.FilePath)
	if err != nil {
		return err
	}
	if err := w.regular(t); err != nil {
		return err
	}
	f, info, err := w.openFile(t)
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	return mustBeText(t, newLines(f, MaxScanBytes), info.Size())
}

// mustBeText returns an error if a file is not text, judged by its first [BinaryProbeBytes].
func mustBeText(t target, l *lines, size int64) error {
	head, whole, err := l.head()
	if err != nil {
		return tool.Failed(err, "file_path %s: the worker failed to read it; an operator can see why", show(t.written))
	}
	if isBinary(head, whole) {
		return notText(t, size)
	}
	return nil
}

func notText(t target, size int64) error {
	return tool.Invalid("%s %s is a binary file of %s; only UTF-8 text can be used", t.field, show(t.written),
		bytesWhole(size))
}

// isBinary reports whether the start of a file is not UTF-8 text. whole says that the start is the whole file;
// otherwise a character may be cut at its end.
func isBinary(head []byte, whole bool) bool {
	if bytes.IndexByte(head, 0) >= 0 {
		return true
	}
	if !whole {
		for i := 1; i < utf8.UTFMax && i <= len(head); i++ {
			if tail := head[len(head)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					head = head[:len(head)-i]
				}
				break
			}
		}
	}
	return !utf8.Valid(head)
}

func runReadFile(ctx context.Context, env tool.Env, in readFileInput) (string, error) {
	w, err := openWorkspace(env)
	if err != nil {
		return "", err
	}
	defer w.close()
	s, err := in.span()
	if err != nil {
		return "", err
	}
	t, err := w.resolve("file_path", in.FilePath)
	if err != nil {
		return "", err
	}
	if err := w.regular(t); err != nil {
		return "", err
	}
	f, info, err := w.openFile(t)
	if err != nil {
		return "", err
	}
	defer f.Close() // it was only read
	l := newLines(untilStopped{ctx, f}, MaxScanBytes)
	l.clean = w.clean
	out, err := render(t, l, s, info.Size())
	if reason := stopped(ctx); err != nil && reason != nil {
		return "", reason
	}
	return out, err
}

// render writes the lines of a span with their numbers, and a note about what it leaves out.
func render(t target, l *lines, s span, size int64) (string, error) {
	if err := mustBeText(t, l, size); err != nil {
		return "", err
	}
	skipped, err := l.skip(s.offset - 1)
	switch {
	case err != nil:
		return "", readFault(t, l, s, err)
	case l.atEnd() && skipped == 0 && s.offset == 1:
		return fmt.Sprintf("[%s is an empty file]", show(t.written)), nil
	case l.atEnd():
		return "", tool.Invalid("offset %d is past the end: %s has %s", s.offset, show(t.written),
			count(skipped, "line"))
	}
	var b strings.Builder
	number := s.offset
	note := func(format string, args ...any) (string, error) {
		switch {
		case l.crlf && l.lf:
			b.WriteString("[some lines of this file end in \\r\\n, others in \\n]\n")
		case l.crlf:
			b.WriteString("[lines of this file end in \\r\\n]\n")
		}
		fmt.Fprintf(&b, format, args...)
		return b.String(), nil
	}
	for ; number < s.offset+s.limit && !l.atEnd(); number++ {
		line, err := l.next()
		switch {
		case err == errScanLimit && b.Len() > 0:
			return note("[stopped before line %d: this tool reads no more than %s of a file]", number,
				bytesWhole(l.max))
		case err != nil:
			return "", readFault(t, l, s, err)
		case isBinary([]byte(line.text), true) && b.Len() > 0:
			return note("[line %d and what follows is binary, not text]", number)
		case isBinary([]byte(line.text), true):
			return "", tool.Invalid("file_path %s has %s, and from line %d on it is binary, not text", show(t.written),
				bytesWhole(size), number)
		}
		row := fmt.Sprintf("%d\t%s", number, line.text)
		if line.cut {
			row += fmt.Sprintf("… [cut: the line has %s]", bytesWhole(line.bytes))
		}
		if b.Len()+len(row) > MaxOutputBytes-noteBytes {
			return note("[more lines follow: this answer is full; call read_file again with offset %d]", number)
		}
		b.WriteString(row)
		b.WriteByte('\n')
	}
	if l.atEnd() {
		return note("")
	}
	return note("[more lines follow: call read_file again with offset %d]", number)
}

// noteBytes is reserved at the end of an answer for the note about what it leaves out.
const noteBytes = 512

// readFault is the error of a read that returned no line.
func readFault(t target, l *lines, s span, err error) error {
	if err == errScanLimit {
		return tool.Invalid("line %d of %s lies more than %s into the file, and this tool looks no further; use grep "+
			"with a pattern, or a smaller offset",
			s.offset, show(t.written), bytesWhole(l.max))
	}
	return tool.Failed(err, "%s %s: the worker failed to read it; an operator can see why", t.field, show(t.written))
}
