package strictjson

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
)

// MaxInputDepth bounds the nesting of one call's input: it is what is left of [toolyard.MaxJSONDepth] inside the batch,
// its array of calls and the call, so that a decoded batch can always be written in native form and read back.
const MaxInputDepth = toolyard.MaxJSONDepth - 3

const (
	contextBytes = 24 // bytes of text shown on each side of a fault
	pathBytes    = 200
	keyBytes     = 48
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// Check returns a [*toolyard.InputError] if data is not one valid JSON document. The checks, in this order: at most
// [toolyard.MaxBatchBytes] bytes; not empty; no byte order mark; UTF-8; then in one pass over the text the grammar of
// RFC 8259, at most [toolyard.MaxJSONDepth] levels of objects and arrays, no key twice in one object (keys are compared
// decoded: "a" is "\u0061"), and nothing after the value.
//
// Lines and columns count from 1, columns in characters. Time is linear in len(data), whatever its nesting; memory is
// bounded by the keys of the objects that are open at one time.
func Check(data []byte) error {
	if len(data) > toolyard.MaxBatchBytes {
		return tooLong(data)
	}
	return CheckText(data)
}

func tooLong(data []byte) error {
	return &toolyard.InputError{TooLarge: true, Problem: fmt.Sprintf(
		"the input is %d bytes; at most %d are allowed in a batch", len(data), toolyard.MaxBatchBytes)}
}

// CheckText is [Check] for data of any size: our own encoding of a batch may be longer than the limit for a batch.
func CheckText(data []byte) error {
	if err := checkBytes(data); err != nil {
		return err
	}
	if f := newScanner(data, toolyard.MaxJSONDepth, false).scan(nil); f != nil {
		return f.inputError(data)
	}
	return nil
}

// checkBytes makes the checks of [Check] that precede the grammar.
func checkBytes(data []byte) error {
	if len(trimSpace(data)) == 0 {
		return &toolyard.InputError{Problem: "the input is empty; hand in one JSON document"}
	}
	if bytes.HasPrefix(data, byteOrderMark) {
		return &toolyard.InputError{Problem: "the input begins with a byte order mark; save it as UTF-8 without one"}
	}
	if i := invalidUTF8(data); i >= 0 {
		return &toolyard.InputError{Problem: fmt.Sprintf(
			"the input is not valid UTF-8 at byte %d (0x%02x); JSON is UTF-8", i, data[i])}
	}
	return nil
}

// Valid reports whether text is one JSON value by the rules of [Check], at most maxDepth levels deep and of any size.
func Valid(text []byte, maxDepth int) bool {
	return utf8.Valid(text) && newScanner(text, maxDepth, false).scan(nil) == nil
}

// TooDeep reports whether text nests deeper than maxDepth before anything else is wrong with it.
func TooDeep(text []byte, maxDepth int) bool {
	f := newScanner(text, maxDepth, false).scan(nil)
	return f != nil && f.kind == tooDeep
}

// invalidUTF8 returns the offset of the first byte that is not part of valid UTF-8, or -1.
func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// fault is the scanner's error, at a byte offset of the text.
type fault struct {
	kind    faultKind
	at      int
	problem string
	path    string
}

type faultKind int

const (
	notJSON faultKind = iota
	tooDeep
	duplicateKey
	secondValue
)

func (f *fault) inputError(data []byte) error {
	line, column := position(data, f.at)
	where := fmt.Sprintf("line %d, column %d", line, column)
	e := &toolyard.InputError{}
	switch f.kind {
	case tooDeep:
		e.Problem = fmt.Sprintf("the input nests deeper than %d levels of objects and arrays at %s",
			toolyard.MaxJSONDepth, where)
	case duplicateKey:
		e.Field = f.path
		e.Problem = fmt.Sprintf("appears twice in its object, the second time at %s; keep one", where)
	case secondValue:
		e.Problem = fmt.Sprintf("the input goes on after its JSON value at %s, near %s; hand in one JSON document",
			where, excerpt(data, f.at))
	default:
		e.Problem = fmt.Sprintf("the input is not JSON at %s: %s, near %s", where, f.problem, excerpt(data, f.at))
	}
	return e
}

// position turns a byte offset into line and column, both from 1, the column in characters.
func position(data []byte, at int) (line, column int) {
	before := data[:at]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}

// excerpt quotes the text around a byte offset, with terminal escapes escaped.
func excerpt(data []byte, at int) string {
	from, to := max(0, at-contextBytes), min(len(data), at+contextBytes)
	for from > 0 && !utf8.RuneStart(data[from]) {
		from--
	}
	for to < len(data) && !utf8.RuneStart(data[to]) {
		to++
	}
	text := strconv.Quote(string(data[from:to]))
	if from > 0 {
		text = "..." + text
	}
	if to < len(data) {
		text += "..."
	}
	return text
}

// space is the white space of JSON.
const space = " \t\r\n"

// trimSpace removes the white space that JSON allows around a value.
func trimSpace(data []byte) []byte { return bytes.Trim(data, space) }
