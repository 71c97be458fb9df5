package builtin

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard/tool"
)

// lines reads text line by line. It never keeps more of a line than is shown, and never reads more than max bytes,
// however large the file or a line of it is.
type lines struct {
	r   *bufio.Reader
	max int64 // bytes
	// read counts the bytes read so far.
	read int64
	// crlf is set after a line ended in CRLF, lf after one ended in LF alone.
	crlf, lf bool
	// clean takes secrets out of lines that are cut.
	clean cleaner
}

// line is one line without its end. It is cut if it has more than [MaxLineChars] characters; bytes is its whole size.
type line struct {
	text  string
	cut   bool
	bytes int64
}

// errScanLimit stops a read that has reached its limit of bytes. The model sees it in a note.
var errScanLimit = errors.New("this tool reads no further into a file")

func newLines(r io.Reader, max int64) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

// head returns up to [BinaryProbeBytes] of the start without consuming them; whole says that there is no more.
func (l *lines) head() (head []byte, whole bool, err error) {
	head, err = l.r.Peek(BinaryProbeBytes)
	if errors.Is(err, io.EOF) {
		return head, true, nil
	}
	return head, false, err
}

// atEnd reports whether nothing is left.
func (l *lines) atEnd() bool {
	_, err := l.r.Peek(1)
	return errors.Is(err, io.EOF)
}

// skip consumes n lines and returns how many it found; fewer than n only at the end of the file.
func (l *lines) skip(n int64) (found int64, err error) {
	open := false // whether a line has begun
	for found < n {
		if _, err := l.r.Peek(1); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return found, err
		}
		chunk, _ := l.r.Peek(l.r.Buffered()) // buffered bytes can be peeked
		if here := int64(bytes.Count(chunk, newline)); here <= n-found {
			found += here
			open = chunk[len(chunk)-1] != '\n'
			if !open && found == n {
				return found, l.consume(len(chunk))
			}
			if found == n { // the next line has begun in this chunk
				chunk = chunk[:bytes.LastIndexByte(chunk, '\n')+1]
				return found, l.consume(len(chunk))
			}
		} else {
			end := 0
			for ; found < n; found++ {
				end += bytes.IndexByte(chunk[end:], '\n') + 1
			}
			return found, l.consume(end)
		}
		if err := l.consume(len(chunk)); err != nil {
			return found, err
		}
	}
	if open {
		found++
	}
	return found, nil
}

var newline = []byte{'\n'}

// byteOrderMark may begin a file. It is no part of the first line.
const byteOrderMark = "\ufeff"

// consume consumes n buffered bytes.
func (l *lines) consume(n int) error {
	l.read += int64(n)
	if _, err := l.r.Discard(n); err != nil {
		return err
	}
	if l.read > l.max {
		return errScanLimit
	}
	return nil
}

// next reads a line. Do not call it at the end.
func (l *lines) next() (line, error) {
	// bytes enough for all characters shown, for a secret that stands across the cut, and for the line's end
	const keep = MaxLineChars*utf8.UTFMax + tool.SecretRoom + 2
	var kept []byte
	var ln line
	if l.read > l.max {
		return ln, errScanLimit
	}
	for {
		chunk, err := l.r.ReadSlice('\n')
		l.read += int64(len(chunk))
		ln.bytes += int64(len(chunk))
		kept = append(kept, chunk[:min(len(chunk), keep-len(kept))]...)
		if err == nil || errors.Is(err, io.EOF) {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line{}, err
		}
		if bytes.IndexByte(kept, 0) >= 0 {
			break // binary: the end of the line does not matter
		}
		if l.read > l.max {
			return line{}, errScanLimit
		}
	}
	text := string(kept)
	if ln.bytes == int64(len(kept)) {
		if body, ok := strings.CutSuffix(text, "\r\n"); ok {
			text, l.crlf = body, true
		} else if body, ok := strings.CutSuffix(text, "\n"); ok {
			text, l.lf = body, true
		}
	}
	if l.read == ln.bytes {
		text = strings.TrimPrefix(text, byteOrderMark)
	}
	if ln.bytes > int64(len(kept)) {
		ln.text, ln.cut = l.clean.cutOf(text, MaxLineChars)
		return ln, nil
	}
	ln.text, ln.cut = l.clean.cut(text, MaxLineChars)
	return ln, nil
}
