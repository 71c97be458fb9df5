package display

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// The characters that represent blanks and enclose the names of others. In a text they are marked themselves.
const (
	blankMark = "␣"
	tabMark   = "⇥"
	openMark  = "⟨"
	closeMark = "⟩"
	ownMarks  = blankMark + tabMark + openMark + closeMark
)

// Legend and LegendFolded explain the marks.
const (
	Legend = blankMark + " is a blank, " + tabMark + " a tab, " + openMark + "…" + closeMark +
		" what a screen does not show,"
	LegendFolded = "a line behind > goes on from the one above"
)

// token is a piece of a shown text that is not split over lines.
type token struct {
	text    string
	columns int
}

// Text shows a text on one line.
func Text(text string) string {
	var b strings.Builder
	for _, t := range tokens(text) {
		b.WriteString(t.text)
	}
	return b.String()
}

// tokens shows a text without line breaks, or with marked line breaks.
func tokens(text string) (out []token) {
	runes := []rune(text)
	foreign := foreignLetters(runes)
	for i, n := 0, 0; i < len(runes); i += n {
		r := runes[i]
		plain := shows(r) && !foreign[i]
		for n = 1; !plain && i+n < len(runes) && runes[i+n] == r; {
			n++
		}
		switch {
		case r == ' ' && n == 1 && i > 0 && i+1 < len(runes):
			out = append(out, token{" ", 1})
		case r == ' ':
			out = append(out, blanks(blankMark, "space", n)...)
		case r == '\t':
			out = append(out, blanks(tabMark, "tab", n)...)
		case carried(runes, i, foreign):
			out[len(out)-1].text += string(r)
			out[len(out)-1].columns += wideColumns
			n = 1
		case plain:
			t := token{string(r), 1}
			if r > unicode.MaxASCII {
				t.columns = wideColumns
			}
			out = append(out, t)
		default:
			out = append(out, named(r, n))
		}
	}
	return out
}

// blanks returns the tokens of n blanks: one by one if they are few.
func blanks(one, name string, n int) []token {
	if n > maxBlanks {
		return []token{mark(name, n)}
	}
	out := make([]token, n)
	for i := range out {
		out[i] = token{one, wideColumns}
	}
	return out
}

// named is the mark of n repetitions of a character.
func named(r rune, n int) token {
	name := fmt.Sprintf("U+%04X", r)
	if k := kind(r); k != "" {
		name += " " + k
	}
	return mark(name, n)
}

// mark names a character, or n repetitions.
func mark(name string, n int) token {
	if n > 1 {
		name = fmt.Sprintf("%d×%s", n, name)
	}
	return token{openMark + name + closeMark, len(name) + 2*wideColumns}
}

// shows reports whether a screen shows a character by itself and in its place.
func shows(r rune) bool {
	switch {
	case r > ' ' && r < unicode.MaxASCII:
		return true
	case r < 0xa0, strings.ContainsRune(ownMarks, r), rightToLeft(r), ignorable(r):
		return false
	case r == 0x2800, r == 0xfffc, r == 0x1d159: // symbols that are empty
		return false
	case r >= 0x1d400 && r <= 0x1d7ff: // Latin and Greek letters, and digits, once more
		return false
	}
	return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S)
}

// ignorable reports whether programs leave out a character if they cannot show it.
func ignorable(r rune) bool {
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Cf)
}

// rightToLeft reports whether a character belongs to a script that is written from right to left, which changes the
// order in which its neighbours are shown.
func rightToLeft(r rune) bool {
	return r >= 0x590 && r <= 0x8ff || r >= 0xfb1d && r <= 0xfdff || r >= 0xfe70 && r <= 0xfeff || r >= 0x10800 &&
		r <= 0x10fff || r >= 0x1e800 && r <= 0x1efff
}

// carried reports whether a character is a combining mark that the script of the letter before it needs. Common
// accented Latin, Greek and Cyrillic letters have code points of their own, and two marks on one letter are enough.
func carried(runes []rune, i int, foreign map[int]bool) bool {
	carries := func(at int) bool {
		return at >= 0 && unicode.IsLetter(runes[at]) && shows(runes[at]) && !foreign[at] &&
			!unicode.In(runes[at], unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Common)
	}
	isMark := func(at int) bool {
		return at > 0 && unicode.In(runes[at], unicode.Mn, unicode.Mc) && !ignorable(runes[at]) &&
			!rightToLeft(runes[at])
	}
	return isMark(i) && (carries(i-1) || isMark(i-1) && carries(i-2))
}

// foreignLetters finds the letters of other scripts inside words with ASCII letters, because they may look like those.
func foreignLetters(runes []rune) map[int]bool {
	out := map[int]bool{}
	inWord := func(r rune) bool { return unicode.In(r, unicode.L, unicode.M, unicode.Nd) }
	for i, end := 0, 0; i < len(runes); i = end + 1 {
		latin := false
		for end = i; end < len(runes) && inWord(runes[end]); end++ {
			latin = latin || runes[end] <= unicode.MaxASCII && unicode.IsLetter(runes[end])
		}
		for ; latin && i < end; i++ {
			out[i] = unicode.IsLetter(runes[i]) && !unicode.In(runes[i], unicode.Latin, unicode.Common,
				unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo)
		}
	}
	return out
}

// kind says in a word or two why a character is marked; empty if its code point must do.
func kind(r rune) string {
	switch {
	case r == '\n':
		return "line feed"
	case r == '\r':
		return "carriage return"
	case r == 0x1b:
		return "escape"
	case unicode.Is(unicode.Cc, r):
		return "control"
	case unicode.Is(unicode.Bidi_Control, r):
		return "bidi"
	case r >= 0x200b && r <= 0x200d, r >= 0x2060 && r <= 0x2064, r == 0xfeff, r == 0x180e, r == 0x34f:
		return "zero width"
	case unicode.Is(unicode.Variation_Selector, r):
		return "variation selector"
	case r >= 0xe0000 && r <= 0xe007f:
		return "tag"
	case rightToLeft(r):
		return "right to left"
	case unicode.Is(unicode.Z, r), r == 0x2800, r == 0x3164, r == 0xffa0, r == 0x115f, r == 0x1160:
		return "blank"
	case unicode.Is(unicode.M, r):
		return "combining"
	case strings.ContainsRune(ownMarks, r):
		return "itself"
	case unicode.IsLetter(r):
		return "like another letter"
	}
	return ""
}

// EscapeJSON replaces characters of a JSON text that a screen does not show with \u escapes, which mean the same.
func EscapeJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) { // JSON is always UTF-8
		switch {
		case r == ' ', r == '\n', shows(r), strings.ContainsRune(ownMarks, r):
			out = utf8.AppendRune(out, r)
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
	}
	return out
}
