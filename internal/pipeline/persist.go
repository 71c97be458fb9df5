package pipeline

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
)

// persistResult takes secrets out of the output and brings it to size: inline, or in the blob store with a preview.
func (c *call) persistResult(ctx context.Context) finding {
	size := len(c.text)
	err := c.fit(ctx)
	switch {
	case size > MaxOutputBytes:
		c.kept = true
		return failed(toolyard.ResultTooLarge, fmt.Sprintf("The output has %d bytes; at most %d are taken. Only a preview is kept.", size, MaxOutputBytes), "")
	case errors.Is(err, errRedactor):
		return failed(toolyard.InternalError, "Internal error: secrets could not be taken out of the output, so it is withheld.", err.Error())
	case err != nil:
		c.kept = true
		return finding{fail: &failure{code: toolyard.ResultTooLarge, retryable: c.judgement.Idempotent, detail: err.Error(),
			message: "The tool succeeded, but its output is too long for a result and could not be stored. Only a preview is kept."}}
	}
	f := finding{}
	if c.res.Truncated {
		f = noted(fmt.Sprintf("%d bytes stored as %s", size, c.res.Blob))
	}
	if c.redacted {
		f.remark, f.noted, f.detail = toolyard.ResultRedacted, true, join(f.detail, "secrets were taken out")
	}
	return f
}

var (
	errRedactor = errors.New("the redactor panicked")
	errNoStore  = errors.New("this worker has no blob store")
)

// fit redacts the text, stores it when it is too long, and leaves what goes into the result in c.text. With an error a
// preview is left all the same; after errRedactor nothing is.
func (c *call) fit(ctx context.Context) error {
	if c.fitted {
		return nil
	}
	c.fitted = true
	if len(c.text) > MaxOutputBytes {
		// Not redacted as a whole, and before it is cut: a secret that is cut in two is not recognised.
		if err := c.redactText(ends(c.text)); err != nil {
			return err
		}
		c.text = preview(c.text, PreviewHeadChars, PreviewTailChars, "")
		c.res.Truncated = true
		return nil
	}
	if err := c.redactText(c.text); err != nil {
		return err
	}
	limit := c.entry.MaxResultChars()
	if len(c.text) <= MaxInlineResultBytes && (limit < 0 || len(c.text) <= limit || utf8.RuneCountInString(c.text) <= limit) {
		return nil
	}
	head, tail := PreviewHeadChars, PreviewTailChars
	if limit >= 0 && limit < head+tail {
		head, tail = limit*4/5, limit/5
	}
	c.res.Truncated = true
	ref, err := "", errNoStore
	if c.p.Blobs != nil {
		err = rescue(func() (err error) { ref, err = c.p.Blobs.Put(ctx, c.job.Key, c.text); return err })
		if err == nil && ref == "" {
			err = errors.New("the blob store gave no reference")
		}
	}
	if err != nil {
		c.text = preview(c.text, head, tail, "")
		return fmt.Errorf("store the output: %w", err)
	}
	c.res.Blob = ref
	c.text = preview(c.text, head, tail, ref)
	return nil
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

// redact applies the redactor. One that panics is an error: nothing may be shown then.
func (p *Pipeline) redact(text string) (clean string, err error) {
	if p.Redact == nil || text == "" {
		return text, nil
	}
	if err := rescue(func() error { clean = p.Redact(text); return nil }); err != nil {
		return "", fmt.Errorf("%w: %w", errRedactor, err)
	}
	return clean, nil
}

// preview keeps the beginning and the end of a text, in characters, and says what is missing and where it is.
func preview(text string, head, tail int, ref string) string {
	total := utf8.RuneCountInString(text)
	if total <= head+tail { // cut for its bytes, not for its characters
		head, tail = total*2/5, total/10
	}
	from := 0
	for range head {
		_, n := utf8.DecodeRuneInString(text[from:])
		from += n
	}
	to := len(text)
	for range tail {
		_, n := utf8.DecodeLastRuneInString(text[:to])
		to -= n
	}
	where := "the rest is not kept"
	if ref != "" {
		where = fmt.Sprintf("read the whole with the tool read_result and ref %q", ref)
	}
	return fmt.Sprintf("%s\n\n[… %d of %d characters are left out here; %s …]\n\n%s", text[:from], total-head-tail, total, where, text[to:])
}

// ends takes the middle out of a text that is too long to be looked at as a whole: far more stays than is shown of it.
func ends(text string) string {
	const half = MaxOutputBytes / 2
	if len(text) <= 2*half {
		return text
	}
	tail := text[len(text)-half:]
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return clip(text, half) + tail
}

// clip cuts a text to a number of bytes, at a character's border.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
