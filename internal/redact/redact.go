// Package redact takes secrets out of texts that others will read: events, previews, errors.
//
// Two kinds are found. Values that this process knows, such as those of its environment, wherever they stand and also encoded
// ([New]). And texts that look like a well-known kind of token, whoever's they are (the table in shapes.go).
//
// A mark stands where a secret stood, and says what it was: "[redacted: GITHUB_TOKEN]", "[redacted: AWS access key]".
// Redacting a redacted text changes nothing.
//
// This is a net under accidents, and no wall: a tool that wants to show a secret can write it in a way that nobody knows.
//
// The package is pure: the environment comes in as a list.
package redact

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// What is long enough to be told from ordinary text.
const (
	MinValueBytes = 8  // bytes of a value that is found; a shorter one would take ordinary words out
	minLineBytes  = 16 // bytes of one line of a value with several
	longBytes     = 16 // bytes from which a value of the environment may be made of one kind of character
)

// Secret is a value that must not be shown, and the name that is shown instead.
type Secret struct{ Name, Value string }

// Redactor finds secrets. It is safe for concurrent use.
type Redactor struct{ known *strings.Replacer }

// New makes a redactor that finds these values, and the well-known shapes. A value of less than [MinValueBytes] bytes is
// not found.
func New(secrets []Secret) *Redactor {
	marks := map[string]string{}
	var found []string
	for _, s := range secrets {
		for _, form := range forms(s.Value) {
			if _, ok := marks[form]; !ok {
				marks[form] = mark(s.Name)
				found = append(found, form)
			}
		}
	}
	// The longest first: a secret may be part of another.
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, f := range found {
		pairs = append(pairs, f, marks[f])
	}
	return &Redactor{known: strings.NewReplacer(pairs...)}
}

// Redact returns the text without secrets.
func (r *Redactor) Redact(text string) string {
	if len(text) < MinValueBytes {
		return text
	}
	return redactShapes(r.known.Replace(text))
}

const (
	markBegin = "[redacted: "
	markEnd   = "]"
)

func mark(what string) string { return markBegin + what + markEnd }

// Marked reports whether a text has a mark where a secret stood.
func Marked(text string) bool { return strings.Contains(text, markBegin) }

// forms are the ways in which a value is written: as it is, escaped for JSON and for URLs, in hex and in base64.
func forms(value string) []string {
	var all []string
	add := func(form string) {
		if len(form) >= MinValueBytes {
			all = append(all, form)
		}
	}
	if len(value) < MinValueBytes {
		return nil
	}
	texts := []string{value}
	if lines := strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' }); len(lines) > 1 {
		for _, line := range lines { // a tool may number the lines of a file, or show one of them
			if len(strings.TrimSpace(line)) >= minLineBytes && !strings.HasPrefix(line, "-----") {
				texts = append(texts, strings.TrimSpace(line))
			}
		}
	}
	for _, text := range texts {
		add(text)
		for _, html := range []bool{true, false} {
			var b strings.Builder
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(html)
			if enc.Encode(text) == nil { // a string always encodes
				add(strings.Trim(strings.TrimSpace(b.String()), `"`))
			}
		}
		add(url.QueryEscape(text))
		add(url.PathEscape(text))
		add(hex.EncodeToString([]byte(text)))
		add(strings.ToUpper(hex.EncodeToString([]byte(text))))
		for shift := range 3 {
			add(insideBase64(base64.RawStdEncoding, text, shift))
			add(insideBase64(base64.RawURLEncoding, text, shift))
		}
	}
	return all
}

// insideBase64 is what a text always looks like inside a longer one that is encoded in base64, when it begins at a byte
// whose number is shift modulo 3: the characters that depend on it alone.
func insideBase64(enc *base64.Encoding, text string, shift int) string {
	const bitsInByte, bitsInChar = 8, 6
	out := enc.EncodeToString(append(make([]byte, shift), text...))
	first := (shift*bitsInByte + bitsInChar - 1) / bitsInChar
	last := (shift + len(text)) * bitsInByte / bitsInChar
	return out[first:last]
}

// Environ picks the secrets of an environment, as [os.Environ] gives it: the values of variables whose names say so, and
// the passwords in values that are URLs.
func Environ(environ []string) []Secret {
	var out []Secret
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if secretName(name) && secretValue(value) {
			out = append(out, Secret{name, value})
		}
		if u, err := url.Parse(value); err == nil && u.User != nil {
			if password, ok := u.User.Password(); ok {
				out = append(out, Secret{name, password})
			}
		}
	}
	return out
}

// secretName reports whether a variable of that name holds a secret.
func secretName(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "APIKEY", "CREDENTIAL"},
		func(word string) bool { return strings.Contains(name, word) }) ||
		slices.ContainsFunc([]string{"_KEY", "_PWD", "_PAT"}, func(end string) bool { return strings.HasSuffix(name, end) })
}

// secretValue reports whether a value that nobody has named expressly is worth hiding. SORT_KEY=timestamp is not: the
// word would be missing everywhere.
func secretValue(value string) bool {
	kinds := map[int]bool{}
	for _, r := range value {
		switch {
		case unicode.IsLower(r):
			kinds[0] = true
		case unicode.IsUpper(r):
			kinds[1] = true
		case unicode.IsDigit(r):
			kinds[2] = true
		default:
			kinds[3] = true
		}
	}
	return len(value) >= MinValueBytes && (len(kinds) > 1 || len(value) >= longBytes)
}

// Named looks up the secrets that somebody has named. One that is not set, or too short to be found, is an error: who
// names it relies on it.
func Named(names []string, lookup func(string) (string, bool)) ([]Secret, error) {
	var out []Secret
	for _, name := range names {
		value, ok := lookup(name)
		switch {
		case !ok || value == "":
			return nil, fmt.Errorf("the environment has no variable %q", name)
		case len(value) < MinValueBytes:
			return nil, fmt.Errorf("the value of %s has less than %d bytes, too few to be told from ordinary text", name, MinValueBytes)
		}
		out = append(out, Secret{name, value})
	}
	return out, nil
}
