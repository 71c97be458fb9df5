// Package redact takes secrets out of texts that others will read: events, previews, errors.
//
// Two kinds are found. Values that this process knows, such as those of its environment, wherever they stand and also
// encoded ([New]). And texts that look like a well-known kind of token, whoever's they are (the table in shapes.go).
// Both are looked for in every reading of the text: with escapes of JSON and of URLs decoded, and without a terminal's
// colours.
//
// A mark stands where a secret stood, and says what it was: "[redacted: GITHUB_TOKEN]", "[redacted: AWS access key]".
// Redacting a redacted text changes nothing.
//
// This is a net under accidents, and no wall: a tool that wants to show a secret can write it in a way that nobody
// knows.
//
// The package is pure: the environment comes in as a list.
package redact

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
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
type Redactor struct {
	plain   matcher // values as they are
	encoded matcher // in hex and in base64
}

// New makes a redactor that finds these values, and the well-known shapes. A value of less than [MinValueBytes] bytes
// is not found.
func New(secrets []Secret) *Redactor {
	r := &Redactor{}
	for _, s := range secrets {
		if len(s.Value) < MinValueBytes {
			continue
		}
		for _, text := range texts(s.Value) {
			r.plain.add(text, mark(s.Name))
			r.plain.add(strings.ReplaceAll(text, " ", "+"), mark(s.Name)) // as forms in URLs have it
			for _, form := range encodings(text) {
				r.encoded.add(form, mark(s.Name))
			}
		}
	}
	return r
}

// maxRounds bounds how often a text is looked through again: a mark may end a word, and another secret begin behind it.
const maxRounds = 4

// Redact returns the text without secrets.
func (r *Redactor) Redact(text string) string {
	for range maxRounds {
		if len(text) < MinValueBytes {
			break
		}
		found := r.find(text)
		if len(found) == 0 {
			break
		}
		text = replace(text, found)
	}
	return text
}

// span is a part of a text that is not shown, and the mark in its place.
type span struct {
	from, to int
	mark     string
}

// find gives all secrets of a text, in any order.
func (r *Redactor) find(text string) []span {
	var found []span
	for _, v := range views(text) {
		add := func(v *view) func(lo, hi int, mark string) {
			return func(lo, hi int, mark string) {
				from, to := v.origin(lo, hi)
				found = append(found, span{from, to, mark})
			}
		}
		r.plain.find(v.text, add(&v))
		if !r.encoded.empty() && r.encoded.finds(squeeze(v.text)) {
			s := v.squeezed()
			r.encoded.find(s.text, add(&s))
		}
		findShapes(&v, add(&v))
	}
	return found
}

// replace puts marks where secrets stand. Those that overlap get one mark, of the one that begins first.
func replace(text string, found []span) string {
	slices.SortStableFunc(found, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.from, b.from),
			cmp.Compare(b.to, a.to))
	})
	var out strings.Builder
	done := 0 // what is before it stands in out
	for i, s := range found {
		if i > 0 && s.from < done {
			done = max(done, s.to)
			continue
		}
		out.WriteString(text[done:s.from])
		out.WriteString(s.mark)
		done = s.to
	}
	out.WriteString(text[done:])
	return out.String()
}

const (
	markBegin = "[redacted: "
	markEnd   = "]"
)

func mark(what string) string { return markBegin + what + markEnd }

// Marked reports whether a text has a mark where a secret stood.
func Marked(text string) bool { return strings.Contains(text, markBegin) }

// Marks counts the marks in a text.
func Marks(text string) int { return strings.Count(text, markBegin) }

// texts are a value, and the lines of one that has several: a tool may number the lines of a file, or show one of them.
// Blanks and line breaks around it are no part of it: programs take them away, and show the rest.
func texts(value string) []string {
	if bare := strings.TrimSpace(value); len(bare) >= MinValueBytes {
		value = bare
	}
	all := []string{value}
	if lines := strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' }); len(lines) > 1 {
		for _, line := range lines {
			if line = strings.TrimSpace(line); len(line) >= minLineBytes && !strings.HasPrefix(line, "-----") {
				all = append(all, line)
			}
		}
	}
	return all
}

// encodings are a text in hex, and in base64 wherever it begins.
func encodings(text string) []string {
	inHex := hex.EncodeToString([]byte(text))
	all := []string{inHex, strings.ToUpper(inHex)}
	for shift := range 3 {
		all = append(all, insideBase64(base64.RawStdEncoding, text, shift),
			insideBase64(base64.RawURLEncoding, text, shift))
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

// Environ picks the secrets of an environment, as [os.Environ] gives it: the values of variables whose names say so,
// and the passwords in values that are URLs.
func Environ(environ []string) []Secret {
	var out []Secret
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if SecretName(name) && secretValue(strings.TrimSpace(value)) {
			out = append(out, Secret{name, value})
		}
		out = append(out, InURLs(name, value)...)
	}
	return out
}

// InURLs are the secrets in the URLs of a variable, several with commas between them: passwords, and tokens of NATS,
// which stand in the place of a user. A comma may also stand in a password. Plain words are left out, as with a
// variable whose name says that it holds a secret; in a URL itself a password is hidden whatever it is.
func InURLs(name, value string) (out []Secret) {
	add := func(text string) {
		secret, ok := inURL(strings.TrimSpace(text))
		if s := (Secret{name, secret}); ok && secretValue(secret) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	parts := strings.Split(value, ",")
	for i, part := range parts {
		add(part)
		if !strings.Contains(part, "://") {
			continue
		}
		next := i + 1
		for next < len(parts) && !strings.Contains(parts[next], "://") {
			next++
		}
		add(strings.Join(parts[i:next], ","))
	}
	return out
}

// inURL is the password in a URL, or the token. What Go does not take for a URL, another program may.
func inURL(text string) (secret string, ok bool) {
	scheme, rest, _ := strings.Cut(text, "://")
	user := userOf(rest)
	if u, err := url.Parse(text); err == nil {
		user = u.User
	}
	if user == nil {
		return "", false
	}
	if password, ok := user.Password(); ok {
		return password, true
	}
	return user.Username(), slices.Contains([]string{"nats", "tls", "ws", "wss"}, strings.ToLower(scheme))
}

// userOf is what stands in front of the host, behind the scheme of a URL; nil if nothing does.
func userOf(rest string) *url.Userinfo {
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	at := strings.LastIndex(authority, "@")
	if at < 0 { // a password may have one of these
		at = strings.Index(rest, "@")
	}
	if at < 0 {
		return nil
	}
	plain := func(text string) string {
		if decoded, err := url.PathUnescape(text); err == nil {
			return decoded
		}
		return text
	}
	name, password, ok := strings.Cut(rest[:at], ":")
	switch {
	case strings.ContainsAny(name, ", "): // a list or a text, with a host in front
		return nil
	case !ok:
		return url.User(plain(name))
	}
	return url.UserPassword(plain(name), plain(password))
}

// SecretName reports whether the name of a variable says that it holds a secret.
func SecretName(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "APIKEY", "CREDENTIAL"},
		func(word string) bool { return strings.Contains(name, word) }) ||
		slices.ContainsFunc([]string{"_KEY", "_PWD", "_PAT"},
			func(end string) bool { return strings.HasSuffix(name, end) })
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
		case len(strings.TrimSpace(value)) < MinValueBytes:
			return nil, fmt.Errorf("the value of %s has less than %d bytes, too few to be told from ordinary text",
				name, MinValueBytes)
		}
		out = append(out, Secret{name, value})
	}
	return out, nil
}
