package strictjson

import (
	"bytes"
	"encoding/json"

	"github.com/toolyard/toolyard"
)

// Mend is [Check] for a document with calls in it, and returns the document that is to be read. What is wrong
// with the input of a call beyond the grammar (a key twice, nesting past [MaxInputDepth]) is no error of the
// document: such an input is replaced by its text, as a JSON string, which stays one and fails its call alone. A
// document that needs none of this is returned as it is.
func Mend(data []byte) ([]byte, error) {
	if len(data) > toolyard.MaxBatchBytes {
		return nil, tooLong(data)
	}
	return MendText(data)
}

// MendText is [Mend] for data of any size.
func MendText(data []byte) ([]byte, error) {
	s, err := checked(data, true)
	if err != nil || len(s.edits) == 0 {
		return data, err
	}
	var b bytes.Buffer
	at := 0
	for _, e := range s.edits {
		b.Write(data[at:e.from])
		b.Write(quoted(data[e.from:e.to]))
		at = e.to
	}
	b.Write(data[at:])
	return b.Bytes(), nil
}

// MendInput is the input of one call, which is JSON, as [Mend] leaves it.
func MendInput(input json.RawMessage) json.RawMessage {
	if value := trimSpace(input); !Valid(value, MaxInputDepth) {
		return quoted(value)
	}
	return input
}

// quoted is a text as a JSON string.
func quoted(text []byte) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(string(text)); err != nil {
		panic("strictjson: a string does not encode: " + err.Error())
	}
	return bytes.TrimSpace(b.Bytes())
}

// inputKeys are the fields in which the forms have the inputs of calls.
var inputKeys = map[string]bool{"input": true, "args": true, "arguments": true}

// atInput reports whether the value that begins here is the input of a call.
func (s *scanner) atInput() bool {
	if len(s.stack) == 0 {
		return false
	}
	top := &s.stack[len(s.stack)-1]
	return top.object && inputKeys[string(top.key)]
}

// input passes over the input of a call.
func (s *scanner) input() *fault {
	from := s.pos
	s.inputs = false
	f := s.pass()
	s.inputs = true
	if f != nil {
		return f
	}
	if !Valid(s.data[from:s.pos], MaxInputDepth) {
		s.edits = append(s.edits, span{from, s.pos})
	}
	return nil
}

// pass passes over one value by its grammar alone, however deep it is and whatever keys it has: a level
// takes a byte.
func (s *scanner) pass() *fault {
	var objects []bool
	for st := wantValue; ; {
		s.space()
		switch st {
		case wantValue, wantFirstItem:
			if s.pos < len(s.data) && (s.data[s.pos] == '{' || s.data[s.pos] == '[') {
				object := s.data[s.pos] == '{'
				objects, st = append(objects, object), wantFirstItem
				if object {
					st = wantFirstKey
				}
				s.pos++
				continue
			}
			if s.pos < len(s.data) && s.data[s.pos] == ']' && st == wantFirstItem {
				objects = objects[:len(objects)-1]
				s.pos++
			} else if _, f := s.value(st); f != nil {
				return f
			}
		case wantFirstKey, wantKey:
			if s.pos < len(s.data) && s.data[s.pos] == '}' && st == wantFirstKey {
				objects = objects[:len(objects)-1]
				s.pos++
				break
			}
			if _, f := s.key(st); f != nil {
				return f
			}
			st = wantValue
			continue
		case afterValue:
			after, closed, f := s.behind(objects[len(objects)-1])
			if f != nil {
				return f
			}
			if !closed {
				st = after
				continue
			}
			objects = objects[:len(objects)-1]
		}
		if len(objects) == 0 {
			return nil
		}
		st = afterValue
	}
}
