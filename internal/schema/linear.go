package schema

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// The limits of a pattern that is matched in linear time. Past them, the backtracking engine matches it.
const (
	maxProgram  = 10_000  // instructions of one pattern: a{1000} has a thousand
	maxPrograms = 100_000 // instructions of all patterns of one schema
)

// linear translates a regular ECMA-262 expression into one of Go's, which takes time in proportion to the text. ok is
// false if it is not regular, as with look-aheads and back-references, or uses unknown syntax. The translation matches
// the same texts. source must be a valid expression.
func linear(source string, unicodeMode bool) (re *regexp.Regexp, size int, ok bool) {
	t := translator{in: []rune(source), unicode: unicodeMode}
	if !t.expression() {
		return nil, 0, false
	}
	return bounded(t.out.String())
}

// bounded compiles an expression of Go's, and counts its instructions. ok is false if it has too many.
func bounded(text string) (re *regexp.Regexp, size int, ok bool) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil { // Go's own limits
		return nil, 0, false
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxProgram {
		return nil, 0, false
	}
	if re, err = regexp.Compile(text); err != nil {
		return nil, 0, false
	}
	return re, len(program.Inst), true
}

// translator reads an ECMA-262 expression and writes one of Go's.
type translator struct {
	in      []rune
	at      int
	unicode bool
	out     strings.Builder
	// repeated is the sum of all counts, which is about the number of instructions they make.
	repeated int
}

// set is a set of characters as sorted pairs of first and last.
type set []rune

// The sets of ECMA-262's escapes, without the flags i and v.
var (
	digits = set{'0', '9'}
	words  = set{'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}
	spaces = set{
		'\t', '\r', ' ', ' ', 0xa0, 0xa0, 0x1680, 0x1680, 0x2000, 0x200a, 0x2028, 0x2029, 0x202f, 0x202f,
		0x205f, 0x205f, 0x3000, 0x3000, 0xfeff, 0xfeff,
	}
	lines = set{'\n', '\n', '\r', '\r', 0x2028, 0x2029} // the characters that a dot does not match
)

// complement is the set of all other characters.
func (s set) complement() set {
	var out set
	next := rune(0)
	for i := 0; i < len(s); i += 2 {
		if s[i] > next {
			out = append(out, next, s[i]-1)
		}
		next = s[i+1] + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, next, unicode.MaxRune)
	}
	return out
}

// String is the inside of a class.
func (s set) String() string {
	var b strings.Builder
	for i := 0; i < len(s); i += 2 {
		fmt.Fprintf(&b, `\x{%x}-\x{%x}`, s[i], s[i+1])
	}
	return b.String()
}

func (t *translator) peek(i int) rune {
	if t.at+i >= len(t.in) {
		return -1
	}
	return t.in[t.at+i]
}

// accept reports whether text comes next, and skips it.
func (t *translator) accept(text string) bool {
	rs := []rune(text)
	if t.at+len(rs) > len(t.in) || !slices.Equal(t.in[t.at:t.at+len(rs)], rs) {
		return false
	}
	t.at += len(rs)
	return true
}

// expression translates everything. Each step returns false for unknown syntax.
func (t *translator) expression() bool {
	for t.at < len(t.in) {
		quantifiable, ok := t.term()
		if !ok || !t.quantifier(quantifiable) {
			return false
		}
	}
	return true
}

// term is one atom, assertion or bracket. Brackets are balanced, because the expression is valid.
func (t *translator) term() (quantifiable, ok bool) {
	r := t.peek(0)
	t.at++
	switch r {
	case '^':
		t.out.WriteString(`\A`)
		return false, true
	case '$':
		t.out.WriteString(`\z`)
		return false, true
	case '|':
		t.out.WriteByte('|')
		return false, true
	case '(':
		return false, t.openGroup()
	case ')':
		t.out.WriteByte(')')
		return true, true
	case '.':
		t.class(lines.complement(), "")
		return true, true
	case '[':
		return true, t.bracket()
	case '\\':
		return t.escape()
	case '*', '+', '?': // nothing to repeat: not valid
		return false, false
	}
	t.char(r)
	return true, true
}

// openGroup translates an opening bracket.
func (t *translator) openGroup() bool {
	t.out.WriteString("(?:")
	switch {
	case t.peek(0) != '?' || t.accept("?:"):
		return true
	case t.peek(1) != '<' || t.peek(2) == '=' || t.peek(2) == '!': // asserts, or has flags
		return false
	}
	for t.peek(0) != '>' { // a name
		if t.at++; t.peek(0) < 0 {
			return false
		}
	}
	t.at++
	return true
}

// quantifier skips a quantifier, if there is one. Lazy and greedy quantifiers match the same texts.
func (t *translator) quantifier(allowed bool) bool {
	from := t.at
	switch t.peek(0) {
	case '*', '+', '?':
		t.at++
	case '{':
		if !t.braces() {
			return true // a literal brace, which is the next term
		}
	default:
		return true
	}
	if !allowed || t.repeated > maxProgram {
		return false
	}
	t.out.WriteString(string(t.in[from:t.at]))
	t.accept("?")
	return !slices.Contains([]rune{'*', '+', '?'}, t.peek(0))
}

// braces skips {n}, {n,} and {n,m}; false for anything else.
func (t *translator) braces() bool {
	from := t.at
	t.at++
	number := func() bool {
		start := t.at
		for r := t.peek(0); r >= '0' && r <= '9'; r = t.peek(0) {
			t.at++
		}
		n, err := strconv.Atoi(string(t.in[start:t.at]))
		if t.repeated += n; err != nil && t.at > start {
			t.repeated += maxProgram + 1
		}
		return t.at > start
	}
	if number() {
		if t.accept(",") {
			number()
		}
		if t.accept("}") {
			return true
		}
	}
	t.at = from
	return false
}

// char writes one character.
func (t *translator) char(r rune) { fmt.Fprintf(&t.out, `\x{%x}`, r) }

// class writes a class of characters.
func (t *translator) class(s set, more string) {
	switch inside := s.String() + more; inside {
	case "": // nothing
		fmt.Fprintf(&t.out, `[^%s]`, set{0, unicode.MaxRune})
	default:
		fmt.Fprintf(&t.out, `[%s]`, inside)
	}
}

// escape translates an escape outside of brackets.
func (t *translator) escape() (quantifiable, ok bool) {
	switch r := t.peek(0); {
	case r == 'b' || r == 'B':
		t.at++
		fmt.Fprintf(&t.out, `\%c`, r)
		return false, true
	}
	r, s, more, ok := t.escaped()
	switch {
	case !ok:
		return false, false
	case s != nil || more != "":
		t.class(s, more)
	default:
		t.char(r)
	}
	return true, true
}

// escaped reads what follows a backslash: a character, a set, or the text of a set.
func (t *translator) escaped() (r rune, s set, more string, ok bool) {
	r = t.peek(0)
	t.at++
	switch r {
	case 'd':
		return 0, digits, "", true
	case 'D':
		return 0, digits.complement(), "", true
	case 'w':
		return 0, words, "", true
	case 'W':
		return 0, words.complement(), "", true
	case 's':
		return 0, spaces, "", true
	case 'S':
		return 0, spaces.complement(), "", true
	case 't':
		return '\t', nil, "", true
	case 'n':
		return '\n', nil, "", true
	case 'v':
		return '\v', nil, "", true
	case 'f':
		return '\f', nil, "", true
	case 'r':
		return '\r', nil, "", true
	case '0':
		if n := t.peek(0); n >= '0' && n <= '9' {
			return 0, nil, "", false
		}
		return 0, nil, "", true
	case 'x':
		r, ok = t.hex(2)
		return r, nil, "", ok
	case 'u':
		r, ok = t.codePoint()
		return r, nil, "", ok
	case 'p', 'P':
		more, ok = t.property(r)
		return 0, nil, more, ok
	}
	// Any other letter or digit refers to a group, or is literal only in some engines.
	return r, nil, "", r >= 0 && r < 0x80 && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

func (t *translator) hex(n int) (rune, bool) {
	if t.at+n > len(t.in) {
		return 0, false
	}
	v, err := strconv.ParseUint(string(t.in[t.at:t.at+n]), 16, 32)
	t.at += n
	return rune(v), err == nil
}

// codePoint reads what follows \u.
func (t *translator) codePoint() (rune, bool) {
	if t.unicode && t.accept("{") {
		from := t.at
		for t.peek(0) != '}' {
			if t.peek(0) < 0 {
				return 0, false
			}
			t.at++
		}
		v, err := strconv.ParseUint(string(t.in[from:t.at]), 16, 32)
		t.at++
		return rune(v), err == nil && v <= unicode.MaxRune && !utf16.IsSurrogate(rune(v))
	}
	r, ok := t.hex(4)
	if ok && utf16.IsSurrogate(r) {
		if !t.unicode || !t.accept(`\u`) {
			return 0, false
		}
		low, paired := t.hex(4)
		r = utf16.DecodeRune(r, low)
		ok = paired && r != unicode.ReplacementChar
	}
	return r, ok
}

// property returns the text of \p{…} and \P{…} for names that Go has too.
func (t *translator) property(r rune) (text string, ok bool) {
	if !t.unicode || !t.accept("{") {
		return "", false
	}
	from := t.at
	for t.peek(0) != '}' {
		if t.peek(0) < 0 {
			return "", false
		}
		t.at++
	}
	name := string(t.in[from:t.at])
	t.at++
	_, known := unicode.Categories[name]
	const short = 2 // letters of a category's short name
	known = known && len(name) <= short
	for _, prefix := range []string{"Script=", "sc="} {
		if script, is := strings.CutPrefix(name, prefix); is {
			name = script
			_, known = unicode.Scripts[script]
		}
	}
	return fmt.Sprintf(`\%c{%s}`, r, name), known
}

// bracket translates a class in brackets.
func (t *translator) bracket() bool {
	negated := t.accept("^")
	var b strings.Builder
	for !t.accept("]") {
		low, isChar, ok := t.member(&b)
		if !ok {
			return false
		}
		if t.peek(0) != '-' || t.peek(1) == ']' || t.peek(1) < 0 {
			if isChar {
				b.WriteString(set{low, low}.String())
			}
			continue
		}
		t.at++
		high, isEnd, ok := t.member(&b)
		switch {
		case !ok:
			return false
		case isChar && isEnd:
			if low > high {
				return false
			}
			b.WriteString(set{low, high}.String())
		default: // a class on one side: the hyphen is one
			for _, c := range []struct {
				r  rune
				is bool
			}{{low, isChar}, {'-', true}, {high, isEnd}} {
				if c.is {
					b.WriteString(set{c.r, c.r}.String())
				}
			}
		}
	}
	inside := b.String()
	if inside == "" {
		inside, negated = set{0, unicode.MaxRune}.String(), !negated
	}
	if negated {
		inside = "^" + inside
	}
	t.out.WriteString("[" + inside + "]")
	return true
}

// member reads one member of a class: a character, or a set, which is written at once.
func (t *translator) member(b *strings.Builder) (r rune, isChar, ok bool) {
	r = t.peek(0)
	if r < 0 {
		return 0, false, false
	}
	t.at++
	if r != '\\' {
		return r, true, true
	}
	if t.accept("b") {
		return '\b', true, true
	}
	r, s, more, ok := t.escaped()
	b.WriteString(s.String() + more)
	return r, s == nil && more == "", ok
}
