package pipeline

import (
	"fmt"
	"unicode/utf8"
)

// MinResultTokens is the least limit of a result in tokens: a preview and its note have room in it.
const MinResultTokens = 200

// Tokens limits what goes to the model in tokens, beside the limit in characters.
type Tokens struct {
	// Name is the tokenizer's, for the log.
	Name string
	// Count is how many tokens a text has: at most as many as bytes. It is called concurrently.
	Count func(text string) int
	// Max is how many tokens of an output go to the model; see [MinResultTokens].
	Max int
}

// over reports whether a text has more tokens than may go to the model. The tools that have no limit in characters have
// none in tokens.
func (c *call) over(text string) bool {
	t := c.p.Tokens
	return t != nil && c.entry.MaxResultChars() >= 0 && len(text) > t.Max && t.Count(text) > t.Max
}

// preview is the preview of a text that is within both limits.
func (c *call) preview(text, ref string) string {
	limit := c.entry.MaxResultChars()
	shown := preview(text, limit, ref)
	if c.p.Tokens == nil || limit < 0 {
		return shown
	}
	if c.over(shown) {
		fits, over := 0, utf8.RuneCountInString(shown) // in characters
		for over-fits > 1 {
			if chars := (fits + over) / 2; c.over(preview(text, chars, ref)) {
				over = chars
			} else {
				fits = chars
			}
		}
		shown = preview(text, fits, ref)
	}
	c.remarks = append(c.remarks, fmt.Sprintf("%d tokens of %s go to the model, of at most %d", c.p.Tokens.Count(shown),
		c.p.Tokens.Name, c.p.Tokens.Max))
	return shown
}
