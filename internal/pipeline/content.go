package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
)

// takeParts copies the parts of the tool's output, and makes its text from them if it has none. Parts that are all text
// become text alone. problem says what is wrong with the parts, if anything.
func (c *call) takeParts() (problem string) {
	parts, plain := slices.Clone(c.out.Content), 0
	for i := range parts {
		p := &parts[i]
		switch p.Type {
		case toolyard.ContentText:
			plain++
			*p = toolyard.Content{Type: p.Type, Text: p.Text}
		case toolyard.ContentImage, toolyard.ContentAudio, toolyard.ContentResource, toolyard.ContentLink,
			toolyard.ContentTool:
		default:
			return fmt.Sprintf("its part %d is %q, which is no kind of content", i, p.Type)
		}
		p.Blob, p.Size, p.Data = "", 0, bytes.Clone(p.Data)
		if !json.Valid(p.Schema) {
			p.Schema = nil
		}
		for _, s := range texts(p) {
			*s = strings.ToValidUTF8(*s, "\uFFFD")
		}
	}
	if c.out.Text == "" && len(parts) > 0 {
		c.out.Text, c.derived = toolyard.TextOf(parts), true
	}
	if plain == len(parts) && (c.derived || c.out.Text == toolyard.TextOf(parts)) {
		parts, c.derived = nil, false
	}
	c.parts = parts
	return ""
}

// outputBytes is the total size of an output. Its text counts once.
func (c *call) outputBytes() int {
	const part = 64 // the least that a part counts, so that their number is bounded too
	size := len(c.text) + len(c.structured) + part*len(c.parts)
	for i := range c.parts {
		size += len(c.parts[i].Data) + len(c.parts[i].Schema)
		if !c.derived {
			for _, s := range texts(&c.parts[i]) {
				size += len(*s)
			}
		}
	}
	return max(size, c.uncut)
}

// fitParts redacts the parts and the data, and brings them to size. What does not fit is stored and replaced by a
// reference. An error means that not everything could be stored: then the parts are left out, and the text describes
// them.
func (c *call) fitParts(ctx context.Context) error {
	if err := c.fitStructured(); err != nil || c.parts == nil {
		return err
	}
	if err := c.redactParts(); err != nil {
		return err
	}
	for _, fit := range []func(context.Context) error{c.packParts, c.fitTexts, c.fitData} {
		if err := fit(ctx); err != nil {
			c.parts = nil
			return err
		}
	}
	if c.derived && !c.res.Truncated {
		c.text = toolyard.TextOf(c.parts)
	}
	return nil
}

// fitTexts stores the texts of the parts if together they are longer than the tool's limit. The parts keep their
// preview.
func (c *call) fitTexts(ctx context.Context) error {
	var long strings.Builder
	for i := range c.parts {
		long.WriteString(c.parts[i].Text)
		long.Write(c.parts[i].Schema)
	}
	if c.isShort(long.String()) {
		return nil
	}
	whole := toolyard.TextOf(c.parts)
	text, ref, err := c.cut(ctx, whole)
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(c.parts, func(p toolyard.Content) bool { return p.Type == toolyard.ContentText })
	for i := range rest {
		rest[i].Text, rest[i].Schema = "", nil
	}
	c.parts = append([]toolyard.Content{{Type: toolyard.ContentText, Text: text, Blob: ref, Size: int64(len(whole))}},
		rest...)
	if c.derived {
		c.text, c.res.Truncated, c.res.Blob = text, true, ref
	}
	return nil
}

// packParts stores the parts past the limit as one document.
func (c *call) packParts(ctx context.Context) error {
	if len(c.parts) <= MaxContentParts {
		return nil
	}
	rest := c.parts[MaxContentParts-1:]
	raw, err := json.Marshal(rest)
	if err != nil {
		return fmt.Errorf("encode %d parts: %w", len(rest), err)
	}
	ref, err := c.store(ctx, string(raw))
	if err != nil {
		return err
	}
	c.parts = append(slices.Clip(c.parts[:MaxContentParts-1]), toolyard.Content{
		Type: toolyard.ContentResource, MIMEType: "application/json", Blob: ref, Size: int64(len(raw)),
		Description: fmt.Sprintf("%d more parts of this output", len(rest)),
	})
	return nil
}

// fitData stores the data that does not fit.
func (c *call) fitData(ctx context.Context) error {
	room := MaxInlineDataBytes
	for i := range c.parts {
		p := &c.parts[i]
		if len(p.Data) <= room {
			room -= len(p.Data)
			continue
		}
		ref, err := c.store(ctx, string(p.Data))
		if err != nil {
			return err
		}
		p.Blob, p.Size, p.Data = ref, int64(len(p.Data)), nil
	}
	return nil
}

// fitStructured redacts the data. Data that is too long, or that no longer fits the tool's own schema, is left out.
func (c *call) fitStructured() error {
	if c.structured == nil {
		return nil
	}
	raw := c.structured
	c.structured = nil
	if c.p.Redact != nil {
		var clean json.RawMessage
		err := rescue(func() (err error) { clean, err = mapData(raw, c.p.Redact); return err })
		if err != nil {
			return fmt.Errorf("%w: %w", errRedactor, err)
		}
		if !bytes.Equal(clean, raw) {
			c.redacted, raw = true, clean
			if !c.fitsSchema(raw) {
				c.remarks = append(c.remarks, "without secrets, the output as data no longer fits its schema: it "+
					"is left out, and the text stays")
				return nil
			}
		}
	}
	limit := max(c.entry.MaxResultChars(), MaxStructuredBytes)
	if c.entry.MaxResultChars() < 0 {
		limit = MaxInlineResultBytes
	}
	if len(raw) > limit || !encodes(string(raw), MaxInlineResultBytes) {
		c.remarks = append(c.remarks, fmt.Sprintf("the output as data has %d bytes, and at most %d are taken: it "+
			"is left out, and the text stays",
			len(raw), limit))
		return nil
	}
	c.structured = raw
	return nil
}

// redactParts removes secrets from all texts of the parts, and from data that is text. Then it cuts the fields that
// describe a part.
func (c *call) redactParts() error {
	for i := range c.parts {
		p := &c.parts[i]
		changed, err := c.p.redactPart(p)
		if err != nil {
			c.parts = nil
			return err
		}
		c.redacted = c.redacted || changed
		for _, s := range texts(p) {
			if s != &p.Text {
				*s = cutString(*s, MaxPartFieldBytes)
			}
		}
	}
	return nil
}

// redactPart removes secrets from a part. A schema that has one is left out.
func (p *Pipeline) redactPart(part *toolyard.Content) (changed bool, err error) {
	for _, s := range texts(part) {
		clean, err := p.redact(*s)
		if err != nil {
			return false, err
		}
		changed, *s = changed || clean != *s, clean
	}
	if part.Schema != nil {
		clean, err := p.redact(string(part.Schema))
		if err != nil {
			return false, err
		}
		if clean != string(part.Schema) {
			changed, part.Schema = true, nil
		}
	}
	if len(part.Data) > 0 && utf8.Valid(part.Data) {
		clean, err := p.redact(string(part.Data))
		if err != nil {
			return false, err
		}
		changed, part.Data = changed || clean != string(part.Data), []byte(clean)
	}
	return changed, nil
}

// shownParts are the parts as a hook may see them: without secrets, and without data that is no text. There are none if
// the text was made from them.
func (c *call) shownParts() (out []toolyard.Content) {
	if c.derived || c.outputBytes() > MaxOutputBytes { // persist_result will refuse it
		return nil
	}
	for _, p := range c.parts {
		if len(p.Data) > 0 && !utf8.Valid(p.Data) {
			p.Size, p.Data = int64(len(p.Data)), nil
		}
		if _, err := c.p.redactPart(&p); err != nil {
			p = toolyard.Content{Type: p.Type, Text: withheldByRedactor}
		}
		out = append(out, p)
	}
	return out
}

// shownStructured is the output as data as a hook may see it; nil if it is the text.
func (c *call) shownStructured() json.RawMessage {
	if c.structured == nil || string(c.structured) == c.text || c.outputBytes() > MaxOutputBytes {
		return nil
	}
	var clean json.RawMessage
	err := rescue(func() (err error) { clean, err = mapData(c.structured, c.withhold); return err })
	if err != nil {
		return json.RawMessage(strconv.Quote(withheldByRedactor))
	}
	return clean
}

// texts are the texts of a part.
func texts(p *toolyard.Content) []*string {
	return []*string{&p.Text, &p.MIMEType, &p.URI, &p.Name, &p.WireName, &p.Title, &p.Description}
}
