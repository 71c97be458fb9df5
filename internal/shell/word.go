package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Word is one word of a simple command, as far as it is known without running anything. The zero value is a completely
// unknown word.
type Word struct {
	// Text is the whole word without its quotes if Literal is set. Otherwise it is the common prefix of all expansions
	// of the word; it may be empty.
	Text string
	// Literal says that the program gets exactly Text, as one argument.
	Literal bool
	// Glob says that the word is literal except for *, ? or [: each argument made from it is a file name or the pattern
	// itself, and begins with Text.
	Glob bool
	// End is the known end of a word that is not literal: "/b" of $a/b. If a is split, the last argument has it.
	End string

	// single says that the word becomes one argument, even if it is unknown: true for "$x", false for $x.
	single bool
}

// operand reports whether no argument made from the word can be read as an option.
func (w Word) operand() bool {
	return (w.Literal || w.Glob && w.Text != "") && (w.Text == "-" && w.Literal || !strings.HasPrefix(w.Text, "-"))
}

// readWord removes the quotes and notes what only the shell can know.
func readWord(w *syntax.Word) Word {
	if w.Lit() == "[" { // the command; a pattern would need its "]"
		return Word{Text: "[", Literal: true, single: true}
	}
	r := wordReader{known: true, single: true, brace: -1}
	for _, part := range w.Parts {
		r.part(part)
	}
	out := Word{Text: r.text.String(), single: r.single}
	switch {
	case r.expands:
		if r.braced && r.brace < len(out.Text) {
			out.Text = out.Text[:r.brace]
		}
		if !r.braced {
			out.End = r.end.String()
		}
	case r.glob:
		out.Glob, out.End = true, r.end.String()
	default:
		out.Literal = true
	}
	return out
}

// wordReader collects what is known about one word, part by part.
type wordReader struct {
	text    strings.Builder
	end     strings.Builder // what is known behind the last unknown part
	known   bool            // all parts so far were known: text still grows
	expands bool            // something other than a glob was unknown
	glob    bool
	single  bool
	brace   int  // length of text at the first unquoted "{", or -1
	braced  bool // and a "," or ".." came after it: a brace expansion, perhaps
	prev    byte // the previous unquoted byte, for tilde and ".."; 0 after anything else
	begun   bool // something of the word was read
}

func (r *wordReader) part(part syntax.WordPart) {
	switch p := part.(type) {
	case *syntax.Lit:
		r.bare(p.Value)
		return // keeps prev
	case *syntax.SglQuoted:
		if p.Dollar {
			r.open(true) // $'…' has its own escapes: not worth decoding
		} else {
			r.add(p.Value)
		}
	case *syntax.DblQuoted:
		if p.Dollar {
			r.open(true) // $"…" is translated
		}
		for _, inner := range p.Parts {
			switch in := inner.(type) {
			case *syntax.Lit:
				r.add(unescapeDouble(in.Value))
			case *syntax.ParamExp:
				// "$@" and "${a[@]}" become as many arguments as there are.
				r.open(in.Param != nil && in.Param.Value != "@" && in.Index == nil && !in.Excl)
			default:
				r.open(true)
			}
		}
	default:
		r.open(false)
	}
	r.prev, r.begun = 0, true
}

// bare reads unquoted text: escapes, globs, braces and tildes.
func (r *wordReader) bare(s string) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			i++
			r.add(s[i : i+1])
			r.prev, r.begun = 0, true
			continue
		case c == '*' || c == '?' || c == '[':
			r.glob, r.known, r.single = true, false, false
			r.end.Reset()
		case c == '~' && (!r.begun || r.prev == '=' || r.prev == ':'):
			r.open(true)
		case c == '{':
			if r.brace < 0 {
				r.brace = r.text.Len()
			}
			r.add("{")
		case c == ',' && r.brace >= 0, c == '.' && r.prev == '.' && r.brace >= 0:
			r.braced = true
			r.open(false)
		default:
			r.add(s[i : i+1])
			if c == ']' { // of a glob: what stands in it is no end
				r.end.Reset()
			}
		}
		r.prev, r.begun = c, true
	}
}

// add appends text that the shell does not change.
func (r *wordReader) add(s string) {
	if r.known {
		r.text.WriteString(s)
	}
	r.end.WriteString(s)
}

// open notes an expansion; single says that it does not split the word.
func (r *wordReader) open(single bool) {
	r.expands, r.known = true, false
	r.end.Reset()
	r.single = r.single && single
}

// unescapeDouble removes the backslashes that have a meaning between double quotes.
func unescapeDouble(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\", s[i+1]) >= 0 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
