package strictjson

import (
	"fmt"
	"unicode/utf8"
)

// scanner walks a text once, with a stack of its own: the depth of the text costs memory here, never goroutine stack.
type scanner struct {
	data     []byte
	maxDepth int
	pos      int
	stack    []frame // frames past its length are kept for their key buffers
	// inputs says that what is wrong with the input of a call, beyond the grammar, is no fault but an edit.
	inputs bool
	edits  []span
}

// span is a part of a text.
type span struct{ from, to int }

// frame is one open object or array.
type frame struct {
	object bool
	index  int    // of the array's present item
	key    []byte // of the object's present field, decoded
	keys   keySet
}

type state int

const (
	wantValue     state = iota
	wantFirstItem       // a value or the array's end
	wantFirstKey        // a key or the object's end
	wantKey
	afterValue
)

// scan returns the first fault of the text, or nil when it is exactly one JSON value.
func (s *scanner) scan() *fault {
	st := wantValue
	for {
		s.space()
		var f *fault
		switch st {
		case wantValue, wantFirstItem:
			st, f = s.value(st)
		case wantFirstKey, wantKey:
			st, f = s.field(st)
		case afterValue:
			if len(s.stack) == 0 {
				if s.pos < len(s.data) {
					return &fault{kind: secondValue, at: s.pos}
				}
				return nil
			}
			st, f = s.next()
		}
		if f != nil {
			return f
		}
	}
}

// value reads a scalar whole, or opens an object or array.
func (s *scanner) value(st state) (state, *fault) {
	want := "a value"
	if st == wantFirstItem {
		want = "a value or ']'"
	}
	if s.pos == len(s.data) {
		return 0, s.ends(want)
	}
	if s.inputs && s.atInput() {
		return afterValue, s.input()
	}
	switch c := s.data[s.pos]; {
	case c == '{':
		return wantFirstKey, s.open(true)
	case c == '[':
		return wantFirstItem, s.open(false)
	case c == ']' && st == wantFirstItem:
		s.close()
		return afterValue, nil
	case c == '"':
		_, f := s.str()
		return afterValue, f
	case c == '-' || '0' <= c && c <= '9':
		return afterValue, s.number()
	case c == 't':
		return afterValue, s.literal("true")
	case c == 'f':
		return afterValue, s.literal("false")
	case c == 'n':
		return afterValue, s.literal("null")
	}
	return 0, s.wanted(want)
}

// field reads a key and its colon.
func (s *scanner) field(st state) (state, *fault) {
	if s.pos < len(s.data) && s.data[s.pos] == '}' && st == wantFirstKey {
		s.close()
		return afterValue, nil
	}
	at := s.pos
	key, f := s.key(st)
	if f != nil && key == nil {
		return 0, f
	}
	top := &s.stack[len(s.stack)-1]
	top.key = key
	if !top.keys.add(key) {
		return 0, &fault{kind: duplicateKey, at: at, path: s.path()}
	}
	return wantValue, f
}

// key reads a key and its colon. The key is there also when its colon is wrong.
func (s *scanner) key(st state) ([]byte, *fault) {
	want := "a key in double quotes"
	if st == wantFirstKey {
		want += " or '}'"
	}
	switch {
	case s.pos == len(s.data):
		return nil, s.ends(want)
	case s.data[s.pos] != '"':
		return nil, s.wanted(want)
	}
	key, f := s.str()
	if f != nil {
		return nil, f
	}
	s.space()
	if s.pos == len(s.data) {
		return key, s.ends("':'")
	}
	if s.data[s.pos] != ':' {
		return key, s.wanted("':'")
	}
	s.pos++
	return key, nil
}

// next reads what follows a value inside an object or array.
func (s *scanner) next() (state, *fault) {
	top := &s.stack[len(s.stack)-1]
	after, closed, f := s.behind(top.object)
	switch {
	case f != nil:
	case closed:
		s.stack = s.stack[:len(s.stack)-1]
	default:
		top.index++
	}
	return after, f
}

// behind reads what follows a value inside an object or array: a comma, or its end.
func (s *scanner) behind(object bool) (after state, closed bool, f *fault) {
	end, after, want := byte(']'), wantValue, "',' or ']'"
	if object {
		end, after, want = '}', wantKey, "',' or '}'"
	}
	if s.pos == len(s.data) {
		return 0, false, s.ends(want)
	}
	switch s.data[s.pos] {
	case ',':
		s.pos++
		return after, false, nil
	case end:
		s.pos++
		return afterValue, true, nil
	}
	return 0, false, s.wanted(want)
}

func (s *scanner) open(object bool) *fault {
	n := len(s.stack)
	if n == s.maxDepth {
		return &fault{kind: tooDeep, at: s.pos}
	}
	if n < cap(s.stack) {
		s.stack = s.stack[:n+1]
	} else {
		s.stack = append(s.stack, frame{})
	}
	top := &s.stack[n]
	top.object, top.index, top.key = object, 0, nil
	top.keys.reset()
	s.pos++
	return nil
}

func (s *scanner) close() {
	s.stack = s.stack[:len(s.stack)-1]
	s.pos++
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// str reads a string and returns it decoded.
func (s *scanner) str() ([]byte, *fault) {
	start := s.pos
	escaped := false
	for s.pos++; s.pos < len(s.data); {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return decodeString(s.data[start:s.pos], escaped), nil
		case c < ' ':
			return nil, s.bad("the control character %U stands bare in a string; write it escaped", rune(c))
		case c == '\\':
			escaped = true
			if f := s.escape(); f != nil {
				return nil, f
			}
		default:
			s.pos++
		}
	}
	return nil, s.ends("the end of a string")
}

// escape reads one escape sequence.
func (s *scanner) escape() *fault {
	at := s.pos
	s.pos++
	if s.pos == len(s.data) {
		return s.ends("the end of a string")
	}
	switch s.data[s.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
		for range 4 {
			if s.pos == len(s.data) {
				return s.ends("the end of a string")
			}
			if !isHex(s.data[s.pos]) {
				s.pos = at
				return s.bad(`\u needs four hexadecimal digits`)
			}
			s.pos++
		}
		return nil
	}
	s.pos = at
	return s.bad(`a string has an escape that JSON does not know; a backslash itself is written \\`)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// number reads a number by the grammar of RFC 8259: no leading zero, digits on both sides of the point.
func (s *scanner) number() *fault {
	if s.data[s.pos] == '-' {
		s.pos++
	}
	if s.pos < len(s.data) && s.data[s.pos] == '0' {
		s.pos++
		if s.pos < len(s.data) && isDigit(s.data[s.pos]) {
			return s.bad("a number has a leading zero")
		}
	} else if f := s.digits(); f != nil {
		return f
	}
	if s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		if f := s.digits(); f != nil {
			return f
		}
	}
	if s.pos < len(s.data) && s.data[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.data) && (s.data[s.pos] == '+' || s.data[s.pos] == '-') {
			s.pos++
		}
		return s.digits()
	}
	return nil
}

func (s *scanner) digits() *fault {
	start := s.pos
	for s.pos < len(s.data) && isDigit(s.data[s.pos]) {
		s.pos++
	}
	switch {
	case s.pos > start:
		return nil
	case s.pos == len(s.data):
		return s.ends("a digit")
	}
	return s.wanted("a digit")
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (s *scanner) literal(word string) *fault {
	start := s.pos
	for i := range len(word) {
		if s.pos == len(s.data) {
			return s.ends(word)
		}
		if s.data[s.pos] != word[i] {
			s.pos = start
			return s.bad("want a value; only true, false and null are words in JSON")
		}
		s.pos++
	}
	return nil
}

func (s *scanner) bad(format string, args ...any) *fault {
	return &fault{kind: notJSON, at: s.pos, problem: fmt.Sprintf(format, args...)}
}

func (s *scanner) wanted(want string) *fault {
	r, _ := utf8.DecodeRune(s.data[s.pos:])
	return s.bad("want %s, got %q", want, r)
}

func (s *scanner) ends(want string) *fault { return s.bad("it ends too early, want %s", want) }
