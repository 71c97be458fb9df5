package pipeline

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/schema"
)

// mapResult makes the text that the model reads from the tool's output. It happens once, and again only if a hook has
// changed the output, which is recorded.
func (c *call) mapResult(ctx context.Context) finding {
	const ran = "The tool ran, and its output could not be put into a result"
	if c.badOutput != nil {
		f := failed(toolyard.ResultMappingFailed, ran+": "+c.badOutput.Message, cause(c.badOutput))
		f.fail.foreign = true
		return f
	}
	if c.entry.OutputSchema != nil {
		s, err := c.p.schemas().Output(c.entry.OutputSchema)
		if err != nil {
			return failed(toolyard.InternalError, "Internal error: the tool's output schema is broken.", err.Error())
		}
		if len(c.out.Structured) == 0 {
			return failed(toolyard.ResultMappingFailed, ran+": it has no structured part, and the tool declares one.",
				"")
		}
		if err := s.Validate(c.out.Structured); err != nil {
			return failed(toolyard.ResultMappingFailed,
				ran+": it does not fit the output schema that the tool declares.", err.Error())
		}
	}
	f := finding{}
	if len(c.out.Structured) > 0 {
		v, err := schema.Parse(c.out.Structured)
		if err != nil {
			return failed(toolyard.ResultMappingFailed, ran+": its structured part is not JSON.", err.Error())
		}
		c.structured = v.Canonical()
	}
	if problem := c.takeParts(); problem != "" {
		return failed(toolyard.ResultMappingFailed, ran+": "+problem+".", "")
	}
	if c.out.Text == "" && c.parts == nil {
		c.out.Text = string(c.structured)
	}
	if !utf8.ValidString(c.out.Text) {
		f = noted("bytes that are not UTF-8 were replaced")
	}
	if detail := c.takeChange(ctx); detail != "" {
		f = noted(join(f.detail, detail))
	}
	c.text = valid(c.out.Text)
	return f
}

// valid returns a text as valid UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// rawAddition is the text that follows the tool's output: what was mended in the input, which changes of the
// session were refused, and what hooks add. It is not part of the output.
func (c *call) rawAddition() string {
	var b strings.Builder
	if c.job.Mended != "" {
		b.WriteString("\n\n[Your input did not fit the tool's schema and was mended before the call ran (" + c.job.Mended +
			"). Write valid JSON that fits the schema.]")
	}
	for _, t := range c.told {
		b.WriteString("\n\n[" + valid(t) + "]")
	}
	for _, t := range c.contexts {
		b.WriteString("\n\n[added by a hook] " + valid(t))
	}
	return b.String()
}

// addition is said, without secrets.
func (c *call) addition() string { return c.withhold(c.rawAddition()) }
