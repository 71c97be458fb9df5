package display

import (
	"strings"
	"unicode"
)

// Unseen goes through a text for characters that a screen leaves out and a program reads: tags, zero-width characters,
// bidirectional controls, variation selectors and their like. found counts them by kind; nil if there are none. In out
// the name of each stands in its place, as [Text] writes it, or nothing if strip is set. Every other character stays as
// it is, and so do those that a reader needs: a byte order mark at the beginning, one variation selector behind a
// symbol, a joiner between two symbols, and joiners between letters of a script that joins them.
func Unseen(text string, strip bool) (out string, found map[string]int) {
	if strings.IndexFunc(text, ignorable) < 0 {
		return text, nil
	}
	var b strings.Builder
	runes := []rune(text)
	for i, n := 0, 0; i < len(runes); i += n {
		r := runes[i]
		n = 1
		if !ignorable(r) || needed(runes, i) {
			b.WriteRune(r)
			continue
		}
		for i+n < len(runes) && runes[i+n] == r {
			n++
		}
		if found == nil {
			found = map[string]int{}
		}
		name := kind(r)
		if name == "" {
			name = "format"
		}
		found[name] += n
		if !strip {
			b.WriteString(named(r, n).text)
		}
	}
	if found == nil {
		return text, nil
	}
	return b.String(), found
}

// needed reports whether a character that is left out on a screen by itself changes what its neighbours look like.
func needed(runes []rune, i int) bool {
	at := func(i int) rune {
		if i < 0 || i >= len(runes) {
			return 0
		}
		return runes[i]
	}
	before, after := at(i-1), at(i+1)
	switch runes[i] {
	case '\ufeff': // a byte order mark
		return i == 0
	case '\ufe0e', '\ufe0f': // the selectors of text and emoji
		return pictured(before)
	case '\u200d': // a joiner
		if before == '\ufe0f' || unicode.Is(unicode.Sk, before) { // a style, or the colour of a skin
			before = at(i - 2)
		}
		return unicode.Is(unicode.So, before) && unicode.Is(unicode.So, after) || joins(at(i-1)) && joins(after)
	case '\u200c': // a non-joiner
		return joins(before) && joins(after)
	}
	return false
}

// pictured reports whether a character has a form as a picture, so that a selector may choose between the two.
func pictured(r rune) bool {
	return r >= '0' && r <= '9' || r == '#' || r == '*' || unicode.In(r, unicode.So, unicode.Sm, unicode.Po) && r > 0x7f
}

// joins reports whether a character belongs to a script whose letters have forms that joiners choose.
func joins(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M) && !unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic,
		unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Common) && !ignorable(r)
}
