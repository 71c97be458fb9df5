package tokens

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCount: the counts are those of js-tiktoken 1.0.21 for o200k_base, in all goroutines at a time.
func TestCount(t *testing.T) {
	count := New()
	var all sync.WaitGroup
	for text, want := range map[string]int{"": 0, "hello world": 2, "tiktoken is great!": 6, "\n\n\n": 1,
		"func main() {\n\tfmt.Println(\"hi\")\n}\n": 10, strings.Repeat("a", 64): 8, "お誕生日おめでとう": 8, "<|endoftext|>": 7,
		"The year 2026 isn't over: 12,345.67 €\r\n": 16, "    if x == nil { return }": 8, strings.Repeat("=", 300): 5,
		strings.Repeat(" ", 1000) + "x": 10, "𝕏 naïve façade 漢字仮名交じり": 15,
	} {
		all.Go(func() {
			if got := count(text); got != want {
				t.Errorf("%q has %d tokens, want %d", text, got, want)
			}
		})
	}
	all.Wait()
}

// TestCountOfWhiteSpace: a megabyte of lines without words is counted in about a second. When the time grows with the
// square of the length it is many minutes, on a machine that does nothing else.
func TestCountOfWhiteSpace(t *testing.T) {
	count, counted := New(), make(chan int, 1)
	go func() { counted <- count(strings.Repeat(" \n", 1<<19)) }()
	select {
	case n := <-counted:
		if n < 1 || n > 1<<20 {
			t.Errorf("a megabyte has %d tokens", n)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("a megabyte of lines without words was not counted in two minutes")
	}
}

// TestCutSpace: no run of white space is longer than what is counted together, and nothing else is cut.
func TestCutSpace(t *testing.T) {
	for name, in := range map[string]struct {
		text string
		want int
	}{
		"empty":         {"", 0},
		"words":         {strings.Repeat("a ", maxSpace), 2 * maxSpace},
		"a short run":   {"x" + strings.Repeat("\n", maxSpace) + "x", maxSpace + 2},
		"a long run":    {"x" + strings.Repeat(" \n", maxSpace), maxSpace + 1},
		"whole runes":   {strings.Repeat("\u3000", maxSpace), (maxSpace + 2) / 3 * 3},
		"behind a rune": {"語" + strings.Repeat("\n", maxSpace) + "x", maxSpace + 4},
	} {
		if got := cutSpace(in.text); got != in.want {
			t.Errorf("%s: cut at %d, want %d", name, got, in.want)
		}
	}
}

// FuzzCount: no text has more tokens than bytes, which is what callers rely on who do not count short texts.
func FuzzCount(f *testing.F) {
	for _, text := range []string{"", "a", "漢字", "\xff\xfe", "a\xc3", strings.Repeat(" ", 300), "'s 'T \r\n\u2028"} {
		f.Add(text)
	}
	count := New()
	f.Fuzz(func(t *testing.T, text string) {
		if n := count(text); n > len(text) || n == 0 && text != "" {
			t.Errorf("%q has %d tokens in %d bytes", text, n, len(text))
		}
	})
}
