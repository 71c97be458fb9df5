package redact

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// How far one look reaches. The longest private keys in use are half as long as the longer one.
const (
	shapeBytes     = 1 << 10
	longShapeBytes = 32 << 10
)

// shape is a well-known kind of secret. It is found by one of its beginnings, which are plain text so that a long
// output is read fast, and then has to match a pattern whole.
type shape struct {
	what   string
	begins []string
	// pattern is anchored where the beginning stands. Its first group is what is hidden; without a group, all is.
	// It is compiled when its beginning is first found: a process starts 4 ms earlier without all of them, and the
	// sandbox starts one for each command.
	pattern func() *regexp.Regexp
	// inside says that the beginning may stand inside a word, long that the secret may be longer than [shapeBytes].
	inside, long bool
	// unlike reports whether what matched is none after all: a template, a placeholder.
	unlike func(secret string) bool
}

func compiled(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// shapes is the table, with where each form is written down. What comes first is found first.
var shapes = []shape{
	{what: "private key", begins: []string{"-----BEGIN "}, inside: true, long: true,
		// RFC 7468, RFC 1421 (its headers have single dashes), OpenSSH's PROTOCOL.key, RFC 9580 (PGP). Line breaks may
		// be escaped, and the end may be cut off. Without a body it is somebody's program that looks for keys.
		pattern: compiled(`^-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:` +
			`(?:[A-Za-z0-9+/=\s\\:,.()]|-[A-Za-z0-9]){40,}?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----` +
			`|(?:(?:\s|\\[rnt]|[0-9]+\t)*[A-Za-z0-9+/=]{16,})+)`)},
	{what: "GitHub token", begins: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"},
		// GitHub's "about authentication": the prefix, and 36 characters or more.
		pattern: compiled(`^gh[pousr]_[A-Za-z0-9_]{36,255}`)},
	{what: "GitHub token", begins: []string{"github_pat_"},
		pattern: compiled(`^github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}`)},
	{what: "GitLab token", begins: []string{"glpat-", "gldt-", "glrt-", "glptt-"},
		// GitLab's "token overview".
		pattern: compiled(`^gl(?:pat|dt|rt|ptt)-[A-Za-z0-9_-]{20,300}`)},
	{what: "AWS access key", begins: []string{"AKIA", "ASIA"},
		// AWS IAM, "unique identifiers": the prefix, and 16 characters of base32.
		pattern: compiled(`^A[KS]IA[A-Z2-7]{16}\b`)},
	{what: "AWS secret key", begins: []string{"aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey",
		"secretAccessKey", "SecretKey"}, inside: true,
		// It has no shape of its own but its length, so only what stands beside its name counts.
		pattern: compiled(`^[A-Za-z_]+["']?\s{0,4}[:=]\s{0,4}["']?([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)`)},
	{what: "Slack token", begins: []string{"xoxa-", "xoxb-", "xoxe-", "xoxe.", "xoxo-", "xoxp-", "xoxr-", "xoxs-",
		"xapp-"},
		// Slack's "tokens".
		pattern: compiled(`^(?:xox[abeoprs][-.][A-Za-z0-9.-]{20,300}|xapp-[0-9]-[A-Z0-9]{8,20}-[0-9]{8,20}-[a-z0-9]{32,128})`),
		unlike:  func(s string) bool { return !hasDigit(s) }},
	{what: "Slack webhook", begins: []string{"https://hooks.slack.com/"}, inside: true,
		pattern: compiled(`^https://hooks\.slack\.com/(?:services|workflows|triggers)/(T[A-Z0-9]{6,}/[A-Za-z0-9_]{6,}/[A-Za-z0-9_/]{16,})`)},
	{what: "Anthropic key", begins: []string{"sk-ant-"},
		// The kind and its version stand behind the prefix: api03, admin01, oat01.
		pattern: compiled(`^sk-ant-[a-z]{2,12}[0-9]{2}-[A-Za-z0-9_-]{20,300}`)},
	{what: "OpenAI key", begins: []string{"sk-"},
		// OpenAI's keys have T3BlbkFJ in the middle, "OpenAI" in base64, and 20 characters or more around it.
		pattern: compiled(`^sk-[A-Za-z0-9_-]{48,400}`), unlike: notOpenAI},
	{what: "Google API key", begins: []string{"AIza"},
		pattern: compiled(`^(AIza[A-Za-z0-9_-]{35})(?:[^A-Za-z0-9_-]|$)`)},
	{what: "Google token", begins: []string{"ya29.", "GOCSPX-"}, long: true,
		pattern: compiled(`^(?:ya29\.[A-Za-z0-9_-]{30,}|GOCSPX-[A-Za-z0-9_-]{28})`)},
	{what: "Stripe key", begins: []string{"sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"},
		pattern: compiled(`^(?:[sr]k_(?:live|test)_[A-Za-z0-9]{20,250}|whsec_[A-Za-z0-9+/=]{32,250})`)},
	{what: "npm token", begins: []string{"npm_"}, pattern: compiled(`^npm_[A-Za-z0-9]{36}\b`)},
	{what: "PyPI token", begins: []string{"pypi-AgEIcHlwaS5vcmc"}, long: true,
		// A macaroon: the beginning is the service's name.
		pattern: compiled(`^pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}`)},
	{what: "Hugging Face token", begins: []string{"hf_"}, pattern: compiled(`^hf_[A-Za-z]{34}\b`)},
	{what: "JSON web token", begins: []string{"eyJ"}, long: true,
		// RFC 7519: header and claims are objects, so both begin with {" in base64; the signature may not be missing.
		pattern: compiled(`^eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16,}`)},
	{what: "authorization", begins: []string{"authorization", "Authorization", "AUTHORIZATION"}, inside: true,
		long: true,
		// RFC 9110, 11.6.2, as a header or as a field of JSON.
		pattern: compiled(`^(?i:authorization)\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?(?i:basic|bearer|token|apikey) {1,4}([A-Za-z0-9._~+/-]{8,}={0,2})`),
		unlike:  ordinary},
	{what: "bearer token", begins: []string{"Bearer ", "bearer "}, long: true,
		// RFC 6750, 2.1.
		pattern: compiled(`^[Bb]earer {1,4}([A-Za-z0-9._~+/-]{20,}={0,2})`), unlike: ordinary},
	{what: "API key", begins: []string{"x-api-key", "X-Api-Key", "X-API-Key", "X-API-KEY", "api-key", "Api-Key"},
		inside:  true,
		pattern: compiled(`^(?i:x-)?(?i:api-key)\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?([A-Za-z0-9._~+/-]{16,400}={0,2})`), unlike: ordinary},
	{what: "password", begins: []string{"://"}, inside: true,
		// RFC 3986, 3.2.1.
		pattern: compiled(`^://[^\s/?#@:"'<>` + "`" + `]{0,256}:([^\s/?#@"'<>` + "`" +
			`]{3,256})@[A-Za-z0-9\[]`), unlike: placeholder},
}

// maxGaps is how many ends a secret is tried with where a terminal's sequences were taken out behind its beginning.
const maxGaps = 4

// findShapes calls found for each secret of a well-known shape.
func findShapes(v *view, found func(lo, hi int, mark string)) {
	if !mayHaveShape(v.text) {
		return
	}
	for i := range shapes {
		for _, begin := range shapes[i].begins {
			if strings.Contains(v.text, begin) {
				shapes[i].find(v, begin, found)
			}
		}
	}
}

// shapePairs has a bit for each two bytes that a shape begins with.
var shapePairs = func() (pairs pairSet) {
	for i := range shapes {
		for _, begin := range shapes[i].begins {
			pairs.add(begin)
		}
	}
	return pairs
}()

// mayHaveShape reports whether the first two bytes of some shape stand in a text. Most texts are looked at only once.
func mayHaveShape(text string) bool {
	for at := 0; at+1 < len(text); at++ {
		if shapePairs.has(text[at:]) {
			return true
		}
	}
	return false
}

func (s *shape) find(v *view, begin string, found func(lo, hi int, mark string)) {
	text := v.text
	for from := 0; ; {
		at := strings.Index(text[from:], begin)
		if at < 0 {
			return
		}
		at += from
		from = at + len(begin)
		if !s.inside && at > 0 && wordByte(text[at-1]) && !v.gap(at) {
			continue
		}
		reach := shapeBytes
		if s.long {
			reach = longShapeBytes
		}
		end := min(len(text), at+reach)
		m := s.pattern().FindStringSubmatchIndex(text[at:end])
		for gap, n := from, 0; m == nil && v.from != nil && n < maxGaps && gap < end; gap++ {
			if v.gap(gap) {
				n++
				m = s.pattern().FindStringSubmatchIndex(text[at:gap])
			}
		}
		if m == nil {
			continue
		}
		lo, hi := m[0], m[1]
		if len(m) > 2 {
			lo, hi = m[2], m[3]
		}
		from = max(from, at+hi) // not looked at again: the work must not grow with the square of the text
		if s.unlike == nil || !s.unlike(text[at+lo:at+hi]) {
			found(at+lo, at+hi, mark(s.what))
		}
	}
}

func wordByte(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

func hexDigit(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'f' || 'A' <= b && b <= 'F'
}

func hasDigit(s string) bool { return strings.ContainsFunc(s, unicode.IsDigit) }

// ordinary reports whether a text is words rather than a token: no digit, and no capital behind the first letter.
func ordinary(s string) bool {
	return !hasDigit(s) && !strings.ContainsFunc(s[1:], unicode.IsUpper)
}

// placeholder reports whether what stands for a password in a URL is none: a variable, a star, the word itself. A
// percent sign with two hexadecimal digits is an escaped byte of a password.
func placeholder(s string) bool {
	switch strings.ToLower(s) {
	case "password", "pass", "passwd", "secret", "pwd":
		return true
	}
	if s[0] == '%' {
		return len(s) < len("%23") || !hexDigit(s[1]) || !hexDigit(s[2])
	}
	return strings.ContainsAny(s[:1], "${[*.") || strings.Trim(s, "xX*.") == ""
}

func notOpenAI(s string) bool {
	at := strings.Index(s, "T3BlbkFJ")
	return at < len("sk-")+20 || len(s)-at < len("T3BlbkFJ")+20
}
