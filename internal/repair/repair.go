// Package repair mends the JSON of a call's input where there is one way to read it: what models write that learned
// JSON and JavaScript and Python together. It never guesses a value, and adds and drops none.
//
// Authority: none. The dispatcher asks for a mend if the batch wants that and the input is no object; the tool's schema
// must accept what comes out.
//
// Ordering and failure: none; it is pure.
package repair

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// MaxBytes is the longest text that is mended.
const MaxBytes = 64 << 10

// Input mends an input that is a JSON string with the text of an object in it. what says for the model what was mended.
// ok is false if the input is anything else, if nothing is wrong with it, or if there is more than one way to read it.
//
// It mends an object that is written as text, a code fence around it, commas before a closing bracket, single quotes,
// names without quotes, Python's True, False and None, line breaks and tabs in strings, and closing brackets that are
// missing at the end behind a value that is complete. A number at the end may be cut, so its text is not mended.
func Input(input json.RawMessage) (mended json.RawMessage, what string, ok bool) {
	var text string
	if len(input) > MaxBytes || json.Unmarshal(input, &text) != nil {
		return nil, "", false
	}
	if strictjson.HalfSurrogate(input) || strictjson.HalfSurrogate([]byte(text)) { // nobody knows which character it is
		return nil, "", false
	}
	r := reader{rest: text, did: map[string]bool{}}
	r.fence()
	r.space()
	if !strings.HasPrefix(r.rest, "{") {
		return nil, "", false
	}
	if err := r.value(0); err != nil {
		return nil, "", false
	}
	if r.space(); r.rest != "" || !strictjson.Valid(r.out.Bytes(), strictjson.MaxInputDepth) {
		return nil, "", false
	}
	if len(r.notes) == 0 {
		r.note("the object was written as a string")
	}
	return r.out.Bytes(), strings.Join(r.notes, ", "), true
}

// errAmbiguous says that there is no one way to read a text.
var errAmbiguous = errors.New("there is no one way to read it")

// reader reads a text and writes JSON.
type reader struct {
	rest  string
	out   bytes.Buffer
	notes []string
	did   map[string]bool
	// cut says that the last value may go on behind the end of the text.
	cut bool
}

func (r *reader) note(what string) {
	if !r.did[what] {
		r.did[what] = true
		r.notes = append(r.notes, what)
	}
}

// fence takes a code fence off: a first line that begins with ``` and has at most one word more, and a last one.
func (r *reader) fence() {
	text := strings.TrimSpace(r.rest)
	first, body, ok := strings.Cut(text, "\n")
	lang, fenced := strings.CutPrefix(strings.TrimSpace(first), "```")
	if !ok || !fenced || strings.ContainsAny(lang, " \t`{") {
		return
	}
	if body, ok = strings.CutSuffix(body, "```"); ok && strings.HasSuffix(strings.TrimRight(body, " \t\r"), "\n") {
		r.rest = body
		r.note("a code fence was around it")
	}
}

func (r *reader) space() { r.rest = strings.TrimLeft(r.rest, " \t\r\n") }

// take takes a token that the text begins with.
func (r *reader) take(token string) bool {
	rest, ok := strings.CutPrefix(r.rest, token)
	if ok {
		r.rest = rest
	}
	return ok
}

func (r *reader) value(depth int) error {
	r.space()
	r.cut = false
	switch {
	case depth > strictjson.MaxInputDepth || r.rest == "":
		return errAmbiguous
	case r.take("{"):
		return r.list('{', '}', depth, func() error {
			if err := r.name(); err != nil {
				return err
			}
			if r.space(); !r.take(":") {
				return errAmbiguous
			}
			r.out.WriteByte(':')
			return r.value(depth + 1)
		})
	case r.take("["):
		return r.list('[', ']', depth, func() error { return r.value(depth + 1) })
	case r.rest[0] == '"' || r.rest[0] == '\'':
		return r.text()
	}
	return r.word()
}

// list reads the members of an object or array.
func (r *reader) list(begin, end byte, depth int, member func() error) error {
	r.out.WriteByte(begin)
	closed := func() bool {
		if r.take(string(end)) {
			return true
		}
		if r.rest == "" && !r.cut { // behind a member that is complete
			r.note("closing brackets were missing at the end")
			return true
		}
		return false
	}
	for n := 0; ; n++ {
		r.space()
		if n == 0 && r.take(string(end)) {
			break
		}
		if n > 0 {
			if closed() {
				break
			}
			if !r.take(",") {
				return errAmbiguous
			}
			if r.space(); r.take(string(end)) {
				r.note("a comma stood before a closing bracket")
				break
			}
			r.out.WriteByte(',')
		}
		if err := member(); err != nil {
			return err
		}
	}
	r.out.WriteByte(end)
	r.cut = false
	return nil
}

// name reads the name of a member.
func (r *reader) name() error {
	if r.rest != "" && (r.rest[0] == '"' || r.rest[0] == '\'') {
		return r.text()
	}
	n := 0
	for n < len(r.rest) && (isLetter(r.rest[n]) || n > 0 && isDigit(r.rest[n])) {
		n++
	}
	if n == 0 {
		return errAmbiguous
	}
	r.note("a name had no quotes")
	r.write(r.rest[:n])
	r.rest = r.rest[n:]
	return nil
}

func isLetter(c byte) bool { return c == '_' || c == '$' || 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// text reads a string in double or single quotes.
func (r *reader) text() error {
	quote := r.rest[0]
	if quote == '\'' {
		r.note("strings were in single quotes")
	}
	var out strings.Builder
	for i := 1; i < len(r.rest); {
		switch c := r.rest[i]; {
		case c == quote:
			r.rest = r.rest[i+1:]
			if quote == '\'' && !r.ends() { // an apostrophe, perhaps
				return errAmbiguous
			}
			r.write(out.String())
			return nil
		case c == '\\':
			char, size, err := escape(r.rest[i:], quote)
			if err != nil {
				return err
			}
			out.WriteString(char)
			i += size
		case c == '\n' || c == '\r' || c == '\t':
			r.note("line breaks or tabs in a string were not escaped")
			out.WriteByte(c)
			i++
		case c < ' ':
			return errAmbiguous
		default:
			_, size := utf8.DecodeRuneInString(r.rest[i:])
			out.WriteString(r.rest[i : i+size])
			i += size
		}
	}
	return errAmbiguous // it is cut, and nobody knows what is missing
}

// ends reports whether what follows may stand behind a string.
func (r *reader) ends() bool {
	rest := strings.TrimLeft(r.rest, " \t\r\n")
	return rest == "" || strings.IndexByte(",:]}", rest[0]) >= 0
}

// escape reads an escape sequence as JSON has it, and that of a single quote.
func escape(text string, quote byte) (char string, size int, err error) {
	switch {
	case len(text) < 2:
		return "", 0, errAmbiguous
	case text[1] == '\'' && quote == '\'':
		return "'", 2, nil
	case text[1] != 'u':
		size = 2
	default: // with the second half of a surrogate pair, if there is one
		if size = 6; len(text) >= 12 && strings.HasPrefix(text[6:], `\u`) && utf16High(text[2:6]) {
			size = 12
		}
	}
	if len(text) < size || json.Unmarshal([]byte(`"`+text[:size]+`"`), &char) != nil {
		return "", 0, errAmbiguous
	}
	return char, size, nil
}

func utf16High(hex string) bool {
	v, err := strconv.ParseUint(hex, 16, 16)
	return err == nil && v >= 0xd800 && v < 0xdc00
}

// write writes a JSON string.
func (r *reader) write(text string) {
	e := json.NewEncoder(&r.out)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(fmt.Sprintf("repair: a string does not encode: %v", err))
	}
	r.out.Truncate(r.out.Len() - 1) // the line break of the encoder
}

// words are those that JSON and Python have for one thing.
var words = []struct{ word, json string }{
	{"true", "true"}, {"false", "false"}, {"null", "null"}, {"True", "true"}, {"False", "false"}, {"None", "null"},
}

// word reads a number, or a word that stands for a value.
func (r *reader) word() error {
	n := 0
	for n < len(r.rest) && (isLetter(r.rest[n]) || isDigit(r.rest[n]) || strings.IndexByte("+-.", r.rest[n]) >= 0) {
		n++
	}
	text := r.rest[:n]
	for _, w := range words {
		if text == w.word {
			if w.word != w.json {
				r.note("Python's words stood for values")
			}
			r.out.WriteString(w.json)
			r.rest = r.rest[n:]
			return nil
		}
	}
	if !json.Valid([]byte(text)) {
		return errAmbiguous
	}
	r.out.WriteString(text)
	r.rest = r.rest[n:]
	r.cut = r.rest == ""
	return nil
}
