package redact

import (
	"math"
	"regexp"
	"strings"
)

// maxShapeBlanks is how many times white space may stand in a secret of a well-known shape, with what leads to it:
// `authorization : Bearer x`. A private key has more; whoever shows its lines one by one waits for its end.
const maxShapeBlanks = 3

// openEscape is an escape or a terminal's sequence at the end of a text that has not come to its own end.
var openEscape = regexp.MustCompile(`(?:\\+(?:u[0-9A-Fa-f]{0,3})?|%(?:25)*(?:u[0-9A-Fa-f]{0,3}|[0-9A-Fa-f])?|` +
	`(?:\x1b\[|\x{9b})[0-?]*[ -/]*|(?:\x1b[\]PX^_]|\x{9d})[^\x07\x1b]*|\x1b[ -/]*)+$`)

// Unfinished returns where the end of a text begins that may be the beginning of a secret whose rest is still to come,
// in any reading of the text. It is the length of the text if there is none. Who shows a text in pieces holds back what
// is behind it: no secret has one part before it and one behind.
func (r *Redactor) Unfinished(text string) int {
	first := len(text)
	if at := openEscape.FindStringIndex(text); at != nil {
		first = at[0]
	}
	for _, v := range views(text[:first]) {
		first = min(first, v.behind(r.plain.begins(v.text)))
		if !r.encoded.empty() {
			s := v.squeezed()
			first = min(first, s.behind(r.encoded.begins(s.text)))
		}
	}
	found := r.find(text)
	for range maxRounds { // what is let go must not end in the beginning of a secret either
		was := first
		for _, v := range views(text[:first]) {
			first = min(first, v.behind(shapeBegins(v.text)))
		}
		for _, s := range found {
			if s.from < first && first < s.to {
				first = s.from
			}
		}
		if first == was {
			return first
		}
	}
	return 0
}

// behind is where the part of the given text begins that the end of the view was made of.
func (v *view) behind(at int) int {
	if at == len(v.text) {
		return math.MaxInt
	}
	from, _ := v.origin(at, len(v.text))
	return from
}

// begins returns where the longest end of a text stands that is the beginning of a text of the matcher.
func (m *matcher) begins(text string) int {
	for at := max(0, len(text)-m.longest+1); at < len(text); at++ {
		end := text[at:]
		if len(end) >= MinValueBytes {
			for _, k := range m.byStart[end[:MinValueBytes]] {
				if len(k.text) > len(end) && strings.HasPrefix(k.text, end) {
					return at
				}
			}
			continue
		}
		for start := range m.byStart {
			if strings.HasPrefix(start, end) {
				return at
			}
		}
	}
	return len(text)
}

// shapeBegins returns where the first secret of a well-known shape begins that what is still to come may make whole, or
// longer.
func shapeBegins(text string) int {
	first, words := len(text), lastWords(text)
	for i := range shapes {
		s := &shapes[i]
		reach := shapeBytes
		if s.long {
			reach = longShapeBytes
		}
		for _, begin := range s.begins {
			for at := max(words-len(begin), len(text)-reach, 0); at < first; at++ {
				next := strings.IndexByte(text[at:first], begin[0])
				if next < 0 {
					break
				}
				at += next
				if !s.inside && at > 0 && wordByte(text[at-1]) {
					continue
				}
				end := text[at:]
				if strings.HasPrefix(begin, end) || strings.HasPrefix(end, begin) {
					first = at
				}
			}
		}
	}
	return first
}

// lastWords returns where the end of a text begins in which white space stands [maxShapeBlanks] times.
func lastWords(text string) int {
	const blanks = " \t\r\n"
	from := strings.LastIndexAny(text, blanks) + 1
	for range maxShapeBlanks {
		from = strings.LastIndexAny(strings.TrimRight(text[:from], blanks), blanks) + 1
	}
	return from
}
