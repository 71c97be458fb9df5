package pipeline

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/clip"
)

// persistResult removes secrets from the output and brings it to size: inline, or in the blob store with a preview.
func (c *call) persistResult(ctx context.Context) finding {
	size := c.outputBytes()
	c.redacted = c.redacted || c.addition() != c.rawAddition()
	err := c.fit(ctx)
	switch {
	case size > MaxOutputBytes:
		c.kept = true
		return failed(toolyard.ResultTooLarge, fmt.Sprintf("The output has %d bytes; at most %d are taken. Only a "+
			"preview is kept.", size, MaxOutputBytes), "")
	case errors.Is(err, errRedactor):
		return failed(toolyard.InternalError, "Internal error: secrets could not be taken out of the output, so it "+
			"is withheld.", err.Error())
	case err != nil:
		c.kept = true
		return finding{fail: &failure{code: toolyard.ResultTooLarge, retryable: c.mayRepeat(),
			detail: err.Error(),
			message: "The tool succeeded, but its output is too long for a result and could not be stored. Only a " +
				"preview is kept."}}
	}
	f := c.treated()
	if c.redacted {
		f.remark = toolyard.ResultRedacted
	}
	return f
}

// treated says what was done to the output.
func (c *call) treated() finding {
	words := join(c.remarks...)
	if c.redacted {
		words = join(words, "secrets were taken out")
	}
	if words == "" {
		return finding{}
	}
	return noted(words)
}

var (
	errRedactor = errors.New("the redactor panicked")
	errNoStore  = errors.New("this worker has no blob store")
)

// fit redacts the output, stores what is too long, and leaves the parts for the result in c.text, c.parts and
// c.structured. After an error c.text still has a preview; after errRedactor it is empty.
func (c *call) fit(ctx context.Context) error {
	if c.fitted {
		return nil
	}
	c.fitted = true
	if c.outputBytes() > MaxOutputBytes {
		c.parts, c.structured = nil, nil
		c.res.Truncated = true
		// Not redacted as a whole, and redacted before it is cut: a secret that is cut in two is not recognised.
		if err := c.redactText(ends(c.text)); err != nil {
			return err
		}
		c.text = c.preview(c.text, "")
		return nil
	}
	partsErr := c.fitParts(ctx)
	if errors.Is(partsErr, errRedactor) {
		c.text, c.parts, c.structured = "", nil, nil
		return partsErr
	}
	if c.res.Truncated { // with its parts
		return partsErr
	}
	if err := c.redactText(c.text); err != nil {
		c.parts, c.structured = nil, nil
		return err
	}
	if c.isShort(c.text) {
		return partsErr
	}
	c.res.Truncated = true
	text, ref, err := c.cut(ctx, c.text)
	c.text, c.res.Blob = text, ref
	return errors.Join(err, partsErr)
}

// isShort reports whether a text goes to the model unchanged: it is within the tool's limit and that in
// tokens, and an event can carry it.
func (c *call) isShort(text string) bool {
	limit := c.entry.MaxResultChars()
	return (limit < 0 || len(text) <= limit || utf8.RuneCountInString(text) <= limit) &&
		encodes(text, MaxInlineResultBytes) && !c.over(text)
}

// encodes reports whether a text has at most limit bytes as a JSON string. It may overestimate slightly.
func encodes(text string, limit int) bool {
	const most = len(`\u0000`)
	if len(text) <= limit/most {
		return true
	}
	size := len(text)
	for i := 0; i < len(text) && size <= limit; i++ {
		switch b := text[i]; {
		case b == '"', b == '\\', b == '\n', b == '\r', b == '\t':
			size++
		case b < ' ', b == '<', b == '>', b == '&', b == "\u2028"[0]:
			size += most - 1
		}
	}
	return size <= limit
}

// cut stores a text and returns its preview, which names the reference. With an error the preview has no reference.
func (c *call) cut(ctx context.Context, text string) (shown, ref string, err error) {
	ref, err = c.store(ctx, text)
	return c.preview(text, ref), ref, err
}

// store puts content into the blob store and records it.
func (c *call) store(ctx context.Context, content string) (ref string, err error) {
	err = errNoStore
	if c.p.Blobs != nil {
		err = rescue(func() (err error) { ref, err = c.p.Blobs.Put(ctx, c.job.Key, content); return err })
		if err == nil && ref == "" {
			err = errors.New("the blob store gave no reference")
		}
	}
	if err != nil {
		return "", fmt.Errorf("store %d bytes of the output: %w", len(content), err)
	}
	c.remarks = append(c.remarks, fmt.Sprintf("%d bytes stored as %s", len(content), ref))
	return ref, nil
}

func (c *call) redactText(text string) error {
	c.text = ""
	clean, err := c.p.redact(text)
	if err != nil {
		return err
	}
	c.redacted = c.redacted || clean != text
	c.text = clean
	return nil
}

// redact applies the redactor. A panic in it is an error, and then nothing may be shown.
func (p *Pipeline) redact(text string) (clean string, err error) {
	if p.Redact == nil || text == "" {
		return text, nil
	}
	if err := rescue(func() error { clean = p.Redact(text); return nil }); err != nil {
		return "", fmt.Errorf("%w: %w", errRedactor, err)
	}
	return clean, nil
}

// preview keeps the beginning and the end of a text. Between them it says what is missing and where it is. The preview
// has at most limit characters; -1 is no limit. If the reference does not fit, the preview is the beginning alone.
func preview(text string, limit int, ref string) string {
	total, head, tail := utf8.RuneCountInString(text), PreviewHeadChars, PreviewTailChars
	if total <= head+tail && (limit < 0 || total <= limit) {
		return text
	}
	note := func(left int) string {
		where := "the rest is not kept"
		if ref != "" {
			where = fmt.Sprintf("read the whole with the tool read_result and ref %q", ref)
		}
		return fmt.Sprintf("\n\n[… %d of %d characters are left out here; %s …]\n\n", left, total, where)
	}
	if limit >= 0 {
		room := limit - utf8.RuneCountInString(note(total))
		if room < 0 {
			short := "[cut]"
			if ref != "" {
				short = fmt.Sprintf("[cut; read_result %q]", ref)
			}
			if room = limit - utf8.RuneCountInString(short); room < 0 {
				short, room = "", limit
			}
			return text[:skip(text, room)] + short
		}
		if head+tail > room {
			head, tail = room-room/5, room/5
		}
	}
	from, to := skip(text, head), len(text)
	for range tail {
		_, n := utf8.DecodeLastRuneInString(text[:to])
		to -= n
	}
	return text[:from] + note(total-head-tail) + text[to:]
}

// skip returns the byte offset after the first chars characters of a text.
func skip(text string, chars int) int {
	at := 0
	for range chars {
		_, n := utf8.DecodeRuneInString(text[at:])
		at += n
	}
	return at
}

// ends removes the middle of a text that is too long to be redacted as a whole. Far more remains than is shown.
func ends(text string) string {
	const half = MaxOutputBytes / 2
	if len(text) <= 2*half {
		return text
	}
	tail := text[len(text)-half:]
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return clip.Bytes(text, half) + tail
}
