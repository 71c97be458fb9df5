package strictjson

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// HalfSurrogate reports whether JSON text escapes one half of a surrogate pair.
func HalfSurrogate(text []byte) bool {
	if !bytes.Contains(text, []byte(`\u`)) {
		return false
	}
	escape := func(i int) (rune, bool) {
		if i+6 > len(text) || text[i] != '\\' || text[i+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(text[i+2:i+6]), 16, 16)
		return rune(n), err == nil
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if r, ok := escape(i); ok {
			if utf16.IsSurrogate(r) {
				low, _ := escape(i + 6)
				if utf16.DecodeRune(r, low) == utf8.RuneError {
					return true
				}
				i += 6
			}
			i += 4
		}
		i++ // skip the escaped character
	}
	return false
}
