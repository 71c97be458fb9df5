package builtin

import (
	"bytes"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// toUTF8 converts a body to UTF-8: from the charset that it or its server declares, otherwise as UTF-8 if it is valid,
// otherwise as windows-1252, as browsers do. Invalid characters become U+FFFD. cut says that the body's end is missing,
// perhaps in the middle of a character.
func toUTF8(body []byte, contentType string, cut bool) string {
	encoding, name, certain := charset.DetermineEncoding(body, contentType)
	if !certain && (utf8.Valid(body) || cut && !isBinary(body, false)) || certain && name == "utf-8" {
		body = bytes.TrimPrefix(body, []byte(byteOrderMark))
		return strings.ToValidUTF8(string(body), "\uFFFD")
	}
	text, err := encoding.NewDecoder().Bytes(body)
	if err != nil {
		text = body
	}
	return strings.TrimPrefix(strings.ToValidUTF8(string(text), "\uFFFD"), byteOrderMark)
}

// isBytes reports whether a body is no text, whatever its server says: it has a NUL, and no charset in which that may
// be a part of a character.
func isBytes(body []byte, contentType string) bool {
	head := body[:min(len(body), BinaryProbeBytes)]
	if bytes.IndexByte(head, 0) < 0 {
		return false
	}
	_, name, _ := charset.DetermineEncoding(body, contentType)
	return !strings.HasPrefix(name, "utf-16")
}

// unread are the elements whose content is not readable text.
var unread = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Svg: true, atom.Math: true,
	atom.Iframe: true,
	atom.Select: true, atom.Textarea: true,
}

// leaky are the unread elements that do not hide the rest of a page if nothing closes them. Browsers end a drawing and
// a formula where HTML goes on.
var leaky = map[atom.Atom]bool{atom.Svg: true, atom.Math: true, atom.Select: true}

// blocks are the elements that begin and end a line. The value is the line's prefix.
var blocks = map[atom.Atom]string{
	atom.P: "", atom.Div: "", atom.Section: "", atom.Article: "", atom.Header: "", atom.Footer: "", atom.Main: "",
	atom.Nav: "", atom.Aside: "",
	atom.Ul: "", atom.Ol: "", atom.Dl: "", atom.Dt: "", atom.Dd: "", atom.Table: "", atom.Tr: "", atom.Blockquote: "",
	atom.Pre: "", atom.Form: "",
	atom.Figure: "", atom.Figcaption: "", atom.Details: "", atom.Summary: "", atom.Address: "", atom.Hr: "",
	atom.Body: "",
	atom.Li:   "- ", atom.H1: "# ", atom.H2: "## ", atom.H3: "### ", atom.H4: "#### ", atom.H5: "##### ",
	atom.H6: "###### ",
}

// htmlPage is the state of a conversion from HTML to text.
type htmlPage struct {
	out   strings.Builder
	base  *url.URL // where relative addresses begin
	title strings.Builder

	based   bool // the page has said what base is
	inTitle bool
	pre     int      // how many pre elements are open
	lines   int      // line ends at the end of out, at most 2
	space   bool     // white space was read but not written
	prefix  string   // the prefix of the next text
	links   []string // the addresses of the open links, as the page has them
}

// htmlText reduces HTML to its title and readable text. It reads tokens and builds no tree, so that its time and memory
// are linear in the page's size, whatever its nesting. A link may be far shorter in the page than its whole address:
// cut says that the text came to [MaxFetchText], and what follows is left out.
func htmlText(source string, base *url.URL) (title, text string, cut bool) {
	z := html.NewTokenizer(strings.NewReader(source))
	p := &htmlPage{base: base, lines: 2}
	var skip atom.Atom           // the unread element that is open
	depth := 0                   // the number of open elements of that name
	at, behind := 0, 0           // the place in source behind the last token, and behind the one that opened skip
	read := map[atom.Atom]bool{} // elements of leaky that nothing closes
	open := func(t html.Token) {
		switch {
		case depth > 0 && t.DataAtom == skip:
			depth++
		case depth > 0:
		case unread[t.DataAtom] && !read[t.DataAtom]:
			skip, depth, behind = t.DataAtom, 1, at
		default:
			p.open(t)
		}
	}
	for {
		next := z.Next()
		at += len(z.Raw())
		if cut = p.out.Len() > MaxFetchText; cut {
			next = html.ErrorToken
		}
		switch next {
		case html.ErrorToken: // the end: a string gives no other error
			if depth > 0 && leaky[skip] { // once for each of them
				read[skip], depth, at = true, 0, behind
				z = html.NewTokenizer(strings.NewReader(source[at:]))
				continue
			}
			return strings.Join(strings.Fields(p.title.String()), " "), strings.TrimSpace(p.out.String()), cut
		case html.TextToken:
			if depth == 0 {
				p.text(string(z.Text()))
			}
		case html.StartTagToken:
			open(z.Token())
		case html.SelfClosingTagToken:
			// Of HTML's own elements only those without content can close themselves; <script/> opens a script.
			if t := z.Token(); t.DataAtom != atom.Svg && t.DataAtom != atom.Math {
				open(t)
			}
		case html.EndTagToken:
			switch t := z.Token(); {
			case depth > 0 && t.DataAtom == skip:
				depth--
			case depth == 0:
				p.close(t)
			}
		}
	}
}

func (p *htmlPage) open(t html.Token) {
	switch prefix, block := blocks[t.DataAtom]; {
	case t.DataAtom == atom.Title:
		p.inTitle = p.title.Len() == 0
	case t.DataAtom == atom.Base:
		p.rebase(t)
	case t.DataAtom == atom.Br:
		p.newline(1)
	case t.DataAtom == atom.Td || t.DataAtom == atom.Th:
		if p.lines == 0 {
			p.write(" | ")
		}
	case t.DataAtom == atom.A:
		p.links = append(p.links, href(t))
	case t.DataAtom == atom.Img:
		for _, a := range t.Attr {
			if a.Key == "alt" && strings.TrimSpace(a.Val) != "" {
				p.text("[image: " + a.Val + "]")
			}
		}
	case block:
		if t.DataAtom == atom.Pre {
			p.pre++
		}
		p.newline(gap(t.DataAtom))
		if prefix != "" {
			p.prefix = prefix
		}
	}
}

func (p *htmlPage) close(t html.Token) {
	switch _, block := blocks[t.DataAtom]; {
	case t.DataAtom == atom.Title:
		p.inTitle = false
	case t.DataAtom == atom.A && len(p.links) > 0:
		to := p.link(p.links[len(p.links)-1])
		p.links = p.links[:len(p.links)-1]
		if to != "" {
			p.write(" (" + to + ")")
		}
	case block:
		if t.DataAtom == atom.Pre && p.pre > 0 {
			p.pre--
		}
		p.newline(gap(t.DataAtom))
		p.prefix = ""
	}
}

// gap is the number of line ends around an element.
func gap(a atom.Atom) int {
	switch a {
	case atom.P, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Table, atom.Blockquote, atom.Pre, atom.Ul,
		atom.Ol, atom.Dl:
		return 2
	}
	return 1
}

// href is the address of a link, as the page has it; empty if it leads to the page itself.
func href(t html.Token) string {
	for _, a := range t.Attr {
		if a.Key == "href" && !strings.HasPrefix(a.Val, "#") {
			return strings.TrimSpace(a.Val)
		}
	}
	return ""
}

// rebase has relative addresses begin where a base element says. The first one counts, if it is an address of the web.
func (p *htmlPage) rebase(t html.Token) {
	for _, a := range t.Attr {
		if a.Key != "href" || p.based {
			continue
		}
		p.based = true
		u, err := p.base.Parse(strings.TrimSpace(a.Val))
		if err == nil && (u.Scheme == "http" || u.Scheme == "https") && len(u.String()) <= MaxURLBytes {
			p.base = u
		}
	}
}

// link is the absolute address of a link to another page, or empty.
func (p *htmlPage) link(address string) string {
	if address == "" {
		return ""
	}
	if u, err := p.base.Parse(address); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		return u.String()
	}
	return ""
}

// text writes text, with each run of white space replaced by one space unless it is preformatted.
func (p *htmlPage) text(s string) {
	if p.inTitle {
		p.title.WriteString(s)
		return
	}
	if p.pre > 0 {
		p.write(s)
		return
	}
	for i, word := range strings.Fields(s) {
		if i > 0 || strings.TrimLeft(s, " \t\r\n\f") != s {
			p.space = true
		}
		p.write(word)
	}
	if strings.TrimRight(s, " \t\r\n\f") != s {
		p.space = true
	}
}

// write writes text unchanged, after a pending space.
func (p *htmlPage) write(s string) {
	if s == "" {
		return
	}
	if p.space && p.lines == 0 && p.pre == 0 {
		p.out.WriteByte(' ')
	}
	p.out.WriteString(p.prefix + s)
	p.space, p.prefix = false, ""
	p.lines = 0
	if strings.HasSuffix(s, "\n") {
		p.lines = 1
	}
}

// newline ends the line, so that there are n line ends in all.
func (p *htmlPage) newline(n int) {
	for ; p.lines < n; p.lines++ {
		p.out.WriteByte('\n')
	}
	p.space = false
}
