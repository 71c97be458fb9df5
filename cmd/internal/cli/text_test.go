package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestHuman(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 900: "0 ms", time.Microsecond: "1 µs", 370 * time.Microsecond: "370 µs",
		999_600 * time.Nanosecond: "1.0 ms", 2584 * time.Microsecond: "2.6 ms", 9_960 * time.Microsecond: "10 ms",
		123 * time.Millisecond: "123 ms", 999_600 * time.Microsecond: "1.0 s", 1234 * time.Millisecond: "1.2 s",
		12 * time.Second: "12 s", 59_700 * time.Millisecond: "1 min 0 s", 125 * time.Second: "2 min 5 s",
		3*time.Hour + 4*time.Minute: "3 h 4 min", 72 * time.Hour: "3 days", -time.Second: "-1.0 s",
	} {
		if got := Human(d); got != want {
			t.Errorf("Human(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "one": "one", "one two three": "one two|three", "a much-too-long-word b": "a|much-too-long-word|b",
		"  öäü  öäü öä": "öäü öäü|öä",
	} {
		if got := strings.Join(Wrap(in, 8), "|"); got != want {
			t.Errorf("Wrap(%q) = %q, want %q", in, got, want)
		}
	}
	text := "one two\nthree\n\n  as it\n    is\nfour"
	if got := Reflow(text, 9); got != "one two\nthree\n\n  as it\n    is\nfour" {
		t.Errorf("Reflow: %q", got)
	}
	if got := Reflow("  word  its text that is long\n  a longer line of an example", 24); got !=
		"  word  its text that is\n        long\n  a longer line of an\n  example" {
		t.Errorf("Reflow: %q", got)
	}
	if got := Reflow(text, 80); got != "one two three\n\n  as it\n    is\nfour" {
		t.Errorf("Reflow: %q", got)
	}
}

// TestTable: columns are as wide as what is in them, whatever its colour, and the last one is wrapped between words.
func TestTable(t *testing.T) {
	p := Paint{on: true}
	rows := [][]Cell{{{Text: "a", Paint: p.Good}, {Text: "bbb"}, {Text: "some words that are wrapped"}},
		{{Text: "äöü"}, {Text: ""}, {Text: ""}}, {{Text: "one cell"}}}
	want := "  \x1b[32ma\x1b[0m    bbb  some words that are\n            wrapped\n  äöü\n  one cell\n"
	if got := Table(rows, "  ", 32); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestColor: colours are for terminals, unless somebody says otherwise.
func TestColor(t *testing.T) {
	var c Color
	if got := c.For(&bytes.Buffer{}).Bad("x"); got != "x" {
		t.Errorf("what is no terminal gets %q", got)
	}
	t.Setenv("NO_COLOR", "1")
	if err := c.Set("always"); err != nil || c.For(&bytes.Buffer{}).Bad("x") != "\x1b[31mx\x1b[0m" {
		t.Errorf("always: %q, %v", c.For(&bytes.Buffer{}).Bad("x"), err)
	}
	if err := c.Set("never"); err != nil || c.For(os.Stdout).Bad("x") != "x" {
		t.Errorf("never: %v", err)
	}
	if err := c.Set("sometimes"); err == nil || c.String() != "never" {
		t.Errorf("sometimes: %v", err)
	}
}

func TestShortIDs(t *testing.T) {
	in := "claimed by default.worker-01a1ffbe-8b20-73de-9775-9db112e2296a, attempt 1"
	if got := ShortIDs(in); got != "claimed by default.worker-…12e2296a, attempt 1" {
		t.Error(got)
	}
	if got := ShortIDs("turn-17"); got != "turn-17" {
		t.Error(got)
	}
	if n := utf8.RuneCountInString(ShortIDs(in)); n > 60 {
		t.Error(n)
	}
}
