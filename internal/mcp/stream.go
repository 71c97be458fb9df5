package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lines changes a stream line by line.
type lines struct {
	io.Closer
	from   *bufio.Reader
	most   int
	change func(line []byte) []byte
	left   []byte // of the line that is being read
	err    error
	// long says that the line goes on past the longest one that is changed: the rest passes as it is.
	long bool
}

// pieceBytes is how much of a stream is read at a time.
const pieceBytes = 32 << 10

// Lines changes each line of a stream. A line of more than most bytes passes unchanged.
func Lines(from io.ReadCloser, most int, change func(line []byte) []byte) io.ReadCloser {
	return &lines{Closer: from, from: bufio.NewReaderSize(from, pieceBytes), most: most, change: change}
}

// Read implements [io.Reader].
func (l *lines) Read(p []byte) (int, error) {
	for len(l.left) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		l.fill()
	}
	n := copy(p, l.left)
	l.left = l.left[n:]
	return n, nil
}

// fill reads a line, or what follows of one that is too long.
func (l *lines) fill() {
	var line []byte
	for {
		piece, err := l.from.ReadSlice('\n')
		line = append(line, piece...)
		whole := err == nil
		if !whole && !errors.Is(err, bufio.ErrBufferFull) {
			l.err = err
		}
		switch {
		case l.long:
			l.long = !whole
		case whole || l.err != nil:
			if 0 < len(line) && len(line) <= l.most {
				line = Line(line, l.change)
			}
		case len(line) > l.most:
			l.long = true
		default:
			continue
		}
		l.left = line
		return
	}
}

// Line is a line with its message changed and its end as it was.
func Line(line []byte, change func(message []byte) []byte) []byte {
	text := bytes.TrimRight(line, "\r\n")
	next := change(text)
	if same(text, next) {
		return line
	}
	return append(bytes.Clone(next), line[len(text):]...)
}

// same reports whether nothing was changed.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// InEvents is a change of messages as one of the lines of an event stream.
func InEvents(change func([]byte) []byte) func([]byte) []byte {
	return func(line []byte) []byte {
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			return line
		}
		text := bytes.TrimPrefix(data, []byte(" "))
		next := change(text)
		if same(text, next) {
			return line
		}
		return append([]byte("data: "), next...)
	}
}

// InEvent is a change of messages as one of whole events, each in one piece, or of whole messages.
func InEvent(change func([]byte) []byte) func([]byte) []byte {
	perLine := InEvents(change)
	return func(piece []byte) []byte {
		var out []byte
		for line := range bytes.Lines(piece) {
			out = append(out, Line(line, perLine)...)
		}
		return out
	}
}

// whole changes a stream as a whole.
type whole struct {
	io.ReadCloser
	change func([]byte) []byte
	read   bool
	left   []byte
	err    error
}

// Whole changes a stream that is one message. It is read to its end first, whose length is for the stream to bound.
func Whole(from io.ReadCloser, change func(message []byte) []byte) io.ReadCloser {
	return &whole{ReadCloser: from, change: change}
}

// Read implements [io.Reader].
func (w *whole) Read(p []byte) (int, error) {
	if !w.read {
		w.read = true
		w.left, w.err = io.ReadAll(w.ReadCloser)
		if w.err == nil {
			w.left, w.err = w.change(w.left), io.EOF
		}
	}
	if len(w.left) == 0 {
		return 0, w.err
	}
	n := copy(p, w.left)
	w.left = w.left[n:]
	return n, nil
}
