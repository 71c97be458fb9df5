// Package clip cuts texts without leaving half a character.
package clip

import "unicode/utf8"

// Bytes is the beginning of a text, at most so many bytes, in whole characters. What is no UTF-8 is cut where it is.
func Bytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := max(most, 0)
	for back := 1; back < utf8.UTFMax && end > 0 && !utf8.RuneStart(text[end]); back++ {
		end--
	}
	if !utf8.RuneStart(text[end]) {
		end = max(most, 0)
	}
	return text[:end]
}

// Mark is [Bytes], with a mark behind what was cut. With it the text is as long at most.
func Mark(text string, most int) string {
	const mark = "…"
	if len(text) <= most {
		return text
	}
	return Bytes(text, most-len(mark)) + mark
}
