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

// Lines changes each line of a stream. A line of more than most bytes passes unchanged.
func Lines(from io.ReadCloser, most int, change func(line []byte) []byte) io.ReadCloser {
	return &lines{Closer: from, from: bufio.NewReader(from), most: most, change: change}
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
			if len(line) <= l.most {
				line = l.changed(line)
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

// changed is a line with its message changed and its end as it was.
func (l *lines) changed(line []byte) []byte {
	text := bytes.TrimRight(line, "\r\n")
	end := line[len(text):]
	next := l.change(text)
	if len(next) == len(text) && (len(text) == 0 || &next[0] == &text[0]) {
		return line
	}
	return append(bytes.Clone(next), end...)
}

// InEvents is a change of messages as one of the lines of an event stream.
func InEvents(change func([]byte) []byte) func([]byte) []byte {
	return func(line []byte) []byte {
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			return line
		}
		text := bytes.TrimPrefix(data, []byte(" "))
		next := change(text)
		if len(next) == len(text) && (len(text) == 0 || &next[0] == &text[0]) {
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
			text := bytes.TrimRight(line, "\r\n")
			out = append(append(out, perLine(text)...), line[len(text):]...)
		}
		return out
	}
}
