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

// around returns at least lead bytes before a place in a text, and n characters from there on, without secrets if
// that is not the whole. left and right say on which sides there is more. find finds the place again in a text without
// secrets, or gives a negative number.
func (c cleaner) around(text string, at, lead, n int, find func(string) int) (shown string, left, right bool) {
	from := 0
	if utf8.RuneCountInString(text[:at]) > n-lead {
		from, left = charsBefore(text, at, lead), true
	}
	if left && c != nil {
		window := text[max(0, from-tool.SecretRoom):min(len(text), at+n*utf8.UTFMax+tool.SecretRoom)]
		clean := c(window)
		if clean != window { // the place has moved
			if at = find(clean); at < 0 {
				return "[redacted]", true, true
			}
			text, from = clean, charsBefore(clean, at, lead)
		}
	}
	shown, right = c.cut(text[from:], n)
	return shown, left, right
}
