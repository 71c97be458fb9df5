// Package sse reads server-sent events out of bytes that arrive in any pieces. They are as the HTML standard defines
// them. It is pure, and its time is linear in what it is fed.
package sse

import (
	"bytes"
	"errors"
)

// ErrTooLong says that an event is longer than [Parser.MaxEventBytes].
var ErrTooLong = errors.New("an event of the stream is too long")

// Event is one event. ID and Name are empty where the event has none.
type Event struct {
	ID   string
	Name string
	Data []byte
}

// Parser splits a stream of bytes into events. Lines end in LF, CRLF or CR, and several data lines are one text. An
// event without data, or without its empty line at the end of the stream, is none.
type Parser struct {
	// MaxEventBytes is how long an event may be: its data, id, name and the line that is being read.
	MaxEventBytes int

	line  []byte
	event Event
	has   bool // a data line was seen
	cr    bool // the last byte was CR: an LF next to it belongs to it
	begun bool // a line was seen: no byte order mark follows
}

// Feed takes the next bytes and calls handle with each event that they complete. It stops at handle's error, and with
// [ErrTooLong]. Nothing may be fed after an error.
func (p *Parser) Feed(chunk []byte, handle func(Event) error) error {
	for len(chunk) > 0 {
		line, rest, lf := bytes.Cut(chunk, []byte("\n"))
		for {
			part, behind, cr := bytes.Cut(line, []byte("\r"))
			if len(p.line)+len(part)+len(p.event.Data)+len(p.event.ID)+len(p.event.Name) > p.MaxEventBytes {
				return ErrTooLong
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

func (p *Parser) endLine(handle func(Event) error) error {
	line := p.line
	p.line = p.line[:0]
	if !p.begun {
		p.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		event, has := p.event, p.has
		p.event, p.has = Event{}, false
		if !has {
			return nil
		}
		return handle(event)
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "id":
		p.event.ID = string(value)
	case "event":
		p.event.Name = string(value)
	case "data":
		if p.has {
			p.event.Data = append(p.event.Data, '\n')
		}
		p.event.Data, p.has = append(p.event.Data, value...), true
	}
	return nil
}
