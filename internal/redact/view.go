package redact

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// maxNested is how many times a text is decoded that is escaped more than once: JSON in JSON, a URL in a URL.
const maxNested = 2

// view is a text as a reader sees it who decodes it, and where each byte of it stands in the text that was given.
type view struct {
	text string
	// from and to are where the piece of the given text begins and ends that a byte was made of. Nil: the text is as it
	// was given.
	from, to []int32
}

// origin is the part of the given text that a part of the view was made of.
func (v *view) origin(lo, hi int) (from, to int) {
	if v.from == nil || lo == hi {
		return lo, hi
	}
	return int(v.from[lo]), int(v.to[hi-1])
}

// gap reports whether something was taken out in front of a byte.
func (v *view) gap(at int) bool {
	return v.from != nil && at > 0 && at < len(v.text) && v.from[at] != v.to[at-1] && v.from[at] != v.from[at-1]
}

// views are the readings of a text: as it is, with the escapes of JSON decoded, without a terminal's sequences, with
// percent-escapes decoded, and these together in this order. One that changes nothing is left out.
func views(text string) []view {
	all := []view{{text: text}}
	if !strings.ContainsAny(text, "%\\\x1b") && !strings.Contains(text, csi8) && !strings.Contains(text, osc8) {
		return all // as most texts
	}
	for level, unescaped := 0, all[0]; ; level++ {
		plain, changed := unescaped.apply((*view).withoutSequences)
		if changed {
			all = append(all, plain)
		}
		for range maxNested {
			if plain, changed = plain.apply((*view).withoutPercents); !changed {
				break
			}
			all = append(all, plain)
		}
		if level == maxNested {
			return all
		}
		if unescaped, changed = unescaped.apply((*view).withoutEscapes); !changed {
			return all
		}
		all = append(all, unescaped)
	}
}

func (v view) apply(decode func(*view, *viewWriter)) (out view, changed bool) {
	w := viewWriter{of: &v}
	decode(&v, &w)
	if w.from == nil {
		return v, false
	}
	w.keep(len(v.text))
	return view{text: w.text.String(), from: w.from, to: w.to}, true
}

// viewWriter makes a view of another one. It keeps what stands between the parts that are replaced.
type viewWriter struct {
	of       *view
	text     strings.Builder
	from, to []int32
	done     int // what is before it in the other view was written
}

// keep writes what comes up to a byte as it is.
func (w *viewWriter) keep(upTo int) {
	w.text.WriteString(w.of.text[w.done:upTo])
	w.copy(w.done, upTo)
	w.done = upTo
}

// copy writes where the bytes of a part stand.
func (w *viewWriter) copy(lo, hi int) {
	if w.of.from != nil {
		w.from, w.to = append(w.from, w.of.from[lo:hi]...), append(w.to, w.of.to[lo:hi]...)
		return
	}
	for i := lo; i < hi; i++ {
		w.from, w.to = append(w.from, int32(i)), append(w.to, int32(i+1))
	}
}

// replace writes a text for a part of the other view, which may be empty.
func (w *viewWriter) replace(lo, hi int, with string) {
	if w.from == nil {
		w.from, w.to = make([]int32, 0, len(w.of.text)), make([]int32, 0, len(w.of.text))
	}
	w.keep(lo)
	from, to := w.of.origin(lo, hi)
	w.text.WriteString(with)
	for range len(with) {
		w.from, w.to = append(w.from, int32(from)), append(w.to, int32(to))
	}
	w.done = hi
}

// short are the escapes of JSON that are one letter.
var short = map[byte]string{'"': `"`, '\\': `\`, '/': "/", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t"}

// withoutEscapes decodes the escapes that JSON has in strings (RFC 8259, 7).
func (v *view) withoutEscapes(w *viewWriter) {
	for at := 0; ; {
		next := strings.IndexByte(v.text[at:], '\\')
		if next < 0 || at+next+1 == len(v.text) {
			return
		}
		at += next
		if with, ok := short[v.text[at+1]]; ok {
			w.replace(at, at+2, with)
			at += 2
			continue
		}
		const length = len(`\u0000`)
		r, ok := hexRune(v.text[at:], `\u`)
		if !ok {
			at++
			continue
		}
		end := at + length
		if low, ok := hexRune(v.text[end:], `\u`); ok && utf16.IsSurrogate(r) {
			if pair := utf16.DecodeRune(r, low); pair != unicode.ReplacementChar {
				r, end = pair, end+length
			}
		}
		w.replace(at, end, string(r))
		at = end
	}
}

// withoutPercents decodes percent-escapes (RFC 3986, 2.1), and those of four digits that JavaScript's escape makes.
func (v *view) withoutPercents(w *viewWriter) {
	for at := 0; ; {
		next := strings.IndexByte(v.text[at:], '%')
		if next < 0 {
			return
		}
		at += next
		if r, ok := hexRune(v.text[at:], "%u"); ok {
			w.replace(at, at+len("%u0000"), string(r))
			at += len("%u0000")
			continue
		}
		const length = len("%00")
		if at+length > len(v.text) {
			return
		}
		n, err := strconv.ParseUint(v.text[at+1:at+length], 16, 8)
		if err != nil {
			at++
			continue
		}
		w.replace(at, at+length, string([]byte{byte(n)}))
		at += length
	}
}

// hexRune is the character that four hexadecimal digits behind a prefix stand for.
func hexRune(text, prefix string) (rune, bool) {
	const digits = 4
	if !strings.HasPrefix(text, prefix) || len(text) < len(prefix)+digits {
		return 0, false
	}
	n, err := strconv.ParseUint(text[len(prefix):len(prefix)+digits], 16, 16)
	return rune(n), err == nil
}

const (
	csi8 = "\u009b" // CSI and OSC as one control character
	osc8 = "\u009d"
)

// withoutSequences takes a terminal's control sequences out (ECMA-48, 5.4 and 8.3): colours and their like. What a
// sequence carries as text, such as a link's address, comes behind the rest.
func (v *view) withoutSequences(w *viewWriter) {
	text := v.text
	if !strings.Contains(text, "\x1b") && !strings.Contains(text, csi8) && !strings.Contains(text, osc8) {
		return
	}
	skip := func(at int, lo, hi byte) int {
		for at < len(text) && lo <= text[at] && text[at] <= hi {
			at++
		}
		return at
	}
	var carried [][2]int
	ends := true // whether anything that ends a text is still to come
	for at := 0; at < len(text); {
		begin, end := at, at
		switch rest := text[at:]; {
		case strings.HasPrefix(rest, "\x1b["), strings.HasPrefix(rest, csi8):
			end = skip(skip(at+len(csi8), 0x30, 0x3f), 0x20, 0x2f)
			if end < len(text) && 0x40 <= text[end] && text[end] <= 0x7e {
				end++
			}
		case len(rest) > 1 && rest[0] == '\x1b' && strings.IndexByte("]PX^_", rest[1]) >= 0,
			strings.HasPrefix(rest, osc8):
			end = at + len(osc8)
			if !ends {
				break
			}
			length := strings.IndexAny(text[end:], "\x07\x1b")
			if ends = length >= 0; !ends {
				break
			}
			carried = append(carried, [2]int{end, end + length})
			end += length + 1
			if text[end-1] == '\x1b' && end < len(text) && text[end] == '\\' {
				end++
			} else if text[end-1] == '\x1b' {
				end-- // the next sequence
			}
		case rest[0] == '\x1b':
			end = skip(at+1, 0x20, 0x2f)
			if end < len(text) && 0x30 <= text[end] && text[end] <= 0x7e {
				end++
			}
		default:
			at++
			continue
		}
		w.replace(begin, end, "")
		at = end
	}
	w.keep(len(text))
	for _, part := range carried {
		w.text.WriteByte('\x1b')
		w.copy(part[0]-1, part[1])
		w.text.WriteString(text[part[0]:part[1]])
	}
}

// squeeze takes white space out of a text: what is encoded is often broken into lines.
func squeeze(text string) string {
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		if c := text[i]; c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			out = append(out, c)
		}
	}
	return string(out)
}

// squeezed is what [squeeze] makes of a view.
func (v view) squeezed() view {
	out, _ := v.apply(func(v *view, w *viewWriter) {
		for at := 0; at < len(v.text); at++ {
			switch v.text[at] {
			case ' ', '\t', '\r', '\n':
				w.replace(at, at+1, "")
			}
		}
	})
	return out
}
