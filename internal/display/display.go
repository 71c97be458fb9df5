package display

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/redact"
	"github.com/toolyard/toolyard/internal/schema"
)

// ErrPart is wrapped if an input cannot be shown completely. Such an input must not be approved, because nobody has
// seen it.
var ErrPart = errors.New("the input cannot be shown whole")

func part(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrPart, fmt.Sprintf(format, args...))
}

// CutMark is the mark at the end of a cut text, or in its place, for hooks and watchers; bytes is the full length.
func CutMark(bytes int) string { return fmt.Sprintf("[cut: %d bytes in all]", bytes) }

var cutMark = regexp.MustCompile(`\[cut: [0-9]+ bytes in all\]`)

// Cut reports whether a text has a [CutMark], so that something is missing.
func Cut(text string) bool { return cutMark.MatchString(text) }

// Options say how to show an input.
type Options struct {
	// Columns is the maximum width of a line; 0 means [Columns].
	Columns int
	// SHA256 is the hash of the input that would run. An input with another hash that was not redacted is not shown,
	// because it is another input. Empty: not checked.
	SHA256 string
	// Form is what a tool asks for; then the input is the answer as it is filled in, and is shown below the question
	// and the form. SHA256 is then that of [AskedSHA256]. Nil: the input is a call's.
	Form *toolyard.Form
	// Before is the current content of the file that the input would write; nil if it is unknown.
	Before *string
}

// Lines shows an input. The error wraps [ErrPart] if it cannot be shown completely.
//
// Each value follows its path. A text of several words is below its path, each of its lines after "|". An edit
// (old_string and new_string in one object) is a comparison: lines after "-" are removed, lines after "+" are added,
// lines after "|" stay.
func Lines(input json.RawMessage, o Options) ([]string, error) {
	switch {
	case len(input) > MaxBytes:
		return nil, part("it is too long, %d bytes; at most %d can be shown", len(input), MaxBytes)
	case Cut(string(input)):
		return nil, part("it is too long, and only its beginning is here")
	case !utf8.Valid(input):
		return nil, part("it is not UTF-8")
	}
	v, err := schema.Parse(input)
	if err != nil {
		return nil, part("it cannot be read: %v", err)
	}
	if o.Form != nil {
		if v, err = asked(o.Form, v); err != nil {
			return nil, err
		}
	}
	if o.SHA256 != "" && v.Hash() != o.SHA256 && !redact.Marked(string(v.Canonical())) {
		return nil, part("what is here is not what would run")
	}
	p, err := show(v.Doc(), o.Before)
	if err != nil && o.Before != nil { // the current content is too long
		p, err = show(v.Doc(), nil)
	}
	if err != nil {
		return nil, err
	}
	if o.Columns == 0 {
		o.Columns = Columns
	}
	return p.fold(max(o.Columns, MinColumns)), nil
}

// AskedSHA256 is the hash of a question with its form and the answer as it is filled in: an answer is to one question.
func AskedSHA256(form *toolyard.Form, filled schema.Value) (string, error) {
	v, err := asked(form, filled)
	if err != nil {
		return "", err
	}
	return v.Hash(), nil
}

// asked is a question with its form, and the answer below it.
func asked(form *toolyard.Form, answer schema.Value) (schema.Value, error) {
	raw, err := json.Marshal(struct {
		Server   string          `json:"asked by the MCP server"`
		Question string          `json:"question"`
		Form     json.RawMessage `json:"form"`
		Answer   json.RawMessage `json:"your answer"`
	}{form.Server, form.Message, form.Schema, answer.Canonical()})
	switch {
	case err != nil:
		return schema.Value{}, part("its form cannot be read: %v", err)
	case len(raw) > MaxBytes:
		return schema.Value{}, part("it is too long, %d bytes with its form; at most %d can be shown", len(raw), MaxBytes)
	case Cut(string(raw)):
		return schema.Value{}, part("it is too long, and only its beginning is here")
	}
	v, err := schema.Parse(raw)
	if err != nil {
		return v, part("its form cannot be read: %v", err)
	}
	return v, nil
}

// Fold shows a text that is not an input, such as a reason, on one line, or on several if it is longer, split at
// blanks.
func Fold(text string, columns int) (out []string) {
	body, op := tokens(text), ""
	for {
		n := fits(body, max(columns, MinColumns))
		line, rest := body[:n], body[n:]
		if at := lastBlank(line); len(rest) > 0 && at > 0 {
			line, rest = body[:at], body[at+1:]
		}
		out = append(out, op+edges(line))
		if body, op = rest, goesOn; len(body) == 0 {
			return out
		}
	}
}

func lastBlank(line []token) int {
	for i, t := range slices.Backward(line) {
		if t.text == " " {
			return i
		}
	}
	return -1
}

// goesOn is the prefix of the rest of a folded line.
const goesOn = "> "

// fits returns how many tokens, at least one, fit on a line of columns columns, after its prefix.
func fits(body []token, columns int) (n int) {
	width := columns - len(goesOn) - wideColumns // a blank at the end becomes wide
	for used := 0; n < len(body) && (n == 0 || used+body[n].columns <= width); n++ {
		used += body[n].columns
	}
	return n
}

func show(doc any, before *string) (*page, error) {
	p := &page{before: before}
	p.value(nil, doc)
	if p.height > MaxLines {
		return nil, part("it is too long, %d lines of %d columns; at most %d can be shown", p.height, Columns, MaxLines)
	}
	return p, nil
}

// row is a line before it is folded. op is its prefix; empty for a line of the structure.
type row struct {
	op   string
	body []token
}

type page struct {
	rows   []row
	height int // number of lines, folded at [Columns]
	before *string
}

func (p *page) add(op string, body []token) {
	columns := 0
	for _, t := range body {
		columns += t.columns
	}
	p.height += 1 + columns/Columns
	if p.height <= MaxLines { // further rows are not shown
		p.rows = append(p.rows, row{op, body})
	}
}

// name adds a line of the structure: the path of a value, and the value if it is short.
func (p *page) name(path []token, rest string) {
	p.add("", append(slices.Clone(path), ascii(rest)...))
}

// ascii returns the tokens of one of our own texts.
func ascii(text string) []token {
	out := make([]token, len(text))
	for i := range text {
		out[i] = token{text[i : i+1], 1}
	}
	return out
}

var (
	plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_./@:+=,%-]*$`)
)

// field is the path of a field in the object at path.
func field(path []token, name string) []token {
	path = slices.Clone(path)
	if plainName.MatchString(name) {
		if len(path) > 0 {
			path = append(path, token{".", 1})
		}
		return append(path, ascii(name)...)
	}
	path = append(path, ascii(`["`)...)
	for _, t := range tokens(name) {
		if t.text == `"` || t.text == `\` {
			t = token{`\` + t.text, 2}
		}
		path = append(path, t)
	}
	return append(path, ascii(`"]`)...)
}

// value shows the value at a path.
func (p *page) value(path []token, doc any) {
	if p.height > MaxLines {
		return
	}
	if _, object := doc.(map[string]any); len(path) == 0 && !object {
		path = ascii("(input)")
	}
	switch v := doc.(type) {
	case map[string]any:
		if len(v) == 0 {
			p.leaf(path, "{}")
			return
		}
		before, isEdit := v["old_string"].(string)
		after, both := v["new_string"].(string)
		isEdit = isEdit && both
		for _, name := range slices.Sorted(maps.Keys(v)) {
			content, isText := v[name].(string)
			switch {
			case isEdit && name == "new_string":
			case isEdit && name == "old_string":
				p.name(field(path, name), " -> new_string:")
				p.text(compare(before, after))
			case p.before != nil && len(path) == 0 && name == "content" && isText:
				p.name(field(path, name), ", compared with what is there now:")
				p.text(compare(*p.before, content))
			default:
				p.value(field(path, name), v[name])
			}
		}
	case []any:
		if len(v) == 0 {
			p.leaf(path, "[]")
		}
		for i, e := range v {
			p.value(append(slices.Clone(path), ascii("["+strconv.Itoa(i)+"]")...), e)
		}
	case string:
		if len(v) <= maxWord && plainWord.MatchString(v) {
			p.leaf(path, `"`+v+`"`)
			return
		}
		p.name(path, ":")
		p.text(all(same, strings.Split(v, "\n")))
	case json.Number:
		p.leaf(path, string(v))
	case bool:
		p.leaf(path, strconv.FormatBool(v))
	default:
		p.leaf(path, "null")
	}
}

// leaf adds a short value after its path; only an empty input has no path.
func (p *page) leaf(path []token, value string) {
	if len(path) > 0 {
		value = ": " + value
	}
	p.name(path, value)
}

// text shows the lines of a text. A long run of empty lines is counted.
func (p *page) text(lines []change) {
	for i, n := 0, 0; i < len(lines); i += n {
		c := lines[i]
		for n = 1; c.text == "" && i+n < len(lines) && lines[i+n] == c; {
			n++
		}
		if n > maxEmptyLines {
			p.add(c.op, []token{mark(fmt.Sprintf("%d empty lines", n), 1)})
			continue
		}
		for range n {
			p.add(c.op, tokens(c.text))
		}
	}
}

// fold writes the rows in lines of columns columns.
func (p *page) fold(columns int) (out []string) {
	for _, r := range p.rows {
		op := r.op
		if op != "" {
			op += " "
		}
		for {
			n := fits(r.body, columns)
			out = append(out, strings.TrimRight(op+edges(r.body[:n]), " "))
			if r.body = r.body[n:]; len(r.body) == 0 {
				break
			}
			op = goesOn
		}
	}
	return out
}

// edges joins the tokens of a line. It marks a blank at either end, which would be invisible.
func edges(line []token) string {
	var b strings.Builder
	for i, t := range line {
		if t.text == " " && (i == 0 || i == len(line)-1) {
			t.text = blankMark
		}
		b.WriteString(t.text)
	}
	return b.String()
}
