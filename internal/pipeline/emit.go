package pipeline

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
)

// emitTerminal writes the result. It always runs, and nothing passes it unredacted or unbounded.
func (c *call) emitTerminal(ctx context.Context) finding {
	if c.fail == nil {
		if err := c.fence(); err != nil {
			return c.bug(toolyard.PhaseEmitTerminal, err)
		}
		c.fenceOutput()
		if added := c.addition(); added != "" {
			c.text += added
			if c.parts != nil {
				c.parts = append(c.parts, toolyard.Content{Type: toolyard.ContentText, Text: strings.TrimSpace(added)})
			}
		}
		c.setOutput()
		if c.redacted {
			c.res.Code = toolyard.ResultRedacted
		}
		return finding{}
	}
	f := finding{}
	if c.kept && !c.fitted { // evidence, or the output of a tool that succeeded before the call failed
		if err := c.fit(ctx); err != nil {
			c.remarks = append(c.remarks, "the output is kept as a preview only: "+err.Error())
		}
		f = c.treated()
	}
	if err := c.fence(); err != nil {
		return c.bug(toolyard.PhaseEmitTerminal, err)
	}
	raw := c.text
	if c.kept {
		c.fenceOutput()
		c.setOutput()
	}
	c.res.IsError = true
	c.res.Code = c.fail.code
	c.res.Retryable, c.res.RetryAfterMS = c.fail.retryable, c.fail.retryAfterMS
	if c.res.Error = c.errorText(raw); len(c.res.Output) <= MaxErrorOutputBytes {
		c.res.Error = c.res.Text()
	}
	c.res.Error += c.addition()
	c.res.Detail = clip.Bytes(c.withhold(c.fail.detail), MaxDetailBytes)
	return f
}

// setOutput copies the output into the result.
func (c *call) setOutput() {
	c.res.Output, c.res.Content, c.res.Structured = c.text, c.parts, c.structured
}

// plain makes a result without output, for a failure of emit_terminal itself.
func (c *call) plain() {
	c.res.IsError = true
	if c.fail == nil || c.fail.code == "" {
		c.fail = &failure{code: toolyard.InternalError}
	}
	c.res.Code = c.fail.code
	c.res.Output, c.res.Detail, c.res.Truncated, c.res.Blob, c.res.Content, c.res.Structured = "", "", false, "", nil,
		nil
	if c.res.Origin != nil {
		c.res.Origin.Fence = ""
	}
	c.res.Error = "Internal error: the result could not be written. " + advice(c.res.Code, c.executed, false, 0)
}

// withheldByRedactor is in place of a text that could not be redacted.
const withheldByRedactor = "[withheld: the redactor broke]"

// withhold is [Pipeline.Withhold].
func (c *call) withhold(text string) string { return c.p.Withhold(text) }

// Withhold redacts a text for people. If the redactor fails, nothing of the text is left.
func (p *Pipeline) Withhold(text string) string {
	clean, err := p.redact(strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		return withheldByRedactor
	}
	return clean
}

// shorten cuts the middle out of a text that is longer than limit characters.
func shorten(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	const mark = "\n[… cut …]\n"
	runes := []rune(text)
	room := limit - utf8.RuneCountInString(mark)
	return string(runes[:room/2]) + mark + string(runes[len(runes)-(room-room/2):])
}

func join(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, "; ")
}
