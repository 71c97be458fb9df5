package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// search is the state of one grep.
type search struct {
	grepPlan
	out   strings.Builder
	buf   bytes.Buffer // the file being searched, reused
	left  int64        // bytes that may still be read
	clean cleaner
	full  string // the limit that ended the search

	matches, searched     int
	binary, large, failed int
}

// errFull ends a search at one of its limits.
var errFull = errors.New("limit reached")

func (s *search) stop(limit string) error {
	s.full = limit
	return errFull
}

// walk searches a directory and everything below it, in the order of names. It enters no symbolic links to directories,
// and follows one to a file where the walk does not come to that file itself.
func (s *search) walk(files *countedFS, dir string) error {
	entries, err := files.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case e.IsDir():
			if err := s.walk(files, name); err != nil {
				return err
			}
		case e.Type().IsRegular() && s.includes(name):
			if err := s.file(files.ctx, files.w, path.Join(files.base, name), path.Join(s.shown, name)); err != nil {
				return err
			}
		case e.Type()&fs.ModeSymlink != 0 && s.includes(name):
			if err := files.spend(1); err != nil {
				return err
			}
			t, ok := s.linked(files, name)
			if !ok {
				continue
			}
			if err := s.file(files.ctx, files.w, t.name, path.Join(s.shown, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// linked is the file that a symbolic link leads to; ok is false if there is none, or the walk comes to it itself.
func (s *search) linked(files *countedFS, name string) (t target, ok bool) {
	t, err := files.w.resolve("path", path.Join(files.base, name))
	if err != nil || t.info == nil || !t.info.Mode().IsRegular() {
		return t, false
	}
	own, below := t.name, true
	if files.base != "." {
		own, below = strings.CutPrefix(t.name, files.base+"/")
	}
	return t, !below || !s.includes(own) || slices.Contains(splitNames(own), ".git")
}

// file searches one file; name is its path, shown its path in answers. A file that cannot be searched is counted.
func (s *search) file(ctx context.Context, w *workspace, name, shown string) error {
	if err := stopped(ctx); err != nil {
		return err
	}
	f, info, err := w.openFile(target{field: "path", written: shown, name: name})
	if err != nil {
		s.failed++
		return nil
	}
	defer f.Close() // it was only read
	if info.Size() > MaxGrepFileBytes {
		s.large++
		return nil
	}
	s.buf.Reset()
	n, err := io.Copy(&s.buf, io.LimitReader(untilStopped{ctx, f}, MaxGrepFileBytes+1))
	switch {
	case stopped(ctx) != nil:
		return stopped(ctx)
	case err != nil:
		s.failed++
		return nil
	case n > MaxGrepFileBytes: // it grew
		s.large++
		return nil
	}
	if s.left -= n; s.left < 0 {
		return s.stop(fmt.Sprintf("%d MiB of text", MaxGrepBytes>>20))
	}
	data := s.buf.Bytes()
	head := data[:min(len(data), BinaryProbeBytes)]
	if isBinary(head, len(head) == len(data)) || bytes.IndexByte(data, 0) >= 0 {
		s.binary++
		return nil
	}
	s.searched++
	return s.text(ctx, bytes.TrimPrefix(data, []byte(byteOrderMark)), show(shown))
}

// text searches the lines of one file.
func (s *search) text(ctx context.Context, data []byte, shown string) error {
	var before [][]byte     // the preceding lines that were not written, at most as many as the context
	written, match := -1, 0 // the numbers of the last written and of the last matching line
	unlooked := 0           // the bytes searched since the last look at the context
	const perLine = 16      // what each line counts beside its bytes: it makes work whatever its length
	for number := 1; len(data) > 0; number++ {
		if unlooked >= lookBytes {
			if err := stopped(ctx); err != nil {
				return err
			}
			unlooked = 0
		}
		var line []byte
		line, data, _ = bytes.Cut(data, newline)
		unlooked += len(line) + perLine
		line = bytes.TrimSuffix(line, []byte{'\r'})
		at := s.find(ctx, line)
		if len(line) > longLineBytes {
			if err := stopped(ctx); err != nil {
				return err
			}
		}
		switch {
		case at != nil:
			if s.matches == MaxGrepMatches {
				return s.stop(fmt.Sprintf("%d matching lines", MaxGrepMatches))
			}
			s.matches++
			first := number - len(before)
			if s.context > 0 && s.out.Len() > 0 && (written < 0 || first > written+1) {
				s.out.WriteString("--\n")
			}
			for i, text := range before {
				if err := s.row(shown, '-', first+i, text, 0); err != nil {
					return err
				}
			}
			if err := s.row(shown, ':', number, line, at[0]); err != nil {
				return err
			}
			before, written, match = before[:0], number, number
		case match > 0 && number <= match+s.context:
			if err := s.row(shown, '-', number, line, 0); err != nil {
				return err
			}
			written = number
		case s.context > 0:
			if len(before) == s.context {
				before = append(before[:0], before[1:]...)
			}
			before = append(before, line)
		}
	}
	return nil
}

// lookBytes is how many bytes a search of short lines reads between two looks at the call's context.
const lookBytes = 16 << 10

// longLineBytes is the length from which on a line is searched in a way that stops with the call's context. A pattern
// may take a long time for each byte.
const longLineBytes = 4 << 10

// find returns where the first match in a line begins and ends; nil if there is none, or the context has ended.
func (s *search) find(ctx context.Context, line []byte) []int {
	if len(line) <= longLineBytes {
		return s.re.FindIndex(line)
	}
	prefix, whole := s.re.LiteralPrefix()
	if at := bytes.Index(line, []byte(prefix)); at < 0 {
		return nil
	} else if whole && regexp.QuoteMeta(prefix) == s.re.String() {
		return []int{at, at + len(prefix)}
	}
	return s.re.FindReaderIndex(&runesUntilStopped{ctx: ctx, text: line})
}

// runesUntilStopped reads characters, and ends once the context has ended.
type runesUntilStopped struct {
	ctx  context.Context
	text []byte
	read int
}

func (r *runesUntilStopped) ReadRune() (c rune, size int, err error) {
	const often = 256 // characters between two looks at the context
	if r.read++; len(r.text) == 0 || r.read%often == 0 && r.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	c, size = utf8.DecodeRune(r.text)
	r.text = r.text[size:]
	return c, size, nil
}

// row writes one line of the answer. Of a long line it shows the part around the match.
func (s *search) row(shown string, sep byte, number int, line []byte, at int) error {
	const lead = 100 // characters before a match far into a line
	text, left, right := s.clean.around(string(line), at, lead, MaxGrepLineChars, func(text string) int {
		if at := s.re.FindStringIndex(text); at != nil {
			return at[0]
		}
		return -1
	})
	mark := ""
	if left {
		mark = "…"
	}
	if right {
		text += "…"
	}
	row := fmt.Sprintf("%s%c%d%c%s%s\n", shown, sep, number, sep, mark, strings.ToValidUTF8(text, "\uFFFD"))
	if s.out.Len()+len(row) > MaxOutputBytes-noteBytes {
		return s.stop(fmt.Sprintf("%d KiB of answer", MaxOutputBytes>>10))
	}
	s.out.WriteString(row)
	return nil
}
