package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard/internal/provider/strictjson"
)

// Value is a parsed JSON value within the limits of this package, and its canonical bytes.
type Value struct {
	doc       any
	canonical json.RawMessage
	hash      string // "" if it was not made yet
}

// Canonical is the value with its keys in byte order, compact, numbers as they were written. Of a repeated field it has
// the last value, so that all readers of canonical bytes read the same; raw bytes do not guarantee that. The caller
// must not change them.
func (v Value) Canonical() json.RawMessage { return v.canonical }

// Hash is the SHA-256 of the canonical bytes, in hex: equal for inputs that mean the same.
func (v Value) Hash() string {
	if v.hash != "" {
		return v.hash
	}
	sum := sha256.Sum256(v.canonical)
	return hex.EncodeToString(sum[:])
}

// Hashed is the value with its hash, for who asks for that more than once.
func (v Value) Hashed() Value {
	v.hash = v.Hash()
	return v
}

// Doc is the decoded value: maps, slices, strings, [json.Number], bools and nil. The caller must not change it.
func (v Value) Doc() any { return v.doc }

// Parse reads a JSON value. Its errors are [*Error]s, written for the author of the value.
func Parse(raw json.RawMessage) (Value, error) {
	doc, ok := parsePlain(raw)
	if !ok {
		var err error
		if doc, err = parseAny(raw); err != nil {
			return Value{}, err
		}
	}
	canonical, err := encode(doc)
	if err != nil {
		return Value{}, &Error{Problems: []string{"input: can't be encoded: " + err.Error()}}
	}
	return Value{doc: doc, canonical: canonical}, nil
}

// ParseInput is [Parse] for the input of a call. It refuses text that is none: to decode it would put U+FFFD in its
// place, and a tool would then act on another path, or write another text, than the model wrote.
func ParseInput(raw json.RawMessage) (Value, error) {
	switch {
	case !utf8.Valid(raw):
		return Value{}, &Error{Problems: []string{"the arguments are not valid UTF-8; send text as UTF-8"}}
	case strictjson.HalfSurrogate(raw):
		return Value{}, &Error{Problems: []string{"the arguments have half of a surrogate pair (\\uD800 to \\uDFFF " +
			"alone), which is no character; send both halves or the character itself"}}
	}
	return Parse(raw)
}

// parseAny decodes any JSON within the limits of this package.
func parseAny(raw json.RawMessage) (doc any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		return nil, notJSON(string(raw), err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, notJSON(string(raw), &json.SyntaxError{Offset: dec.InputOffset() + 1})
	}
	w := &walker{}
	if p := w.walk(doc, nil); p != nil {
		return nil, &Error{Problems: []string{p.String()}}
	}
	return doc, nil
}

// Encode writes a decoded value as canonical JSON; see [Value.Canonical].
func Encode(doc any) (json.RawMessage, error) { return encode(doc) }

func encode(doc any) (json.RawMessage, error) { return appendJSON(nil, doc) }

// appendJSON writes what a JSON value is decoded into, in the bytes that encoding/json gives it, which writes whatever
// is not plain.
func appendJSON(to []byte, doc any) (_ []byte, err error) {
	switch v := doc.(type) {
	case string:
		if plainString(v) {
			to = append(to, '"')
			to = append(to, v...)
			return append(to, '"'), nil
		}
	case bool:
		return strconv.AppendBool(to, v), nil
	case nil:
		return append(to, "null"...), nil
	case []any:
		if v == nil {
			return append(to, "null"...), nil
		}
		to = append(to, '[')
		for i, e := range v {
			if i > 0 {
				to = append(to, ',')
			}
			if to, err = appendJSON(to, e); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	case map[string]any:
		if v == nil {
			return append(to, "null"...), nil
		}
		to = append(to, '{')
		for i, k := range sortedKeys(v) {
			if i > 0 {
				to = append(to, ',')
			}
			if to, err = appendJSON(to, k); err != nil {
				return nil, err
			}
			to = append(to, ':')
			if to, err = appendJSON(to, v[k]); err != nil {
				return nil, err
			}
		}
		return append(to, '}'), nil
	}
	b := bytes.NewBuffer(to)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// plainString reports whether a string is written as it is: printable ASCII without what JSON escapes.
func plainString(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == 0x7f {
			return false
		}
	}
	return true
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// levels counts the values of an input, and how deep they are together.
type levels struct{ values, depths int }

// add counts a value. It returns what is wrong if a limit is exceeded.
func (l *levels) add(depth int) string {
	l.values++
	l.depths += depth
	switch {
	case l.values > MaxValues:
		return fmt.Sprintf("has more than %d values; send less", MaxValues)
	case depth > MaxDepth:
		return fmt.Sprintf("is nested more than %d deep; send something flatter", MaxDepth)
	case l.depths > MaxLevels:
		return fmt.Sprintf("has too many values that are nested deep: more than %d levels together; send less or "+
			"something flatter", MaxLevels)
	}
	return ""
}

// walker checks the limits of a decoded value before expensive steps.
type walker struct{ levels }

func (w *walker) walk(doc any, path []string) *problem {
	if wrong := w.add(len(path)); wrong != "" {
		return &problem{text: wrong}
	}
	switch v := doc.(type) {
	case map[string]any:
		for k, e := range v {
			if p := w.walk(e, append(path, k)); p != nil {
				return p
			}
		}
	case []any:
		for i, e := range v {
			if p := w.walk(e, append(path, strconv.Itoa(i))); p != nil {
				return p
			}
		}
	case json.Number:
		if !plainNumber(string(v)) {
			return &problem{path: append([]string(nil), path...), text: fmt.Sprintf(
				"expected a number of at most %d characters and an exponent of at most %d, got %s",
				MaxNumberChars, MaxNumberExponent, shorten(string(v)))}
		}
	}
	return nil
}

// plainNumber reports whether exact arithmetic on the number is cheap.
func plainNumber(s string) bool {
	if len(s) > MaxNumberChars {
		return false
	}
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return true
	}
	exp, err := strconv.Atoi(s[i+1:])
	return err == nil && -MaxNumberExponent <= exp && exp <= MaxNumberExponent
}

// notJSON says that text is not JSON, where it breaks and what is there.
func notJSON(text string, err error) *Error {
	if strings.TrimSpace(text) == "" {
		return &Error{Problems: []string{"the arguments were empty; send a JSON object, {} when there is nothing to " +
			"say"}}
	}
	offset, why := int64(len(text)), "it ends too early"
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		if m := syntax.Error(); m != "" && m != "unexpected end of JSON input" {
			why = m
		} else if m == "" {
			why = "there is more text after the end of the value"
		}
		if m := syntax.Error(); m != "unexpected end of JSON input" {
			offset = max(syntax.Offset-1, 0)
		}
	}
	offset = min(offset, int64(len(text)))
	before := text[:offset]
	line := strings.Count(before, "\n") + 1
	const around = 20 // bytes shown on either side of the break
	near := strings.ToValidUTF8(text[max(0, offset-around):min(int64(len(text)), offset+around)], "")
	return &Error{Problems: []string{fmt.Sprintf(
		"the arguments were not valid JSON: %s at byte %d (line %d), near %s; send one complete JSON object",
		escape(why), offset, line, strconv.Quote(near))}}
}
