package builtin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

type readResultInput struct {
	Ref    string `json:"ref"`
	Offset *whole `json:"offset"`
	Limit  *whole `json:"limit"`
}

func readResult() (tool.Tool, error) {
	no := false
	return define(tool.Declaration{
		Name: "read_result",
		Description: fmt.Sprintf("Reads a part of a tool result that was too long to be given whole. The preview of "+
			"such a result names its reference. "+
			"Gives up to %d characters from offset on; a last line in [brackets] says how long the result is and "+
			"which offset continues. An image is given whole.", DefaultResultChars),
		InputSchema: object(
			text("ref", "The reference of the result, exactly as its preview names it.").required(),
			number("offset", 0, MaxOffset,
				"How many characters to skip; 0 starts at the beginning.").
				withExamples(DefaultResultChars).withDefault(0),
			number("limit", 1, MaxResultChars, "How many characters to read at most.").withDefault(DefaultResultChars),
		),
		Class:              tool.ClassRule{Static: toolyard.ReadOnly},
		ReadOnly:           true,
		RequiresPermission: &no, // the same agent has already got the content
		UsesWorkspace:      &no,
		Interrupt:          tool.Cancel,
		// MaxOutputBytes bounds it; a page of an offloaded result must not be offloaded again
		MaxResultSizeChars: -1,
		AbortsSiblings:     &no,
	}, checkReadResult, runReadResult)
}

// checkReadResult does not check whether ref exists, because that requires fetching all of it.
func checkReadResult(_ context.Context, env tool.Env, in readResultInput) error {
	_, err := in.span(env)
	return err
}

func (in readResultInput) span(env tool.Env) (s span, err error) {
	switch {
	case env.Blobs == nil:
		return s,
			tool.SetupRequired("this worker keeps no long results; call the tool again with a narrower input instead")
	case in.Ref == "":
		return s, tool.Invalid("ref is empty; give the reference that the preview of a long result names")
	case len(in.Ref) > MaxRefBytes:
		return s, tool.Invalid("ref is %d bytes long; a reference has at most %d", len(in.Ref), MaxRefBytes)
	}
	if s.offset, err = in.Offset.between("offset", 0, 0, MaxOffset); err != nil {
		return s, err
	}
	s.limit, err = in.Limit.between("limit", DefaultResultChars, 1, MaxResultChars)
	return s, err
}

func runReadResult(ctx context.Context, env tool.Env, in readResultInput) (tool.Output, error) {
	s, err := in.span(env)
	if err != nil {
		return tool.Output{}, err
	}
	data, err := env.Blobs.ReadBlob(ctx, in.Ref)
	switch {
	case err == nil:
	case stopped(ctx) != nil:
		return tool.Output{}, stopped(ctx)
	case errors.Is(err, tool.ErrNoBlob):
		return tool.Output{}, tool.Invalid("ref %s is not a result that can be read; give a reference exactly as a "+
			"preview names it (results go with their batch)", show(in.Ref))
	default:
		return tool.Output{}, tool.Unavailable(err, "the result %s cannot be read now; try again", show(in.Ref))
	}
	if kind := http.DetectContentType(data); strings.HasPrefix(kind, "image/") && !utf8.Valid(data) {
		return tool.Output{Content: []toolyard.Content{{Type: toolyard.ContentImage, MIMEType: kind, Data: data}}}, nil
	}
	text, err := readPage(data, s)
	return tool.Output{Text: text}, err
}

// readPage is a span of a text result, with a line that says what else there is.
func readPage(data []byte, s span) (string, error) {
	total := int64(utf8.RuneCount(data))
	switch {
	case total == 0 && s.offset == 0:
		return "[the result is empty]", nil
	case s.offset >= total:
		return "", tool.Invalid("offset %d is past the end: the result has %s", s.offset, count(total, "character"))
	}
	text, shown := page(data, s)
	next := s.offset + shown
	if s.offset == 0 && next == total {
		return text, nil
	}
	end := "it ends here"
	if next < total {
		end = fmt.Sprintf("call read_result again with offset %d", next)
	}
	return fmt.Sprintf("%s\n[characters %d to %d of %d; %s]", text, s.offset, next-1, total, end), nil
}

// page returns a span of characters of data, at most [MaxOutputBytes], and the number of its characters. A byte that is
// not UTF-8 counts as one character and is shown as U+FFFD, in the same way on each page.
func page(data []byte, s span) (text string, chars int64) {
	for range s.offset {
		_, size := utf8.DecodeRune(data)
		data = data[size:]
	}
	var b strings.Builder
	for chars < s.limit && len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if b.Len()+utf8.RuneLen(r) > MaxOutputBytes-noteBytes {
			break
		}
		b.WriteRune(r)
		data = data[size:]
		chars++
	}
	return b.String(), chars
}
