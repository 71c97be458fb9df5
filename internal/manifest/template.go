package manifest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/toolyard/toolyard/tool"
)

// template is a text with places for fields of the input.
type template struct {
	// parts alternate: text, field, text, ...
	parts []string
}

// placeholder is {field}, or {{field}} for the text {field} itself. Braces around anything else are text.
var placeholder = regexp.MustCompile(`\{\{[A-Za-z_][A-Za-z0-9_]*\}\}|\{[A-Za-z_][A-Za-z0-9_]*\}`)

func parseTemplate(text string) template {
	t := template{parts: []string{""}}
	last := &t.parts[0]
	for text != "" {
		at := placeholder.FindStringIndex(text)
		if at == nil {
			*last += text
			break
		}
		*last += text[:at[0]]
		found := text[at[0]:at[1]]
		if strings.HasPrefix(found, "{{") {
			*last += found[1 : len(found)-1]
		} else {
			t.parts = append(t.parts, found[1:len(found)-1], "")
			last = &t.parts[len(t.parts)-1]
		}
		text = text[at[1]:]
	}
	return t
}

// fields are those that the template has places for.
func (t template) fields() []string {
	var out []string
	for i := 1; i < len(t.parts); i += 2 {
		out = append(out, t.parts[i])
	}
	return out
}

// fill puts values in their places, each through escape. It reports false when a field is not in the input.
func (t template) fill(input map[string]json.RawMessage, escape func(string) (string, error)) (text string, ok bool,
	err error) {
	var b strings.Builder
	for i, part := range t.parts {
		if i%2 == 1 {
			raw, there := input[part]
			if !there || string(raw) == "null" {
				return "", false, nil
			}
			if part, err = escape(plain(raw)); err != nil {
				return "", true, tool.Invalid("%s: %v", t.parts[i], err)
			}
		}
		b.WriteString(part)
	}
	return b.String(), true, nil
}

// plain is a value as a word: a string as it is, anything else as JSON.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// fieldsOf are the fields of an input. JSON Schema calls 10.0 an integer, and few programs do: one that is declared
// as an integer is written as one.
func fieldsOf(input json.RawMessage, integers map[string]bool) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil {
		return nil, tool.Invalid("the input is no object: %v", err)
	}
	for name := range integers {
		var number json.Number
		if json.Unmarshal(fields[name], &number) != nil { // not given, or of another type that it may have
			continue
		}
		const mostChars = 100
		if r, ok := new(big.Rat).SetString(string(number)); ok && len(number) <= mostChars && r.IsInt() {
			fields[name] = json.RawMessage(r.Num().String())
		}
	}
	return fields, nil
}

// arguments are those of a program, taken apart.
type arguments struct {
	args []template
	// integers are the fields that are declared as such.
	integers map[string]bool
}

// add takes an argument apart, and returns the number of its fields. key is its place in the manifest.
func (c *arguments) add(key, arg string, known func(string, template) error) (fields int, err error) {
	if strings.ContainsRune(arg, 0) {
		return 0, fmt.Errorf("%s: holds a NUL character", key)
	}
	a := parseTemplate(arg)
	c.args = append(c.args, a)
	return len(a.fields()), known(key, a)
}

// Arguments are the program's, with the input in their places. An argument whose field is not in the input is left
// out. One that begins with a value, and that a program would take for an option, is refused unless an argument
// before it is "--".
func (c *arguments) Arguments(input json.RawMessage) ([]string, error) {
	fields, err := fieldsOf(input, c.integers)
	if err != nil {
		return nil, err
	}
	var out []string
	options := true
	for _, t := range c.args {
		arg, ok, err := t.fill(fields, func(s string) (string, error) {
			if strings.ContainsRune(s, 0) {
				return "", fmt.Errorf("holds a NUL character, which no argument can")
			}
			return s, nil
		})
		if err != nil {
			return nil, err
		}
		if ok && options && t.parts[0] == "" && len(t.parts) > 1 && strings.HasPrefix(arg, "-") {
			return nil, tool.Invalid("%s: begins with %q, which the program would take for an option",
				strings.Join(t.fields(), ", "), "-")
		}
		if ok {
			out = append(out, arg)
		}
		options = options && arg != "--"
	}
	return out, nil
}

// urlTemplate is a URL whose path segments and query values have places for fields.
type urlTemplate struct {
	base     url.URL // scheme and host
	segments []segmentTemplate
	query    []queryTemplate
}

// segmentTemplate is a segment of a path. written has its texts as they are sent: what the operator has escaped is, and
// what they have not is not, where that makes a difference.
type segmentTemplate struct {
	template
	written template
}

type queryTemplate struct {
	key   string
	value template
}

// Address is the URL of a call. A part of the query whose field is not in the input is left out.
func (h *HTTP) Address(input json.RawMessage) (*url.URL, error) {
	fields, err := fieldsOf(input, h.integers)
	if err != nil {
		return nil, err
	}
	out := h.url.base
	var path, raw strings.Builder
	for _, t := range h.url.segments {
		segment, ok, err := t.fill(fields, func(s string) (string, error) { return s, nil })
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return nil, tool.Invalid("%s is missing; the address cannot be made without",
				strings.Join(t.fields(), ", "))
		case len(t.parts) > 1 && !t.oneSegment(fields):
			return nil, tool.Invalid("%s: %q is no part of an address: it is empty, or has a slash, a control "+
				"character or dots that lead elsewhere, maybe encoded; give something else",
				strings.Join(t.fields(), ", "), segment)
		}
		sent, _, err := t.written.fill(fields, func(s string) (string, error) { return url.PathEscape(s), nil })
		if err != nil {
			return nil, err
		}
		path.WriteString("/" + segment)
		raw.WriteString("/" + sent)
	}
	out.Path, out.RawPath = path.String(), raw.String()
	var query []string
	for _, q := range h.url.query {
		v, ok, err := q.value.fill(fields, func(s string) (string, error) { return s, nil })
		if err != nil {
			return nil, err
		}
		if ok {
			query = append(query, url.QueryEscape(q.key)+"="+url.QueryEscape(v))
		}
	}
	out.RawQuery = strings.Join(query, "&")
	return &out, nil
}

// ownSlashes are those that the template itself has: they are not looked at.
var ownSlashes = strings.NewReplacer("/", "_", `\`, "_")

// oneSegment reports whether a filled template is one segment of a path for every server: also for one that decodes the
// path before it takes it apart, or decodes it again and again, or has parameters behind a semicolon.
func (t template) oneSegment(input map[string]json.RawMessage) bool {
	parts := slices.Clone(t.parts)
	for i := 0; i < len(parts); i += 2 {
		parts[i] = ownSlashes.Replace(parts[i])
	}
	text, _, err := template{parts}.fill(input, func(s string) (string, error) { return s, nil })
	if err != nil {
		return false
	}
	for {
		name, _, _ := strings.Cut(text, ";")
		if text == "" || name == "." || name == ".." ||
			strings.ContainsFunc(text, func(r rune) bool { return r == '/' || r == '\\' || r < ' ' || r == 0x7f }) {
			return false
		}
		decoded := percent.ReplaceAllStringFunc(text, func(code string) string {
			c, err := hex.DecodeString(code[1:])
			if err != nil { // the pattern is two digits
				return code
			}
			return string(c)
		})
		if decoded == text {
			return true
		}
		text = decoded
	}
}

// percent is one encoded byte. Others are decoded beside one that cannot be.
var percent = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// parseURL takes a URL apart before anything stands in its places, so that nothing that comes there can change what it
// means.
func parseURL(text string) (urlTemplate, error) {
	var u urlTemplate
	text, fragment, _ := strings.Cut(text, "#")
	if fragment != "" {
		return u, fmt.Errorf("has a fragment, which is never sent; leave it out")
	}
	text, query, _ := strings.Cut(text, "?")
	scheme, rest, ok := strings.Cut(text, "://")
	host, path, _ := strings.Cut(rest, "/")
	if !ok || scheme != "https" && scheme != "http" || host == "" {
		return u, fmt.Errorf("%q is no address; write https://HOST/PATH", text)
	}
	if strings.ContainsAny(host, "{}@ ") {
		return u, fmt.Errorf("the host %q is not plain; places for fields stand only in the path and in values of "+
			"the query, and credentials in headers", host)
	}
	base, err := url.Parse(scheme + "://" + host)
	if err != nil || base.Host == "" {
		return u, fmt.Errorf("the host %q cannot be read", host)
	}
	u.base = *base
	for segment := range strings.SplitSeq(path, "/") {
		t, err := parseSegment(segment)
		if err != nil {
			return u, fmt.Errorf("the path has %q, which cannot be read: write %%25 for %%", segment)
		}
		u.segments = append(u.segments, t)
	}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		key, v, _ := strings.Cut(pair, "=")
		k, err1 := url.QueryUnescape(key)
		plain, err2 := url.QueryUnescape(v)
		if err1 != nil || err2 != nil {
			return u, fmt.Errorf("the query has %q, which cannot be read: write %%25 for %%", pair)
		}
		if len(parseTemplate(k).parts) > 1 {
			return u, fmt.Errorf("the query has a place for a field in the name %q; only values have places", k)
		}
		u.query = append(u.query, queryTemplate{k, parseTemplate(plain)})
	}
	return u, nil
}

// braces are those of a place for a field, also where a program has escaped them.
var braces = strings.NewReplacer("%7B", "{", "%7b", "{", "%7D", "}", "%7d", "}")

// notInPath is what cannot stand in a segment of a path as it is.
var notInPath = regexp.MustCompile(`[^A-Za-z0-9._~!$&'()*+,;=:@%-]+`)

func parseSegment(text string) (segmentTemplate, error) {
	t := segmentTemplate{written: parseTemplate(braces.Replace(text))}
	t.parts = slices.Clone(t.written.parts)
	for i := 0; i < len(t.parts); i += 2 {
		plain, err := url.PathUnescape(t.parts[i])
		if err != nil {
			return t, err
		}
		t.parts[i], t.written.parts[i] = plain, notInPath.ReplaceAllStringFunc(t.parts[i], url.PathEscape)
	}
	return t, nil
}
