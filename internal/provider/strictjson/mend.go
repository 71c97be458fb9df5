package strictjson

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/toolyard/toolyard"
)

// Mend is [Check] for a document with calls, and returns the document to read. A mistake in the input of a call beyond
// the grammar (a key twice, nesting past [MaxInputDepth]) is not an error of the document: such an input is replaced by
// its text, as a JSON string, and fails only its own call. A document without such mistakes is returned unchanged.
func Mend(data []byte) ([]byte, error) {
	if len(data) > toolyard.MaxBatchBytes {
		return nil, tooLong(data)
	}
	return MendText(data)
}

// MendText is [Mend] for data of any size.
func MendText(data []byte) ([]byte, error) {
	if err := checkBytes(data); err != nil {
		return nil, err
	}
	if newScanner(data, MaxInputDepth, false).scan(nil) == nil { // so every input in it is valid too
		return data, nil
	}
	bad, f := badInputs(data)
	if f != nil {
		return nil, f.inputError(data)
	}
	mended := quoteParts(data, bad)
	// The levels were counted, those in an input separately from those around it.
	if f := newScanner(mended, maxReaderDepth, false).scan(nil); f != nil {
		for _, p := range slices.Backward(bad) {
			if f.at >= p.end {
				f.at -= p.end - p.to
				break
			}
		}
		return nil, f.inputError(data)
	}
	return mended, nil
}

// MendInput returns the input of one call, which is JSON, as [Mend] would.
func MendInput(input json.RawMessage) json.RawMessage {
	if value := trimSpace(input); !Valid(value, MaxInputDepth) {
		return quoted(value)
	}
	return input
}

// quoted returns a text as a JSON string.
func quoted(text []byte) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(string(text)); err != nil {
		panic("strictjson: a string does not encode: " + err.Error())
	}
	return bytes.TrimSpace(b.Bytes())
}

// inputKeys are the fields of the forms that have the inputs of calls.
var inputKeys = map[string]bool{"input": true, "args": true, "arguments": true}

// part is a part of a text, and where it ends after it and those before it are quoted.
type part struct{ from, to, end int }

// quoteParts replaces each part by a JSON string, and records where it ends.
func quoteParts(data []byte, parts []part) []byte {
	if len(parts) == 0 {
		return data
	}
	var b bytes.Buffer
	at := 0
	for i, p := range parts {
		b.Write(data[at:p.from])
		b.Write(quoted(data[p.from:p.to]))
		at, parts[i].end = p.to, b.Len()
	}
	b.Write(data[at:])
	return b.Bytes()
}

// badInputs returns the inputs with a key twice or too many levels, of a document that is only checked for its grammar.
func badInputs(data []byte) (bad []part, f *fault) {
	text := shallow(data)
	s := newScanner(text, toolyard.MaxJSONDepth, true)
	f = s.scan(func() *fault {
		value, err := s.ReadValue()
		if err != nil { // the token reader knows the position
			return newScanner(text, maxReaderDepth, true).scan(nil)
		}
		if !Valid(value, MaxInputDepth) {
			bad = append(bad, part{from: s.offset() - len(value), to: s.offset()})
		}
		return nil
	})
	return bad, f
}

// maxReaderDepth is jsontext's maximum depth.
const maxReaderDepth = 10_000

// shallow replaces each array or object that is deeper than jsontext's maximum by a 0 and white space of the same
// length. Its content need not be read, since everything around it is too deep as well.
func shallow(data []byte) []byte {
	depth, from, inString := 0, 0, false
	text := data
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			if depth++; depth == maxReaderDepth {
				from = i
			}
		case c == ']' || c == '}':
			if depth--; depth == maxReaderDepth-1 {
				if &text[0] == &data[0] {
					text = bytes.Clone(data)
				}
				text[from] = '0'
				for j := from + 1; j <= i; j++ {
					text[j] = ' '
				}
			}
		}
	}
	return text
}
