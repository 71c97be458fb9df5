package eventstream

import (
	"bytes"
	"fmt"

	"github.com/toolyard/toolyard"
)

// Parser splits a stream of bytes into server-sent events, as HTML defines them: lines end in LF, CRLF or CR, several data
// lines are one text, and an event without its empty line at the end of the stream is none. The names of events are not
// kept: every provider repeats them in the data.
type Parser struct {
	line, data []byte
	has        bool // a data line was seen
	cr         bool // the last byte was CR: an LF next to it belongs to it
	begun      bool // a line was seen: no byte order mark follows
	total      int64
}

// Feed takes the next bytes and calls handle with the data of each event that they complete; it is valid until handle
// returns. It stops at handle's error, and at a limit with a [*toolyard.InputError]. Nothing may be fed after an error.
func (p *Parser) Feed(chunk []byte, handle func(data []byte) error) error {
	if p.total += int64(len(chunk)); p.total > MaxStreamBytes {
		return tooLarge("the stream is longer than %d bytes", MaxStreamBytes)
	}
	for len(chunk) > 0 {
		line, rest, lf := bytes.Cut(chunk, []byte("\n"))
		for {
			part, behind, cr := bytes.Cut(line, []byte("\r"))
			if len(p.line)+len(p.data)+len(part) > MaxEventBytes {
				return tooLarge("an event is longer than %d bytes", MaxEventBytes)
			}
			p.line, p.cr = append(p.line, part...), p.cr && len(part) == 0
			if !cr {
				break
			}
			if err := p.endLine(handle); err != nil {
				return err
			}
			line, p.cr = behind, true
		}
		chunk = rest
		switch {
		case !lf:
		case p.cr:
			p.cr = false
		default:
			if err := p.endLine(handle); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Parser) endLine(handle func(data []byte) error) error {
	line := p.line
	p.line = p.line[:0]
	if !p.begun {
		p.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		if !p.has {
			return nil
		}
		data := p.data
		p.data, p.has = p.data[:0], false
		return handle(data)
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	if string(name) != "data" {
		return nil // event, id, retry, or a comment
	}
	if p.has {
		p.data = append(p.data, '\n')
	}
	p.data, p.has = append(p.data, bytes.TrimPrefix(value, []byte(" "))...), true
	return nil
}

func tooLarge(format string, args ...any) error {
	return &toolyard.InputError{TooLarge: true, Problem: fmt.Sprintf(format, args...)}
}
