package redact

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// wrap breaks a text into lines of so many characters.
func wrap(text string, width int, end string) string {
	var lines []string
	for ; len(text) > width; text = text[width:] {
		lines = append(lines, text[:width])
	}
	return strings.Join(append(lines, text), end)
}

// escapeAll escapes every byte that the choice names, in a spelling of hex.
func escapeAll(text, format string, choose func(i int, c byte) bool) string {
	var b strings.Builder
	for i := range len(text) {
		if choose(i, text[i]) {
			fmt.Fprintf(&b, format, text[i])
		} else {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

func odd(c byte) bool {
	return strings.IndexByte(" %+/\"<>&", c) >= 0 || c >= 0x80
}

// TestKnownValuesInEverySpelling: the encodings that are claimed have more than one spelling.
func TestKnownValuesInEverySpelling(t *testing.T) {
	const value = `p"ä/ss <wörd>+1&x`
	r := New([]Secret{{"DB_PASSWORD", value}})
	all := func(int, byte) bool { return true }
	some := func(i int, c byte) bool { return odd(c) || i%3 == 0 }
	texts := map[string]string{
		"percent, lower case":        escapeAll(value, "%%%02x", func(_ int, c byte) bool { return odd(c) }),
		"percent, every byte":        escapeAll(value, "%%%02X", all),
		"percent, every byte, lower": escapeAll(value, "%%%02x", all),
		"percent, some bytes":        escapeAll(value, "%%%02X", some),
		"percent, spaces as plus": strings.ReplaceAll(escapeAll(value, "%%%02x",
			func(_ int, c byte) bool { return odd(c) && c != ' ' }), " ", "+"),
		"percent, the slash kept": strings.ReplaceAll(url.PathEscape(value), "%2F", "/"),
		"percent, twice":          url.QueryEscape(url.QueryEscape(value)),
		"percent of percent":      strings.ReplaceAll(escapeAll(value, "%%%02x", all), "%", "%25"),
		"percent, of JavaScript": strings.ReplaceAll(strings.ReplaceAll(url.PathEscape(value), "%C3%A4", "%u00E4"),
			"%C3%B6", "%u00f6"),
		"JSON, ASCII only":         `p\"\u00e4/ss <w\u00F6rd>+1&x`,
		"JSON, slashes escaped":    `p\"ä\/ss <wörd>+1&x`,
		"JSON, every character":    `\u0070\u0022\u00e4\u002f\u0073\u0073\u0020\u003c\u0077\u00f6\u0072\u0064\u003e\u002b\u0031\u0026\u0078`,
		"JSON in JSON":             `p\\\"\\u00e4/ss \\u003cw\\u00f6rd\\u003e+1\\u0026x`,
		"coloured":                 "\x1b[31m" + value + "\x1b[0m",
		"coloured in the middle":   value[:4] + "\x1b[01;31m\x1b[K" + value[4:9] + "\x1b[m\x1b[K" + value[9:],
		"every character coloured": "\x1b[1m" + strings.Join(strings.Split(value, ""), "\x1b[38;5;12m"),
		"coloured, 8-bit":          value[:4] + "\u009b31m" + value[4:],
		"a charset in the middle":  value[:4] + "\x1b(B" + value[4:],
		"a link in the middle":     value[:4] + "\x1b]8;;http://x\x1b\\" + value[4:9] + "\x1b]8;;\x07" + value[9:],
		"in a link":                "\x1b]8;;http://x/" + url.PathEscape(value) + "\x1b\\text\x1b]8;;\x1b\\",
		"coloured, in JSON":        `\u001b[31mp\"ä/ss \u001b[0m<wörd>+1&x`,
		"coloured, percent": escapeAll(value[:4], "%%%02x", all) + "\x1b[31m" +
			escapeAll(value[4:], "%%%02x", all),
		"hex with spaces": strings.TrimSpace(escapeAll(value, "%02x ", all)),
	}
	for _, width := range []int{1, 4, 7, 8, 64, 76} {
		for _, end := range []string{"\n", "\r\n", "\n    ", `\n`, `\r\n`} {
			for shift := range 3 {
				text := []byte("abc"[:shift] + value + strings.Repeat("x", 80))
				texts[fmt.Sprintf("base64 in lines of %d, %q, %d", width, end,
					shift)] = wrap(base64.StdEncoding.EncodeToString(text), width, end)
				texts[fmt.Sprintf("base64url in lines of %d, %q, %d", width, end,
					shift)] = wrap(base64.URLEncoding.EncodeToString(text), width, end)
			}
			texts[fmt.Sprintf("hex in lines of %d, %q", width, end)] = wrap(hex.EncodeToString([]byte(value)), width,
				end)
		}
	}
	texts["base64, percent"] = url.QueryEscape(base64.StdEncoding.EncodeToString([]byte("u:" + value)))
	for how, text := range texts {
		got := r.Redact("before " + text + " after")
		if !strings.Contains(got, "[redacted: DB_PASSWORD]") || !strings.HasPrefix(got, "before ") ||
			!strings.HasSuffix(got, " after") {
			t.Errorf("%s: %q gave %q", how, text, got)
		}
	}
	for _, text := range []string{"100% of %zz and %4", `C:\new\table\u12`, "\x1b[", "\x1b]8;;", "\x1b", "a b\nc",
		"%25%25", `\`, `\u`, `\ud800`, "%u00"} {
		if got := r.Redact(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestColoursStay: what is around a secret is kept as it was.
func TestColoursStay(t *testing.T) {
	r := New([]Secret{{"T", "tok-en-00"}})
	for text, want := range map[string]string{
		"\x1b[31mtok-en-00\x1b[0m rest": "\x1b[31m[redacted: T]\x1b[0m rest",
		"\x1b[31mtok-\x1b[0men-00 rest": "\x1b[31m[redacted: T] rest",
	} {
		if got := r.Redact(text); got != want {
			t.Errorf("%q gave %q, want %q", text, got, want)
		}
	}
}

// TestShapesInEverySpelling: a token is one whatever stands in front of it, and whatever colours it.
func TestShapesInEverySpelling(t *testing.T) {
	r := New(nil)
	token := "ghp_" + alnum36
	for text, want := range map[string]string{
		"\x1b[31m" + token + "\x1b[0m":                          "\x1b[31m[redacted: GitHub token]\x1b[0m",
		"x\x1b[31m" + token + "\x1b[0my":                        "x\x1b[31m[redacted: GitHub token]",
		"\x1b[31m" + token[:20] + "\x1b[0m" + token[20:] + " x": "\x1b[31m[redacted: GitHub token] x",
		"a\x1b[31mAKIA" + "IOSFODNN7EXAMPLE\x1b[0mb":            "a\x1b[31m[redacted: AWS access key]\x1b[0mb",
		`{"a":"line\n` + token + `"}`:                           `{"a":"line\n[redacted: GitHub token]"}`,
		`"\u001b[31m` + token +
			`\u001b[0m"`: `"\u001b[31m[redacted: GitHub token]\u001b[0m"`,
		"https://h/?q=token%3D" +
			token: "https://h/?q=token%3D[redacted: GitHub token]",
		"\x1b]8;;https://h/?t=" + token +
			"\x1b\\text\x1b]8;;\x1b\\": "\x1b]8;;https://h/?t=[redacted: GitHub token]\x1b\\text\x1b]8;;\x1b\\",
		"postgres://app:\x1b[1mhunter2\x1b[0m@db/app": "postgres://app:[redacted: password]@db/app",
		"Authorization: \x1b[32mBearer\x1b[0m \x1b[33m" + hexish +
			"\n": "Authorization: \x1b[32mBearer\x1b[0m \x1b[33m[redacted: authorization]\n",
		"Authorization%3A%20Bearer%20" +
			hexish: "Authorization%3A%20Bearer%20[redacted: authorization]",
	} {
		if got := r.Redact(text); got != want {
			t.Errorf("%q gave\n%q, want\n%q", text, got, want)
		}
	}
}

// FuzzSpellings: however a known value is escaped, coloured and broken into lines, it does not stay.
func FuzzSpellings(f *testing.F) {
	f.Add("tok-en-00", []byte{0, 1, 2, 3, 4, 5}, "around")
	f.Add("a bäc\"d,,,", []byte{2, 2, 1, 1, 3, 0, 4}, "%4")
	f.Fuzz(func(t *testing.T, value string, how []byte, around string) {
		if len(value) < MinValueBytes || len(value) > 100 || len(how) == 0 || !utf8.ValidString(value) ||
			strings.ContainsAny(around, "\x1b\u009b\u009d") || strings.ContainsAny(value, "\\%+\x1b\u009b\u009d\r\n") {
			return // what is itself an escape may be read in two ways
		}
		var b strings.Builder
		i := 0
		for _, c := range value {
			choice := how[i%len(how)]
			i++
			switch choice % 6 {
			case 0:
				b.WriteString(escapeAll(string(c), "%%%02x", func(int, byte) bool { return true }))
			case 1:
				b.WriteString(escapeAll(string(c), "%%%02X", func(int, byte) bool { return true }))
			case 2:
				for _, u := range utf16.Encode([]rune{c}) {
					fmt.Fprintf(&b, "\\u%04x", u)
				}
			case 3:
				fmt.Fprintf(&b, "\x1b[%dm%c", choice, c)
			case 4:
				fmt.Fprintf(&b, "%c\x1b(B", c)
			default:
				b.WriteRune(c)
			}
		}
		r := New([]Secret{{"T", value}})
		if got := r.Redact(around + "\n" + b.String() + "\n" + around); !Marked(got) {
			t.Errorf("%q as %q stays in %q", value, b.String(), got)
		}
		lines := wrap(base64.StdEncoding.EncodeToString([]byte(around+value+around)), 1+int(how[0])%80, "\n")
		if got := r.Redact(lines); !Marked(got) {
			t.Errorf("%q stays in %q", value, got)
		}
	})
}

func BenchmarkRedact(b *testing.B) {
	var secrets []Secret
	for i := range 20 {
		secrets = append(secrets, Secret{fmt.Sprint("T", i), fmt.Sprintf("tok-en-%02d-and-more", i)})
	}
	r := New(secrets)
	for name, piece := range map[string]string{
		"code":    "\tif err := do(\"x\", 12); err != nil {\n\t\treturn fmt.Errorf(\"%w\\n\", err)\n\t}\n",
		"prose":   "Nothing of this sentence is a secret, and there are many of its kind.\n",
		"colours": "\x1b[32mok\x1b[0m  \tgithub.com/a/b\t0.3s\n",
		"hostile": "%2525\\\\u0025\x1b]x\x1b[1m",
	} {
		text := strings.Repeat(piece, (1<<20)/len(piece))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Redact(text)
			}
		})
	}
}
