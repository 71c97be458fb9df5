package redact

import (
	"regexp"
	"strings"
)

// The limits of [Plain].
const (
	minPlainBytes = 16      // bytes of a word that a mark may stand for
	maxPlainSteps = 200_000 // places that are tried; a text that needs more is not approved
)

var someMark = regexp.MustCompile(`\[redacted: [^\]]*\]`)

// Plain reports whether each mark in a redacted text stands for one word of the original that looks like a token and
// like nothing else: [minPlainBytes] letters, digits and "_+=.~-" at least, a digit among them, and a letter or a digit
// first. A person may approve such a text. Anything else that a mark hides may be a command: a model writes what looks
// like a secret, too.
func Plain(original, redacted string) bool {
	if original == redacted {
		return true
	}
	marks := someMark.FindAllStringIndex(redacted, -1)
	// at are the places up to which the original may be what the redacted text is up to here.
	at, end := map[int]bool{0: true}, 0
	steps := maxPlainSteps
	literal := func(text string) {
		next := map[int]bool{}
		for i := range at {
			if strings.HasPrefix(original[i:], text) {
				next[i+len(text)] = true
			}
		}
		at = next
	}
	for _, m := range marks {
		literal(redacted[end:m[0]])
		mark := redacted[m[0]:m[1]]
		next := map[int]bool{}
		for i := range at {
			if strings.HasPrefix(original[i:], mark) { // the original has it
				next[i+len(mark)] = true
			}
			digit := false
			for j := i; j < len(original) && tokenByte(original[j]) && (j > i || alphanumeric(original[j])); j++ {
				digit = digit || '0' <= original[j] && original[j] <= '9'
				if digit && j+1-i >= minPlainBytes {
					next[j+1] = true
				}
				if steps--; steps < 0 {
					return false
				}
			}
		}
		at, end = next, m[1]
	}
	literal(redacted[end:])
	return at[len(original)]
}

func tokenByte(b byte) bool { return alphanumeric(b) || strings.IndexByte("_+=.~-", b) >= 0 }

func alphanumeric(b byte) bool { return wordByte(b) && b != '_' }
