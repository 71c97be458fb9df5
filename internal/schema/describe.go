package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// How much of a value a message shows, in characters and entries.
const (
	shownChars   = 60
	shownEntries = 20
)

// shorten cuts a text for a message and escapes unprintable characters.
func shorten(s string) string {
	if n := utf8.RuneCountInString(s); n > shownChars {
		return fmt.Sprintf("%s… (%d characters)", escape(string([]rune(s)[:shownChars])), n)
	}
	return escape(s)
}

// quote is shorten in quotes.
func quote(s string) string {
	if n := utf8.RuneCountInString(s); n > shownChars {
		return fmt.Sprintf("%s… (%d characters)", strconv.Quote(string([]rune(s)[:shownChars])), n)
	}
	return strconv.Quote(s)
}

// escape replaces control and other unprintable characters, and does not change quotes.
func escape(s string) string {
	q := strconv.Quote(s)
	return strings.ReplaceAll(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`), `\\`, `\`)
}

// describe names a value with its type, for "got …".
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprintf("boolean %t", v)
	case json.Number:
		return "number " + shorten(string(v))
	case string:
		return "string " + quote(v)
	case []any:
		return fmt.Sprintf("array of %d", len(v))
	case map[string]any:
		return fmt.Sprintf("object of %d fields", len(v))
	}
	return fmt.Sprintf("%T", v)
}

// literal shows a value of a schema (an enum entry, a const) as JSON.
func literal(v any) string {
	if s, ok := v.(string); ok {
		return quote(s)
	}
	b, err := encode(v)
	if err != nil {
		return describe(v)
	}
	return shorten(string(b))
}

func literals(vs []any) string {
	var out []string
	for i, v := range vs {
		if i == shownEntries {
			out = append(out, fmt.Sprintf("… (%d in all)", len(vs)))
			break
		}
		out = append(out, literal(v))
	}
	return strings.Join(out, ", ")
}

func number(r *big.Rat) string {
	if r.IsInt() {
		return shorten(r.Num().String())
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

var plainKey = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]{0,63}$`)

// renderPath writes a location in a form that models know: a.b[3]["odd key"]; "input" for the whole.
func renderPath(path []string, doc any) string {
	if len(path) == 0 {
		return "input"
	}
	const shownSteps = 16
	var b strings.Builder
	for i, step := range path {
		if i == shownSteps {
			b.WriteString("…")
			break
		}
		array, inArray := doc.([]any)
		switch {
		case inArray:
			fmt.Fprintf(&b, "[%s]", step)
		case plainKey.MatchString(step):
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		default:
			fmt.Fprintf(&b, "[%s]", quote(step))
		}
		if inArray {
			doc = nil
			if n, err := strconv.Atoi(step); err == nil && n >= 0 && n < len(array) {
				doc = array[n]
			}
		} else if object, ok := doc.(map[string]any); ok {
			doc = object[step]
		} else {
			doc = nil
		}
	}
	return b.String()
}

// at finds the value at a location; ok is false if there is none.
func at(doc any, path []string) (v any, ok bool) {
	for _, step := range path {
		switch d := doc.(type) {
		case map[string]any:
			if doc, ok = d[step]; !ok {
				return nil, false
			}
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(d) {
				return nil, false
			}
			doc = d[n]
		default:
			return nil, false
		}
	}
	return doc, true
}
