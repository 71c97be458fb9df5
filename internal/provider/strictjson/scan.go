package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// scanner reads a text once, token by token.
type scanner struct {
	*jsontext.Decoder
	data     []byte
	maxDepth int
}

// newScanner reads lone surrogates as encoding/json does, which reads the fields later: each is U+FFFD, so two keys
// that differ only there are one key. The caller must check that the text is UTF-8.
func newScanner(data []byte, maxDepth int, lax bool) *scanner {
	options := []jsontext.Options{jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(lax)}
	return &scanner{Decoder: jsontext.NewDecoder(bytes.NewBuffer(data), options...), data: data, maxDepth: maxDepth}
}

// scan returns the first fault of the text, or nil if it is exactly one JSON value. If input is not nil, scan calls it
// before the input of a call, and it reads the input.
func (s *scanner) scan(input func() *fault) *fault {
	for {
		token, err := s.ReadToken()
		if err != nil {
			return s.fault(err)
		}
		depth := s.StackDepth()
		switch kind := token.Kind(); {
		case depth > s.maxDepth:
			return &fault{kind: tooDeep, at: s.offset() - 1}
		case depth == 0:
			return s.end()
		case kind == '"' && input != nil && inputKeys[token.String()] && s.afterKey():
			if f := input(); f != nil {
				return f
			}
		}
	}
}

func (s *scanner) offset() int { return int(s.InputOffset()) }

// afterKey reports whether the last token was a key.
func (s *scanner) afterKey() bool {
	kind, length := s.StackIndex(s.StackDepth())
	return kind == '{' && length%2 == 1
}

// end refuses text after the value of the document.
func (s *scanner) end() *fault {
	at := s.skip(s.offset())
	switch {
	case at == len(s.data):
		return nil
	case s.leadingZero(at):
		return s.bad(at, "a number has a leading zero")
	}
	return &fault{kind: secondValue, at: at}
}

// skip is the offset of the first byte from at on that is not white space.
func (s *scanner) skip(at int) int {
	return len(s.data) - len(bytes.TrimLeft(s.data[at:], space))
}

// leadingZero reports whether the token before at was a zero and a digit follows it.
func (s *scanner) leadingZero(at int) bool {
	return at > 0 && at == s.offset() && s.data[at-1] == '0' && isDigit(s.data[at])
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// fault turns an error of the decoder into ours. The decoder's state says what was expected.
func (s *scanner) fault(err error) *fault {
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if ok && errors.Is(err, jsontext.ErrDuplicateName) {
		return &fault{kind: duplicateKey, at: int(syntactic.ByteOffset), path: s.path(syntactic.JSONPointer)}
	}
	at, want := s.wants()
	if at == len(s.data) {
		return s.ends(want)
	}
	c := s.data[at]
	cut := !ok || errors.Is(err, io.ErrUnexpectedEOF)
	valueBegins := strings.HasPrefix(want, aValue)
	switch {
	case s.leadingZero(at):
		return s.bad(at, "a number has a leading zero")
	case c == '"' && (valueBegins || strings.HasPrefix(want, aKey)):
		if cut {
			return s.ends("the end of a string")
		}
		return s.badString(int(syntactic.ByteOffset))
	case valueBegins && (c == '-' || isDigit(c)):
		if cut {
			return s.ends("a digit")
		}
		return s.wanted(int(syntactic.ByteOffset), "a digit")
	case valueBegins && words[c] != "":
		if cut {
			return s.ends(words[c])
		}
		return s.bad(at, "want a value; only true, false and null are words in JSON")
	}
	return s.wanted(at, want)
}

// words are JSON's literals, by their first letters.
var words = map[byte]string{'t': "true", 'f': "false", 'n': "null"}

const (
	aValue = "a value"
	aKey   = "a key in double quotes"
)

// wants returns what is expected after the last complete token, and the offset of what is there instead.
func (s *scanner) wants() (at int, want string) {
	kind, length := s.StackIndex(s.StackDepth())
	at = s.skip(s.offset())
	after := func(separator byte, then, otherwise string) (int, string) {
		if at < len(s.data) && s.data[at] == separator {
			return s.skip(at + 1), then
		}
		return at, otherwise
	}
	switch {
	case kind == '[' && length == 0:
		return at, aValue + " or ']'"
	case kind == '[':
		return after(',', aValue, "',' or ']'")
	case kind == '{' && length == 0:
		return at, aKey + " or '}'"
	case kind == '{' && length%2 == 1:
		return after(':', aValue, "':'")
	case kind == '{':
		return after(',', aKey, "',' or '}'")
	}
	return at, aValue
}

// badString describes the error in a string at a byte that the decoder refused.
func (s *scanner) badString(at int) *fault {
	switch c := s.data[at]; {
	case c < ' ':
		return s.bad(at, "the control character %U stands bare in a string; write it escaped", rune(c))
	case bytes.HasPrefix(s.data[at:], []byte(`\u`)):
		return s.bad(at, `\u needs four hexadecimal digits`)
	}
	return s.bad(at, `a string has an escape that JSON does not know; a backslash itself is written \\`)
}

func (s *scanner) bad(at int, format string, args ...any) *fault {
	return &fault{kind: notJSON, at: at, problem: fmt.Sprintf(format, args...)}
}

func (s *scanner) wanted(at int, want string) *fault {
	r, _ := utf8.DecodeRune(s.data[at:])
	return s.bad(at, "want %s, got %q", want, r)
}

func (s *scanner) ends(want string) *fault {
	return s.bad(len(s.data), "it ends too early, want %s", want)
}
