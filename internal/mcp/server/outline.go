package server

import "encoding/json"

// outline is what is kept of a message that is too long: the object without what is in its values, so that the answer
// can name the request, whose client would wait for it.
type outline struct {
	text            []byte
	depth           int
	inText, escaped bool
	// full says that it is too long as well.
	full bool
}

// add goes on with the message.
func (o *outline) add(piece []byte) {
	for _, c := range piece {
		if o.full {
			return
		}
		outer := o.depth <= 1
		switch {
		case o.escaped:
			o.escaped = false
		case o.inText:
			o.escaped, o.inText = c == '\\', c != '"'
		case c == '"':
			o.inText = true
		case c == '{', c == '[':
			if o.depth++; o.depth == 2 { // a value that is left out
				o.text = append(o.text, "null"...)
			}
			outer = o.depth <= 1
		case c == '}', c == ']':
			o.depth--
		}
		if outer {
			o.text = append(o.text, c)
		}
		o.full = len(o.text) > maxOutlineBytes
	}
}

// request is the id of the request that the message is; nil where that is not known, or it is none.
func (o *outline) request() any {
	var message struct {
		Method *string `json:"method"`
	}
	if o.full || json.Unmarshal(o.text, &message) != nil || message.Method == nil {
		return nil
	}
	return idOf(o.text)
}
