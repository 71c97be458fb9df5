package schema

import (
	"encoding/json"
	"strings"
)

// plain reads JSON as most models write it: strings of printable ASCII without escapes, and all else within the limits
// of this package. Of anything else it says nothing, not even whether it is JSON: encoding/json reads that, which takes
// three times as long (FuzzPlain compares the two).
type plain struct {
	text string
	at   int
	levels
}

// parsePlain decodes plain JSON; ok is false if it is not plain.
func parsePlain(raw json.RawMessage) (doc any, ok bool) {
	p := plain{text: string(raw)}
	if doc, ok = p.value(0); !ok {
		return nil, false
	}
	p.space()
	return doc, p.at == len(p.text)
}

func (p *plain) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// next skips space and reads a byte if it is the one that is wanted.
func (p *plain) next(want byte) bool {
	p.space()
	if p.at == len(p.text) || p.text[p.at] != want {
		return false
	}
	p.at++
	return true
}

func (p *plain) value(depth int) (any, bool) {
	p.space()
	if p.add(depth) != "" || p.at == len(p.text) {
		return nil, false
	}
	switch p.text[p.at] {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	case '"':
		return p.string()
	case 't':
		return true, p.word("true")
	case 'f':
		return false, p.word("false")
	case 'n':
		return nil, p.word("null")
	}
	return p.number()
}

func (p *plain) word(w string) bool {
	if !strings.HasPrefix(p.text[p.at:], w) {
		return false
	}
	p.at += len(w)
	return true
}

func (p *plain) object(depth int) (any, bool) {
	p.at++
	out := map[string]any{}
	if p.next('}') {
		return out, true
	}
	for {
		p.space()
		if p.at == len(p.text) || p.text[p.at] != '"' {
			return nil, false
		}
		name, ok := p.string()
		if !ok || !p.next(':') {
			return nil, false
		}
		if out[name], ok = p.value(depth + 1); !ok {
			return nil, false
		}
		if p.next('}') {
			return out, true
		}
		if !p.next(',') {
			return nil, false
		}
	}
}

func (p *plain) array(depth int) (any, bool) {
	p.at++
	out := []any{}
	if p.next(']') {
		return out, true
	}
	for {
		v, ok := p.value(depth + 1)
		if !ok {
			return nil, false
		}
		out = append(out, v)
		if p.next(']') {
			return out, true
		}
		if !p.next(',') {
			return nil, false
		}
	}
}

// string reads a string; p.at is at its first quote.
func (p *plain) string() (string, bool) {
	begin := p.at + 1
	for i := begin; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			p.at = i + 1
			return p.text[begin:i], true
		case c < ' ' || c > '~' || c == '\\':
			return "", false
		}
	}
	return "", false
}

func (p *plain) number() (any, bool) {
	begin := p.at
	if p.at < len(p.text) && p.text[p.at] == '-' {
		p.at++
	}
	if first := p.at; p.digits() == 0 || p.text[first] == '0' && p.at > first+1 {
		return nil, false
	}
	if p.at < len(p.text) && p.text[p.at] == '.' {
		if p.at++; p.digits() == 0 {
			return nil, false
		}
	}
	if p.at < len(p.text) && (p.text[p.at] == 'e' || p.text[p.at] == 'E') {
		if p.at++; p.at < len(p.text) && (p.text[p.at] == '+' || p.text[p.at] == '-') {
			p.at++
		}
		if p.digits() == 0 {
			return nil, false
		}
	}
	n := p.text[begin:p.at]
	return json.Number(n), plainNumber(n)
}

// digits skips digits, and returns how many.
func (p *plain) digits() int {
	begin := p.at
	for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
		p.at++
	}
	return p.at - begin
}
