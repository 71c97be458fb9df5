package builtin

import (
	"unicode/utf8"

	"github.com/toolyard/toolyard/tool"
)

// cleaner removes secrets from a text. Nil: it leaves them.
type cleaner func(string) string

// cut is [tool.Env.Cut].
func (c cleaner) cut(text string, n int) (string, bool) { return tool.Env{Redact: c}.Cut(text, n) }

// charsBefore is the place n characters before another one in a text, or its beginning.
func charsBefore(text string, at, n int) int {
	for range n {
		_, size := utf8.DecodeLastRuneInString(text[:at])
		at -= size
	}
	return at
}

// cutOf is cut for a text whose end is missing: a secret may be cut there.
func (c cleaner) cutOf(text string, n int) (string, bool) {
	if c != nil {
		clean := c(text)
		text = clean[:charStart(clean, len(clean)-sameEnd(text, clean))]
	}
	shown, _ := cleaner(nil).cut(text, n)
	return shown, true
}

// sameEnd and sameBegin are how many bytes at an end of a text, of [tool.SecretRoom] at most, are as they were before
// its secrets were taken out. Where a text was cut there, they may be half a secret.
func sameEnd(text, clean string) (n int) {
	for n < min(len(text), len(clean), tool.SecretRoom) && text[len(text)-1-n] == clean[len(clean)-1-n] {
		n++
	}
	return n
}

func sameBegin(text, clean string) (n int) {
	for n < min(len(text), len(clean), tool.SecretRoom) && text[n] == clean[n] {
		n++
	}
	return n
}

// charStart is the place where the character begins that has a byte at a place.
func charStart(text string, at int) int {
	for at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

// around returns at least lead bytes before a place in a text, and n characters from there on, without secrets if
// that is not the whole. left and right say on which sides there is more. find finds the place again in a text without
// secrets, or gives a negative number.
func (c cleaner) around(text string, at, lead, n int, find func(string) int) (shown string, left, right bool) {
	from := 0
	if utf8.RuneCountInString(text[:at]) > n-lead {
		from, left = charsBefore(text, at, lead), true
	}
	if !left || c == nil {
		shown, right = c.cut(text[from:], n)
		return shown, left, right
	}
	// A secret may be cut where the window begins and where it ends. Without the secrets in between, these places are
	// nearer to what is shown: the window grows until they are far enough.
	for reach := tool.SecretRoom; ; reach *= 2 {
		lo, hi := max(0, from-reach), min(len(text), at+n*utf8.UTFMax+reach)
		window := text[lo:hi]
		clean := c(window)
		if clean == window {
			shown, right = c.cut(text[from:], n)
			return shown, true, right
		}
		found := find(clean) // the place has moved
		if found < 0 {
			return "[redacted]", true, true
		}
		begin := charsBefore(clean, found, lead)
		shown, right = cleaner(nil).cut(clean[begin:], n)
		if (lo == 0 || begin >= sameBegin(window, clean)) &&
			(hi == len(text) || len(clean)-begin-len(shown) >= sameEnd(window, clean)) {
			return shown, true, right || hi < len(text)
		}
	}
}
