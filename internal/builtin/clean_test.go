//go:build unix

package builtin

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/toolyard/toolyard/tool"
)

const secretOfTest = "hunter2-hunter2-hunter2"

// TestNoHalfASecret: a line that is cut shows no part of a secret, wherever the secret stands across the cut.
func TestNoHalfASecret(t *testing.T) {
	b := newBench(t)
	b.env.Redact = func(text string) string { return strings.ReplaceAll(text, secretOfTest, "[redacted]") }
	for _, char := range []string{"x", "é", "😀"} {
		for _, c := range []struct {
			tool  string
			limit int
			ask   in
			lead  string // in each line, before the secret
			back  int    // how much of the secret may stand before the cut
		}{
			{"read_file", MaxLineChars, in{"file_path": "f"}, "", len(secretOfTest)},
			{"grep", MaxGrepLineChars, in{"pattern": "^", "path": "f"}, "", len(secretOfTest)},
		} {
			for before := 0; before <= c.back; before++ {
				b.put("f", strings.Repeat(char, c.limit-before)+secretOfTest+strings.Repeat(char, 100)+"\n")
				if text := b.ok(c.tool, c.ask); strings.Contains(text, secretOfTest[:4]) && before >= 4 &&
					!strings.Contains(text, secretOfTest) {
					t.Fatalf("%s, %d characters before the cut: …%s", c.tool, before, text[len(text)-60:])
				}
			}
		}
		// grep also cuts before the match
		for after := 1; after < 200; after++ {
			b.put("f", strings.Repeat(char, MaxGrepLineChars)+secretOfTest+strings.Repeat(char, after)+"MATCH\n")
			text := b.ok("grep", in{"pattern": "MATCH", "path": "f"})
			if strings.Contains(text, "hunter2") || !strings.Contains(text, "MATCH") {
				t.Fatalf("grep, a match %d characters behind: %s", after, text)
			}
		}
		b.put("f", strings.Repeat(char, MaxGrepLineChars)+secretOfTest+"\n")
		if text := b.ok("grep", in{"pattern": "hunter2-hunter2", "path": "f"}); strings.Contains(text, "hunter2") {
			t.Fatalf("grep for the secret: %s", text)
		}
	}
	b.put("f", strings.Repeat("a b ", MaxGrepLineChars/4-2)+secretOfTest+"\n")
	_, err := b.tools["edit_file"].Run(t.Context(), b.env, encode(in{"file_path": "f",
		"old_string": strings.Repeat("a b ", MaxGrepLineChars/4-2) + "other", "new_string": "x"}))
	if e := tool.AsError(errors.Join(err)); err == nil || strings.Contains(e.Message, "hunter2") ||
		!strings.Contains(e.Message, "most like it") {
		t.Errorf("edit_file: %v", err)
	}
}

// TestNoHalfASecretAmongMany: secrets that are taken out make a text shorter, so that the end of what was looked at
// comes into view. Nothing is shown of a secret that is cut there.
func TestNoHalfASecretAmongMany(t *testing.T) {
	b := newBench(t)
	b.env.Redact = func(text string) string { return longSecret.ReplaceAllString(text, "[redacted]") }
	for _, digits := range []int{30, 300, 1_500} {
		secret := "<" + strings.Repeat("7", digits) + ">"
		for _, between := range []string{",", ", é", strings.Repeat("word ", 5)} {
			line := strings.Repeat(secret+between, 100_000/len(secret))
			b.put("f", line+"\n")
			b.put("g", line+"MATCH"+between+line+"\n")
			for name, text := range map[string]string{
				"read_file":           b.ok("read_file", in{"file_path": "f"}),
				"grep":                b.ok("grep", in{"pattern": "MATCH", "path": "g"}),
				"grep from the start": b.ok("grep", in{"pattern": "^", "path": "g"}),
			} {
				if strings.Contains(text, "77") {
					t.Errorf("%s, secrets of %d digits: %s", name, digits, text)
				}
				if !strings.Contains(text, "[redacted]") || name == "grep" && !strings.Contains(text, "MATCH") {
					t.Errorf("%s, secrets of %d digits, shows no place of them: %s", name, digits, text)
				}
			}
		}
	}
}

var longSecret = regexp.MustCompile(`<7{30,}>`)

// TestAround: without a redactor a long line is cut around the match as with one that finds nothing.
func TestAround(t *testing.T) {
	for n := range 300 {
		text := strings.Repeat("é", n) + "MATCH" + strings.Repeat("z", 300-n)
		find := func(s string) int { return strings.Index(s, "MATCH") }
		plain, left, right := cleaner(nil).around(text, find(text), 20, 50, find)
		got, l, r := cleaner(func(s string) string { return s }).around(text, find(text), 20, 50, find)
		if got != plain || l != left || r != right {
			t.Fatalf("%d: %q %t %t, and %q %t %t", n, plain, left, right, got, l, r)
		}
		if want := fmt.Sprint(n > 30, n < 275); fmt.Sprint(left, right) != want || !strings.Contains(plain, "MATCH") {
			t.Fatalf("%d: %q %t %t", n, plain, left, right)
		}
	}
}
