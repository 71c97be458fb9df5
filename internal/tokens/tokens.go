// Package tokens counts tokens. It does so as OpenAI's o200k_base does, whose vocabulary is part of the program:
// nothing is fetched.
//
// Authority: none. Other models split texts in other ways, so that the count is an estimate for them.
//
// Ordering and failure: none; it is pure. A text that the library cannot split counts as many tokens as it has bytes,
// which no text exceeds.
package tokens

import (
	"unicode"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// Name is the tokenizer's.
const Name = "o200k_base"

// maxSpace is how many bytes of white space are counted together. The library looks at the rest of such a run again for
// each line end in it, which takes minutes for a megabyte of them. A longer run counts as several texts, with some
// tokens more at most.
const maxSpace = 1 << 10

// New returns what says how many tokens a text has. It takes 80 ms and 7 MB once. A count takes about a second for a
// megabyte, and may be made concurrently.
func New() (count func(text string) int) {
	c := codec.NewO200kBase()
	return func(text string) (sum int) {
		for text != "" {
			part := text[:cutSpace(text)]
			text = text[len(part):]
			n, err := c.Count(part)
			if err != nil {
				n = len(part)
			}
			sum += n
		}
		return sum
	}
}

// cutSpace is where to cut a text so that its first part has no longer run of white space than maxSpace.
func cutSpace(text string) int {
	run := 0 // where the run of white space began
	for i, r := range text {
		switch {
		case !unicode.IsSpace(r):
			run = i + utf8.RuneLen(r)
		case i-run >= maxSpace:
			return i
		}
	}
	return len(text)
}
